"""Balanced brackets: does a string of n brackets close every bracket that it opens?

Tokens are the brackets: 0 opens and 1 closes. The answer, 1 if the string is balanced, is predicted at the last one.
This is not arithmetic, but a running sum decides it: the depth ends at zero and is never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.arguments import MOST, typed, whole_numbers
from models.errors import UserError
from models.tasks.base import Role, Task
from models.tasks.domain import Domain


class BalancedBrackets(Task):
    """Strings of ``length`` brackets; a problem is one operand whose "columns" are the brackets from left to right."""

    vocabulary = "01"
    d_vocab = 2
    operator = ""

    @typed
    def __init__(self, length: int = 16):
        if not 2 <= length <= MOST:
            raise UserError(f"A string has two brackets or more, not {length}.")
        self.name, self.input_length = f"balanced-brackets-{length}", length
        self.domain = Domain.of((length,), base=2, n_columns=length)
        self.target_roles: Sequence[Role] = (Role("answer", "balanced", 0),)
        self.roles = (*(Role("operand", f"x[{i}]", i, 0) for i in range(length)), *self.target_roles)
        self.query_positions = (length - 1,)

    def as_problems(self, problems: Any) -> Int[Tensor, "n 1 length"]:
        """Brackets [n, 1, length], from such a tensor or from text."""
        if isinstance(problems, (Tensor, np.ndarray)):
            found = whole_numbers("problems", problems)
        else:
            texts = [problems] if isinstance(problems, str) else problems
            if not isinstance(texts, Iterable):
                raise UserError(f"{problems!r} is not a list of problems; give some such as '0011'.")
            rows = [list(text) if isinstance(text, Iterable) else [] for text in texts]
            if not all(len(row) == self.input_length and set(map(str, row)) <= {"0", "1"} for row in rows):
                raise UserError(f"A problem of {self.name} is {self.input_length} brackets, each 0 or 1.")
            found = torch.tensor([[int(bracket) for bracket in row] for row in rows], dtype=torch.int64)[:, None]
        if found.ndim != 3 or not self.domain.holds(found).all():
            raise UserError(f"A problem of {self.name} is {self.input_length} brackets, each 0 or 1.")
        return found.long()

    def numbers(self, problems: Any) -> list[tuple[int, ...]]:
        """The brackets of each problem."""
        return [tuple(row) for row in self.as_problems(problems)[:, 0].tolist()]

    def encode(self, problems: Any) -> Int[Tensor, "n length"]:
        return self.as_problems(problems)[:, 0]

    encode_prompt = encode

    def targets(self, problems: Any) -> Int[Tensor, "n 1"]:
        depth = self.variables(problems)["depth"]
        return ((depth[:, -1:] == 0) & (depth.amin(1, keepdim=True) >= 0)).long()

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        return torch.as_tensor(answer_tokens)[:, 0].tolist()

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n length"]]:
        """depth: how many brackets are open after each one; lowest: the least depth so far."""
        depth = (1 - 2 * self.encode(problems)).cumsum(1)
        return {"depth": depth, "lowest": depth.cummin(1).values}

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """The deepest nesting."""
        return self.variables(problems)["depth"].amax(1).clamp_min(0)

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        return self.with_rest({"first bracket": [0], "last bracket": [self.input_length - 1]}, self.input_length - 1)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 1 length"]:
        """Strings of independent uniform brackets."""
        return torch.randint(2, (n, 1, self.input_length), generator=generator, device=generator.device)
