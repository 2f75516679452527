"""What probes say of a story's model: its accuracy, a registered probe's answer with its control, every parameter."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from markupsafe import Markup

from interp.compare.model_table import value_text
from interp.compare.parameter_tables import parameter_table
from interp.core.controls import untrained_copy
from interp.core.probe import Probe
from interp.probes.accuracy_by_chain import accuracy_by_chain
from interp.probes.score import score
from interp.site.pages import as_read, figure_data
from interp.site.pages.items import control, paragraph, table
from interp.site.story import SMALL, Story
from models.errors import UserError
from models.number_format import number
from models.tasks import LIMIT
from models.tasks.named.addition import adds_pairs_below

PER_CHAIN = {True: 1_000, False: 100}  # problems per carry-chain length, for small models (True) and others


def accuracy(story: Story) -> list[Markup]:
    """Accuracy by the length of the longest carry chain, for ten-digit and two-digit adders and models of one's own."""
    task = story.model.task
    if adds_pairs_below(task) == 100:
        found = score(story.model, problems=task.domain.every())
        rows = found.to_dataframe()[["chain_length", "n", "correct", "accuracy", "wrong_example"]]
        rows = rows.rename(columns={"chain_length": "longest carry chain", "wrong_example": "a wrong answer"})
        return [paragraph(found.sentence()), table(rows)]
    if adds_pairs_below(task) != LIMIT and story.own:
        found = score(story.model)
        rows = found.to_dataframe().rename(columns={"chain_length": "longest chain", "wrong_example": "a wrong answer"})
        shown = [name for name in ("longest chain", "n", "correct", "accuracy", "a wrong answer") if name in rows]
        return [paragraph(found.sentence()), *([table(rows[shown])] if len(rows) > 1 else [])]
    if adds_pairs_below(task) != LIMIT:
        return []
    found = accuracy_by_chain(story.model, n_per_length=PER_CHAIN[story.small])
    return [figure_data(found.figure()), table(_shares(found.to_dataframe()))]


def _shares(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of chain lengths with plain column names."""
    ends = [f"{low:.4f} to {high:.4f}" for low, high in zip(frame.accuracy_low, frame.accuracy_high, strict=True)]
    shown = frame[["chain_length", "n", "correct"]].assign(interval=ends)
    return shown.rename(columns={"chain_length": "longest carry chain", "interval": "95% interval of the accuracy"})


def answered(probe: Probe, story: Story, **options: Any) -> tuple[Any, list[Markup]]:
    """What a probe finds, and that in words; with an untrained copy as a control where the probe says so."""
    found = probe.answer(story.model, **options)
    words = [paragraph(found.sentence())]
    copy = untrained_copy(story.model, 1_000 + story.seed) if probe.control else None
    if copy is not None:
        blank = probe.answer(copy, **options)
        words.append(control(f"{_numbers(probe, found, blank)}{blank.sentence()}"))
    return found, words


def _numbers(each: Probe, found: Any, blank: Any) -> str:
    """The probe's number of the model and of its untrained copy, in words; empty where it gives none of one of them."""
    if each.summary is None:
        return ""
    try:
        values = [each.summary.of(result).value for result in (found, blank)]
    except UserError:
        return ""
    if not all(map(math.isfinite, values)):
        return ""
    own, other = (value_text(value, each.summary.unit) for value in values)
    return f"{each.summary.heading}: {own} here and {other} there. "


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
