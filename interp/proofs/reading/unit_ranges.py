"""Which neurons are switches on the carry, proved on all inputs.

For every query of a column and every class of its problems, the extremes of what attention can write make a box
(:mod:`interp.proofs.columns.column_windows`), and first-order forms bound what each neuron reads over the box
(:meth:`interp.proofs.columns.lead_enclosure.LeadEnclosure.read_by`). The union of these bounds over the classes with a
carry, and over those without, contains the neuron's input on every problem whose written digits are right. Where the
two ranges are apart, the neuron is a switch on the carry; where they overlap, nothing is proved, as bounds may be wide.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.class_prover import rounding_of
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.window_search import CHUNK, Search, regions
from interp.proofs.verdict.verdict import ArithmeticName
from models.errors import UserError
from models.tasks import Task
from models.transformer import HookedModel, model_name, neuron_name

SIDES = ("without", "with")


def unit_ranges(
    model: HookedModel, *, arithmetic: ArithmeticName = "interval", task: Task | None = None
) -> pd.DataFrame:
    """Bound what every neuron reads, over all problems with a carry and over all without one.

    One row per neuron and signal ("carry in" and "carry out", or "borrow in" and "borrow out"): ``low_without`` to
    ``high_without`` and ``low_with`` to ``high_with`` contain the neuron's input (of a gated MLP, the gate's), and
    ``gap`` is the distance between the two ranges, negative where they overlap. ``switch``: "on" where the range with
    the signal is the higher one, "off" where it is the lower one, "" where they overlap.

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
            windows = query.unsplit_windows()
            if windows.low:  # a second column decides the token at the query, and bounds are narrower
                windows = query.below_of(windows)
            least, most = _inputs(search, query, windows)
            into, total = query.class_of(windows)
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
    return pd.DataFrame(rows, columns=columns)


def _inputs(search: Search, query: WindowBounds, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of what each neuron reads on the problems of each window, [neuron, window].

    Raises:
        UserError: a window without bounds.
    """
    downstream, (low, high) = search.downstream, query.box(windows)
    answer, found = query.answer(windows), []
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
