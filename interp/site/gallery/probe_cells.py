"""The probes on a model's page: all registered probes that have a ``page``."""

from __future__ import annotations

from typing import Any

import pandas as pd
from markupsafe import Markup

from interp.compare.model_table import value_text
from interp.core.controls import untrained_copy
from interp.core.model import HookedModel
from interp.core.parameters import parameter_table
from interp.core.probe import OnPage, Probe, applying
from interp.core.problems import digit_rows
from interp.probes.embeddings import circle_fit, fourier_spectrum
from interp.probes.helices import helix_fit
from interp.probes.score import accuracy_by_chain, score
from interp.site.gallery.render import Part, control, paragraph, table
from interp.site.pages import as_read, figure_data
from models.errors import UserError
from models.evaluation import Score
from models.numerals import number
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.multi_addition import MultiOperandAddition
from models.tasks.multiplication import Multiplication
from models.tasks.parity import Parity
from models.tasks.two_digit import TwoDigitAddition, all_problems

SMALL = 1_000  # most parameters of a model whose numbers and neurons are all shown
N = 1024  # problems for a probe that does not say how many
SHAPES: dict[type, tuple[int, ...]] = {MultiOperandAddition: (3, 3), Multiplication: (2, 2), Parity: (8,)}
PER_CHAIN = {True: 1_000, False: 100}  # stratified problems per carry-chain length, for small models (True) and others


def chain_part(model: HookedModel, known: Score | None) -> Part:
    """Accuracy by the length of the longest carry chain, for ten-digit and two-digit adders."""
    if isinstance(model.task, TwoDigitAddition):
        found = score(model, problems=all_problems())
        rows = found.to_dataframe()[["chain_length", "n", "correct", "accuracy", "wrong_example"]]
        rows = rows.rename(columns={"chain_length": "longest carry chain", "wrong_example": "a wrong answer"})
        return Part("accuracy", "Is it right?", [paragraph(found.sentence()), table(rows)])
    found = accuracy_by_chain(model, n_per_length=PER_CHAIN[_is_small(model)], test=known)
    return Part("accuracy", "Is it right?", [figure_data(found.figure()), table(_shares(found.to_dataframe()))])


def _shares(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of chain lengths with plain column names."""
    ends = [f"{low:.4f} to {high:.4f}" for low, high in zip(frame.low, frame.high, strict=True)]
    shown = frame[["problems", "chain_length", "n", "correct"]].assign(interval=ends)
    return shown.rename(columns={"chain_length": "longest carry chain", "interval": "95% interval of the accuracy"})


def probe_parts(model: HookedModel, learned: bool) -> list[Part]:
    """Every registered probe with a ``page`` that applies to the model; for small adders the embeddings, too.

    Args:
        learned: whether the model was trained; an untrained copy is then a control.
    """
    task, size = _task(model), sum(p.numel() for p in model.parameters())
    parts = []
    for each in applying(model, task):
        if each.page is not None and each.page.suits(size):
            try:
                parts.append(_part(each, each.page, model, task, learned))
            except UserError:  # some probes find out only when called that they do not apply
                continue
    if isinstance(task, FixedWidthAddition) and _is_small(model):
        parts.append(_embeddings(model))
    return parts


def _part(each: Probe, page: OnPage, model: HookedModel, task: Any, learned: bool) -> Part:
    asked = {"n": N} | dict(page.arguments)
    found = each.answer(model, task=task, **asked)
    items = [paragraph(found.sentence())]
    fresh = untrained_copy(model, 1_000) if learned and page.control else None
    if fresh is not None:
        blank = each.answer(fresh, task=task, **asked)
        items.append(control(f"{_numbers(each, found, blank)}{blank.sentence()}"))
    return Part(each.name, each.question, items + [figure_data(found.figure(kind)) for kind in page.pictures])


def _numbers(each: Probe, found: Any, blank: Any) -> str:
    """The probe's number of the model and of its untrained copy, in words; empty where it gives none of one of them."""
    if each.scalar is None:
        return ""
    try:
        own, other = (value_text(each.scalar.of(result).value, each.scalar.unit) for result in (found, blank))
    except UserError:
        return ""
    return f"{each.scalar.heading}: {own} here and {other} there. "


def _task(model: HookedModel) -> Any:
    """The model's task, at a small size if it comes in many."""
    for kind, shape in SHAPES.items():
        if isinstance(model.task, kind):
            return model.task.at(*shape)
    return model.task


def _embeddings(model: HookedModel) -> Part:
    digits, columns = model.W_E[digit_rows(model.task)], model.W_pos[:DIGITS]
    items: list[Markup] = []
    fits = (("Digits", circle_fit, digits), ("As waves over the digits", fourier_spectrum, digits))
    for words, fit, rows in (*fits, ("Columns", helix_fit, columns)):
        found = fit(rows)
        items += [paragraph(f"{words}: {found.sentence()}"), figure_data(found.figure())]
    return Part("embeddings", "What shape are the embeddings?", items)


def parameter_part(model: HookedModel) -> Part:
    """Every free parameter with its value."""
    frame = parameter_table(model)
    groups = [
        Markup("<table><caption>{} ({})</caption><tbody>{}</tbody></table>").format(
            name, len(group), Markup("").join(_number(row) for row in group.to_dict("records"))
        )
        for name, group in frame.groupby("parameter", sort=False)
    ]
    body = Markup("<div class='parameters'>{}</div>").format(Markup("").join(groups))
    return Part("parameters", f"Every free number: {len(frame)}", [body])


def _number(row: dict[str, Any]) -> Markup:
    return Markup("<tr><td>{}</td><td class='number'>{}</td></tr>").format(
        row["index"], as_read(number(row["value"], 6))
    )


def _is_small(model: HookedModel) -> bool:
    return sum(p.numel() for p in model.parameters()) <= SMALL
