"""Models of one to four layers with every kind of part that an edge graph meets, in float64, and pairs for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import models
from models.tasks import problem_pairs
from models.tasks.paired.problem_pairs import ProblemPairs
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import addlm, decoder, dense, hand_built, registered

BUILDERS = {
    "one layer, LN": dense(n_layers=1, normalization_type="LN"),
    "two layers, RMS": dense(),
    "four layers": dense(n_layers=4),
    "no norms": dense(normalization_type=None, positional_embedding_type="none"),
    "gated, no biases": dense(biases=False, n_layers=3, gated_mlp=True),
    "gated, rotary": dense(gated_mlp=True, positional_embedding_type="rotary"),
    "rotary halves": dense(positional_embedding_type="rotary", rotary_adjacent_pairs=False, normalization_type="LN"),
    "parallel": dense(parallel_attn_mlp=True, positional_embedding_type="rotary", rotary_dim=2),
    "attention only": dense(d_mlp=0),
    "coupled positions": dense(positional_embedding_type="coupled", n_position_levels=2),
    "FIRE": dense(positional_embedding_type="fire"),
    "L1 scores, top-k": addlm(""),
    "microadder-57": registered("microadder-57"),
    "hand-built": hand_built("position-coupling-hand-built", max_operands=2, max_digits=2),
}
POST_NORM = decoder("coupled")
#: Those that no other has all parts of; the others are left to `make test-all`.
FEW = ("gated, rotary", "parallel", "attention only", "coupled positions", "FIRE", "L1 scores, top-k", "microadder-57")


def builders(names: Iterable[str] = BUILDERS) -> list[Any]:
    """Names of builders as a test's parameters."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in FEW)) for name in names]


def pairs_for(task: Task, n: int = 5, seed: int = 0) -> ProblemPairs:
    """Random problems whose answers differ, at the target where they do so most often."""
    problems = _sample(task, 80, seed)
    clean, other = problems[:40], problems[40:]
    unequal = task.targets(clean) != task.targets(other)
    target = int(unequal.sum(0).argmax())
    differ = unequal[:, target].nonzero()[:n, 0]
    return ProblemPairs(task, clean[differ], other[differ], target, "another problem", seed)


def with_pairs(model: ArithmeticTransformer, n: int = 5) -> tuple[ArithmeticTransformer, ProblemPairs]:
    """A model and pairs of its task."""
    return model, pairs_for(model.task, n)


def made_carries(n: int) -> tuple[ArithmeticTransformer, ProblemPairs]:
    """MicroAdder and pairs in which a carry into column 4 is made in column 3."""
    model = models.load("microadder-57")
    return model, problem_pairs(model.task, "made carry", column=4, n=n)


def _sample(task: Task, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if task.name == "toy-addition":
        return torch.randint(100, (n, 2), generator=generator)
    return task.sample(n, generator)


@pytest.fixture(params=builders())
def model(request: pytest.FixtureRequest) -> ArithmeticTransformer:
    return BUILDERS[request.param](0).double()


@pytest.fixture
def pairs(model: ArithmeticTransformer) -> ProblemPairs:
    return pairs_for(model.task)
