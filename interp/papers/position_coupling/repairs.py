"""Which head loses larger problems, and is it the pairs of ids that it never met? ``position-coupling:repairs``.

In training, the position ids of one problem are never farther apart than its longest number and its count of numbers.
How much attention a pair deserves that is farther apart, nothing says. Here, some heads are kept from such keys
("met in training" of :mod:`interp.papers.position_coupling.causal`) while the rest of the model stays as it is, and
the model answers problems larger than any that it was trained on.

Every subset of the heads is tried on ``n`` problems, and the one that does best (of equals, the smallest) answers ``n``
others. The control keeps the same heads from as many keys per target, drawn at random from those that are visible,
three times. Problems are of T_A, with ids from 1 on; teacher-forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

import models
from interp.causal.ablation.patterns import heads_of, right_with_patterns
from interp.core.model import HookedModel
from interp.core.results import Provenance
from interp.core.sections import Section
from interp.core.stats import clopper_pearson
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import SHARE, Panel, compose
from interp.papers.position_coupling.causal import met_in_training, on_keys
from interp.papers.position_coupling.keys import draw_coupled
from interp.papers.studies import Made, Settings, shows, study
from models.tasks.multi_addition import MultiOperandAddition

TARGET = "position-coupling:repairs"
N, CONTROLS = 50, 3
#: Model, (operands, digits) of its largest training problems, and larger shapes.
MODELS = (
    ("position-coupling-1l4h-s10x10-ids40-small", (10, 10), ((11, 11), (12, 12), (15, 15), (20, 20), (24, 24))),
    ("position-coupling-1l4h-small", (4, 4), ((5, 5), (6, 6), (7, 7), (4, 7), (8, 4))),
)
WHOLE, REPAIRED, CONTROL = "as trained", "kept from pairs never met", "kept from as many at random"
_COLOURS = {WHOLE: theme.GREY, REPAIRED: theme.BLUE, CONTROL: theme.ORANGE}


@study(TARGET, "What keeps a trained summer from larger problems")
def repairs(settings: Settings) -> Made:
    """Nothing is trained: two models of the zoo, five larger shapes each."""
    n, rows = settings.problems or N, []
    for name, trained, shapes in MODELS:
        model = models.load(name)
        for shape in shapes:
            settings.say(f"{name} at {shape[0]} operands of {shape[1]} digits")
            rows.append({"model": name, "trained": list(trained)} | repair(model, model.task.at(*shape), trained, n))
    return Made({"rows": rows, "n": n})


def repair(model: HookedModel, task: MultiOperandAddition, trained: tuple[int, int], n: int) -> dict[str, Any]:
    """The best subset of heads, chosen on ``n`` problems, and what it does on ``n`` others, as counts of whole answers.

    Cost: a forward pass over ``n`` problems for every subset of the heads.
    """
    first, second = (draw_coupled(task, None, n, seed) for seed in (0, 1))
    allowed = torch.from_numpy(met_in_training(task, trained))

    def right(sample: Any, heads: Sequence[tuple[int, int]], keys: Bool[Tensor, "target key"]) -> int:
        patterns = dict.fromkeys(heads, on_keys(keys))
        found = right_with_patterns(model, task, sample.tokens, task.targets(sample.problems), patterns)
        return int(found.all(1).sum())

    heads = heads_of(model)
    subsets = [subset for k in range(1, len(heads) + 1) for subset in combinations(heads, k)]
    best = max(subsets, key=lambda subset: right(first, subset, allowed))
    others = [right(second, best, as_many(allowed, task, seed)) for seed in range(CONTROLS)]
    return {
        "shape": list(task.shape),
        "heads": [f"L{layer}H{head}" for layer, head in best],
        WHOLE: right(second, (), allowed),
        REPAIRED: right(second, best, allowed),
        CONTROL: others,
        "single": {f"L{layer}H{head}": right(second, [(layer, head)], allowed) for layer, head in heads},
    }


def as_many(allowed: Bool[Tensor, "target key"], task: MultiOperandAddition, seed: int) -> Bool[Tensor, "target key"]:
    """For every target as many visible keys as are allowed there, at random; the first token is always one."""
    visible = torch.arange(allowed.shape[1]) <= torch.tensor(task.query_positions)[:, None]
    order = torch.rand(allowed.shape, generator=torch.Generator().manual_seed(seed)).masked_fill(~visible, 2.0)
    order[:, 0] = -1.0
    return order.argsort(1).argsort(1) < (allowed & visible).sum(1, keepdim=True)


@shows(TARGET)
def show_repairs(data: Any) -> list[Section]:
    n = data["n"]
    rows = [
        {
            "model": row["model"],
            "trained up to": _shape(row["trained"]),
            "asked": _shape(row["shape"]),
            "heads (chosen on other problems)": ", ".join(row["heads"]),
            WHOLE: _rate(row[WHOLE], n),
            REPAIRED: _rate(row[REPAIRED], n),
            f"{CONTROL} (three draws)": ", ".join(map(str, row[CONTROL])) + f" of {n}",
            "one head alone": ", ".join(f"{head} {k}" for head, k in row["single"].items()),
        }
        for row in data["rows"]
    ]
    text = (__doc__ or "").split("\n\n", 1)[1]
    panels = [_panel(name, [row for row in data["rows"] if row["model"] == name], n) for name, _, _ in MODELS]
    source = Provenance(n, 1, "problems of T_A for each shape; heads chosen on as many others")
    figure = compose(panels, _title(data), source, note="Bars: 95% intervals; of the control, all draws", height=420)
    return [Section("What was measured", text), Section("Exact match", "", [pd.DataFrame(rows)], [figure])]


def _title(data: Any) -> str:
    row = max(data["rows"], key=lambda row: row[REPAIRED] - row[WHOLE])
    return (
        f"Kept from pairs never met, {' and '.join(row['heads'])} let {_shape(row['shape'])} be added: "
        f"{row[REPAIRED]} of {data['n']} right, {row[WHOLE]} before"
    )


def _panel(name: str, rows: Sequence[dict[str, Any]], n: int) -> Panel:
    layers = []
    x = [_shape(row["shape"]) for row in rows]
    for how, colour in _COLOURS.items():
        counts = [(sum(row[how]), n * CONTROLS) if how == CONTROL else (row[how], n) for row in rows]
        shares = [k / of for k, of in counts]
        ends = tuple(np.array([clopper_pearson(k, of) for k, of in counts]).T.tolist())
        said = [f"{how}: {k} of {of}" for k, of in counts]
        layers.append(points(x, shares, how, colour, ends=ends, **hover("{said}", said=said)))
    return Panel(layers, name, y=SHARE | {"title": "problems answered right"})


def _shape(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _rate(k: int, n: int) -> str:
    low, high = clopper_pearson(k, n)
    return f"{k} of {n} [{low:.2f}, {high:.2f}]"
