"""The figure of :class:`interp.compare.swaps.swap_result.Swaps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from interp.compare.swaps.swap_result import KEPT, Swaps
from interp.compare.swaps.swapped_parts import EVERYTHING
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover, points, words, written
from interp.figures.panels import Panel, compose, vline
from models.errors import UserError, known_name

_ROW = 30  # pixels
_MARKS = {  # source: name, symbol, colour, size; drawn in this order
    "untrained": ("untrained model's", "diamond-open", theme.ORANGE, 8),
    "ablated": ("ablated", "line-ns", theme.BLACK, 12),
    "shuffled": ("the other's on another problem", "x-thin", theme.GREY, 9),
    "itself": ("its own, mapped alike", "circle-open", theme.GREEN, 13),
    "swapped": ("the other's", "circle", theme.BLUE, 10),
}
_WHOLE = ("L0.attn", "L0.mlp", EVERYTHING)  # of one layer
_MEASURES = {
    "exact": "problems with every answer token right (95% interval)",
    "recovered": "loss recovered: 0 as ablated, 1 as the whole model (95% interval)",
}


@drawing(Swaps)
def swaps(result: Swaps, measure: str = "exact") -> go.Figure:
    """One row per component: the share right with the other model's part in its place, with controls; how close the
    mapped part is to the model's own; and the share right by carry-chain length.

    Raises:
        UserError: an unknown measure.
    """
    known_name("measure", measure, _MEASURES)
    components = result.components
    if not components:
        raise UserError("There is no swap to draw.")
    whole = float(result.whole["exact"]) if measure == "exact" else 1.0
    x = {"range": [-0.03 if measure == "exact" else -1.08, 1.03], "title": _MEASURES[measure], "zeroline": False}
    down = {
        "autorange": "reversed", "categoryorder": "array", "categoryarray": components, "tickfont": {"size": 12},
        "range": [len(components) - 0.5, -0.5],
    }  # fmt: skip
    marks = [layer for source in _MARKS for layer in _marks(result, source, measure)]
    hidden = {"range": [0, 1], "showgrid": False, "showticklabels": False, "zeroline": False}
    closeness = words([0.5] * len(components), components, [_closeness(result, name) for name in components], size=11)
    panels = [
        Panel(
            marks, "with the part replaced", x, down | {"title": {"text": "part replaced", "standoff": 8}},
            [vline(whole, dash="dot")],
        ),
        Panel([closeness], "R² · free numbers", hidden, down | {"showgrid": False}),
        Panel(
            [_by_chain(result, components)], "exact match by longest carry chain",
            "columns that a carry passes through", down,
        ),
    ]  # fmt: skip
    note = (
        f"maps fitted on {result.n_fit:,} other problems; dotted line: {result.names[0]} whole; R²: held-out, of the "
        "mapped part (w: weight in common of patterns), and how many numbers were free in the map"
    )
    if result.control[1]:
        note += f"; untrained: {result.control[1]} freshly drawn models, of {result.control[0] or 'those given'}"
    height = _ROW * len(components)
    return compose(
        panels, title(result), result.provenance, note=note, columns=3, width=1180, plots=height, shared="y",
        widths=[0.52, 0.13, 0.35], gaps=(18, 0), margin={"l": 190, "r": 40, "b": 120, "t": -15},
        legend={"y": -64 / height, "traceorder": "reversed"},
    )  # fmt: skip


def title(result: Swaps) -> str:
    """Answers left with the other model's attention, MLP and both; for other choices of parts, which keep them.

    For a model that has no answers to keep, the whole sentence."""
    if not result.able:
        return result.sentence()
    first, second = result.names
    if set(_WHOLE) <= set(result.components):
        attention, mlp, both = (f"{result.swapped(name)['exact']:.2f}" for name in _WHOLE)
        return (
            f"{first} answers {attention} of the problems with {second}'s attention in place of its own, {mlp} with "
            f"its MLP, {both} with both"
        )
    kept = result.kept()
    if not kept:
        return f"{first} keeps its answers with none of these parts taken from {second}"
    lost = [name for name in result.components if name not in kept]
    more = f", fewer with {_listed(lost)}" if lost else ""
    return f"{first} with parts of {second}: at least {KEPT:.0%} of its answers are left with {_listed(kept)}{more}"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:5])
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _marks(result: Swaps, source: str, measure: str) -> list[go.Scatter]:
    name, symbol, colour, size = _MARKS[source]
    rows = result.table[result.table["source"] == source]
    if (measure == "recovered" and source == "ablated") or rows.empty:
        return []
    ends = ("low", "high") if measure == "exact" else ("recovered_low", "recovered_high")
    said = [
        f"{row.component}: {row.exact:.3f} [{row.low:.3f}, {row.high:.3f}] of {row.n:,} problems, {row.tokens:.3f} of "
        f"tokens<br>loss {row.loss:.4g} nats, recovered {_number(row.recovered)} "
        f"[{_number(row.recovered_low)}, {_number(row.recovered_high)}]"
        + (f"<br>taken from {row.partner}" if source in ("swapped", "shuffled") and row.partner else "")
        + (f"<br>p against untrained {row.p_untrained:.3f}" if row.p_untrained == row.p_untrained else "")
        for row in rows.itertuples()
    ]
    style: dict[str, Any] = {"text": said, "marker": {"line": {"width": 2, "color": colour}}} | hover(
        "{text}", extra=name
    )
    if source == "swapped":
        style |= {"ends_x": (rows[ends[0]].clip(lower=-1.0), rows[ends[1]]), "bar": {"thickness": 1.5}}
    values = rows[measure].astype(float).clip(lower=-1.0)
    return [points(values, rows["component"], name, colour, symbol, size, **style)]


def _closeness(result: Swaps, component: str) -> str:
    """R squared, overlap and free numbers as text."""
    row = result.swapped(component)
    parts = [f"{row['r2']:.3f}"] if not pd.isna(row["r2"]) else []
    parts += [f"w {row['overlap']:.2f}"] if not pd.isna(row["overlap"]) else []
    return " ".join(parts) + (f" · {int(row['fitted']):,}" if row["fitted"] else "")


def _by_chain(result: Swaps, components: Sequence[str]) -> go.Heatmap:
    rows = result.by_chain[result.by_chain["source"] == "swapped"]
    share, count = (
        rows.pivot_table(index="component", columns="chain", values=value).reindex(index=components).to_numpy()
        for value in ("exact", "n")
    )
    chains = [str(chain) for chain in sorted(result.by_chain["chain"].unique())]
    said = hover("{y}, chain {x}: {z:.3f} of {n:,} problems", n=count)
    return cells(share, chains, list(components), text=written(share), letters=10, **said)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
