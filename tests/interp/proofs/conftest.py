"""Models that the certifier's tests share: free weights that compute what a zoo model computes, and small changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import torch

import interp
import models
from benchmarks.false_certificates import perturb
from interp.proofs.columns.column_evidence import PairEvidence
from interp.proofs.columns.pair_counting import NODES, Diagram
from interp.proofs.verdict.verdict import Verdict
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from tests.shape_checks import unchecked_shapes


@cache
def zoo(name: str) -> ArithmeticTransformer:
    return models.load(name)


@cache
def certificate(name: str, arithmetic: str = "interval") -> Verdict:
    """A zoo model's certificate, proved once for all tests that ask something of it."""
    with unchecked_shapes():
        found = interp.certify(zoo(name), arithmetic=arithmetic)
    assert isinstance(found.evidence, PairEvidence)
    return found


def dense(name: str, change: Callable[[dict[str, torch.Tensor]], None] | None = None) -> ArithmeticTransformer:
    """A zoo model's effective weights as free parameters, changed in place by ``change``."""
    model = zoo(name)
    free = ArithmeticTransformer(DenseWeights(model.config), model.task, name=f"free {name}")
    with torch.no_grad():
        weights = {key: value.clone() for key, value in model.effective_weights().items()}
        if change is not None:
            change(weights)
        for key, parameter in free.weight_map.named_parameters():
            parameter.copy_(weights.get(key.replace("/", "."), torch.zeros_like(parameter)))
    return free


def in_shape(model: ArithmeticTransformer, *shape: int) -> SequenceTask:
    """The model's task in another shape."""
    assert isinstance(model.task, SequenceTask)
    return model.task.at(*shape)


@cache
def two_heads() -> ArithmeticTransformer:
    """The zoo's adder-456 with a second head that attends elsewhere and writes a little."""
    one = zoo("adder-456")
    config = replace(one.config, n_heads=2)
    model = ArithmeticTransformer(DenseWeights(config), one.task, name="two heads")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        weights = {key: value.clone() for key, value in one.effective_weights().items()}
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            first = weights[f"blocks.0.attn.{name}"]
            second = torch.randn(first.shape, generator=generator) * (0.003 if name == "W_O" else 0.3)
            weights[f"blocks.0.attn.{name}"] = torch.cat((first, second))
        for key, parameter in model.weight_map.named_parameters():
            parameter.copy_(weights.get(key.replace("/", "."), torch.zeros_like(parameter)))
    return model


def digits_of(pairs: torch.Tensor) -> np.ndarray:
    """[n, operand, column]"""
    return pairs.numpy()[..., None] // 10 ** np.arange(10) % 10


def class_of(a: int, b: int, target: int) -> tuple[int, int, int, int]:
    """Written independently of the programme: integers and their remainders."""
    carry = (a % 10**target + b % 10**target) // 10**target if target <= 10 else (a + b) // 10**10
    previous = (a + b) // 10 ** (target - 1) % 10 if target else -1
    total = a // 10**target % 10 + b // 10**target % 10 if target < 10 else -1
    return target, previous, carry, total


def walk(diagram: Diagram, pairs: torch.Tensor) -> np.ndarray:
    """Where a diagram leads each pair, one column at a time."""
    a, b = pairs.numpy().T
    state = np.full(len(a), diagram.root)
    for column in reversed(range(10)):
        carry = (a % 10**column + b % 10**column) // 10**column
        read = 100 * carry + 10 * (a // 10**column % 10) + b // 10**column % 10
        inner = np.flatnonzero(state >= NODES)
        state[inner] = diagram.levels[column][state[inner] - NODES, read[inner]]
    return state


#: Models near the zoo's that are wrong on some pairs: name, noise, rounding and seed of the perturbation.
BROKEN = {
    "few": ("microadder-57", 0.0007, "bfloat16", 33),
    "last digit": ("microadder-74", 0.0004, "bfloat16", 20),
}


@cache
def broken(name: str) -> ArithmeticTransformer:
    source, noise, rounding, seed = BROKEN[name]
    model = models.load(source)
    perturb(model, noise, rounding, seed)
    return model
