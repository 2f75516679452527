"""Tasks whose digits are not decimal, and models of them whose weights are set so that they add without an error.

``modular_addition`` is the task of docs/add_a_task.md, word by word; ``ColumnAddition`` adds numbers of a few digits in
any base and in either order.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.config import TransformerConfig
from models.tasks.base import Role, Task
from models.tasks.domain import Domain
from models.tasks.schoolbook import schoolbook
from models.tasks.ten_digits import as_problems, to_digits
from models.transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from tests.docs_blocks import blocks

PAGE = Path(__file__).parents[1] / "docs" / "add_a_task.md"


@cache
def page_module(title: str) -> types.ModuleType:
    """A module that the page on tasks writes."""
    (text,) = (block.text for block in blocks(PAGE.read_text()) if block.title == title and block.language == "python")
    module = types.ModuleType(title.removesuffix(".py").replace("/", "."))
    exec(compile(text, title, "exec"), module.__dict__)
    return module


def modular_addition(p: int) -> Task:
    """``a b = c``, every number one token; p is "="."""
    return page_module("models/tasks/modular.py").ModularAddition(p)


class ColumnAddition(Task):
    """``a b s`` with operands of ``digits`` digits, highest first unless ``operands_down`` is false, and the sum's
    ``digits`` + 1 digits, units first unless ``answer_down``."""

    def __init__(self, base: int, digits: int = 2, answer_down: bool = False, operands_down: bool = True):
        self.base, self.digits, self.answer_down, self.operands_down = base, digits, answer_down, operands_down
        self.name, self.d_vocab = f"base-{base}-addition", base
        self.domain = Domain.of((digits, digits), base)
        order = range(digits)[:: -1 if operands_down else 1]
        operands = [Role("operand", f"{'ab'[i]}{column}", column, i) for i in (0, 1) for column in order]
        written = range(digits + 1)[:: -1 if answer_down else 1]
        self.target_roles: Sequence[Role] = tuple(Role("answer", f"s{k}", k) for k in written)
        self.roles: Sequence[Role] = (*operands, *self.target_roles)
        self.input_length = 3 * digits
        self.query_positions: Sequence[int] = tuple(range(2 * digits - 1, 3 * digits))

    def as_problems(self, problems: Any) -> Tensor:
        return as_problems(problems, self.base**self.digits)

    def _digits(self, problems: Any, width: int) -> list[Tensor]:
        return [to_digits(number, width, self.base) for number in self.as_problems(problems).unbind(1)]

    def encode_prompt(self, problems: Any) -> Tensor:
        both = self._digits(problems, self.digits)
        return torch.cat([digits.flip(1) if self.operands_down else digits for digits in both], 1)

    def encode(self, problems: Any) -> Tensor:
        return torch.cat((self.encode_prompt(problems), self.targets(problems)[:, :-1]), 1)

    def targets(self, problems: Any) -> Tensor:
        answer = to_digits(self.as_problems(problems).sum(1), self.digits + 1, self.base)
        return answer.flip(1) if self.answer_down else answer

    def decode(self, answer_tokens: Tensor) -> list[int]:
        answer_tokens = answer_tokens.flip(1) if self.answer_down else answer_tokens
        return (answer_tokens * self.base ** torch.arange(self.digits + 1)).sum(1).tolist()

    def variables(self, problems: Any) -> dict[str, Tensor]:
        return schoolbook(*self._digits(problems, self.digits + 1), self.base)

    def chain_length(self, problems: Any) -> Tensor:
        return self.variables(problems)["chain"].max(1).values

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        at = {(role.index, role.column): i for i, role in enumerate(self.roles[: 2 * self.digits])}
        operands = lambda column: [at[i, column] for i in (0, 1) if (i, column) in at]  # noqa: E731
        own = self.target_roles[target].column or 0
        groups = {"own operands": operands(own), "previous operands": operands(own - 1)}
        groups["previous output"] = [self.query_positions[target]] if target else []
        taken = {at for group in groups.values() for at in group}
        groups["rest"] = [at for at in range(self.query_positions[target] + 1) if at not in taken]
        return groups

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randint(self.base**self.digits, (n, 2), generator=generator, device=generator.device)

    def token_text(self, tokens: Any) -> str:
        return " ".join(str(token) for token in torch.as_tensor(tokens).reshape(-1).tolist())

    def token_id(self, text: str) -> int:
        return int(text)


def exact_adder(task: Task) -> ArithmeticTransformer:
    """One layer that is right on every problem: attention weighs operand digits by what they count, so that the head
    writes the sum, and units that switch on one after the other along it read off each answer token; margin 1.

    Dimensions: an answer token's each, the number that a token stands for, the sum, and one for each position."""
    base, n_targets = task.domain.base, len(task.query_positions)
    tokens, ctx = task.d_vocab, task.input_length
    number, total, place = tokens, tokens + 1, tokens + 2
    worth = torch.tensor([float(base ** (role.column or 0)) for role in task.roles[:ctx]])
    is_operand = torch.tensor([role.kind == "operand" for role in task.roles[:ctx]])
    largest = int(2 * worth[is_operand].max() * base)
    steps = torch.arange(-1, largest + 1)
    cfg = TransformerConfig(
        n_layers=1, d_model=tokens + 2 + ctx, n_heads=1, d_head=1, d_mlp=len(steps) * n_targets, d_vocab=tokens,
        n_ctx=ctx, act_fn="relu", normalization_type=None, attn_scale=1.0,
    )  # fmt: skip
    maps = DenseWeights(cfg, biases=True)
    w = {name.replace("/", "."): parameter for name, parameter in maps.named_parameters()}
    with torch.no_grad():
        w["embed.W_E"][:base, number] = torch.arange(base).float()
        w["pos_embed.W_pos"][:, place:] = torch.eye(ctx)
        w["blocks.0.attn.b_Q"].fill_(1.0)
        w["blocks.0.attn.W_K"][0, place:, 0] = torch.where(is_operand, worth.log(), -100.0)
        w["blocks.0.attn.W_V"][0, number, 0] = 1.0
        w["blocks.0.attn.W_O"][0, 0, total] = float(worth[is_operand].sum())
        w_in, b_in = w["blocks.0.mlp.W_in"], w["blocks.0.mlp.b_in"]
        w_out, off = w["blocks.0.mlp.W_out"], largest + 2.0
        for target, query in enumerate(task.query_positions):
            units = slice(target * len(steps), (target + 1) * len(steps))
            w_in[total, units] = 1.0
            w_in[place + query, units] = off
            b_in[units] = -off - steps.float()
            sums = torch.arange(largest + 1)
            column = task.target_roles[target].column or 0
            right = sums // base**column % base
            bumps = torch.zeros(len(sums) + 2, tokens)  # of the sums from -1 to largest + 1
            bumps[torch.arange(1, len(sums) + 1), right] = 1.0
            hats = torch.zeros(len(steps), tokens)
            for change, factor in ((0, 1.0), (1, -2.0), (2, 1.0)):
                at = torch.arange(len(steps)) - change + 1
                inside = (at >= 0) & (at < len(bumps))
                hats[inside] += factor * bumps[at[inside]]
            w_out[units, :tokens] = hats
        w["unembed.W_U"][:tokens] = torch.eye(tokens)
    return ArithmeticTransformer(maps, task, name=f"exact {task.name}")
