"""A six-token addition task, so that models of several layers can be swept over quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.tasks.domain import Domain
from models.tasks.roles import Role, with_rest
from models.tasks.task import Task

TENS = 10


class ToyAddition(Task):
    """Two-digit operands and the sum modulo 100 in ToyGPT's order, least significant answer digit first.

    Tokens a1 a0 b1 b0 s0 s1. Position ids have two levels: the digit's column (as in Position Coupling, equal for
    digits that are added to each other) and the number it belongs to.
    """

    name = "toy-addition"
    vocabulary = "0123456789"
    input_length = 6
    roles: Sequence[Role] = (
        *(Role("operand", f"{letter}{column}", column, i) for i, letter in enumerate("ab") for column in (1, 0)),
        *(Role("answer", f"s{column}", column) for column in (0, 1)),
    )
    target_roles: Sequence[Role] = roles[4:]
    query_positions: Sequence[int] = (3, 4)
    domain = Domain.of((2, 2))

    def encode(self, problems: Any) -> Tensor:
        return torch.cat((self.encode_prompt(problems), self.targets(problems)), 1)

    def encode_prompt(self, problems: Any) -> Tensor:
        pairs = self.as_problems(problems)
        return torch.stack((pairs // TENS, pairs % TENS), -1).flatten(1)

    def targets(self, problems: Any) -> Tensor:
        total = self.as_problems(problems).sum(1)
        return torch.stack((total % TENS, total // TENS % TENS), 1)

    def decode(self, answer_tokens: Tensor) -> list[int | None]:
        return (answer_tokens[:, 0] + TENS * answer_tokens[:, 1]).tolist()

    def variables(self, problems: Any) -> dict[str, Tensor]:
        units = (self.as_problems(problems) % TENS).sum(1, keepdim=True)
        return {"carry_out": (units >= TENS).long()}

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        return with_rest({"own operands": [1 - target, 3 - target]}, self.query_positions[target])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.randint(100, (n, 2), generator=generator)

    def position_ids(self, tokens: Tensor) -> Tensor:
        ids = torch.tensor([[2, 1], [1, 1], [2, 2], [1, 2], [1, 3], [2, 3]], device=tokens.device)
        return ids[: tokens.shape[1]].expand(tokens.shape[0], -1, -1)
