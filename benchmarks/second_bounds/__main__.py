"""Hold what proofs claim of their leaves against a second implementation.

    python -m benchmarks.second_bounds                        a model of each method, 24 leaves each
    python -m benchmarks.second_bounds microadder-67 --n 100  one model

Each problem of a leaf is computed again by :mod:`benchmarks.second_bounds.ball_forward` over the reals, and in float32
by the plain forward pass of :mod:`benchmarks.false_certificates.own_forward`. A claim is contradicted if one of the two
leads lies below its bound, or if a number overflows. Exit status 1 if one is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

import models
from benchmarks.false_certificates import own_forward
from benchmarks.second_bounds.ball_forward import BallForward, Overflow
from benchmarks.second_bounds.leaves import LEAVES, Leaf
from interp.proofs.certify import method_for
from interp.proofs.verdict.verdict import ArithmeticName
from models import ArithmeticTransformer, UserError
from models.transformer import model_name
from models.transformer.parts.weights import Weights

PROVABILITY = "benchmarks/provability/models/"
#: A certified model of each method that has claims of leaves.
MODELS = (
    f"{PROVABILITY}add-8-bits-0",
    f"{PROVABILITY}add-3-no-norm-relu-0",
    f"{PROVABILITY}add-3-no-final-norm-0",
    f"{PROVABILITY}add-3-rms-gated-silu-0",
    f"{PROVABILITY}induction-8-one-head-0",
    "microadder-57",
    "adder-456",
    "subtractor-47",
    "modular-addition-59",
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
    leaves = list(LEAVES[method](model, arithmetic, n, np.random.default_rng(seed)))
    if not leaves:
        raise UserError(f"Nothing was proved of {model_name(model)} in the time of a proof.")
    results = [_tried(BallForward(model.config, weights), weights, model, leaf) for leaf in leaves]
    return Held(
        model_name(model),
        method,
        len(leaves),
        sum(leaf.bound > 0 for leaf in leaves),
        sum(len(leaf.problems) for leaf in leaves),
        sum(wrong for wrong, _ in results),
        min(closest for _, closest in results),
    )


def _tried(exact: BallForward, weights: Weights, model: ArithmeticTransformer, leaf: Leaf) -> tuple[int, float]:
    """(How many of a leaf's problems contradict it, the least distance of a lead over the reals from its bound.)"""
    task, wrong, closest = model.task, 0, float("inf")
    tokens, right = task.encode(leaf.problems), task.targets(leaf.problems)[:, [leaf.target]]
    query = task.query_positions[leaf.target]
    logits = own_forward.logits(model.config, weights, tokens, task.position_ids(tokens), np.float32)
    computed = own_forward.leads(logits, right, [query])[:, 0].tolist()
    for row, answer, float32 in zip(tokens.tolist(), right[:, 0].tolist(), computed, strict=True):
        try:
            lead = exact.lead(row, query, answer)
        except Overflow:
            wrong += 1
            continue
        wrong += bool(lead.upper() < leaf.bound) or not float32 >= leaf.bound
        closest = min(closest, float(lead.mid()) - leaf.bound)
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
