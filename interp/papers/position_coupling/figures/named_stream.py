"""Pictures of a construction's residual stream by named dimension, and of its patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.named_stream import NOTHING, NamedStream, as_fraction
from models.errors import UserError, unknown_name

_ROW = 21  # pixels


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
    figure = go.Figure(
        go.Heatmap(
            z=z, text=text, texttemplate="%{text}", textfont={"size": 11}, x=np.arange(len(columns)),
            y=np.arange(len(rows)), zmin=-1, zmax=1, colorscale=theme.DIVERGING, reversescale=True, xgap=1, ygap=1,
            hovertemplate="%{text}<extra></extra>", showscale=False,
        )
    )  # fmt: skip
    for place, (stage, start, count) in enumerate(blocks):
        if place:
            figure.add_hline(y=start - 0.5, line={"color": theme.BLACK, "width": 2})
        figure.add_annotation(
            x=1.01, xref="paper", y=start + (count - 1) / 2, xanchor="left", showarrow=False, text=f"<b>{stage}</b>"
        )
    bottom = len(rows) - 0.5
    if whole:
        for x, position in enumerate(columns.tolist()):
            asked = position >= result.first
            said = result.predicted[position] if asked else ""
            last = position == len(result.tokens) - 1
            good = last or (asked and result.right[position - result.first])
            figure.add_annotation(
                x=x, y=len(rows) + 0.1, text=f"<b>{said}</b>", showarrow=False,
                font={"size": 14, "color": theme.BLUE if good else theme.VERMILION},
            )  # fmt: skip
        figure.add_annotation(
            x=1.01, xref="paper", y=len(rows) + 0.1, xanchor="left", showarrow=False, text="<b>next token</b>"
        )
        bottom = len(rows) + 0.8
    ticks = [f"<b>{result.tokens[c]}</b><br>{_ids(result.ids[c])}" if result.ids else result.tokens[c] for c in columns]
    figure.update_xaxes(
        side="top", tickvals=list(range(len(columns))), ticktext=ticks, tickangle=0, showgrid=False, zeroline=False
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=rows, range=[bottom, -0.5], showgrid=False, zeroline=False,
        tickfont={"size": 11},
    )  # fmt: skip
    under = ", above their position ids" if result.ids else ""
    note = f"Columns: the tokens read{under}. Red: positive, blue: negative, each name on its own scale"
    width = 200 + 34 * len(columns) if len(columns) > 20 else 940
    finished = theme.finish(figure, _title(result, stages, whole), result.provenance, width, 200, note=note)
    top = (finished.layout.margin.t or 0) + 34
    return finished.update_layout(
        height=top + _ROW * (len(rows) + (1.3 if whole else 0)) + 16,
        margin={"t": top, "b": 16, "l": 118, "r": 92},
    )


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
    """One panel a head: rows predict the next token from "=" on, columns are the tokens that can be attended to."""
    heads = [(i, h) for i in result.pattern.layer.values.tolist() for h in result.pattern["head"].values.tolist()]
    queries = list(range(result.first, len(result.tokens)))
    writers = result.writers()
    names = [f"{result.tokens[q]} → {result.predicted[q]}" for q in queries]
    titles = [f"L{i}H{h} fills {_filled(writers, f'L{i}H{h}')}" for i, h in heads]
    figure = make_subplots(
        rows=-(-len(heads) // 2), cols=2, subplot_titles=titles, horizontal_spacing=0.07, vertical_spacing=0.09,
        shared_xaxes=True,
    )  # fmt: skip
    for number, (layer, head) in enumerate(heads):
        row, column = number // 2 + 1, number % 2 + 1
        weight = result.pattern.sel(layer=layer, head=head).values[queries]
        visible = np.arange(weight.shape[1]) <= np.array(queries)[:, None]
        figure.add_heatmap(
            z=np.where(visible, weight, np.nan), zmin=0, zmax=1, colorscale=theme.SEQUENTIAL, xgap=1, ygap=1,
            text=[[as_fraction(value) for value in line] for line in weight], texttemplate="%{text}",
            textfont={"size": 8}, hovertemplate="weight %{z:.4f}<extra></extra>", showscale=False, row=row, col=column,
        )  # fmt: skip
        figure.update_xaxes(
            tickvals=list(range(weight.shape[1])), ticktext=list(result.tokens), tickangle=0, showgrid=False,
            showticklabels=True, title="token attended to" if row == -(-len(heads) // 2) else None, row=row, col=column,
        )  # fmt: skip
        figure.update_yaxes(
            tickvals=list(range(len(queries))), ticktext=names,
            autorange="reversed", showgrid=False, zeroline=False, row=row, col=column,
        )  # fmt: skip
    figure.update_yaxes(title="token read → token predicted", col=1)
    figure.update_layout(plot_bgcolor=theme.LIGHT)
    weights = result.pattern.values[:, :, queries]
    counted = (weights > NOTHING).sum(-1)
    equal = bool((abs(weights.max(-1) * counted - 1) < NOTHING * counted).all())
    shares = "shares its weight equally among" if equal else "attends to"
    title = f"A head {shares} {counted.min()} to {counted.max()} tokens"
    if (weights[..., 0] > NOTHING).all():
        title = f"A head {shares} the first token and up to {counted.max() - 1} others"
    note = "Weights as fractions; grey: not visible"
    height = 190 + 390 * -(-len(heads) // 2)
    return theme.finish(figure, title, result.provenance, width=1180, height=height, note=note)


def _filled(writers: dict[str, list[str]], stage: str) -> str:
    return ", ".join(name for name, by in writers.items() if stage in by) or "nothing"
