"""Figures of what is inside AddLM: circuits of integers and scores."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, hover
from interp.figures.panels import Panel, compose
from models.numerals import small
from models.transformer.part_names import head_name
from studies.addlm.scores import ScoreReading
from studies.addlm.weights import IntegerCircuits, ValueComposition


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
        f"The OV circuit of {head_name(layer, head)} is {result.scale[layer]:.3g} times integers in "
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
