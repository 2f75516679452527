"""Multi-operand addition with the cumulative scratchpad (Position Coupling, ICLR 2025, section 4).

``$057+048+096=000>750>501>102$``: operands a_1 ... a_m, then the running sums b_0 = 0, b_1, ..., b_m, digits reversed.
Every number is zero-padded to ``l = n + 1 + floor(log10 m)`` digits, the most that the sum of m numbers of n digits
needs. Other formats leave out the scratchpad or the padding, reverse the query, do not reverse the response
(Figure 14), or begin the scratchpad with b_1, the first operand (footnote 3).

Position ids (equations 1 and 2, with both offsets s_1 = s_2 = 1): level 1 is the significance, 2 for the units digit
and 1 for the delimiters; level 2 counts the numbers, so that a_i and b_{i-1}, which are added, share an id. ``>`` in
front of b_i has the id of b_i, ``=`` that of the first of them, and ``$`` has 0. Without the scratchpad there is only
level 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import Place
from models.calls.bound_arguments import check_fields, checked_method, typed
from models.errors import UserError
from models.tasks.altered_tasks import altered
from models.tasks.columns.long_carries import sums_with_long_carries
from models.tasks.columns.schoolbook import schoolbook
from models.tasks.domain import Domain
from models.tasks.machines.affine_cases import Affine
from models.tasks.machines.column_machines import AnswerCase, AnswerNumber, Cell, ColumnGraph
from models.tasks.machines.machine import Machine
from models.tasks.machines.machine_of import LOOKED_AT, compare
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.named.position_coupling.written_numbers import (
    Counts,
    Digits,
    Lengths,
    Segments,
    places,
    propagate_carries,
)
from models.tasks.number_digits import significant_digits, spelt_numbers, to_digits, to_number
from models.tasks.roles import Role

VOCABULARY = "0123456789+=>$"  # the order of the paper's appendix D
PLUS, EQUALS, ARROW, DOLLAR = range(10, 14)


@dataclass(frozen=True)
class AdditionFormat:
    """How a sum is written. The paper's baseline is the default; its Figure 14 varies the three fields after the first,
    and its footnote 3 the last."""

    scratchpad: bool = True
    zero_padding: bool = True
    reversed_query: bool = False
    reversed_response: bool = True
    zero_start: bool = True  # the scratchpad begins with b_0 = 0; otherwise with b_1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.reversed_query and not self.reversed_response:
            raise UserError("A reversed query goes with a reversed response: the paper's six formats exclude the rest.")
        if not (self.scratchpad or self.zero_start):
            raise UserError("Only a scratchpad has a start: zero_start=False goes with scratchpad=True.")


def padded_length(n_digits: int, n_operands: int) -> int:
    """``l = n + 1 + floor(log10 m)`` digits, which are enough for the sum of m numbers of n digits."""
    return n_digits + len(str(n_operands))


class MultiOperandAddition(SequenceTask):
    """Addition of ``n_operands`` numbers of up to ``n_digits`` digits."""

    name = "multi-operand-addition"
    vocabulary = VOCABULARY
    operator = "+"
    example = "57+48+96"

    @typed
    def __init__(
        self,
        n_operands: int = 3,
        n_digits: int = 2,
        format: AdditionFormat | None = None,
        max_operands: int | None = None,
        max_digits: int | None = None,
    ):
        """``max_operands`` and ``max_digits`` are the model's limits; larger shapes are refused."""
        if n_operands < 1 or n_digits < 1:
            raise UserError(f"Addition takes at least one operand of one digit, not {n_operands} of {n_digits}.")
        if max_operands is not None and n_operands > max_operands:
            raise UserError(f"This model adds at most {max_operands} operands, not {n_operands}.")
        if max_digits is not None and n_digits > max_digits:
            raise UserError(f"This model adds operands of at most {max_digits} digits, not {n_digits}.")
        self.n_operands, self.n_digits, self.format = n_operands, n_digits, format or AdditionFormat()
        self.max_operands, self.max_digits = max_operands, max_digits
        self.length = padded_length(n_digits, n_operands)
        self.shape = n_operands, n_digits
        self.shape_text = f"T_A({n_digits} digits, {n_operands} operands)"
        self.first_step = 0 if self.format.zero_start else 1  # the response begins with this running sum
        if not self.format.scratchpad:
            self.first_step = n_operands
        self.n_position_levels = 2 if self.format.scratchpad else 1
        self.has_fixed_layout = self.format.zero_padding
        self.response_pattern = r"(\d+>)*\d*" if self.format.scratchpad else r"\d*"

    # ---- shape

    def at(self, n_operands: int, n_digits: int) -> MultiOperandAddition:
        return MultiOperandAddition(n_operands, n_digits, self.format, self.max_operands, self.max_digits)

    def shape_of(self, numbers: Sequence[int]) -> tuple[int, int]:
        return len(numbers), max(len(to_digits(number)) for number in numbers)

    # ---- sequences

    def segments(self, digits: Digits, n_operands: Counts = None, n_digits: Lengths = None) -> Segments:
        rows, operands, columns = digits.shape
        device, form = digits.device, self.format
        m = torch.full((rows,), operands, device=device) if n_operands is None else n_operands
        counts = torch.arange(operands, device=device) < m[:, None]
        longest = torch.full((rows,), columns, device=device) if n_digits is None else (n_digits * counts).amax(1)
        digits = digits * counts[..., None]
        sums = propagate_carries(digits.cumsum(1), columns + len(str(operands)))
        room = torch.zeros(rows, operands, sums.shape[2] - columns, dtype=digits.dtype, device=device)
        zero = torch.zeros_like(sums[:, :1])
        numbers = torch.cat((torch.cat((digits, room), 2), zero, sums), 1)  # a_1 .. a_M, b_0 .. b_M

        first = torch.full_like(m, self.first_step) if form.scratchpad else m
        steps = m + 1 - first  # numbers in the response
        index = torch.arange(int((m + steps).max()), device=device).expand(rows, -1)
        in_query = index < m[:, None]
        step = index - m[:, None] + first[:, None]
        number = torch.where(in_query, index, operands + step).clamp(max=2 * operands)
        used = index < (m + steps)[:, None]
        if form.zero_padding:
            decades = torch.zeros_like(m)
            for power in range(1, len(str(operands))):
                decades = decades + (m >= 10**power).long()
            width = (longest + 1 + decades)[:, None].expand_as(index)
        else:
            width = significant_digits(numbers).gather(1, number)
        downwards = in_query & (not form.reversed_query) if form.reversed_response else torch.ones_like(in_query)
        last = (m + steps)[:, None] - 1
        after_query = torch.where(index == m[:, None] - 1, EQUALS, PLUS)
        after_response = torch.where(index == last, DOLLAR, ARROW)
        return Segments(
            numbers=numbers,
            number=number,
            width=width,
            downwards=downwards,
            delimiter=torch.where(in_query, after_query, after_response),
            used=used,
            first_response=m,
        )

    def segment_role(self, segment: int, column: int) -> Role:
        m = self.n_operands
        if segment < m:
            if column < 0:
                return Role("delimiter", "=" if segment == m - 1 else "+", index=segment + 1)
            return Role("operand", f"a{segment + 1}[{column}]", column, segment + 1)
        step = segment - m + self.first_step
        if column < 0:
            return Role("eos", "EOS") if step == m else Role("delimiter", ">", index=step + 1)
        return Role("answer" if step == m else "scratchpad", f"b{step}[{column}]", column, step)

    @checked_method
    def operand_position(self, operand: Place, column: Place) -> int:
        """The position of digit ``column`` of a_operand (operands count from 1)."""
        return self.position_of(operand - 1, column)

    @checked_method
    def step_position(self, step: Place, column: Place) -> int:
        """The position of digit ``column`` of b_step (b_0 is the zeros); column -1 is the delimiter after it.

        Raises:
            UserError: a running sum that this format does not write.
        """
        if step < self.first_step:
            raise UserError(f"The response begins with b_{self.first_step}; there is no b_{step} in it.")
        return self.position_of(self.n_operands + step - self.first_step, column)

    def position_ids(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos level"]:
        """Position ids by equations 1 and 2 with offsets 1, from the tokens alone.

        A number written from its most significant digit gets its ids by looking ahead to its delimiter. While a
        response that is not reversed is being decoded, the width is that of the padding or, without padding, that of
        the running sum, computed from the query; such ids tell the model how long its answer will be.
        """
        digit = tokens < PLUS
        is_mark = ~digit
        back, ahead = places(tokens, is_mark)
        after = (tokens == EQUALS).long().cumsum(1) - (tokens == EQUALS).long() > 0  # strictly after '='
        in_response = after | (tokens == EQUALS)
        form = self.format
        skipped = self.first_step if form.scratchpad else 0
        step = torch.where(in_response, (tokens == ARROW).long().cumsum(1) + skipped, 0)
        upwards = form.reversed_response
        response = 1 + back if upwards else 2 + self._widths_ahead(tokens, after, step, digit) - back
        query = 1 + (back if form.reversed_query else ahead)
        level1 = torch.where(after & digit, response, torch.where(digit, query, 1)).clamp(min=1)
        plus_before = (tokens == PLUS).long().cumsum(1) - (tokens == PLUS).long()
        level2 = 1 + torch.where(in_response, step, plus_before)
        special = tokens == DOLLAR
        levels = (level1, level2) if form.scratchpad else (level1,)
        return torch.stack([level.masked_fill(special, 0) for level in levels], -1)

    def _widths_ahead(self, tokens: Tensor, after: Tensor, step: Tensor, digit: Tensor) -> Tensor:
        """The width of the number that each response token belongs to, known before the number is written."""
        query_digit = digit & ~after & ((tokens == EQUALS).any(1, keepdim=True))
        operand = ((tokens == PLUS) & ~after).long().cumsum(1)
        if self.format.zero_padding:
            first = (query_digit & (operand == 0)).sum(1, keepdim=True)
            return first.expand_as(tokens)
        rows = []
        for row in range(len(tokens)):
            text = [self.vocabulary[token] for token in tokens[row].tolist()]
            query = "".join(text).partition("=")[0].strip("$").split("+")
            if self.format.reversed_query:
                query = [number[::-1] for number in query]
            total, widths = 0, [1]
            for number in query:
                total += to_number([int(c) for c in reversed(number)]) if number.isdigit() else 0
                widths.append(len(to_digits(total)))
            if not self.format.scratchpad:
                widths = widths[-1:]
            known = torch.tensor(widths, device=tokens.device)
            rows.append(known[step[row].clamp(max=len(widths) - 1)])
        return torch.stack(rows)

    # ---- ground truth

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int | None]:
        """The final number b_m of each row of answer tokens (all targets, or its digits alone)."""
        digits = torch.as_tensor(answer_tokens)
        digits = digits[:, -self.length - 1 : -1] if digits.shape[1] > self.length else digits
        return spelt_numbers(digits if self.format.reversed_response else digits.flip(1))

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n step column"]]:
        """Schoolbook addition of a_i and b_{i-1} for every step i = 1 .. m, [n, m, l] each.

        Names as in :func:`models.tasks.columns.schoolbook.schoolbook`; ``a`` is the operand, ``b`` the running sum
        before.
        """
        digits = self.as_problems(problems)
        sums = propagate_carries(digits.cumsum(1), self.length)
        operand = torch.nn.functional.pad(digits, (0, self.length - self.n_digits))
        before = torch.cat((torch.zeros_like(sums[:, :1]), sums[:, :-1]), 1)
        return schoolbook(operand, before)

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """Columns that the longest-travelling carry of any step passes."""
        return self.variables(problems)["chain"].amax((1, 2))

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """Positions (up to the query's own) by their meaning to one target; every one in one group.

        For digit k of b_i the algorithm needs digit k of a_i and b_{i-1} ("own operand", "own running sum"), and for
        the carry digit k - 1 of both ("previous operand", "previous running sum") and of b_i itself, the query's own
        token ("previous output"). Without the scratchpad it needs digits k and k - 1 of all operands.
        """
        role, query = self.target_roles[target], self.query_positions[target]
        groups: dict[str, list[int]] = {
            name: []
            for name in (
                "own operand",
                "own running sum",
                "previous operand",
                "previous running sum",
                "previous output",
            )
        }
        column, step = role.column, role.index
        if column is not None and step is not None:
            for name, k in (("own", column), ("previous", column - 1)):
                if not 0 <= k < self.length:
                    continue
                if not self.format.scratchpad:
                    groups[f"{name} operand"] = [self.operand_position(i, k) for i in range(1, self.n_operands + 1)]
                elif step > 0:
                    groups[f"{name} operand"] = [self.operand_position(step, k)]
                    if step > self.first_step:
                        groups[f"{name} running sum"] = [self.step_position(step - 1, k)]
            if column > 0 and self.format.reversed_response:
                groups["previous output"] = [self.step_position(step, column - 1)]
        return self._with_rest(groups, query)

    def needed_positions(self, target: int) -> dict[str, list[int]]:
        """The two tokens that hold the digits to be added for one target, and the two that decide its carry.

        {"sum": [a_i[k], b_{i-1}[k]], "carry": [a_i[k-1], b_{i-1}[k-1]]}; without the scratchpad all operands' digits.
        Both are empty for delimiters and for b_0 (which is all zeros), and "carry" is empty for units digits; for b_1
        without a b_0 they have the operand alone. This is the ground truth of the paper's Figure 7. In a response that
        is not reversed the previous digit is still to come, and the two below do not decide a carry that travelled
        further.
        """
        groups = self.relative_roles(target)
        return {
            "sum": groups["own operand"] + groups["own running sum"],
            "carry": groups["previous operand"] + groups["previous running sum"],
        }

    draws_by_seed = True

    @property
    def has_long_carries(self) -> bool:
        return self.n_operands == 2

    def sample(self, n: int, generator: torch.Generator, long_carries: bool = False) -> Int[Tensor, "n operand column"]:
        """T_A(n_digits, n_operands): every operand uniform among the numbers of exactly ``n_digits`` digits. Sums of
        two numbers with long carries depend on the seed that the generator was given, and not on what it has drawn.
        """
        if long_carries and self.has_long_carries:
            return sums_with_long_carries(self.domain, n, generator.initial_seed())
        shape = (n, self.n_operands, self.n_digits)
        digits = torch.randint(10, shape, generator=generator, device=generator.device)
        if self.n_digits > 1:
            digits[..., -1] = torch.randint(1, 10, shape[:2], generator=generator, device=generator.device)
        return digits

    # ---- small memory

    def derived_machine(self) -> Machine:
        return running_sums_machine(self, self.domain)

    def machine_of_shorter(self) -> Machine:
        """The machine of numbers of at most as many digits as the shape says. They are written with zeros in front, and
        so in one layout.

        Raises:
            UserError: a task that writes them otherwise, or gives other answers.
        """
        if (own := altered(self)) is not None or not self.format.zero_padding:
            raise UserError(
                f"{self.name} with {own or 'numbers as long as they are'} has no one layout of its numbers."
            )
        machine = running_sums_machine(self, Domain.of(self.operand_lengths, self.base, n_columns=self.n_digits))
        draws = torch.Generator().manual_seed(LOOKED_AT)
        for rare in (False, True):
            compare(self, machine, machine.problems(machine.sample(LOOKED_AT, draws, rare)))
        return machine


def running_sums_machine(task: MultiOperandAddition, domain: Domain) -> Machine:
    """The sums of the first k numbers, for each k that is written, side by side in every column."""
    m, digits = task.n_operands, tuple(range(task.base))
    cells = []
    for operand, column, lowest in zip(domain.operand, domain.column, domain.lowest, strict=True):
        slot, part = task.position_of(operand, column), operand * task.n_digits + column
        cells.append(Cell(f"a{operand + 1}", column, digits[lowest:], slot, part, 1, lowest))
    cells.sort(key=lambda cell: (cell.column, cell.part))
    written, values, fixed = [], [], task.fixed_slots()
    for operand in range(m):  # the zeros in front of each number
        for column in range(task.n_digits, task.length):
            fixed.update(dict.fromkeys(task.digit_slots(operand, column), 0))
    for step in range(task.first_step, m + 1):
        places = [task.digit_slots(m + step - task.first_step, column) for column in range(task.length)]
        written.append(AnswerNumber(tuple(places), digits))
        values.append(Affine(tuple((f"a{k + 1}", 1) for k in range(step))))
    graph = ColumnGraph(cells, written, [AnswerCase(frozenset(), tuple(values))], task.base)
    sizes = task.input_length, len(task.query_positions)
    return replace(graph.machine(fixed, "carry", *sizes), origin=torch.zeros(m, task.n_digits, dtype=torch.int64))
