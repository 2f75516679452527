"""Figures of what is inside AddLM: circuits, heads, scores, training, and attribution against patching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, curve, hover, points
from interp.figures.panels import Panel, compose
from interp.papers.addlm.heads import HeadTable
from interp.papers.addlm.patching import PatchingCheck
from interp.papers.addlm.scores import ScoreReading
from interp.papers.addlm.weights import IntegerCircuits, TernaryTraining, ValueComposition
from models.numerals import small


@drawing(IntegerCircuits)
def integer_circuit(result: IntegerCircuits, layer: int = 0, head: int = 0) -> go.Figure:
    """The integers of one OV circuit, rows by what is read and columns by what is written."""
    matrix = result.values[layer, head].numpy()
    said = hover("reads {y}, writes {x}: {z}")
    panel = Panel(
        [cells(matrix, signed=True, bar="entry", gap=0, **said)],
        x={"title": "residual dimension written", "constrain": "domain"},
        y={"title": "residual dimension read", "square": True},
    )
    title = (
        f"The OV circuit of L{layer}H{head} is {result.scale[layer]:.3g} times integers in "
        f"[{matrix.min()}, {matrix.max()}], rank {result.ranks[layer][head]}"
    )
    return compose([panel], title, result.provenance, width=760, height=760)


@drawing(ValueComposition)
def value_composition(result: ValueComposition) -> go.Figure:
    """How far every pair's score deviates from shuffled weights."""
    table = result.table
    names = table.early.values.tolist()
    heads = sum(name.startswith("L0") for name in names)
    pairs = slice(None, -heads), slice(heads, None)
    z = ((table["score"] - table["chance"]) / table["spread"]).values[pairs]
    said = hover("{y} into {x}: score {score:.3f}, {z:.1f} standard deviations", score=table["score"].values[pairs])
    layer = cells(z, names[heads:], names[:-heads], signed=True, bar="standard deviations", gap=0, **said)
    note = "Colour: standard deviations from shuffles of the later head's rows; white: not a pair"
    title = result.sentence().split(", most")[0].rstrip(".")
    panel = Panel([layer], x="later head (values)", y="earlier head (output)")
    return compose([panel], title, result.provenance, width=860, height=640, note=note)


@drawing(HeadTable)
def head_table(result: HeadTable) -> go.Figure:
    """Effective keys, dropped mass, and the cost of ablating each head."""
    rows = result.table
    panels = [
        Panel([_bars(rows, name, f"{said} {{y:.3f}}", colour)], y={"title": said, "rangemode": "tozero"})
        for name, said, colour in (
            ("effective_keys", "effective keys", theme.BLUE), ("dropped_mass", "dropped mass", theme.ORANGE),
        )
    ]  # fmt: skip
    ablations = [
        _bars(rows, way, f"{way} ablation raises the loss by {{y:.4f}}", colour, f"{way} ablation", pattern=pattern)
        for way, colour, pattern in (("zero", theme.GREY, "/"), ("mean", theme.VERMILION, ""))
    ]
    panels.append(Panel(ablations, y="rise of the loss, nats"))
    note = f"Bars are 95% intervals over windows; loss without ablation {result.loss:.3f} nats a character"
    return compose(panels, result.sentence(), result.provenance, note=note, height=820, shared="x", gaps=(0, 44))


def _bars(rows: pd.DataFrame, column: str, said: str, colour: str, name: str | None = None, **style: Any) -> go.Bar:
    """One column over the heads with its intervals."""
    ends = (rows[f"{column}_low"], rows[f"{column}_high"])
    return bars(rows["head"], rows[column], name, colour, ends=ends, **hover(f"{{x}}: {said}"), **style)


@drawing(ScoreReading)
def score_reading(result: ScoreReading) -> go.Figure:
    """How many coordinates carry the best key's advantage, and the key bias's share of it."""
    rows = result.table
    said = hover("{x}: {y:.1f} coordinates, the largest gives {largest:.0%}", largest=rows["top_share"])
    panels = [
        Panel([bars(rows["head"], rows["coordinates"], **said)], y={"title": "coordinates", "rangemode": "tozero"}),
        Panel(
            [_bars(rows, "bias_share", "the key bias gives {y:+.0%}", theme.GREEN)],
            y={"title": "key bias's share", "tickformat": "+.0%"},
        ),
    ]
    note = f"Scores and sums of their parts differ by at most {small(result.error)} (float32)"
    return compose(panels, result.sentence(), result.provenance, note=note, height=640, shared="x", gaps=(0, 44))


@drawing(TernaryTraining)
def ternary_training(result: TernaryTraining) -> go.Figure:
    """Zeros, flips between snapshots, and distance from the start, by kind of matrix."""
    table, steps = result.table, result.table.step.values
    drawn = np.maximum(steps, 0.5)  # 0 has no logarithm
    ticks = {"type": "log", "tickvals": drawn.tolist(), "ticktext": [f"{step:,}" for step in steps.tolist()]}
    panels = []
    for name, label in (
        ("zeros", "share of zeros"),
        ("flipped", "changed since the<br>snapshot before"),
        ("from_start", "changed since<br>the start"),
    ):
        lines = [
            curve(
                drawn, table[name].sel(kind=kind).values, kind, theme.SEVEN[i % 7], symbol=theme.SYMBOLS[i % 7],
                **hover(f"{kind}, step {{step}}: {{y:.3f}}", step=steps),
            )
            for i, kind in enumerate(table.kind.values.tolist())
        ]  # fmt: skip
        below = {"title": "step (logarithmic, 0 at the left)"} if name == "from_start" else {}
        y = {"title": label, "rangemode": "normal" if name == "zeros" else "tozero"}
        panels.append(Panel(lines, x=ticks | below, y=y))
    return compose(panels, result.sentence(), result.provenance, height=860, shared="x", gaps=(0, 40))


@drawing(PatchingCheck)
def patching_check(result: PatchingCheck) -> go.Figure:
    """Real over estimated effect of every head on every window, one panel per kind and step."""
    steps, kinds = result.effects.step.values.tolist(), result.effects.kind.values.tolist()
    numbers = result.to_dataframe().set_index(["step", "kind"])
    panels = []
    for step in steps:
        for kind in kinds:
            part = result.effects.sel(step=step, kind=kind)
            estimate, real = part["estimate"].values, part["real"].values
            ends = [float(min(estimate.min(), real.min())), float(max(estimate.max(), real.max()))]
            layers = [curve(ends, ends, None, theme.GREY, "dash", 1, hoverinfo="skip")]
            heads = np.repeat([f"head {head}" for head in range(estimate.shape[1])], estimate.shape[2])
            for i in range(len(estimate)):
                said = hover(f"layer {i}, {{text}}: estimated {{x:.4f}}, real {{y:.4f}}")
                style: dict[str, Any] = {"opacity": 0.6, "text": heads} | said
                x, y = estimate[i].ravel(), real[i].ravel()
                layers.append(points(x, y, f"layer {i}", theme.SEVEN[i % 7], theme.SYMBOLS[i % 7], 5, **style))
            panels.append(
                Panel(
                    layers,
                    f"{kind}, {_way(step)}: rank correlation {numbers.loc[(step, kind), 'spearman']:.2f}",
                    x={"title": "estimated, nats" if step == steps[-1] else "", "nticks": 4},
                    y="real, nats" if kind == kinds[0] else "",
                )
            )
    note = "Dashed: equal. Rise of a window's loss when a head's activation moves towards that of the corrupted input"
    return compose(
        panels,
        result.sentence(),
        result.provenance,
        note=note,
        columns=len(kinds),
        width=1180,
        height=820,
        title_size=12,
    )


def _way(step: float) -> str:
    return "all the way" if step == 1 else f"{step:.0%} of the way"
