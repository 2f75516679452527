"""Trained parameters next to parameters set by hand: ``interp reproduce microadder:gap`` (section 6, discoverability
gap).

Nothing is trained. Hand-set models and models without a stored certificate are certified here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

import models
from interp.core.results import Provenance
from interp.core.sections import Section, records
from interp.papers.microadder.hand_set import (
    UNITS_ON,
    DigitsKept,
    DiscoverabilityGap,
    NumberComparison,
    compare_numbers,
    digits_kept,
    discoverability_gap,
)
from interp.papers.studies import Made, Settings, shows, study
from interp.proofs import certify
from interp.proofs.methods import certified_at_best

TARGET, TITLE = "microadder:gap", "How many numbers by hand, how many by training"
PAIRS = (("microadder-57", "microadder-57-by-hand"), ("microadder-67", "microadder-67-by-hand"))
ROUNDED = ("adder-3-by-hand", "adder-4-by-hand", "microadder-57-by-hand", "microadder-11", "microadder-57")


@study(TARGET, TITLE)
def gap(settings: Settings) -> Made:
    """About five minutes; with ``--size`` other than small, roundings are judged with float32 rounding as well."""
    settings.say("certificates")
    found = discoverability_gap(certified_at_best)
    problems = settings.problems or 2_000
    data: dict[str, Any] = {"gap": records(found.to_dataframe()), "factor": found.factor, "problems": problems}
    for trained, by_hand in PAIRS:
        both = compare_numbers(models.load(trained), models.load(by_hand), problems)
        data[by_hand] = {"numbers": records(both.to_dataframe()), "amounts": records(both.amounts)}
    judge = partial(certify, arithmetic="interval" if settings.size == "small" else "float32")
    for name in ROUNDED:
        settings.say(f"digits of {name}")
        data[_digits(name)] = records(digits_kept(models.load(name), judge=judge).to_dataframe())
    return Made(data)


@shows(TARGET)
def show_gap(data: Any) -> list[Section]:
    """The gap, and the other two questions if they are available; the package stores only the gap."""
    found = DiscoverabilityGap.of(pd.DataFrame(data["gap"]))
    sections = [_section("The gap", found, 2)]
    pairs = [(trained, by_hand) for trained, by_hand in PAIRS if by_hand in data]
    if pairs:
        sections.append(Section("Number by number", "The algorithm is derived in models/hand_built/microadder.py."))
    for trained, by_hand in pairs:
        numbers, sums = (pd.DataFrame(data[by_hand][name]) for name in ("numbers", "amounts"))
        both = NumberComparison(trained, by_hand, numbers, sums, Provenance(data["problems"], 0, UNITS_ON))
        sections.append(_section(f"{trained} next to {by_hand}", both, 3, both.amounts))
    rounded = [name for name in ROUNDED if _digits(name) in data]
    if rounded:
        sections.append(Section("Digits", "Every free number rounded to so many significant digits."))
    sections += [_section(name, DigitsKept.of(name, pd.DataFrame(data[_digits(name)])), 3) for name in rounded]
    return sections


def _digits(name: str) -> str:
    return f"digits of {name}"


def _section(
    heading: str, found: DiscoverabilityGap | NumberComparison | DigitsKept, level: int, *before: pd.DataFrame
) -> Section:
    return Section(heading, f"{found.sentence()}.", [*before, found.to_dataframe()], [found.figure()], level)
