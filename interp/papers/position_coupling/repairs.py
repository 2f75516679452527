"""Which head fails on larger problems, and whether unseen pairs of ids are the cause: ``position-coupling:repairs``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

import models
from interp.causal.ablation.patterns import Pattern, heads_of, right_with_patterns
from interp.core.model import HookedModel
from interp.core.results import Provenance
from interp.core.sections import Section
from interp.core.stats import clopper_pearson
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import SHARE, Panel, compose
from interp.papers.position_coupling.keys import draw_coupled, resolve_coupled_task
from interp.papers.studies import Made, Settings, shows, study
from models.evaluation import Rate
from models.tasks.multi_addition import MultiOperandAddition

TARGET = "position-coupling:repairs"
N, CONTROLS = 50, 3
TEXT = """In training, the position ids of one problem are never farther apart than its longest number and its count of
numbers. Nothing says how much attention a pair deserves that is farther apart. Here, some heads are kept from such keys
while the rest of the model stays as it is, and the model answers problems larger than any that it was trained on.

Every subset of the heads is tried on {n} problems, and the one that does best (of equals, the smallest) answers {n}
others. The control keeps the same heads from all but as many keys per target, drawn at random from those that are
visible, three times. Problems are of T_A, with ids from 1 on; teacher-forced."""
#: The model, (operands, digits) of its largest training problems, and larger shapes.
MODELS = (
    ("position-coupling-1l4h-s10x10-ids40-small", (10, 10), ((11, 11), (12, 12), (15, 15), (20, 20), (24, 24))),
    ("position-coupling-1l4h-small", (4, 4), ((5, 5), (6, 6), (7, 7), (4, 7), (8, 4))),
)
WHOLE, REPAIRED, CONTROL = "as trained", "kept from pairs never met", "kept from as many at random"
_MARKS = {
    WHOLE: (theme.GREY, "circle", 15),
    REPAIRED: (theme.BLUE, "diamond", 11),
    CONTROL: (theme.ORANGE, "square", 7),
}


@study(TARGET, "What keeps a trained summer from larger problems")
def repairs(settings: Settings) -> Made:
    """Measure two models of the zoo on five larger shapes each; nothing is trained."""
    n, rows = settings.problems or N, []
    for name, trained, shapes in MODELS:
        model = models.load(name)
        task = resolve_coupled_task(model, None)
        for shape in shapes:
            settings.say(f"{name} at {shape[0]} operands of {shape[1]} digits")
            rows.append({"model": name, "trained": list(trained)} | repair(model, task.at(*shape), trained, n))
    return Made({"rows": rows, "n": n})


def repair(model: HookedModel, task: MultiOperandAddition, trained: tuple[int, int], n: int) -> dict[str, Any]:
    """The best subset of heads, chosen on ``n`` problems, and its effect on ``n`` others, in counts of whole answers.

    Cost: one forward pass over ``n`` problems for every subset of the heads.
    """
    first, second = (draw_coupled(task, None, n, seed) for seed in (0, 1))
    allowed = met_in_training(task, trained)

    def right(sample: Any, heads: Sequence[tuple[int, int]], keys: Bool[Tensor, "target key"]) -> int:
        patterns = dict.fromkeys(heads, _on_keys(keys))
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


def met_in_training(task: MultiOperandAddition, trained: tuple[int, int]) -> Bool[Tensor, "target key"]:
    """Keys whose ids differ from the query's, in each level, by at most as much as ids in the shape ``trained`` do.

    BOS, which has no id, is always one of them.
    """
    ids = _ids(task)
    apart = (ids[list(task.query_positions)][:, None] - ids).abs()
    return (apart <= _ids(task.at(*trained)).amax(0) - 1).all(2) | (ids == 0).all(1)


def _ids(task: MultiOperandAddition) -> Int[Tensor, "pos level"]:
    return task.position_ids(task.encode(torch.zeros(1, *task.shape, dtype=torch.int64)))[0]


def _on_keys(keys: Bool[Tensor, "target key"]) -> Pattern:
    """A pattern that keeps a head's own weights on those keys, normalised to sum to 1."""

    def kept(own: Float[Tensor, "n 1 target key"]) -> Float[Tensor, "n 1 target key"]:
        weights = own * keys.to(own)
        return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)

    return kept


def as_many(allowed: Bool[Tensor, "target key"], task: MultiOperandAddition, seed: int) -> Bool[Tensor, "target key"]:
    """For every target, as many random visible keys as are allowed there; the first token is always one of them."""
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
            WHOLE: str(Rate(n, row[WHOLE])),
            REPAIRED: str(Rate(n, row[REPAIRED])),
            f"{CONTROL} (three draws)": ", ".join(map(str, row[CONTROL])) + f" of {n}",
            "one head alone": ", ".join(f"{head} {k}" for head, k in row["single"].items()),
        }
        for row in data["rows"]
    ]
    panels = [_panel(name, [row for row in data["rows"] if row["model"] == name], n) for name, _, _ in MODELS]
    source = Provenance(n, 1, "problems of T_A for each shape; heads chosen on as many others")
    figure = compose(
        panels, _title(data), source, note="Bars: 95% intervals; of the control, the range of its draws", height=640
    )
    return [
        Section("What was measured", TEXT.format(n=n)),
        Section("Exact match", "", [], [figure]),
        Section("Counts", "Of one head alone, problems that it saves.", [pd.DataFrame(rows)]),
    ]


def _title(data: Any) -> str:
    row = max(data["rows"], key=lambda row: row[REPAIRED] - row[WHOLE])
    return (
        f"Sums of {row['shape'][0]} numbers of {row['shape'][1]} digits: {row[REPAIRED]} of {data['n']} are right with "
        f"{' and '.join(row['heads'])} kept from pairs never met, and {row[WHOLE]} as trained"
    )


def _panel(name: str, rows: Sequence[dict[str, Any]], n: int) -> Panel:
    layers = []
    x = [_shape(row["shape"]) for row in rows]
    for how, mark in _MARKS.items():
        counts = [np.atleast_1d(row[how]) for row in rows]
        shares = [float(ks.mean()) / n for ks in counts]
        bounds = [(ks.min() / n, ks.max() / n) if how == CONTROL else clopper_pearson(int(ks[0]), n) for ks in counts]
        ends = tuple(np.array(bounds).T.tolist())
        said = [f"{how}: {', '.join(map(str, ks))} of {n}" for ks in counts]
        layers.append(points(x, shares, how, *mark, ends=ends, **hover("{said}", said=said)))
    return Panel(layers, name, y=SHARE | {"title": "answered right", "range": (-0.08, 1.08)})


def _shape(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]}"
