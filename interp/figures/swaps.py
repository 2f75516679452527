"""The picture of :class:`interp.compare.swaps.result.Swaps`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.compare.swaps.parts import EVERYTHING
from interp.compare.swaps.result import KEPT, Swaps
from interp.figures import theme
from interp.figures.drawing import drawing
from models.errors import UserError, unknown_name

_ROW, _TOP, _BOTTOM, _LEFT, _RIGHT, _WIDTH = 30, -15, 120, 190, 40, 1180
_MARKS = {  # source: name, symbol, colour, size; drawn in this order
    "untrained": ("untrained model's", "diamond-open", theme.ORANGE, 8),
    "stitched untrained": ("untrained model's, fitted to its loss", "triangle-up-open", theme.ORANGE, 9),
    "ablated": ("ablated", "line-ns", theme.BLACK, 12),
    "shuffled": ("the other's on another problem", "x-thin", theme.GREY, 9),
    "itself": ("its own, mapped alike", "circle-open", theme.GREEN, 13),
    "stitched": ("the other's, map fitted to its loss", "triangle-up", theme.SKY, 12),
    "swapped": ("the other's", "circle", theme.BLUE, 10),
}
_WHOLE = ("L0 attention", "L0 MLP", EVERYTHING)  # of one layer
_MEASURES = {
    "exact": "problems with every answer token right (95% interval)",
    "recovered": "loss recovered: 0 as ablated, 1 as the whole model (95% interval)",
}


@drawing(Swaps)
def swaps(result: Swaps, measure: str = "exact") -> go.Figure:
    """A row a component: what is right with the other's part in its place, with controls; how close the mapped part is
    to the model's own; and what is right by carry-chain length.

    Raises:
        UserError: an unknown measure.
    """
    if measure not in _MEASURES:
        raise unknown_name("measure", measure, _MEASURES)
    components = result.components
    if not components:
        raise UserError("There is no swap to draw.")
    chains = sorted(result.by_chain["chain"].unique())
    figure = make_subplots(
        rows=1,
        cols=3,
        column_widths=[0.52, 0.13, 0.35],
        shared_yaxes=True,
        horizontal_spacing=0.02,
        subplot_titles=("with the part replaced", "R² · free numbers", "exact match by longest carry chain"),
    )
    for source in _MARKS:
        _marks(figure, result, source, measure)
    whole = float(result.whole["exact"]) if measure == "exact" else 1.0
    figure.add_vline(x=whole, line={"color": theme.GREY, "dash": "dot", "width": 1}, row=1, col=1)
    _closeness(figure, result, components)
    _by_chain(figure, result, components, chains)
    note = (
        f"maps fitted on {result.n_fit:,} other problems; dotted line: {result.names[0]} whole; R²: held-out, of the "
        "mapped part (w: weight in common of patterns), and how many numbers were free in the map"
    )
    if result.control[1]:
        note += f"; untrained: {result.control[1]} models drawn anew, of {result.control[0] or 'those given'}"
    height = _ROW * len(components)
    figure = theme.finish(figure, title(result), result.provenance, _WIDTH - _LEFT, height, note)
    top = int(figure.layout.margin.t) + _TOP
    figure.update_layout(
        width=_WIDTH,
        height=height + top + _BOTTOM,
        margin={"t": top, "b": _BOTTOM, "l": _LEFT, "r": _RIGHT},
        legend={"orientation": "h", "x": 0, "y": -64 / height, "yanchor": "top", "traceorder": "reversed"},
    )
    figure.update_yaxes(
        autorange="reversed",
        categoryorder="array",
        categoryarray=components,
        range=[len(components) - 0.5, -0.5],
        tickfont={"size": 12},
    )
    figure.update_yaxes(title="part replaced", row=1, col=1, title_standoff=8)
    return figure


def title(result: Swaps) -> str:
    """What is left with the other's attention, MLP and both; of other choices of parts, which keep the answers."""
    first, second = result.names
    if set(_WHOLE) <= set(result.components):
        attention, mlp, both = (f"{result.swapped(name)['exact']:.2f}" for name in _WHOLE)
        return (
            f"{first} answers {attention} of the problems with {second}'s attention in place of its own, {mlp} with "
            f"its MLP, {both} with both{_stitched(result)}"
        )
    kept = result.kept()
    if not kept:
        return f"{first} keeps its answers with none of these parts taken from {second}"
    lost = [name for name in result.components if name not in kept]
    more = f", fewer with {_listed(lost)}" if lost else ""
    return f"{first} with parts of {second}: at least {KEPT:.0%} of its answers are left with {_listed(kept)}{more}"


def _stitched(result: Swaps) -> str:
    rows = [result.rows(name, "stitched") for name in _WHOLE[:2]]
    if not all(map(len, rows)):
        return ""
    attention, mlp = (f"{row['exact'].iloc[0]:.2f}" for row in rows)
    return f"; {attention} and {mlp} through maps fitted to its own loss"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:5])
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _marks(figure: go.Figure, result: Swaps, source: str, measure: str) -> None:
    name, symbol, colour, size = _MARKS[source]
    rows = result.table[result.table["source"] == source]
    if (measure == "recovered" and source == "ablated") or rows.empty:
        return
    ends = ("low", "high") if measure == "exact" else ("recovered_low", "recovered_high")
    values = rows[measure].astype(float).clip(lower=-1.0)
    said = [
        f"{row.component}: {row.exact:.3f} [{row.low:.3f}, {row.high:.3f}] of {row.n:,} problems, {row.tokens:.3f} of "
        f"tokens<br>loss {row.loss:.4g} nats, recovered {_number(row.recovered)} "
        f"[{_number(row.recovered_low)}, {_number(row.recovered_high)}]"
        + (f"<br>taken from {row.partner}" if source in ("swapped", "shuffled", "stitched") and row.partner else "")
        + (f"<br>p against untrained {row.p_untrained:.3f}" if row.p_untrained == row.p_untrained else "")
        for row in rows.itertuples()
    ]
    error = theme.error_bars(values, rows[ends[0]].clip(lower=-1.0), rows[ends[1]], color=colour, thickness=1.5)
    figure.add_scatter(
        x=values,
        y=rows["component"],
        mode="markers",
        marker={"symbol": symbol, "size": size, "color": colour, "line": {"width": 2, "color": colour}},
        error_x=error if source in ("swapped", "stitched") else None,
        name=name,
        text=said,
        hovertemplate="%{text}<extra>" + name + "</extra>",
        row=1,
        col=1,
    )
    low = -0.03 if measure == "exact" else -1.08
    figure.update_xaxes(range=[low, 1.03], title=_MEASURES[measure], zeroline=False, row=1, col=1)


def _closeness(figure: go.Figure, result: Swaps, components: Sequence[str]) -> None:
    """R squared, overlap and free numbers as text."""
    said = []
    for component in components:
        row = result.swapped(component)
        parts = [f"{row['r2']:.3f}"] if not pd.isna(row["r2"]) else []
        parts += [f"w {row['overlap']:.2f}"] if not pd.isna(row["overlap"]) else []
        said.append(" ".join(parts) + (f" · {int(row['fitted']):,}" if row["fitted"] else ""))
    figure.add_scatter(
        x=[0.5] * len(components),
        y=list(components),
        mode="text",
        text=said,
        textfont={"size": 11, "color": theme.BLACK},
        hoverinfo="skip",
        showlegend=False,
        row=1,
        col=2,
    )
    figure.update_xaxes(range=[0, 1], showgrid=False, showticklabels=False, zeroline=False, row=1, col=2)
    figure.update_yaxes(showgrid=False, row=1, col=2)


def _by_chain(figure: go.Figure, result: Swaps, components: Sequence[str], chains: Sequence[int]) -> None:
    rows = result.by_chain[result.by_chain["source"] == "swapped"]
    share = rows.pivot_table(index="component", columns="chain", values="exact").reindex(index=components)
    count = rows.pivot_table(index="component", columns="chain", values="n").reindex(index=components)
    figure.add_heatmap(
        x=[str(chain) for chain in chains],
        y=list(components),
        z=share.to_numpy(),
        zmin=0,
        zmax=1,
        colorscale=theme.SEQUENTIAL,
        xgap=1,
        ygap=1,
        showscale=False,
        text=[["" if np.isnan(value) else f"{value:.2f}" for value in line] for line in share.to_numpy()],
        texttemplate="%{text}",
        textfont={"size": 10},
        customdata=count.to_numpy(),
        hovertemplate="%{y}, chain %{x}: %{z:.3f} of %{customdata:,} problems<extra></extra>",
        row=1,
        col=3,
    )
    figure.update_xaxes(title="columns that a carry passes through", type="category", row=1, col=3)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
