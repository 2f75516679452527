"""The result of :func:`interp.compare_models`: one row per model, one column per question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from interp.causal.interchange.accuracy import counted
from interp.compare.answers import Question
from interp.core.answers import Answer, DoesNotApply
from interp.core.results import Provenance, Result
from models.errors import UserError, known_name
from models.tasks.places import PLACES


@dataclass(frozen=True)
class ModelRow:
    """A model and its answers by question. ``asked``: the task; ``made``: "trained", "by hand" or "" (not known)."""

    name: str
    asked: str
    made: str
    layers: int
    heads: int
    units: int  # MLP units, all layers
    answers: Mapping[str, Answer | DoesNotApply]


@dataclass(frozen=True, eq=False)
class ModelTable(Result):
    """Models of any formats asked the same questions. ``provenance.n`` is the number of problems per question unless an
    answer states another."""

    questions: tuple[Question, ...]
    rows: tuple[ModelRow, ...]
    provenance: Provenance

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    def question(self, name: str) -> Question:
        """A question by name. Raises UserError if it was not asked."""
        known = {question.name: question for question in self.questions}
        return known[known_name("question", name, known)]

    def row(self, model: str) -> ModelRow:
        """A model's row by name. Raises UserError if the model was not asked."""
        known = {row.name: row for row in self.rows}
        return known[known_name("model", model, known)]

    def answer(self, model: str, question: str) -> Answer | DoesNotApply:
        """One cell. Raises UserError for a model or question that is not in the table."""
        return self.row(model).answers[self.question(question).name]

    def answered(self, question: str) -> dict[str, Answer]:
        """The answers of the models that a question applies to."""
        self.question(question)
        return {row.name: a for row in self.rows if isinstance(a := row.answers[question], Answer)}

    def with_rows(self, rows: Iterable[ModelRow]) -> ModelTable:
        """The table with more models; a row with a known name replaces the old one."""
        merged = {row.name: row for row in (*self.rows, *rows)}
        return replace(self, rows=tuple(merged.values()))

    def select(self, models: Sequence[str]) -> ModelTable:
        """Some of the models, in this order. Raises UserError for an unknown one."""
        return replace(self, rows=tuple(self.row(name) for name in models))

    @property
    def adding(self) -> list[str]:
        """The models that are right on at least 99% of problems rich in carries, or all if that was not asked."""
        if not any(question.name == RIGHT for question in self.questions):
            return self.names
        return [name for name, answer in self.answered(RIGHT).items() if answer.value >= 0.99]

    @property
    def has_attention(self) -> bool:
        """Whether some model says where it looks, on all of :data:`models.tasks.places.PLACES`."""
        answered = {question.name for question in self.questions if self.answered(question.name)}
        return {f"attention: {place}" for place in PLACES} <= answered

    def sentence(self) -> str:
        """How many models add, and on which questions these agree or differ."""
        tasks = len({row.asked for row in self.rows})
        asked = f"{counted(len(self.rows), 'model')} on {counted(tasks, 'task')}"
        found = self.findings()
        if not found:
            return f"{asked} were asked {counted(len(self.questions), 'question')}."
        if self.adding != self.names:
            asked += f", of which {len(self.adding)} answer at least 99% of problems rich in carries; of those"
        return f"{asked}: {'; '.join(found)}."

    def findings(self) -> list[str]:
        """How many of the models that add pass each question that has a threshold, the most telling question first."""
        asked = {question.name for question in self.questions}
        texts = []
        for name, (level, words) in _FINDINGS.items():
            known = (
                {model: a for model, a in self.answered(name).items() if model in self.adding} if name in asked else {}
            )
            holds = [model for model, answer in known.items() if answer.value >= level]
            if len(known) == 1:
                texts.append(words if holds else f"not {words}")
            elif known:
                count = "none" if not holds else f"all {len(known)}" if len(holds) == len(known) else str(len(holds))
                among = f" of {len(known)}" if holds and len(holds) < len(known) < len(self.adding) else ""
                texts.append(f"{count}{among} {words}" + (f" ({holds[0]})" if len(holds) == 1 else ""))
        return texts

    def to_dataframe(self) -> pd.DataFrame:
        """One row per model and question: value, low, high, n, rung, control, what the control is, note; ``why`` says
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
                rows.append(cell | numbers | {"why": ""})
        order = ["model", "question", "value", "low", "high", "n", "unit", "rung", "control", "control_note", "note"]
        return pd.DataFrame(rows).reindex(columns=[*order, "why"])

    def parts(self, question: str) -> pd.DataFrame:
        """The parts of one question's answers: one row per model and part. Raises UserError if it has no parts."""
        if not self.question(question).parts:
            known = ", ".join(repr(each.name) for each in self.questions if each.parts)
            raise UserError(f"The question {question!r} has no parts; these have: {known}.")
        rows = [
            {"model": name, self.question(question).parts: part.name}
            | {key: value for key, value in asdict(part).items() if key != "name"}
            for name, answer in self.answered(question).items()
            for part in answer.parts
        ]
        return pd.DataFrame(rows)

    def matrix(self) -> pd.DataFrame:
        """One row per model, one column per question: the values, NaN where a question does not apply."""
        cells = [
            [a.value if isinstance(a := row.answers[q.name], Answer) else float("nan") for q in self.questions]
            for row in self.rows
        ]
        return pd.DataFrame(cells, index=self.names, columns=[question.name for question in self.questions])

    def texts(self) -> pd.DataFrame:
        """The table in words: value, interval and control in a cell, a dash if a question does not apply. Cells break
        only before the control."""
        rows = []
        for row in self.rows:
            answers = {question.heading: (row.answers[question.name], question) for question in self.questions}
            cells = {heading: _unbroken(cell_text(*answer)) for heading, answer in answers.items()}
            rows.append({"model": row.name, "asked about": row.asked} | cells)
        return pd.DataFrame(rows)


RIGHT = "carry-rich"
#: Question -> (the value from which a model counts in the sentence, the words for it).
_FINDINGS = {
    "reads its output": (0.9, "taking the carry from the digit that was written before"),
    "unit: carry out": (0.95, "with a neuron for the carry out"),
    "unit: carry in": (0.95, "with a neuron for the carry in"),
    "carry in": (0.9, "holding the carry in as one direction"),
    "digit sum": (0.9, "taking the digit sum from the values of the column's own digits"),
    "all inputs": (1.0, "right on all inputs, proved or run"),
}


def value_text(value: float, unit: str) -> str:
    """A value as a table shows it: three decimals of a share, never 1.000 for less than all."""
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "share" and 0.9995 <= value < 1:
        return f"{value:.5f}".rstrip("0") if value < 0.999995 else "< 1"
    return f"{value:.3f}"


def _unbroken(cell: str) -> str:
    return cell.replace(" ", "\u00a0").replace(";\u00a0", "; ")


def cell_text(answer: Answer | DoesNotApply, question: Question) -> str:
    """A cell's text: value, interval or rung, and control."""
    if isinstance(answer, DoesNotApply):
        return "–"
    text = value_text(answer.value, question.unit)
    if answer.low is not None and answer.high is not None:
        text += f" [{answer.low:.3f}, {answer.high:.3f}]"
    elif answer.rung is not None:
        text += f" ({answer.rung})"
    return text if answer.control is None else f"{text}; control {answer.control:.3f}"
