"""Trained numbers beside numbers set by hand: ``interp reproduce microadder:gap`` (section 6, the discoverability gap).

Nothing is trained. Certificates of hand-set models and of models without a stored one are made here.
"""

from __future__ import annotations

from functools import partial

import models
from interp.core.sections import Page, Section, records
from interp.papers.microadder.hand_set import compare_numbers, digits_kept, discoverability_gap
from interp.papers.studies import Settings, study
from interp.proofs import certify
from interp.proofs.methods import certified_at_best

TARGET, TITLE = "microadder:gap", "How many numbers by hand, how many by training"
PAIRS = (("microadder-57", "microadder-57-by-hand"), ("microadder-67", "microadder-67-by-hand"))
ROUNDED = ("adder-3-by-hand", "adder-4-by-hand", "microadder-57-by-hand", "microadder-11", "microadder-57")


@study(TARGET, TITLE)
def gap(settings: Settings) -> Page:
    """About five minutes; with ``--size`` other than small, roundings are judged with float32 rounding as well."""
    settings.say("certificates")
    found = discoverability_gap(certified_at_best)
    sections = [Section("The gap", found.sentence() + ".", [found.to_dataframe()], [found.figure()])]
    data: dict = {"gap": records(found.to_dataframe()), "factor": found.factor}
    sections.append(Section("Number by number", "The algorithm is derived in models/hand_built/microadder.py."))
    for trained, by_hand in PAIRS:
        both = compare_numbers(models.load(trained), models.load(by_hand), settings.problems or 2_000)
        tables = [both.amounts, both.to_dataframe()]
        sections.append(Section(f"{trained} beside {by_hand}", both.sentence() + ".", tables, [both.figure()], level=3))
        data[by_hand] = {"numbers": records(both.to_dataframe()), "amounts": records(both.amounts)}
    sections.append(Section("Digits", "Every free number rounded to so many significant digits."))
    judge = partial(certify, arithmetic="interval" if settings.size == "small" else "float32")
    for name in ROUNDED:
        settings.say(f"digits of {name}")
        kept = digits_kept(models.load(name), judge=judge)
        sections.append(Section(name, kept.sentence() + ".", [kept.to_dataframe()], [kept.figure()], level=3))
        data[f"digits of {name}"] = records(kept.to_dataframe())
    return Page(TITLE, sections, data)
