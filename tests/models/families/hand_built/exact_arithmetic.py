"""The hand-built transformer in exact arithmetic: its hard-max limit (eta to infinity) on every input of a shape.

In the limit a query attends equally to the keys of highest score, so every pattern entry is 1 / x with x their number,
and all other weights are rational (0.1, 0.21 - knot, 1/3, ...). With a common denominator the whole forward pass is
integer arithmetic, and "right on all inputs" is an exhaustive check without a rounding in it. It is a check of the
*construction*; that the float weights and a finite eta do the same is what
:mod:`interp.proofs.hand_built.addition_proof` bounds.

Cost: [inputs, response, d_mlp] integers; the 10,000 inputs of one number of four digits take a second.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.families.hand_built.position_coupling_addition import HEADS, HandBuiltWeights
from models.transformer.arithmetic_transformer import ArithmeticTransformer

DENOMINATOR = 300  # of every rational weight: 0.1, 0.21 and 1/3 are 30, 63 and 100 of it


@dataclass(frozen=True)
class ExactCheck:
    """All ``inputs`` of one shape, ``predictions`` of the next token, and the right token's smallest lead."""

    operands: int
    digits: int
    inputs: int
    predictions: int
    wrong: tuple[tuple[int, ...], ...]  # problems with a wrong prediction, the first few
    min_margin: Fraction
    rung: Literal["exhaustive"] = "exhaustive"


def exact_check(model: ArithmeticTransformer, n_operands: int, n_digits: int, batch: int = 2000) -> ExactCheck:
    """Every next token of the response to every input of the shape, in exact arithmetic.

    Raises:
        UserError: more than 10^6 inputs, or weights that are not those of the construction.
    """
    if n_operands * n_digits > 6:
        raise UserError(f"There are 10^{n_operands * n_digits} such inputs; at most 10^6 can be tried one by one.")
    task = model.task.at(n_operands, n_digits)  # type: ignore[attr-defined]
    combinations = itertools.product(range(10), repeat=n_operands * n_digits)
    digits = torch.tensor(list(combinations)).view(-1, n_operands, n_digits)
    layout = task.sequences(digits[:1])
    rows = layout.mask[0].nonzero().flatten()
    matched = hard_max(model, task.position_ids(layout.inputs)[0], rows)
    wrong, least = [], None
    for part in digits.split(batch):
        sequences = task.sequences(part)
        logits, scale = exact_logits(model, sequences.inputs, rows, matched)
        targets = sequences.targets[:, rows].numpy()[..., None]
        right = np.take_along_axis(logits, targets, -1)[..., 0]
        others = logits.copy()
        np.put_along_axis(others, targets, np.iinfo(np.int64).min, -1)
        lead = right - others.max(-1)
        wrong += task.numbers(part[torch.as_tensor((lead <= 0).any(1))])
        least = min(least, int(lead.min())) if least is not None else int(lead.min())
    assert least is not None
    return ExactCheck(
        n_operands,
        n_digits,
        len(digits),
        len(digits) * len(rows),
        tuple(wrong[:20]),
        Fraction(least, scale),
    )


def hard_max(
    model: ArithmeticTransformer, ids: Int[Tensor, "pos level"], rows: Int[Tensor, " row"]
) -> Int[np.ndarray, "head row pos"]:
    """1 where a key has a query's highest score, 0 elsewhere: the limit of the pattern times the number of ones.

    Scores are integers in units of eta: products of codes in {-1, 0, 1}, and the number of their components for BOS.
    """
    weight_map = model.weight_map
    if not isinstance(weight_map, HandBuiltWeights):
        raise UserError("The exact check is for the hand-built Position Coupling transformer alone.")
    options, dims = weight_map.options, weight_map.dims
    table = model.W_pos.detach().double().round().long().numpy()  # codes are integers in every dtype
    level1, level2 = table[0][ids[:, 0]], table[1][ids[:, 1]]
    stream = level1 + level2  # [pos, d_model]
    read = lambda name, where: stream[where][:, dims[name]]  # noqa: E731
    everything, queries = np.arange(len(ids)), rows.numpy()
    is_bos = (ids == 0).all(1).numpy()
    future = everything[None, :] > queries[:, None]
    patterns = []
    for query1, codes2, *_ in HEADS:
        score = read(query1, queries) @ read("POS_1", everything).T
        width = options.position_bits[0]
        if codes2 is not None:
            score = score + read(codes2[0], queries) @ read(codes2[1], everything).T
            width += options.position_bits[1]
        score = np.where(is_bos[None, :], width, score)
        score = np.where(future, -(10**6), score)
        patterns.append((score == score.max(1, keepdims=True)).astype(np.int64))
    return np.stack(patterns)


def exact_logits(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "n pos"],
    rows: Int[Tensor, " row"],
    matched: Int[np.ndarray, "head row pos"],
) -> tuple[Int[np.ndarray, "n row d_vocab"], int]:
    """(logits times scale, scale) of the rows, given which keys each attends to."""
    weights = {key: rational(value) for key, value in model.effective_weights().items() if "pos" not in key}
    D, W_E = DENOMINATOR, weights["embed.W_E"] // DENOMINATOR
    counts = matched.sum(-1)  # [head, row]
    common = math.lcm(*counts.flatten().tolist())
    stream = W_E[tokens.numpy()]  # [n, pos, d_model], integers: NUM, IS_BOS, FULL_ONES
    resid = stream[:, rows.numpy()] * common  # times `common` from here on
    W_V, W_O = weights["blocks.0.attn.W_V"] // D, weights["blocks.0.attn.W_O"] // D
    for head in range(4):
        values = stream @ W_V[head] @ W_O[head]
        resid = resid + np.einsum("rp,npd->nrd", matched[head], values) * (common // counts[head])[:, None]
    pre = resid @ weights["blocks.0.mlp.W_in"] + common * weights["blocks.0.mlp.b_in"]  # times common D
    W_out, b_out = weights["blocks.0.mlp.W_out"] // D, weights["blocks.0.mlp.b_out"] // D
    out = D * resid + np.maximum(pre, 0) @ W_out + common * D * b_out
    return out @ (weights["unembed.W_U"] // D), common * D


def rational(weight: Tensor) -> Int[np.ndarray, "..."]:
    """The rational weight, times 300, that this float weight is the rounding of (queries' and keys' roots aside)."""
    numerator = (weight.detach().double() * DENOMINATOR).round()
    return numerator.long().numpy()


def is_rounding_of_rational(model: ArithmeticTransformer) -> bool:
    """Whether every weight but W_Q and W_K is the nearest float to a multiple of 1/300, as the exact check assumes."""
    for key, weight in model.effective_weights().items():
        if not key.endswith(("W_Q", "W_K")):
            nearest = (torch.as_tensor(rational(weight)).double() / DENOMINATOR).to(weight.dtype)
            if not torch.equal(nearest, weight.detach()):
                return False
    return True
