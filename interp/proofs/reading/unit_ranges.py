"""``interp.carry_unit_ranges``: which neurons are switches on the carry, proved on all inputs.

For every query of a column and every class of its problems, the extremes of what attention can write make a box
(:mod:`interp.proofs.columns.column_windows`), and first-order forms bound what each neuron reads over the box
(:meth:`interp.proofs.columns.lead_enclosure.Downstream.read_by`). The union of these bounds over the classes with a
carry, and over those without, contains the neuron's input on every problem whose written digits are right. Where the
two ranges are apart, the neuron is a switch on the carry; where they overlap, nothing is proved, as bounds may be wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from interp.core.drawings import drawing
from interp.core.measured import Measured
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.views import Bars, Picture, Series
from interp.proofs.columns.adder_weights import one_layer_adder, read_adder
from interp.proofs.columns.class_prover import rounding_of
from interp.proofs.columns.column_rule import over_all_pairs
from interp.proofs.columns.column_windows import Leaves, Query
from interp.proofs.columns.window_search import CHUNK, Search, regions
from interp.proofs.verdict.verdict import ArithmeticName
from models.errors import UserError
from models.number_format import shown
from models.tasks import Task
from models.transformer import HookedModel, model_name, neuron_name

SIDES = ("without", "with")


@dataclass(frozen=True, eq=False)
class CarryUnitRanges(Result):
    """Bounds of every neuron's input, with and without a carry into or out of the query's column.

    Attributes:
        ranges: one row per neuron and signal: ``low_without`` to ``high_without`` and ``low_with`` to ``high_with``
            contain the neuron's input (of a gated MLP, the gate's), and ``gap`` is the distance between the two ranges,
            negative where they overlap. ``switch``: "on" where the range with the signal is the higher one, "off" where
            it is the lower one, "" where they overlap.
        signals: what a column takes in and sends on: "carry in" and "carry out", or "borrow in" and "borrow out".
        pairs: all pairs that this is about, in words.
    """

    model: str
    ranges: pd.DataFrame
    signals: tuple[str, str]
    pairs: str
    provenance: Provenance

    @property
    def switches(self) -> pd.DataFrame:
        """The rows whose two ranges are apart."""
        return self.ranges[self.ranges.switch != ""]

    def sentence(self) -> str:
        found = [self._reads(row) for row in self.switches.itertuples()]
        about = f"On {self.pairs}, with the right digits written before the query"
        if not found:
            return f"{about}, no neuron of {self.model} is proved to be a switch on {' or '.join(self.signals)}"
        apart = "A threshold between the two is proved; that an answer needs the neuron is not"
        return f"{about}, in {self.model} {'; '.join(found)}. {apart}"

    @staticmethod
    def _reads(row: Any) -> str:
        """Between which two numbers a neuron's threshold can lie."""
        if row.switch == "on":
            least, most = shown(row.low_with, 3), shown(row.high_without, 3, up=True)
            return f"{row.neuron} reads at most {most} without {row.signal} and at least {least} with it"
        least, most = shown(row.low_without, 3), shown(row.high_with, 3, up=True)
        return f"{row.neuron} reads at least {least} without {row.signal} and at most {most} with it"

    def to_dataframe(self) -> pd.DataFrame:
        return self.ranges


@probe(
    "Which neurons are switches on the carry, proved on all inputs?",
    needs=[one_layer_adder],
    scalar=Scalar(
        "largest proved gap of a neuron's input around a carry",
        "input",
        lambda found: Measured(max(0.0, float(found.ranges.gap.max())), note=", ".join(found.switches.neuron.unique())),
        0.01,
        asked_by=(),
    ),
)
def carry_unit_ranges(
    model: HookedModel, *, arithmetic: ArithmeticName = "interval", task: Task | None = None
) -> CarryUnitRanges:
    """Bound what every neuron reads, over all problems with a carry and over all without one.

    Postcondition: on every problem, at every query of a column, with the right digits written before it, the neuron's
    input lies in its range, over the real numbers ("interval") or as the model computes it ("float32"). Unlike
    :func:`interp.carry_units`, this samples nothing, and says nothing about what depends on the neuron.

    Cost: one CPU thread, 1 to 5 s.

    Raises:
        UserError: a model whose attention has no bounds, or weights beyond those that bounds are stated for.
    """
    adder = read_adder(model, task)
    search, rule = Search(adder, rounding_of(arithmetic, model, adder)), adder.layout.rule
    if arithmetic == "float" or search.attention.obstacle is not None:
        raise UserError(f"{model_name(model)} has no bounds: {search.attention.obstacle or 'floats prove nothing'}.")
    signals = (f"{rule.carry} in", f"{rule.carry} out")
    neurons = search.downstream.m
    low, high = np.full((2, 2, neurons), np.inf), np.full((2, 2, neurons), -np.inf)  # [signal, side, neuron]
    for target in range(rule.digits):
        for query in search.queries(target):
            leaves = query.roots()
            if leaves.low:  # a second column decides the token at the query, and bounds are narrower
                leaves = query.below_of(leaves)
            least, most = _inputs(search, query, leaves)
            into, total = query.class_of(leaves)
            for signal, values in enumerate((into, rule.out(total, into))):
                for side in (0, 1):
                    of = values == side
                    low[signal, side] = np.minimum(low[signal, side], least[:, of].min(1, initial=np.inf))
                    high[signal, side] = np.maximum(high[signal, side], most[:, of].max(1, initial=-np.inf))
    rows = []
    for neuron in range(neurons):
        for signal, name in enumerate(signals):
            (a, b), (c, d) = zip(low[signal, :, neuron], high[signal, :, neuron], strict=True)
            gap = max(c - b, a - d)
            rows.append((neuron_name(0, neuron), name, a, b, c, d, gap, "" if gap <= 0 else "on" if c > b else "off"))
    columns = ["neuron", "signal", *(f"{end}_{side}" for side in SIDES for end in ("low", "high")), "gap", "switch"]
    frame = pd.DataFrame(rows, columns=columns)
    return CarryUnitRanges(model_name(model), frame, signals, rule.all_claimed, over_all_pairs(rule, arithmetic))


def _inputs(search: Search, query: Query, leaves: Leaves) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of what each neuron reads on the problems of each leaf, [neuron, leaf].

    Raises:
        UserError: a leaf without bounds.
    """
    downstream, (low, high) = search.downstream, query.box(leaves)
    answer, found = query.answer(leaves), []
    for start in range(0, len(answer), CHUNK):
        rows = slice(start, start + CHUNK)
        _, least, most, valid = downstream.read_by(
            downstream.stream(regions(query, answer[rows], low[rows], high[rows]))
        )
        if not valid.all():
            raise UserError("What its neurons read has no bounds: numbers are too large.")
        found.append((least[: downstream.m], most[: downstream.m]))
    least, most = (np.concatenate(part, 1) for part in zip(*found, strict=True))
    return least, most


@drawing(CarryUnitRanges)
def ranges_view(result: CarryUnitRanges) -> Picture:
    """The range of every neuron's input without and with each signal, side by side."""
    views = []
    for signal in result.signals:
        rows = result.ranges[result.ranges.signal == signal]
        series = [Series.of(rows, "neuron", f"high_{side}", side, (f"low_{side}", f"high_{side}")) for side in SIDES]
        views.append(Bars("neuron", "" if views else "bounds of the neuron's input", signal, series))
    return Picture(views, 2, shared="y")
