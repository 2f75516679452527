"""What proofs claim of some of their leaves: no problem of a leaf has a lead below its bound.

A leaf is a class, a node of a search, a set of strings or a single problem, whatever its method proves at once. Here it
is some problems (all of them where they are few), a target and a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.proofs.attention_only import arrangement_method
from interp.proofs.attention_only.arrangement_method import ArrangementProof
from interp.proofs.columns import column_method
from interp.proofs.listed import prefix_method
from interp.proofs.listed.prefix_method import _Proof as PrefixProof
from interp.proofs.machine import machine_method
from interp.proofs.machine.machine_method import _Proof as MachineProof
from interp.proofs.machine.path_search import PathNode
from interp.proofs.numbers.rounded_operations import ROUNDINGS
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import time_limit
from interp.proofs.verdict.verdict import ArithmeticName
from models import ArithmeticTransformer

FEW = 8  # problems of a leaf that are all tried; of others so many are drawn
MINUTES = 3.0


@dataclass(frozen=True, eq=False)
class Leaf:
    """Problems [n, ...], of whose right token at ``target`` a proof says that its lead is at least ``bound``."""

    problems: Tensor
    target: int
    bound: float


def of_machine(
    model: ArithmeticTransformer, arithmetic: ArithmeticName, n: int, rng: np.random.Generator
) -> Iterator[Leaf]:
    """Nodes of the search over a task's machine: the ones with the least bounds, and random ones. In place of a node
    that was cut by what heads write, which not all paths of its masks belong to, its class."""
    subject = Subject(model)
    with torch.inference_mode(), time_limit(MINUTES):
        proof = MachineProof(subject, subject.once(machine_method.machine_of_subject), arithmetic)
        proof.run()
    # Nodes that are proved are open again where a larger bound was looked for when the time was over.
    found = [(one, node) for one in proof.classes for node in (*one.done, *one.open) if node.bound > 0]
    found.sort(key=lambda pair: pair[1].bound)
    for at in {
        *range(min(n // 2, len(found))),
        *rng.choice(len(found), min(n // 2, len(found)), replace=False).tolist(),
    }:
        one, node = found[at]
        node = PathNode(tuple(mask[one.label] for mask in one.paths.roots), bound=one.bound) if node.cuts else node
        count = float(one.paths.path_counts([mask[None] for mask in node.masks])[0].sum())
        if count <= FEW:
            paths = one.paths.all_paths(node.masks)
        else:
            drawn = torch.Generator().manual_seed(int(rng.integers(2**31)))
            paths = one.paths.sample([mask[None] for mask in node.masks], FEW, drawn)[0]
        problems = torch.stack([one.paths.problem(path) for path in paths])
        yield Leaf(problems, one.paths.target, node.bound)


def of_arrangements(
    model: ArithmeticTransformer, arithmetic: ArithmeticName, n: int, rng: np.random.Generator
) -> Iterator[Leaf]:
    """Sets of strings, each with one token more that is known than the classes of the task."""
    with torch.inference_mode():
        proof = ArrangementProof(Subject(model), arithmetic)
        drawn = torch.Generator().manual_seed(int(rng.integers(2**31)))
        for at in rng.permutation(len(proof.classes))[:n]:
            sets = [proof.classes[at].strings]
            for _ in range(3):  # by the token that tells most, until few strings are left
                (found,) = proof.bounds.bounded(sets[:1])
                if found.split is None or sets[0].count() <= FEW:
                    break
                parts = sets[0].by_place_of(found.split)
                sets = [parts[int(rng.integers(len(parts)))]]
            (found,) = proof.bounds.bounded(sets)
            yield Leaf(sets[0].sample(min(FEW, sets[0].count()), drawn), 0, found.bound)


def of_prefixes(
    model: ArithmeticTransformer, arithmetic: ArithmeticName, n: int, rng: np.random.Generator
) -> Iterator[Leaf]:
    """Single problems of a prefix tree."""
    with torch.inference_mode(), time_limit(MINUTES):
        proof = PrefixProof(Subject(model), ROUNDINGS[arithmetic])
        proof.run(True, len(proof.rows))
    low = proof.low[: proof.done]
    lowest = low.amin(1).argsort()[: n // 2].tolist()
    for row in {*lowest, *rng.choice(len(low), min(n // 2, len(low)), replace=False).tolist()}:
        problem = proof.domain.at(proof.rows.index[row : row + 1])
        for target in range(low.shape[1]):
            yield Leaf(problem, target, float(low[row, target]))


def of_columns(
    model: ArithmeticTransformer, arithmetic: ArithmeticName, n: int, rng: np.random.Generator
) -> Iterator[Leaf]:
    """Classes of an adder's columns, each with the pair that was hunted for its least lead."""
    classes = column_method.certify_one_layer(model, arithmetic, tolerance=None).classes
    bounds = classes.proved.values
    lowest = np.argsort(bounds)[: n // 2].tolist()
    for row in {*lowest, *rng.choice(len(bounds), min(n // 2, len(bounds)), replace=False).tolist()}:
        pair = torch.tensor([[int(classes.a[row]), int(classes.b[row])]])
        yield Leaf(pair, int(classes.target[row]), float(bounds[row]))


#: What is claimed of a method's leaves: (model, arithmetic, about how many, generator) -> leaves.
LEAVES: dict[str, Callable[[Any, ArithmeticName, int, np.random.Generator], Iterator[Leaf]]] = {
    machine_method.METHOD.name: of_machine,
    arrangement_method.METHOD.name: of_arrangements,
    column_method.METHOD.name: of_columns,
    prefix_method.METHOD.name: of_prefixes,
}
