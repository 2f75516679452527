"""The pictures of :class:`interp.compare.table.ModelTable`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.compare.answers import Question
from interp.compare.subject import PLACES
from interp.compare.table import ModelTable, value_text
from interp.core.answers import Answer, DoesNotApply
from interp.figures import theme
from interp.figures.drawing import drawing
from models.errors import UserError

_WIDTH, _ROW, _GAP, _HEADINGS = 1180, 24, 130, 150  # pixels; the headings lean above the table
_LETTER = 7.0  # pixels of a model's name
_COLOURED = ("share", "separability")  # units on a scale from 0 to 1
_PLACE_COLOURS: dict[str, str] = dict(
    zip(PLACES, (theme.BLUE, theme.ORANGE, theme.GREEN, theme.GREY, theme.LIGHT), strict=True)
)


@drawing(ModelTable)
def across(result: ModelTable) -> go.Figure:
    """Rows are models: every question in a column, then where each model looks, beside accuracy by chain length."""
    asked = {question.name for question in result.questions}
    below = ["attention"] if result.has_attention else []
    below += ["chains"] if "chains" in asked and result.answered("chains") else []
    height = _ROW * len(result.rows)
    heights = [height + _HEADINGS, *([height] if below else [])]
    total = sum(heights) + (_GAP if below else 0)
    specs: list[Any] = [[{"colspan": 2}, None]]
    titles = [""]
    if below:
        specs.append([{}, {}] if len(below) == 2 else [{"colspan": 2}, None])
        named = {"attention": "where the queries look, mean over heads (thin: untrained)"}
        titles += [named.get(name, "right answers by carry-chain length") for name in below]
    figure = make_subplots(
        rows=len(specs),
        cols=2,
        specs=specs,
        column_widths=[0.52, 0.48],
        row_heights=heights,
        vertical_spacing=_GAP / total if below else 0,
        horizontal_spacing=0.04,
        subplot_titles=titles,
    )
    _table(figure, result)
    for column, name in enumerate(below, 1):
        _places(figure, result, column) if name == "attention" else _chains(figure, result, column)
    left = _left(result.names)
    figure = theme.finish(figure, _title(result), result.provenance, _WIDTH - left, total, _NOTE)
    top, bottom = int(figure.layout.margin.t), 110 if below else 30
    figure.update_layout(
        width=_WIDTH,
        height=total + top + bottom,
        margin={"t": top, "b": bottom, "l": left, "r": 90},
        barmode="overlay",
        meta={"least_width": 1000},
    )
    figure.update_annotations(font_size=13)
    for question, x in zip(result.questions, range(len(result.questions)), strict=True):
        figure.add_annotation(
            x=x, y=-0.5, xref="x", yref="y", text=question.heading, textangle=-55, showarrow=False,
            xanchor="left", yanchor="bottom", font={"size": 12}, xshift=-4,
        )  # fmt: skip
    legend = {"orientation": "h", "x": 0, "y": -60 / total, "yanchor": "top", "font": {"size": 12}}
    figure.update_layout(legend=legend | {"traceorder": "normal"})
    return figure


_NOTE = (
    "a share of 1 in a sample shows the lower end of its 95% interval, 1 itself stands for all inputs; grey: the "
    "question does not apply. Hover for intervals, controls and reasons"
)


@drawing(ModelTable, "heads")
def heads(result: ModelTable, models: Sequence[str] | None = None) -> go.Figure:
    """Where every head looks: a bar a head."""
    chosen = result if models is None else result.select(models)
    if not chosen.has_attention:
        raise UserError("None of these models was asked where it looks, or to none do these questions apply.")
    parts = {place: chosen.parts(f"attention: {place}") for place in PLACES}
    first = parts[PLACES[0]]
    names = [f"{model} {head}" for model, head in zip(first["model"], first["head"], strict=True)]
    figure = go.Figure()
    for place, table in parts.items():
        figure.add_bar(
            x=table["value"], y=names, orientation="h", name=place,
            marker={"color": _PLACE_COLOURS[place], "line": {"width": 0}},
            hovertemplate=f"%{{y}}: %{{x:.3f}} on {place}<extra></extra>",
        )  # fmt: skip
    on_own = parts["own column"].groupby("model", sort=False)["value"].max()
    title = (
        f"{int((on_own > 0.5).sum())} of {len(on_own)} models have a head that gives most of its attention to the two "
        "digits of its column"
    )
    height = 15 * len(names)
    figure = theme.finish(figure, title, chosen.provenance, _WIDTH - 60, height)
    top, left = int(figure.layout.margin.t) + 34, _left(names)
    figure.update_layout(
        barmode="stack", bargap=0.15, width=_WIDTH, height=height + top + 60,
        margin={"t": top, "l": left, "b": 60, "r": 30},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", tickfont={"size": 11}, tickmode="array", tickvals=names)
    figure.update_xaxes(title="share of the attention of an inner column's query", range=[0, 1])
    return figure


def _left(names: Sequence[str]) -> int:
    return round(max(120, _LETTER * max(map(len, names)) + 14))


def _title(result: ModelTable) -> str:
    """What the models that add share, and where they part."""
    many, found = len(result.rows), result.findings()
    if not found:
        return f"{many} model{'s' * (many != 1)}, the same questions"
    start = f"{many} adders" if result.adding == result.names else f"{len(result.adding)} of {many} models add"
    return f"{start}: {'; '.join(found[:3])}"


def _table(figure: go.Figure, result: ModelTable) -> None:
    colours: list[list[float | None]] = []
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for row in result.rows:
        answers = [(row.answers[question.name], question) for question in result.questions]
        colours.append([_colour(*cell) for cell in answers])
        texts.append([_short(*cell) for cell in answers])
        hovers.append([f"<b>{row.name}</b>, {row.asked}<br>{_hover(*cell)}" for cell in answers])
    columns, rows = list(range(len(result.questions))), list(range(len(result.rows)))
    missing = [
        [1 if isinstance(row.answers[question.name], DoesNotApply) else None for question in result.questions]
        for row in result.rows
    ]
    inside = [
        ["" if colour is None else text for colour, text in zip(*line, strict=True)]
        for line in zip(colours, texts, strict=True)
    ]
    for z, scale, shown in ((missing, [[0, theme.LIGHT], [1, theme.LIGHT]], False), (colours, theme.SEQUENTIAL, True)):
        figure.add_heatmap(
            x=columns, y=rows, z=z, zmin=0, zmax=1.15, colorscale=scale, showscale=False, xgap=2, ygap=2,
            text=inside if shown else None, texttemplate="%{text}" if shown else None, textfont={"size": 11},
            hoverinfo="skip", hoverongaps=False, row=1, col=1,
        )  # fmt: skip
    # Gaps of a heatmap have neither text nor hover: invisible points carry both for every cell.
    flat = [(x, y) for y in rows for x in columns]
    figure.add_scatter(
        x=[x for x, _ in flat],
        y=[y for _, y in flat],
        mode="text",
        text=["" if colours[y][x] is not None else texts[y][x] for x, y in flat],
        textfont={"size": 11, "color": theme.BLACK},
        hovertext=[hovers[y][x] for x, y in flat],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
        row=1,
        col=1,
    )
    figure.update_xaxes(
        showticklabels=False, showgrid=False, zeroline=False, range=[-0.5, len(columns) - 0.5], row=1, col=1
    )
    _name_rows(figure, result, 1, 1)
    figure.update_yaxes(range=[len(rows) - 0.5, -0.5 - _HEADINGS / _ROW], row=1, col=1)


def _name_rows(figure: go.Figure, result: ModelTable, row: int, column: int, shown: bool = True) -> None:
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(result.rows))),
        ticktext=result.names,
        showticklabels=shown,
        range=[len(result.rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        tickfont={"size": 12},
        row=row,
        col=column,
    )


def _colour(answer: Answer | DoesNotApply, question: Question) -> float | None:
    return answer.value if isinstance(answer, Answer) and question.unit in _COLOURED else None


def _short(answer: Answer | DoesNotApply, question: Question) -> str:
    """A number that fits into a cell; a share is 1 only where nothing was wrong."""
    if isinstance(answer, DoesNotApply):
        return "–"
    value = answer.value
    if question.unit == "count":
        return f"{value / 1e3:,.0f}k" if value >= 10_000 else f"{value:,.0f}"
    if question.unit != "share" or value < 1:
        return f"{min(value, 0.994) if question.unit == 'share' else value:.2f}"
    if answer.low is None:
        return "1"
    digits = 3 if answer.low >= 0.99 else 2
    return ">" + f"{math.floor(answer.low * 10**digits) / 10**digits:.{digits}f}".lstrip("0")


def _hover(answer: Answer | DoesNotApply, question: Question) -> str:
    if isinstance(answer, DoesNotApply):
        return "<br>".join((question.heading, "does not apply: " + "<br>".join(textwrap.wrap(answer.why, 70))))
    lines = [f"{question.heading}: {value_text(answer.value, question.unit)}"]
    if answer.low is not None and answer.high is not None:
        lines[0] += f" [{answer.low:.3f}, {answer.high:.3f}]"
    if answer.rung is not None:
        lines.append(answer.rung + ("" if answer.n is None else f", n = {answer.n:,}"))
    if answer.control is not None:
        lines.append(f"{answer.control_note}: {answer.control:.3f}")
    if answer.note:
        lines.append(answer.note)
    return "<br>".join(lines)


def _places(figure: go.Figure, result: ModelTable, column: int) -> None:
    names = result.names
    for trained, offset, width in ((True, -0.36, 0.46), (False, 0.14, 0.2)):
        base = [0.0] * len(names)
        for place in PLACES:
            found = result.answered(f"attention: {place}")
            answers = [found.get(name) for name in names]
            values = [0.0 if a is None else a.value if trained else a.control or 0.0 for a in answers]
            said = place if trained else f"{place}, untrained twin"
            figure.add_bar(
                x=values,
                y=list(range(len(names))),
                base=base,
                orientation="h",
                offset=offset,
                width=width,
                marker={"color": _PLACE_COLOURS[place], "line": {"width": 0}},
                opacity=1 if trained else 0.55,
                name=place,
                legendgroup=place,
                showlegend=trained,
                customdata=[[name, value] for name, value in zip(names, values, strict=True)],
                hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]:.3f}} on {said}<extra></extra>",
                row=2,
                col=column,
            )
            base = [start + value for start, value in zip(base, values, strict=True)]
    figure.update_xaxes(title="share of attention", range=[0, 1], row=2, col=column)
    _name_rows(figure, result, 2, column)


def _chains(figure: go.Figure, result: ModelTable, column: int) -> None:
    known = result.answered("chains")
    lengths = sorted({int(part.name) for answer in known.values() for part in answer.parts})
    question = result.question("chains")
    z: list[list[float | None]] = []
    texts: list[list[str]] = []
    hovers: list[list[str]] = []
    for name in result.names:
        parts = {int(part.name): part for part in known[name].parts} if name in known else {}
        z.append([parts[k].value if k in parts else None for k in lengths])
        shown = {k: Answer(part.value, part.low, part.high, part.n) for k, part in parts.items()}
        texts.append([_short(shown[k], question) if k in shown else "" for k in lengths])
        hovers.append(
            [
                f"{name}, chain length {k}: {value_text(shown[k].value, 'share')}"
                + ("" if parts[k].low is None else f" [{parts[k].low:.3f}, {parts[k].high:.3f}]")
                + f", n = {parts[k].n:,}"
                if k in shown
                else ""
                for k in lengths
            ]
        )
    figure.add_heatmap(
        x=lengths, y=list(range(len(result.rows))), z=z, zmin=0, zmax=1.15, colorscale=theme.SEQUENTIAL,
        showscale=False, xgap=2, ygap=2, text=texts, texttemplate="%{text}", textfont={"size": 11}, customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>", hoverongaps=False, row=2, col=column,
    )  # fmt: skip
    figure.update_xaxes(title="length of the longest carry chain", dtick=1, showgrid=False, row=2, col=column)
    _name_rows(figure, result, 2, column, shown=column == 1)
