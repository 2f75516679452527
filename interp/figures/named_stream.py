"""Figures of a construction's residual stream by named dimension, and of its patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover
from interp.figures.panels import Mark, Panel, compose, label
from interp.probes.named_stream import NOTHING, NamedStream, as_fraction
from models.errors import UserError, unknown_name
from models.transformer.part_names import head_name

_ROW = 21  # height in pixels
_BESIDE = {"xref": "x domain", "xanchor": "left", "size": 13}
_PREDICTED = "token read → token predicted"


@drawing(NamedStream)
def named_stream(result: NamedStream, stages: Sequence[str] | None = None, response_only: bool = True) -> go.Figure:
    """Rows: the dimensions that a stage writes, block by block; columns: tokens, with their position ids.

    Raises:
        UserError: a stage that does not exist, or stages that write nothing.
    """
    known = [str(stage) for stage in result.written.stage.values]
    stages = known if stages is None else list(stages)
    for stage in stages:
        if stage not in known:
            raise unknown_name("stage", stage, known)
    first = result.first if response_only else 0
    columns = np.arange(first, len(result.tokens))
    rows, z, text, blocks = [], [], [], []
    for stage in stages:
        values = result.written.sel(stage=stage).isel(pos=columns)
        largest = abs(values).groupby("named").max(...)
        shown = [i for i in range(values.sizes["dim"]) if (abs(values.values[i]) > NOTHING).any()]
        if not shown:
            continue
        blocks.append((stage, len(rows), len(shown)))
        for i in shown:
            row = values.values[i]
            rows.append(str(values.dim.values[i]))
            z.append(row / float(largest.sel(named=str(values.named.values[i]))))
            text.append([as_fraction(value) for value in row])
    if not rows:
        raise UserError(f"{', '.join(stages)} writes nothing on this sequence.")
    whole = stages == known
    layer = cells(
        z, np.arange(len(columns)), np.arange(len(rows)), signed=1.0, text=text, letters=11, **hover("{text}")
    )
    marks = []
    for place, (stage, start, count) in enumerate(blocks):
        if place:
            line = {"color": theme.BLACK, "width": 2}
            marks.append(Mark("add_hline", {"y": start - 0.5, "line": line}))
        marks.append(label(1.01, start + (count - 1) / 2, f"<b>{stage}</b>", **_BESIDE))
    bottom = len(rows) - 0.5
    if whole:
        for x, position in enumerate(columns.tolist()):
            asked = position >= result.first
            said = result.predicted[position] if asked else ""
            last = position == len(result.tokens) - 1
            good = last or (asked and result.right[position - result.first])
            colour = theme.BLUE if good else theme.VERMILION
            marks.append(label(x, len(rows) + 0.1, f"<b>{said}</b>", 14, colour))
        marks.append(label(1.01, len(rows) + 0.1, "<b>next token</b>", **_BESIDE))
        bottom = len(rows) + 0.8
    ticks = [f"<b>{result.tokens[c]}</b><br>{_ids(result.ids[c])}" if result.ids else result.tokens[c] for c in columns]
    x_axis = {"side": "top", "tickvals": list(range(len(columns))), "ticktext": ticks, "tickangle": 0}
    y_axis = {
        "tickvals": list(range(len(rows))), "ticktext": rows, "range": [bottom, -0.5], "tickfont": {"size": 11},
    }  # fmt: skip
    under = ", above their position ids" if result.ids else ""
    note = f"Columns: the tokens read{under}. Blue: positive, vermilion: negative, each name on its own scale"
    width = 200 + 34 * len(columns) if len(columns) > 20 else 940
    return compose(
        [Panel([layer], x=x_axis, y=y_axis, marks=marks)], _title(result, stages, whole), result.provenance, note=note,
        width=width, plots=_ROW * (len(rows) + (1.3 if whole else 0)), margin={"t": 34, "b": 16, "l": 118, "r": 92},
    )  # fmt: skip


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def _title(result: NamedStream, stages: Sequence[str], whole: bool) -> str:
    writers = result.writers()
    if not whole:
        names = [name for name, by in writers.items() if set(by) & set(stages)]
        verb = "writes" if len(stages) == 1 else "write"
        return f"{' and '.join(stages).capitalize()} {verb} {len(names)} of {len(writers)} names: {', '.join(names)}"
    once = sum(len(by) == 1 for by in writers.values())
    return (
        f"{once} of {len(writers)} named dimensions are written once, by one part; {sum(result.right)} of "
        f"{len(result.right)} next tokens are right"
    )


@drawing(NamedStream, "patterns")
def named_patterns(result: NamedStream) -> go.Figure:
    """One panel per head: rows predict the next token from "=" on, columns are the tokens that can be attended to."""
    heads = [(i, h) for i in result.pattern.layer.values.tolist() for h in result.pattern["head"].values.tolist()]
    queries = list(range(result.first, len(result.tokens)))
    writers = result.writers()
    names = [f"{result.tokens[q]} → {result.predicted[q]}" for q in queries]
    titles = [f"{head_name(i, h)} fills {_filled(writers, f'{head_name(i, h)}')}" for i, h in heads]
    panels = []
    for (layer, head), title in zip(heads, titles, strict=True):
        weight = result.pattern.sel(layer=layer, head=head).values[queries]
        visible = np.arange(weight.shape[1]) <= np.array(queries)[:, None]
        text = [[as_fraction(value) for value in line] for line in weight]
        drawn = cells(np.where(visible, weight, np.nan), text=text, letters=8, **hover("weight {z:.4f}"))
        x = {
            "tickvals": list(range(weight.shape[1])), "ticktext": list(result.tokens), "tickangle": 0,
            "title": "token attended to" if len(panels) >= len(heads) - 2 else "", "showticklabels": True,
        }  # fmt: skip
        y = {"tickvals": list(range(len(queries))), "ticktext": names}
        panels.append(Panel([drawn], title, x, y | {"title": "" if len(panels) % 2 else _PREDICTED}))
    weights = result.pattern.values[:, :, queries]
    counted = (weights > NOTHING).sum(-1)
    equal = bool((abs(weights.max(-1) * counted - 1) < NOTHING * counted).all())
    shares = "shares its weight equally among" if equal else "attends to"
    title = f"A head {shares} {counted.min()} to {counted.max()} tokens"
    if (weights[..., 0] > NOTHING).all():
        title = f"A head {shares} the first token and up to {counted.max() - 1} others"
    note = "Weights as fractions; grey: not visible"
    height = 190 + 390 * -(-len(heads) // 2)
    return compose(
        panels, title, result.provenance, note=note, columns=2, width=1180, height=height, gaps=(76, 70), shared="x",
        plot_bgcolor=theme.LIGHT,
    )  # fmt: skip


def _filled(writers: dict[str, list[str]], stage: str) -> str:
    return ", ".join(name for name, by in writers.items() if stage in by) or "nothing"
