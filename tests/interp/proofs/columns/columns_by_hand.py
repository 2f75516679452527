"""An adder and a subtractor of any number of digits, set by hand: two heads, and an MLP that tells whether to carry.

Head 0 reads the first number, head 1 the second: each weighs the digit of the query's own column ten times as much as
that of the column before. The stream's direction ``LEVEL`` then holds, with the digit w that was written last,

    x + sign y + (x' + sign y' - w) / 10,     which is within 0.1 of x + sign y + sign carry,

and where that is no digit, the MLP takes ten off a sum or adds ten to a difference. Logit d is ``2 d level - d^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import weight_shapes
from models.weight_maps.dense import DenseWeights

VALUE, LEVEL, ONE, FIRST = 0, 1, 2, 3  # dimensions of the stream; from FIRST on: a column each, then the two numbers
SHARP = 40.0  # scores of the keys that are read are this much above those of any other

Weights = dict[str, torch.Tensor]


def column_task(
    digits: int, subtracts: bool, end: str = "", written: int | None = None, signed: bool = False
) -> FormattedTask:
    written = written or digits + (signed or not subtracts)
    format = f"{{a:{digits}r}}{'-' if subtracts else '+'}{{b:{digits}r}}={{s:{written}r}}{end}"
    if signed:
        return formatted(format, f"(a - b) % 10**{digits} + 10**{digits} * (a < b)", variables="complement")
    if subtracts:
        return formatted(format, "a - b", where="a >= b", variables="subtraction")
    return formatted(format, "a + b", variables="addition")


def by_hand(
    digits: int, subtracts: bool = True, change: Callable[[Weights], None] | None = None, signed: bool = False
) -> ArithmeticTransformer:
    """The model, with its weights changed in place by ``change``; a ``signed`` one shows the borrow that is left."""
    task, sign = column_task(digits, subtracts, signed=signed), -1 if subtracts else 1
    columns = digits + 2  # -1, ..., digits; the delimiters stand for the first and the last, which have no digits
    d, e = FIRST + columns + 2, columns + 2
    config = TransformerConfig(
        n_layers=1, d_model=d, n_heads=2, d_head=e, d_mlp=2, d_vocab=task.d_vocab, n_ctx=task.input_length,
        act_fn="relu", normalization_type=None, attn_scale=1.0,
    )  # fmt: skip
    z = {name: torch.zeros(shape) for name, shape in weight_shapes(config).items()}
    z["embed.W_E"][:10, VALUE] = torch.arange(10.0)
    z["embed.W_E"][:10, LEVEL] = -torch.arange(10.0) / 10
    at = z["pos_embed.W_pos"]
    at[:, ONE] = 1
    for position, role in enumerate(task.roles[: task.input_length]):
        column, number = role.column, role.index
        if role.kind == "delimiter":
            column, number = -1, int(role.label == "=")
        assert column is not None
        at[position, FIRST + 1 + column] = 1
        if role.kind != "answer":
            at[position, FIRST + columns + (number or 0)] = 1
        if role.kind == "delimiter":
            at[position, FIRST + 1 + digits] = 1
    for head in (0, 1):
        q = z["blocks.0.attn.W_Q"][head]
        for column in range(-1, digits):  # what stands in a column asks for the next one, and for itself
            q[FIRST + 1 + column, 2 + column] = SHARP
            q[FIRST + 1 + column, 1 + column] = SHARP - math.log(10)
        q[ONE, columns + head] = SHARP
        z["blocks.0.attn.W_K"][head][FIRST:, :] = torch.eye(e)
        z["blocks.0.attn.W_V"][head][VALUE, 0] = 1
        z["blocks.0.attn.W_O"][head][0, LEVEL] = 1.1 * (sign if head else 1)
    # 10 times a step: from -0.9 to 0 (no borrow), or from 9 to 9.9 (carry).
    low = -0.9 if subtracts else 9.0
    z["blocks.0.mlp.W_in"][LEVEL] = 1
    z["blocks.0.mlp.W_in"][ONE] = torch.tensor([-low, -low - 0.9])
    z["blocks.0.mlp.W_out"][:, LEVEL] = torch.tensor([-10 / 0.9, 10 / 0.9])
    digit = torch.arange(10.0)
    rest = (10.0 if subtracts else 0.0) + sign * 0.05  # levels are up to 0.1 above a difference, or below a sum
    z["unembed.W_U"][LEVEL, :10] = 2 * digit
    z["unembed.W_U"][ONE, :10] = 2 * digit * rest - digit**2
    z["unembed.W_U"][ONE, 10:] = -1000
    if signed:  # the last digit: a level near 9, where a borrow is left, is 1
        z["unembed.W_U"][FIRST + digits, 1] = -8
        z["unembed.W_U"][FIRST + digits, 2:10] = -1000
    if change is not None:
        change(z)
    return ArithmeticTransformer(DenseWeights.holding(config, z), task, name="columns by hand")
