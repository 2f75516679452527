"""What causes the answer: ``interp reproduce microadder:causal``, and the same for ``adder-456`` and ``toygpt``.

One page a paper, on one stored model of it: where the information on a carry is, which algorithm the answers follow,
what breaks without which part, which circuit is enough, what each stream knows, and in which order training brought it
about. The questions are in :mod:`interp.papers.studies.causal_questions`, :mod:`interp.papers.studies.causal_algorithm`
and :mod:`interp.papers.studies.causal_circuits`.

``--problems N`` sets the size of every sample, ``--seeds S`` asks everything for the seeds 0 to S - 1: the first is
shown, and the numbers at the head of the page for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

import models
from interp.core.sections import Page, Section, records
from interp.papers.studies import Settings, shows, study
from interp.papers.studies.causal_algorithm import algorithm
from interp.papers.studies.causal_answers import Answer, Subject, interval, unbroken
from interp.papers.studies.causal_circuits import circuits, dynamics, streams
from interp.papers.studies.causal_questions import information, lesions
from interp.papers.studies.runs import zoo_model
from interp.papers.studies.tables import show_tables

MICROADDER = Subject("microadder-57", column=4, beside=("microadder-67", "microadder-74", "microadder-11"))
ADDER_456 = Subject("adder-456", column=4)
#: Two digits: the carry into the tens. Slower (796,672 parameters, 16 heads), so that some samples are smaller.
TOYGPT = Subject("toygpt-learned-pre", column=1, large=True)

QUESTIONS: tuple[Callable[[Subject, int | None, int], Answer], ...] = (
    information,
    algorithm,
    lesions,
    circuits,
    streams,
    dynamics,
)
DECIMALS = 5


def causal_page(target: str, subject: Subject, settings: Settings) -> Page:
    """Ask every question of the subject, for every seed, and write the page."""
    zoo_model(subject.model)  # which says how to get it where it is missing
    shown: list[Answer] = []
    facts = []
    for seed in range(settings.seeds or 1):
        for question in QUESTIONS:
            answer = question(subject, settings.problems, seed)
            facts += [{"seed": seed} | fact for fact in answer.facts]
            for sentence in answer.sentences.values() if seed == 0 else ():
                settings.say(sentence)
            if seed == 0:
                shown.append(answer)
    table = pd.DataFrame(facts)
    head = Section(
        "In numbers",
        "What the sections below find. All are sampled; intervals are at 95%, over problems. Each section has the "
        "number of problems, the controls and how the numbers are taken.",
        (_short(table),),
    )
    size = sum(p.numel() for p in models.load(subject.model).parameters())
    data = {
        "model": subject.model,
        "column": subject.column,
        "facts": records(table, DECIMALS),
        "sentences": {name: text for answer in shown for name, text in answer.sentences.items()},
        "tables": {name: records(frame, DECIMALS) for answer in shown for name, frame in answer.tables.items()},
    }
    sections = [head, *(section for answer in shown for section in answer.sections)]
    title = f"What causes the answers of {subject.model} ({size:,} parameters)"
    return Page(title, sections, data)


def _short(facts: pd.DataFrame) -> pd.DataFrame:
    """The facts as a reader wants them: value and interval in one cell, seeds beside each other, questions once."""
    shown = facts.assign(value=[_value(row) for _, row in facts.iterrows()], quantity=unbroken(facts.quantity))
    if facts.seed.nunique() == 1:
        shown = shown[["question", "quantity", "n", "value", "control"]]
    else:
        keys = ["question", "quantity"]
        wide = shown.pivot_table(index=keys, columns="seed", values="value", aggfunc="first", sort=False)
        shown = wide.rename(columns=lambda seed: f"seed {seed}").fillna("").reset_index()
    return shown.assign(question=shown.question.where(~shown.question.duplicated(), ""))


def _value(fact: pd.Series) -> str:
    if pd.isna(fact.low):
        return f"{fact.value:,.0f}" if fact["count"] else f"{fact.value:.3f}"
    return interval(fact.value, fact.low, fact.high)


@study("microadder:causal", "Patching, interchange, lesions, circuits and lenses on 57 parameters")
def microadder(settings: Settings) -> Page:
    return causal_page("microadder:causal", MICROADDER, settings)


@study("adder-456:causal", "Patching, interchange, lesions, circuits and lenses on 456 parameters")
def adder_456(settings: Settings) -> Page:
    return causal_page("adder-456:causal", ADDER_456, settings)


@study("toygpt:causal", "Patching, interchange, lesions, circuits and lenses on four layers")
def toygpt(settings: Settings) -> Page:
    return causal_page("toygpt:causal", TOYGPT, settings)


@shows("microadder:causal", "adder-456:causal", "toygpt:causal")
def show_causal(data: Any) -> list[Section]:
    facts = pd.DataFrame(data["facts"])
    facts["value"] = [_fact(row) for row in facts.to_dict("records")]
    if facts.seed.nunique() == 1:
        facts = facts.drop(columns="seed")
    shown = facts.drop(columns=["low", "high", "count"])
    text = "\n\n".join(data["sentences"].values())
    head = f"Asked of {data['model']}. All are sampled; intervals are at 95%, over problems."
    return [
        Section("In numbers", head, (shown,), level=3),
        Section("In sentences", text, level=3),
        *show_tables(data["tables"]),
    ]


def _fact(row: Mapping[str, Any]) -> str:
    value, low, high = row["value"], row["low"], row["high"]
    if low is None or low != low:
        return f"{value:,.0f}" if row["count"] else f"{value:.3f}"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
