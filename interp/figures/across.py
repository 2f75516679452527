"""Figures of :class:`interp.compare.model_table.ModelTable`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.compare.answers import Question
from interp.compare.model_table import ModelRow, ModelTable, value_text
from interp.core.answers import Answer, DoesNotApply
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, hover, words
from interp.figures.panels import Panel, compose, label
from models.errors import UserError
from models.tasks.places import OWN, PLACES

_WIDTH, _ROW, _GAP, _HEADINGS = 1180, 24, 130, 150  # pixels; the headings lean above the table
_LIMITS = (0, 1.15)  # colour range of shares: text stays readable on 1
_LETTER = 7.0  # width of a letter of a model's name, in pixels
_COLOURED = ("share", "separability")  # units on a scale from 0 to 1
_OF_ANSWERS = ("uniform", "carry-rich", "chains")  # shares of whole answers that are right
_PLACE_COLOURS: dict[str, str] = dict(
    zip(PLACES, (theme.BLUE, theme.ORANGE, theme.GREEN, theme.GREY, theme.LIGHT), strict=True)
)


@drawing(ModelTable)
def across(result: ModelTable) -> go.Figure:
    """One row per model: a column per question, and below it where each model looks, and accuracy by chain length."""
    asked = {question.name for question in result.questions}
    below = ["attention"] if result.has_attention else []
    below += ["chains"] if "chains" in asked and result.answered("chains") else []
    height = _ROW * len(result.rows)
    panels = [_table(result)]
    if "attention" in below:
        panels.append(_places(result, 3 - len(below)))
    if "chains" in below:
        panels.append(_chains(result, 3 - len(below)))
    heights = [height + _HEADINGS, *([height] if below else [])]
    total = sum(heights) + (_GAP if below else 0)
    return compose(
        panels, _title(result), result.provenance, note=_NOTE, columns=2, width=_WIDTH, plots=total, heights=heights,
        widths=[0.52, 0.48], gaps=(40, _GAP), barmode="overlay", meta={"least_width": 1000},
        margin={"b": 110 if below else 30, "l": _left(result.names), "r": 90}, legend={"y": -60 / total},
    )  # fmt: skip


_NOTE = (
    ">.98 means that all sampled cases are right (the lower end of the 95% interval); 1 means proved for all inputs. "
    "Grey: the question does not apply. Hover for intervals, controls and reasons"
)


@drawing(ModelTable, "heads")
def heads(result: ModelTable, models: Sequence[str] | None = None) -> go.Figure:
    """Where every head looks, one bar per head."""
    chosen = result if models is None else result.select(models)
    if not chosen.has_attention:
        raise UserError("None of these models was asked where it looks, or to none do these questions apply.")
    parts = {place: chosen.parts(f"attention: {place}") for place in PLACES}
    first = parts[PLACES[0]]
    names = [f"{model} {head}" for model, head in zip(first["model"], first["head"], strict=True)]
    layers = [
        bars(
            table["value"], names, place, _PLACE_COLOURS[place], across=True, marker={"line": {"width": 0}},
            **hover(f"{{y}}: {{x:.3f}} on {place}"),
        )
        for place, table in parts.items()
    ]  # fmt: skip
    on_own = parts[OWN].groupby("model", sort=False)["value"].max()
    title = (
        f"{int((on_own > 0.5).sum())} of {len(on_own)} models have a head that gives most of its attention to the two "
        "digits of its column"
    )
    y = {"autorange": "reversed", "tickfont": {"size": 11}, "tickmode": "array", "tickvals": names}
    panel = Panel(layers, x={"title": "share of the attention of an inner column's query", "range": [0, 1]}, y=y)
    return compose(
        [panel], title, chosen.provenance, width=_WIDTH, plots=15 * len(names), barmode="stack", bargap=0.15,
        margin={"t": 34, "l": _left(names)}, legend={"y": 1, "yanchor": "bottom"},
    )  # fmt: skip


def _left(names: Sequence[str]) -> int:
    return round(max(120, _LETTER * max(map(len, names)) + 14))


def _title(result: ModelTable) -> str:
    """The title: what the models that add have in common, and where they differ."""
    many, found = len(result.rows), result.findings()
    if not found:
        return f"{many} model{'s' * (many != 1)}, the same questions"
    start = f"{many} adders" if result.adding == result.names else f"{len(result.adding)} of {many} models add"
    return f"{start}: {'; '.join(found[:3])}"


def _table(result: ModelTable) -> Panel:
    """Every answer as a cell, with slanted headings above."""
    columns, rows = list(range(len(result.questions))), list(range(len(result.rows)))
    answers = [[(row.answers[question.name], question) for question in result.questions] for row in result.rows]
    colours = [[_colour(*cell) for cell in line] for line in answers]
    texts = [
        [_short(*cell, proved=_proved(row, cell[1])) for cell in line]
        for row, line in zip(result.rows, answers, strict=True)
    ]
    hovers = [
        f"<b>{row.name}</b>, {row.asked}<br>{_hover(*cell)}"
        for row, line in zip(result.rows, answers, strict=True)
        for cell in line
    ]
    missing = [[1 if isinstance(answer, DoesNotApply) else None for answer, _ in line] for line in answers]
    pairs = [list(zip(*lines, strict=True)) for lines in zip(colours, texts, strict=True)]
    inside = [["" if colour is None else text for colour, text in line] for line in pairs]
    style: dict[str, Any] = {"limits": _LIMITS, "gap": 2, "hoverinfo": "skip", "hoverongaps": False}
    # Gaps of a heat map have neither text nor hover, so invisible points carry both for every cell.
    aside = ["" if colour is not None else text for line in pairs for colour, text in line]
    flat = [(x, y) for y in rows for x in columns]
    layers = [
        cells(missing, columns, rows, scale=[[0, theme.LIGHT], [1, theme.LIGHT]], **style),
        cells(colours, columns, rows, text=inside, letters=11, **style),
        words(
            [x for x, _ in flat], [y for _, y in flat], aside, size=11, hovertext=hovers, **hover("{hovertext}"),
        ),
    ]  # fmt: skip
    lean = {"textangle": -55, "xanchor": "left", "yanchor": "bottom", "xshift": -4}
    headings = [label(x, -0.5, question.heading, **lean) for x, question in enumerate(result.questions)]
    x_axis = {"showticklabels": False, "range": [-0.5, len(columns) - 0.5]}
    y_axis = _rows(result) | {"range": [len(rows) - 0.5, -0.5 - _HEADINGS / _ROW]}
    return Panel(layers, x=x_axis, y=y_axis, marks=headings, span=2)


def _rows(result: ModelTable, shown: bool = True) -> dict[str, Any]:
    """An axis with one tick per model."""
    return {
        "tickvals": list(range(len(result.rows))), "ticktext": result.names, "showticklabels": shown,
        "range": [len(result.rows) - 0.5, -0.5], "showgrid": False, "zeroline": False, "tickfont": {"size": 12},
    }  # fmt: skip


def _colour(answer: Answer | DoesNotApply, question: Question) -> float | None:
    return answer.value if isinstance(answer, Answer) and question.unit in _COLOURED else None


def _proved(row: ModelRow, question: Question) -> bool:
    """Whether all of a question's answers are right by a proof, or since all inputs were run."""
    whole = row.answers.get("all inputs")
    return question.name in _OF_ANSWERS and isinstance(whole, Answer) and whole.value == 1 and whole.rung != "sampled"


def _short(answer: Answer | DoesNotApply, question: Question, proved: bool = False) -> str:
    """A number that fits into a cell; a share is shown as 1 only if nothing was wrong, and nothing can be."""
    if isinstance(answer, DoesNotApply):
        return "–"
    value = answer.value
    if question.unit == "count":
        return f"{value / 1e3:,.0f}k" if value >= 10_000 else f"{value:,.0f}"
    if question.unit != "share" or value < 1:
        return f"{min(value, 0.994) if question.unit == 'share' else value:.2f}"
    if answer.low is None or proved:
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


def _places(result: ModelTable, span: int) -> Panel:
    """Shares of attention by place, one stacked bar per model; its untrained twin has a thin, pale bar."""
    names, layers = result.names, []
    for trained, offset, width in ((True, -0.36, 0.46), (False, 0.14, 0.2)):
        base = [0.0] * len(names)
        for place in PLACES:
            found = result.answered(f"attention: {place}")
            answers = [found.get(name) for name in names]
            values = [0.0 if a is None else a.value if trained else a.control or 0.0 for a in answers]
            said = hover(
                f"{{model}}: {{share:.3f}} on {place if trained else f'{place}, untrained twin'}",
                model=names, share=values,
            )  # fmt: skip
            style: dict[str, Any] = {"base": base, "offset": offset, "width": width, "marker": {"line": {"width": 0}}}
            style |= {"opacity": 1 if trained else 0.55, "showlegend": trained}
            rows = list(range(len(names)))
            layers.append(bars(values, rows, place, _PLACE_COLOURS[place], across=True, **style, **said))
            base = [start + value for start, value in zip(base, values, strict=True)]
    x = {"title": "share of attention", "range": [0, 1]}
    return Panel(layers, "where the queries look, mean over heads (thin: untrained)", x, _rows(result), span=span)


def _chains(result: ModelTable, span: int) -> Panel:
    """Share of right answers by model and chain length."""
    known, question = result.answered("chains"), result.question("chains")
    lengths = sorted({int(part.name) for answer in known.values() for part in answer.parts})
    shape = (len(result.names), len(lengths))
    z, texts, hovers = np.full(shape, np.nan), np.full(shape, "", dtype=object), np.full(shape, "", dtype=object)
    for row, name in enumerate(result.names):
        proved = _proved(result.rows[row], question)
        for part in known[name].parts if name in known else ():
            at = row, lengths.index(int(part.name))
            z[at], texts[at] = part.value, _short(Answer(part.value, part.low, part.high, part.n), question, proved)
            interval = "" if part.low is None else f" [{part.low:.3f}, {part.high:.3f}]"
            hovers[at] = (
                f"{name}, chain length {part.name}: {value_text(part.value, 'share')}{interval}, n = {part.n:,}"
            )
    style: dict[str, Any] = {"text": texts, "letters": 11, "gap": 2, "hoverongaps": False} | hover(
        "{said}", said=hovers
    )
    layer = cells(z, lengths, list(range(len(result.rows))), limits=_LIMITS, **style)
    x = {"title": "length of the longest carry chain", "dtick": 1}
    return Panel([layer], "right answers by carry-chain length", x, _rows(result, shown=span == 2), span=span)
