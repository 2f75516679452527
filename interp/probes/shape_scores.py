"""How far a model of many lengths generalises: the stored scores of its entry, shape by shape, for every seed.

A shape is (operands, digits), the digits of both factors, or a number of bits; the first one is the longest of the
training set. The numbers are those of the card: :mod:`models.training.publish.sequences` scored every seed on the same
problems of each shape.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from interp.core.results import Provenance, Result
from models.errors import UserError
from models.evaluation import Rate
from models.registry import build
from models.tasks.multi_addition import MultiOperandAddition
from models.zoo import entry_file, read_entry

#: Share of right answers from which the sentence calls a shape reached: well above the half that guessing a bit gives.
STILL = 0.9


@dataclass(frozen=True, eq=False)
class ShapeScores(Result):
    """``rates``: of every seed, right answers by shape; ``chosen``: the seed that is stored; ``sizes``: what the
    numbers of a shape are."""

    model: str
    rates: dict[int, dict[tuple[int, ...], Rate]]
    chosen: int
    sizes: str
    provenance: Provenance

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """In the order of the card: the training bounds, both sizes growing, then each alone."""
        return list(self.rates[self.chosen])

    def sentence(self) -> str:
        own, trained, longer = self.rates[self.chosen], self.shapes[0], self.shapes[1:]
        text = (
            f"{self.model} answers {own[trained].correct:,} of {own[trained].n:,} at its training bound, {_of(trained)}"
        )
        if not longer:
            return f"{text}."
        still = [shape for shape in longer if own[shape].accuracy >= STILL]
        if not still:
            best = max(longer, key=lambda shape: own[shape].correct)
            return f"{text}, and of longer shapes {own[best].accuracy:.1%} at most ({_of(best)})."
        furthest = max(still, key=lambda shape: (sum(shape), own[shape].correct))
        return f"{text}, and {own[furthest].accuracy:.1%} of {_of(furthest)}, the furthest where {STILL:.0%} are right."

    def to_dataframe(self) -> pd.DataFrame:
        """A row per seed and shape: n, correct, accuracy, low, high (Clopper-Pearson, 95%)."""
        rows = []
        for seed, table in self.rates.items():
            for shape, rate in table.items():
                low, high = rate.interval
                row = {"seed": seed, "stored": seed == self.chosen, "shape": _of(shape), "n": rate.n}
                rows.append(row | {"correct": rate.correct, "accuracy": rate.accuracy, "low": low, "high": high})
        return pd.DataFrame(rows)


def shape_scores(entry: str) -> ShapeScores:
    """The stored scores of a zoo entry.

    Raises:
        UserError: no such entry, or one of a task of a single shape.
    """
    config = read_entry(entry)
    score = config["score"]
    if "shapes" not in score:
        raise UserError(f"{entry} has no scores by shape: its task has one.")
    n = {tuple(row["shape"]): row["n"] for row in score["shapes"]}
    rows = json.loads(entry_file(entry, "seeds.json"))
    rates = {
        row["seed"]: {tuple(shape): Rate(n[tuple(shape)], correct) for shape, correct in row["shapes"]} for row in rows
    }
    source = f"problems a shape, teacher forced, {len(rates)} seed{'s' * (len(rates) > 1)}"
    sizes = {1: "bits", 2: "digits of the first factor x of the second"}[len(next(iter(n)))]
    if isinstance(build(config["model"]).task, MultiOperandAddition):
        sizes = "operands x digits"
    provenance = Provenance(score["n"], score["seed"], source)
    return ShapeScores(config["model"], rates, config["training"]["seed"], sizes, provenance)


def _of(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) + (" bits" if len(shape) == 1 else "")
