"""Figures of :class:`interp.compare.model_table.ModelTable`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from interp.compare.model_table import ModelTable, Question, value_text
from interp.core.drawings import drawing
from interp.core.measured import DoesNotApply, Measured
from interp.figures import theme
from interp.figures.layers import cells, hover, words
from interp.figures.panels import Panel, compose, label

_WIDTH, _ROW, _HEADINGS = 1100, 24, 200  # pixels; the headings lean above the table
_LIMITS = (0, 1.15)  # colour range of shares: text stays readable on 1
_LETTER = 7.0  # width of a letter of a model's name, in pixels
_COLOURED = ("share", "AUROC")  # units on a scale from 0 to 1
_PARTS = 12  # of an answer, as many as a hover text has room for
_SAID = 3  # questions whose answers the title tells
_NOTE = (
    ">.98 means that all sampled cases are right (the lower end of the 95% interval); 1 means all inputs. "
    "Grey: the question does not apply. Hover for intervals, controls, parts and reasons"
)


@drawing(ModelTable)
def across(result: ModelTable) -> go.Figure:
    """One row per model and a column per question."""
    many = len(result.rows)
    title = f"{many} model{'s' * (many != 1)}: {'; '.join(result.ranges()[:_SAID]) or 'no question applies'}"
    return compose(
        [_table(result)], title, result.provenance, note=_NOTE, width=_WIDTH, plots=_ROW * many + _HEADINGS,
        margin={"b": 30, "l": _left(result.names), "r": 190}, meta={"least_width": 900},
    )  # fmt: skip


def _left(names: Sequence[str]) -> int:
    return round(max(120, _LETTER * max(map(len, names)) + 14))


def _table(result: ModelTable) -> Panel:
    """Every answer as a cell, with slanted headings above."""
    columns, rows = list(range(len(result.questions))), list(range(len(result.rows)))
    answers = [[(row.answers[question.name], question) for question in result.questions] for row in result.rows]
    colours = [[_colour(*cell) for cell in line] for line in answers]
    texts = [[_short(*cell) for cell in line] for line in answers]
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
    return Panel(layers, x=x_axis, y=y_axis, marks=headings)


def _rows(result: ModelTable) -> dict[str, Any]:
    """An axis with one tick per model."""
    return {
        "tickvals": list(range(len(result.rows))), "ticktext": result.names,
        "range": [len(result.rows) - 0.5, -0.5], "showgrid": False, "zeroline": False, "tickfont": {"size": 12},
    }  # fmt: skip


def _colour(answer: Measured | DoesNotApply, question: Question) -> float | None:
    return answer.value if isinstance(answer, Measured) and question.unit in _COLOURED else None


def _short(answer: Measured | DoesNotApply, question: Question) -> str:
    """A number that fits into a cell; a share is shown as 1 only if nothing was wrong, and nothing can be."""
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


def _hover(answer: Measured | DoesNotApply, question: Question) -> str:
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
        lines += textwrap.wrap(answer.note, 70)
    lines += [f"{part.name}: {value_text(part.value, question.unit)}" for part in answer.parts[:_PARTS]]
    return "<br>".join(lines)
