"""Hold what proofs claim of their leaves against a second implementation.

    python -m benchmarks.second_bounds                        a model of each method, 24 leaves each
    python -m benchmarks.second_bounds microadder-67 --n 100  one model

Each problem of a leaf is computed again by :mod:`benchmarks.second_bounds.ball_forward` over the reals, and in float32 by
the plain forward pass of :mod:`benchmarks.false_certificates.own_forward`. A claim is contradicted if one of the two
leads lies below its bound, or if a number overflows. Exit status 1 if one is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

import models
from benchmarks.second_bounds.ball_forward import BallForward, Overflow
from benchmarks.second_bounds.leaves import LEAVES, Leaf
from interp.proofs.certify import method_for
from interp.proofs.verdict import ArithmeticName
from models import ArithmeticTransformer, UserError
from models.transformer import model_name

PROVABILITY = "benchmarks/provability/models/"
#: A certified model of each method that has claims of leaves.
MODELS = (
    f"{PROVABILITY}add-3-no-norm-relu-0",
    f"{PROVABILITY}add-3-ln-gelu-0",
    f"{PROVABILITY}add-3-rms-gated-silu-0",
    f"{PROVABILITY}add-3-rotary-0",
    f"{PROVABILITY}induction-8-one-head-0",
    "microadder-57",
    "adder-456",
    "subtractor-47",
    "toygpt-learned-pre",
)


@dataclass(frozen=True)
class Held:
    """What became of one model's leaves.

    Attributes:
        leaves, problems: how many were tried. proved: leaves with a positive bound. contradicted: problems whose lead
            is not what is claimed.
        closest: the least distance of a lead over the reals from its leaf's bound, in logits.
    """

    model: str
    method: str
    leaves: int
    proved: int
    problems: int
    contradicted: int
    closest: float

    def __str__(self) -> str:
        return (
            f"{self.model}: {self.method}, {self.leaves} leaves ({self.proved} proved), {self.problems} problems, "
            f"{self.contradicted} contradicted; the closest lead is {self.closest:.2g} above its bound"
        )


def held(model: ArithmeticTransformer, n: int = 24, seed: int = 0, arithmetic: ArithmeticName = "float32") -> Held:
    """Hold about ``n`` leaves of a model's own method against the second implementation.

    Raises:
        UserError: a model whose method claims nothing of leaves, or with a switch that the second one does not have.
    """
    method = method_for(model, model.task).name
    if method not in LEAVES:
        raise UserError(f"Nothing is claimed of single leaves by {method!r}.")
    weights = model.effective_weights()
    forwards = [BallForward(model.config, weights, float32) for float32 in (False, arithmetic == "float32")]
    leaves = list(LEAVES[method](model, arithmetic, n, np.random.default_rng(seed)))
    results = [_tried(forwards, model, leaf) for leaf in leaves]
    return Held(
        model_name(model),
        method,
        len(leaves),
        sum(leaf.bound > 0 for leaf in leaves),
        sum(len(leaf.problems) for leaf in leaves),
        sum(wrong for wrong, _ in results),
        min(closest for _, closest in results),
    )


def _tried(forwards: list[BallForward], model: ArithmeticTransformer, leaf: Leaf) -> tuple[int, float]:
    """(How many of a leaf's problems contradict it, the least distance of a lead over the reals from its bound.)"""
    task, wrong, closest = model.task, 0, float("inf")
    tokens, right = task.encode(leaf.problems).tolist(), task.targets(leaf.problems)[:, leaf.target].tolist()
    query = task.query_positions[leaf.target]
    for row, answer in zip(tokens, right, strict=True):
        try:
            exact, computed = (forward.lead(row, query, answer) for forward in forwards)
        except Overflow:
            wrong += leaf.bound > -float("inf")
            continue
        if leaf.kind == "run":  # what was computed lies in the ball, and is none of the reals' business
            low, high = float(computed.lower()), float(computed.upper())
            slack = 1e-9 * (1 + abs(leaf.bound))
            wrong += not low - slack <= leaf.bound <= high + slack
        else:
            wrong += bool(exact.upper() < leaf.bound) or bool(computed.upper() < leaf.bound)
        closest = min(closest, float(exact.mid()) - leaf.bound)
    return wrong, closest


@dataclass(frozen=True)
class Command:
    """Hold what proofs claim of their leaves against a second implementation in ball arithmetic."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = MODELS
    """Names or files."""
    n: int = 24
    """About how many leaves of each."""
    seed: int = 0
    arithmetic: ArithmeticName = "float32"

    def run(self) -> int:
        contradicted = 0
        for name in self.models:
            found = held(models.load(name), self.n, self.seed, self.arithmetic)
            print(found, flush=True)
            contradicted += found.contradicted
        print(f"{contradicted} claims are contradicted")
        return int(contradicted > 0)


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(Command).run())
    except UserError as error:
        print(f"second_bounds: {error}", file=sys.stderr)
        sys.exit(2)
