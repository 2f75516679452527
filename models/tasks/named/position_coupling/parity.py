"""Parity of a bit string, with the scratchpad of running parities (Position Coupling, ICLR 2025, section 3).

``$0101=0110$``: the k-th scratchpad bit is the parity of the first k bits of the query, and the last is the answer.
Bits are written as they are read, from left to right. Without the scratchpad only the answer follows: ``$0101=0$``.

Position ids: query 2, 3, ..., '=' 1, scratchpad 2, 3, ... (the paper's ``234512345``), so that the k-th bit of the
query and the k-th of the scratchpad share an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.given_problems import problem_list
from models.tasks.machines.automata import Automaton
from models.tasks.machines.automaton_machines import machine_of_automaton
from models.tasks.machines.column_machines import Cell
from models.tasks.machines.machine import Machine
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.named.position_coupling.written_numbers import Counts, Digits, Lengths, Segments, places
from models.tasks.roles import Role

VOCABULARY = "01=$"
EQUALS, DOLLAR = 2, 3


class Parity(SequenceTask):
    """Parity of ``n_bits`` bits; a problem is one operand, and its "columns" are the bits from left to right."""

    name = "parity"
    vocabulary = VOCABULARY
    operator = ""
    base = 2
    n_operands = 1
    n_position_levels = 1
    example = "0101"

    @typed
    def __init__(self, n_bits: int = 4, scratchpad: bool = True, max_bits: int | None = None):
        if n_bits < 1:
            raise UserError(f"Parity takes at least one bit, not {n_bits}.")
        if max_bits is not None and n_bits > max_bits:
            raise UserError(f"This model takes at most {max_bits} bits, not {n_bits}.")
        self.n_digits, self.scratchpad, self.max_bits = n_bits, scratchpad, max_bits
        self.shape, self.shape_text = (n_bits,), f"{n_bits} uniform bits"
        self.response_pattern = "[01]*" if scratchpad else "[01]?"

    def at(self, *shape: int) -> Parity:
        return Parity(*shape, scratchpad=self.scratchpad, max_bits=self.max_bits)

    # A problem's text is the bit string itself: leading zeros count, so it is kept as bits and not as a number.

    def _bits(self, problems: Any) -> list[list[int]]:
        rows = []
        for problem in problem_list(problems, f"some such as '{self.example}'", tuples=False):
            if not isinstance(problem, str):
                raise UserError(f"{problem!r} is not a problem of {self.name}; write it like '{self.example}'.")
            rows.append([int(bit) for bit in self.notation.read(problem)[0]])
        return rows

    def shape_of(self, numbers: Sequence[int]) -> tuple[int, ...]:
        raise UserError("A parity problem is text such as '0101': a number does not say how many bits it has.")

    def for_problems(self, problems: Any) -> Parity:
        if isinstance(problems, (Tensor, np.ndarray)) and problems.ndim == 3:
            return self
        return self.at(max(len(bits) for bits in self._bits(problems)))

    def as_problems(self, problems: Any) -> Int[Tensor, "n 1 bit"]:
        """Bits from left to right, [n, 1, n_bits], from text or from such a tensor."""
        if isinstance(problems, (Tensor, np.ndarray)) and problems.ndim == 3:
            return super().as_problems(problems)
        rows = self._bits(problems)
        for bits in rows:
            if len(bits) != self.n_digits:
                raise UserError(f"A problem of this shape has {self.n_digits} bits, not {len(bits)}.")
        return torch.tensor(rows)[:, None]

    def numbers(self, problems: Any) -> list[tuple[int, ...]]:
        """The bits of each problem, from left to right; as one number they would lose their leading zeros."""
        return [tuple(bits) for bits in self.as_problems(problems)[:, 0].tolist()]

    def segments(self, digits: Digits, n_operands: Counts = None, n_digits: Lengths = None) -> Segments:
        rows, _, bits = digits.shape
        device = digits.device
        width = torch.full((rows,), bits, device=device) if n_digits is None else n_digits[:, 0]
        digits = digits * (torch.arange(bits, device=device) < width[:, None])[:, None]
        running = digits.cumsum(2) % 2
        answer = torch.nn.functional.pad(running[:, :, -1:], (0, bits - 1))
        response = running if self.scratchpad else answer
        ones = torch.ones_like(width)
        each = lambda *values: torch.stack(values, 1)  # noqa: E731
        return Segments(
            numbers=torch.cat((digits, response), 1),
            number=each(0 * ones, ones),
            width=each(width, width if self.scratchpad else ones),
            downwards=torch.zeros(rows, 2, dtype=torch.bool, device=device),
            delimiter=each(EQUALS * ones, DOLLAR * ones),
            used=torch.ones(rows, 2, dtype=torch.bool, device=device),
            first_response=ones,
        )

    def segment_role(self, segment: int, column: int) -> Role:
        if segment == 0:
            return Role("delimiter", "=") if column < 0 else Role("operand", f"x[{column}]", column, 1)
        if column < 0:
            return Role("eos", "EOS")
        last = self.n_digits - 1 if self.scratchpad else 0
        return Role("answer" if column == last else "scratchpad", f"p[{column}]", column, 1)

    def position_ids(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos level"]:
        digit = tokens < EQUALS
        back, _ = places(tokens, ~digit)
        return torch.where(tokens == DOLLAR, 0, torch.where(digit, back + 1, 1))[..., None]

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int | None]:
        """The answer bit: the last token before EOS."""
        if answer_tokens.shape[-1] < 2:
            raise UserError(f"An answer of {self.name} is a bit or more and EOS, not {answer_tokens.shape[-1]} token.")
        return torch.as_tensor(answer_tokens)[:, -2].tolist()

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n bit"]]:
        """bit: the query; parity: the running parity up to and including each bit; before: up to the previous."""
        bits = self.as_problems(problems)[:, 0]
        running = bits.cumsum(1) % 2
        return {"bit": bits, "parity": running, "before": (running - bits) % 2}

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """How many ones the query has: the number of times the running parity flips."""
        return self.as_problems(problems).sum((1, 2))

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """What running parity k needs: query bit k ("own bit") and running parity k - 1 ("previous output")."""
        role, query = self.target_roles[target], self.query_positions[target]
        groups: dict[str, list[int]] = {"own bit": [], "previous output": []}
        if role.column is not None:
            if self.scratchpad:
                groups["own bit"] = [self.position_of(0, role.column)]
                groups["previous output"] = [self.position_of(1, role.column - 1)] if role.column else []
            else:
                groups["own bit"] = [self.position_of(0, k) for k in range(self.n_digits)]
        return self._with_rest(groups, query)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 1 bit"]:
        """Uniform bits."""
        return torch.randint(2, (n, 1, self.n_digits), generator=generator, device=generator.device)

    @cached_property
    def domain(self) -> Domain:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All strings; the first bit counts as the highest."""
        return replace(super().domain, from_left=True)

    @property
    def kind_of_problems(self) -> str:
        return f"strings of {self.n_digits} bits"

    # ---- small memory

    def derived_machine(self) -> Machine:
        cells = [Cell("x", k, (0, 1), self.digit_slots(0, k)[-1], k) for k in range(self.n_digits)]
        written = [self.digit_slots(1, k) for k in range(self.n_digits if self.scratchpad else 1)]
        flips = lambda state, bit: (state + bit) % 2  # noqa: E731
        automaton = Automaton(flips, None, flips, name="parity") if self.scratchpad else Automaton(flips, lambda s: s)
        sizes, origin = (self.input_length, len(self.query_positions)), torch.zeros(1, self.n_digits, dtype=torch.int64)
        fixed = self.fixed_slots()
        return machine_of_automaton(replace(automaton, name="parity"), cells, written, (0, 1), fixed, sizes, origin)
