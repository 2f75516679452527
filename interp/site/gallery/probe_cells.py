"""What probes say on a model's page: accuracy, all registered probes with a ``page``, embeddings and parameters."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

from interp.compare.model_table import value_text
from interp.core.controls import untrained_copy
from interp.core.parameters import parameter_table
from interp.core.probe import OnPage, Probe, registered
from interp.probes.embeddings import circle_fit
from interp.probes.fourier import fourier_spectrum
from interp.probes.helices import helix_fit
from interp.probes.score import accuracy_by_chain, score
from interp.site.gallery.render import control, paragraph, table
from interp.site.pages import as_read, figure_data
from interp.site.story import SMALL, Chapter, Story
from models.errors import UserError
from models.evaluation import Score
from models.numerals import number
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.multi_addition import MultiOperandAddition
from models.tasks.multiplication import Multiplication
from models.tasks.parity import Parity
from models.tasks.two_digit import TwoDigitAddition, all_problems
from models.transformer.hooked import HookedModel

SHAPES: dict[type, tuple[int, ...]] = {MultiOperandAddition: (3, 3), Multiplication: (2, 2), Parity: (8,)}
PER_CHAIN = {True: 1_000, False: 100}  # stratified problems per carry-chain length, for small models (True) and others


def accuracy(story: Story) -> list[Markup]:
    """Accuracy by the length of the longest carry chain, for ten-digit and two-digit adders."""
    if isinstance(story.model.task, TwoDigitAddition):
        found = score(story.model, problems=all_problems())
        rows = found.to_dataframe()[["chain_length", "n", "correct", "accuracy", "wrong_example"]]
        rows = rows.rename(columns={"chain_length": "longest carry chain", "wrong_example": "a wrong answer"})
        return [paragraph(found.sentence()), table(rows)]
    if not isinstance(story.model.task, FixedWidthAddition):
        return []
    known = None if story.score is None else Score.from_dict(story.score)
    found = accuracy_by_chain(story.model, n_per_length=PER_CHAIN[story.small], test=known)
    return [figure_data(found.figure()), table(_shares(found.to_dataframe()))]


def _shares(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of chain lengths with plain column names."""
    ends = [f"{low:.4f} to {high:.4f}" for low, high in zip(frame.low, frame.high, strict=True)]
    shown = frame[["problems", "chain_length", "n", "correct"]].assign(interval=ends)
    return shown.rename(columns={"chain_length": "longest carry chain", "interval": "95% interval of the accuracy"})


def on_page() -> list[Chapter]:
    """A chapter for every registered probe that has a ``page``."""
    return [
        Chapter(each.name, each.question, partial(_cell, each, each.page), on=("gallery",))
        for each in registered().values()
        if each.page is not None and each.subjects == ("model",)
    ]


def _cell(probe: Probe, page: OnPage, story: Story) -> list[Markup]:
    """A probe's sentence, control and figures; empty where it does not apply."""
    task = _task(story.model)
    if probe.why_not(story.model, task) or not page.suits(story.parameters):
        return []
    try:
        found, words = answered(probe, story, task=task, **({"n": story.n} | dict(page.arguments)))
    except UserError:  # some probes find out only when called that they do not apply
        return []
    figures = [found.figure(kind) for kind in page.pictures]
    # Two kinds of picture are the same where a task lacks what one of them shows.
    return words + [figure_data(figure) for i, figure in enumerate(figures) if figure not in figures[:i]]


def answered(probe: Probe, story: Story, **options: Any) -> tuple[Any, list[Markup]]:
    """What a probe finds, and that in words; with an untrained copy as a control where the probe's page has one."""
    found = probe.answer(story.model, **options)
    words = [paragraph(found.sentence())]
    copy = untrained_copy(story.model, 1_000 + story.seed) if probe.page is not None and probe.page.control else None
    if copy is not None:
        blank = probe.answer(copy, **options)
        words.append(control(f"{_numbers(probe, found, blank)}{blank.sentence()}"))
    return found, words


def _numbers(each: Probe, found: Any, blank: Any) -> str:
    """The probe's number of the model and of its untrained copy, in words; empty where it gives none of one of them."""
    if each.scalar is None:
        return ""
    try:
        values = [each.scalar.of(result).value for result in (found, blank)]
    except UserError:
        return ""
    if not all(map(math.isfinite, values)):
        return ""
    own, other = (value_text(value, each.scalar.unit) for value in values)
    return f"{each.scalar.heading}: {own} here and {other} there. "


def _task(model: HookedModel) -> Any:
    """The model's task, at a small size if it comes in many."""
    for kind, shape in SHAPES.items():
        if isinstance(model.task, kind):
            return model.task.at(*shape)
    return model.task


def embeddings(story: Story) -> list[Markup]:
    """The shapes of a small adder's embeddings."""
    model = story.model
    if not isinstance(model.task, FixedWidthAddition) or not story.small:
        return []
    items: list[Markup] = []
    fits = [("Digits", circle_fit, model), ("As waves over the digits", fourier_spectrum, model)]
    if model.cfg.positional_embedding_type == "standard":
        fits.append(("Columns", helix_fit, model.W_pos[:DIGITS]))
    for words, fit, of in fits:
        found = fit(of)
        items += [paragraph(f"{words}: {found.sentence()}"), figure_data(found.figure())]
    return items


def parameter_values(story: Story) -> list[Markup]:
    """Every free parameter of a small model with its value."""
    if not 0 < story.parameters <= SMALL:
        return []
    groups = [
        Markup("<table><caption>{} ({})</caption><tbody>{}</tbody></table>").format(
            name, len(group), Markup("").join(_number(row) for row in group.to_dict("records"))
        )
        for name, group in parameter_table(story.model).groupby("parameter", sort=False)
    ]
    return [Markup("<div class='parameters'>{}</div>").format(Markup("").join(groups))]


def _number(row: dict[str, Any]) -> Markup:
    return Markup("<tr><td>{}</td><td class='number'>{}</td></tr>").format(
        row["index"], as_read(number(row["value"], 6))
    )
