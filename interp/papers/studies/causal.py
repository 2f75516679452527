"""What causes the answer: ``interp reproduce microadder:causal``, and the same for ``adder-456`` and ``toygpt``.

There is one page per paper, on one stored model of it: where the information about a carry is, which algorithm the
answers follow, what breaks without which part, which circuit is enough, what each stream knows, and in which order
training brought it about. The questions are in :mod:`interp.papers.studies.causal_questions`,
:mod:`interp.papers.studies.causal_algorithm` and :mod:`interp.papers.studies.causal_circuits`.

``--problems N`` sets the size of every sample. ``--seeds S`` asks everything for the seeds 0 to S - 1; the page shows
the first, and at its head the numbers for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

import models
from interp.core.results import Result
from interp.core.sections import Section, records
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.causal_algorithm import algorithm, show_algorithm
from interp.papers.studies.causal_answers import Answer, Found, Subject, interval, unbroken
from interp.papers.studies.causal_circuits import (
    circuits,
    dynamics,
    show_circuits,
    show_dynamics,
    show_streams,
    streams,
)
from interp.papers.studies.causal_questions import information, lesions, show_information, show_lesions
from interp.papers.studies.runs import zoo_model

MICROADDER = Subject("microadder-57", column=4, others=("microadder-67", "microadder-74", "microadder-11"))
ADDER_456 = Subject("adder-456", column=4)
#: For two digits, the carry into the tens. It is slower (796,672 parameters, 16 heads), so some samples are smaller.
TOYGPT = Subject("toygpt-learned-pre", column=1, large=True)

#: The functions that ask a question, with those that show its part of the page.
QUESTIONS: tuple[tuple[Callable[[Subject, int | None, int], Answer], Callable[[Found], list[Section]]], ...] = (
    (information, show_information),
    (algorithm, show_algorithm),
    (lesions, show_lesions),
    (circuits, show_circuits),
    (streams, show_streams),
    (dynamics, show_dynamics),
)
DECIMALS = 5


def ask_all(subject: Subject, settings: Settings) -> Made:
    """Ask every question of the subject, for every seed."""
    zoo_model(subject.model)  # raises with instructions if it is missing
    facts: list[dict[str, Any]] = []
    sentences: dict[str, str] = {}
    tables: dict[str, Any] = {}
    results: dict[str, Result] = {}
    for seed in range(settings.seeds or 1):
        for question, _ in QUESTIONS:
            answer = question(subject, settings.problems, seed)
            facts += [{"seed": seed} | fact for fact in answer.facts]
            if seed == 0:
                sentences |= answer.sentences
                tables |= {name: records(frame, DECIMALS) for name, frame in answer.tables.items()}
                results |= answer.results
                for sentence in answer.sentences.values():
                    settings.say(sentence)
    data = {
        "model": subject.model,
        "column": subject.column,
        "facts": records(pd.DataFrame(facts), DECIMALS),
        "sentences": sentences,
        "tables": tables,
    }
    size = sum(p.numel() for p in models.load(subject.model).parameters())
    title = f"What causes the answers of {subject.model} ({size:,} parameters)"
    return Made(data, title, results)


@shows("microadder:causal", "adder-456:causal", "toygpt:causal")
def show_causal(data: Any, results: Mapping[str, Result] | None = None) -> list[Section]:
    """The numbers of all questions, then question by question; with figures if the results are available."""
    head = (
        f"What the sections below find in {data['model']}. All are sampled; intervals are at 95%, over problems. Each "
        "section has the number of problems, the controls and how the numbers are taken."
    )
    found = Found(data, results or {})
    parts = [section for _, show in QUESTIONS for section in show(found)]
    return [Section("In numbers", head, (_short(pd.DataFrame(data["facts"])),)), *parts]


def _short(facts: pd.DataFrame) -> pd.DataFrame:
    """The facts for readers: value and interval in one cell, one column per seed, each question only once."""
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


for _target, _subject, _size in (
    ("microadder", MICROADDER, "57 parameters"),
    ("adder-456", ADDER_456, "456 parameters"),
    ("toygpt", TOYGPT, "four layers"),
):
    _title = f"Patching, interchange, lesions, circuits and lenses on {_size}"
    study(f"{_target}:causal", _title)(partial(ask_all, _subject))
