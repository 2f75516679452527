"""The result of :func:`interp.compare_models`: one row per model, one column per question."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pandas as pd

from interp.core.drawings import drawing
from interp.core.estimate import DoesNotApply, Estimate
from interp.core.results import Provenance, Result
from interp.core.views import Picture, Table
from models.errors import known_name
from models.number_format import counted


@dataclass(frozen=True)
class TableQuestion:
    """A column: the name of a probe, its ``heading`` in a table, the question in ``words``, the ``unit`` of its number,
    and the ``least`` difference that counts as one."""

    name: str
    heading: str
    words: str
    unit: str  # "share", "count", or the name of a unit
    least: float = 0.0


@dataclass(frozen=True)
class ModelRow:
    """A model and its answers by question. ``asked``: the task; ``made``: who found its numbers, as the registry
    says, or ""."""

    name: str
    asked: str
    made: str
    parameters: int
    layers: int
    heads: int
    units: int  # MLP units, all layers
    answers: Mapping[str, Estimate | DoesNotApply]


@dataclass(frozen=True, eq=False)
class ModelTable(Result):
    """Models of any formats asked the same questions. ``provenance.n`` is the number of problems per question unless an
    answer states another."""

    questions: tuple[TableQuestion, ...]
    rows: tuple[ModelRow, ...]
    provenance: Provenance

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    def question(self, name: str) -> TableQuestion:
        """A question by name. Raises UserError if it was not asked."""
        known = {question.name: question for question in self.questions}
        return known[known_name("question", name, known)]

    def row(self, model: str) -> ModelRow:
        """A model's row by name. Raises UserError if the model was not asked."""
        known = {row.name: row for row in self.rows}
        return known[known_name("model", model, known)]

    def answer(self, model: str, question: str) -> Estimate | DoesNotApply:
        """One cell. Raises UserError for a model or question that is not in the table."""
        return self.row(model).answers[self.question(question).name]

    def with_rows(self, rows: Iterable[ModelRow]) -> ModelTable:
        """The table with more models; a row with a known name replaces the old one."""
        merged = {row.name: row for row in (*self.rows, *rows)}
        return replace(self, rows=tuple(merged.values()))

    def select(self, models: Sequence[str]) -> ModelTable:
        """Some of the models, in this order. Raises UserError for an unknown one."""
        return replace(self, rows=tuple(self.row(name) for name in models))

    def sentence(self) -> str:
        """How many models were asked, and from where to where the answers to the first question go."""
        asked = f"{counted(len(self.rows), 'model')} on {counted(len({row.asked for row in self.rows}), 'task')}"
        for question in self.questions:
            answers = [row.answers[question.name] for row in self.rows]
            if values := [each.value for each in answers if isinstance(each, Estimate)]:
                ends = dict.fromkeys(value_text(end, question.unit) for end in (min(values), max(values)))
                more = f", the first of {counted(len(self.questions), 'question')}" if len(self.questions) > 1 else ""
                return f"{asked}: {question.heading} {' to '.join(ends)}{more}."
        return f"{asked}: no question applies."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per model and question: value, low, high, n, strength, control and what it is, note; ``why`` says
        why a question does not apply."""
        rows = []
        for row in self.rows:
            for question in self.questions:
                answer = row.answers[question.name]
                cell: dict[str, Any] = {"model": row.name, "question": question.name, "unit": question.unit}
                if isinstance(answer, DoesNotApply):
                    rows.append(cell | {"why": answer.why})
                    continue
                numbers = {key: value for key, value in asdict(answer).items() if key != "parts"}
                rows.append(numbers | cell | {"why": ""})
        order = ["model", "question", *(field.name for field in fields(Estimate)), "why"]
        return pd.DataFrame(rows).reindex(columns=[each for each in order if each not in ("parts", "name")])

    def texts(self) -> pd.DataFrame:
        """The table in words: value, interval and control in a cell, a dash if a question does not apply. Cells break
        only before the control."""
        rows = []
        for row in self.rows:
            answers = {question.heading: (row.answers[question.name], question) for question in self.questions}
            cells = {heading: _unbroken(cell_text(*answer)) for heading, answer in answers.items()}
            rows.append({"model": row.name, "asked about": row.asked, "parameters": row.parameters} | cells)
        return pd.DataFrame(rows)


def value_text(value: float, unit: str) -> str:
    """A value as a table shows it: three decimals of a share, never 1.000 for less than all."""
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "share" and 0.9995 <= value < 1:
        return f"{value:.5f}".rstrip("0") if value < 0.999995 else "< 1"
    return f"{value:.3f}"


def _unbroken(cell: str) -> str:
    return cell.replace(" ", "\u00a0").replace(";\u00a0", "; ")


def cell_text(answer: Estimate | DoesNotApply, question: TableQuestion) -> str:
    """A cell's text: value, interval or strength, and control."""
    if isinstance(answer, DoesNotApply):
        return "–"
    text = value_text(answer.value, question.unit)
    if answer.low is not None and answer.high is not None:
        text += f" [{answer.low:.3f}, {answer.high:.3f}]"
    elif answer.strength is not None:
        text += f" ({answer.strength})"
    return text if answer.control is None else f"{text}; control {answer.control:.3f}"


_COLOURED = ("share", "AUROC")  # units on a scale from 0 to 1
_PARTS = 12  # of an answer, as many as a hover text has room for


@drawing(ModelTable)
def model_table_view(result: ModelTable) -> Picture:
    """One row per model and a column per question."""
    answers = [[(row.answers[question.name], question) for question in result.questions] for row in result.rows]
    said = [
        [f"<b>{row.name}</b>, {row.asked}<br>{_heard(*cell)}" for cell in line]
        for row, line in zip(result.rows, answers, strict=True)
    ]
    shares = [[_share(*cell) for cell in line] for line in answers]
    grey = [[isinstance(answer, DoesNotApply) for answer, _ in line] for line in answers]
    texts, headings = (
        [[_short(*cell) for cell in line] for line in answers],
        [each.heading for each in result.questions],
    )
    table = Table(texts=texts, rows=result.names, columns=headings, shares=shares, grey=grey, said=said)
    note = (
        ">.98 means that all sampled cases are right (the lower end of the 95% interval); 1 means all inputs. "
        "Grey: the question does not apply. Hover for intervals, controls, parts and reasons"
    )
    return Picture([table], note=note)


def _share(answer: Estimate | DoesNotApply, question: TableQuestion) -> float:
    return answer.value if isinstance(answer, Estimate) and question.unit in _COLOURED else float("nan")


def _short(answer: Estimate | DoesNotApply, question: TableQuestion) -> str:
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


def _heard(answer: Estimate | DoesNotApply, question: TableQuestion) -> str:
    if isinstance(answer, DoesNotApply):
        return "<br>".join((question.heading, "does not apply: " + "<br>".join(textwrap.wrap(answer.why, 70))))
    lines = [f"{question.heading}: {value_text(answer.value, question.unit)}"]
    if answer.low is not None and answer.high is not None:
        lines[0] += f" [{answer.low:.3f}, {answer.high:.3f}]"
    if answer.strength is not None:
        lines.append(answer.strength + ("" if answer.n is None else f", n = {answer.n:,}"))
    if answer.control is not None:
        lines.append(f"{answer.control_note}: {answer.control:.3f}")
    if answer.note:
        lines += textwrap.wrap(answer.note, 70)
    lines += [f"{part.name}: {value_text(part.value, question.unit)}" for part in answer.parts[:_PARTS]]
    return "<br>".join(lines)
