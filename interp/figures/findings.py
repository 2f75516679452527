"""The figure of a table of values with intervals and further columns."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from interp.causal.interchange.group_program import GroupProgram
from interp.core.drawings import drawing
from interp.core.results import Findings
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose

_BESIDE = ((theme.GREY, "x-thin"), (theme.VERMILION, "triangle-down"), (theme.GREEN, "diamond-open"))


@drawing(Findings)
def findings(result: Findings) -> go.Figure:
    """Values by row, with intervals where there are any, and the other columns of numbers as separate marks."""
    return _marks(result, result.table, result.sentence())


@drawing(GroupProgram)
def group_program(result: GroupProgram) -> go.Figure:
    """How often the answers are each program's, by change, next to an untrained twin's."""
    table = result.to_dataframe()
    names = table["program"] + "'s,<br>" + table["change"]
    shown = table[["low", "high", "untrained"]].assign(value=table["share"])
    shown.insert(0, "answers", names)
    return _marks(result, shown, f"{result.model}: {result.verdict}")


def _marks(result: Findings | GroupProgram, table: pd.DataFrame, title: str) -> go.Figure:
    names = table[table.columns[0]]
    if "low" in table:
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        said = hover("{x}: {y:.4g} [{low:.4g}, {high:.4g}]", low=low, high=high)
        layers = [points(names, table["value"], "value", ends=(low, high), **said)]
    else:
        layers = [points(names, table["value"], "value", **hover("{x}: {y:.4g}"))]
    others = [column for column in table.select_dtypes("number") if column not in ("value", "low", "high")]
    for index, column in enumerate(others):
        colour, symbol = _BESIDE[index % len(_BESIDE)]
        layers.append(points(names, table[column], str(column), colour, symbol, **hover(f"{{x}}: {column} {{y:.4g}}")))
    panel = Panel(layers, x=str(table.columns[0]), y="value")
    return compose([panel], title, result.provenance, width=800, height=460)
