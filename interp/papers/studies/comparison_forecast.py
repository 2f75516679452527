"""Which seeds will grok: ``interp reproduce comparison:forecast``, from the stored curves of all ten-digit adders.

The rule that ends hopeless seeds is chosen among :data:`RULES` on the even-numbered seeds, by grokked seeds per step,
and judged on the odd-numbered ones. ``interp train NAME --keep-best STEP SHARE ...`` applies such a rule.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

import models
from interp.core.as_json import decode, encode
from interp.core.sections import Section, records
from interp.papers.studies import Made, Settings, shows, study
from interp.probes.curves import Curves
from interp.probes.forecast import Forecast, grokking_forecast
from models.tasks.addition import FixedWidthAddition
from models.zoo import read_entry

_FIRST = tuple(product((0.05, 0.1, 0.15, 0.2, 0.25), (1 / 2, 1 / 3, 1 / 4, 1 / 8)))
_SECOND = tuple(product((0.15, 0.2, 0.25, 0.35, 0.5), (1 / 4, 1 / 8, 1 / 16)))
#: All rules that are compared: one or two rungs (share of the steps, share of the seeds that continue).
RULES = tuple((one,) for one in _FIRST) + tuple(
    (one, two) for one in _FIRST for two in _SECOND if two[0] > one[0] and two[1] < one[1]
)


def adders() -> list[str]:
    """The zoo's ten-digit adders that Adam alone trained from random starts, with the curves of more than one seed.

    If BFGS finishes a run, Adam's curves do not decide alone.
    """
    found = []
    for name in models.zoo_names():
        made = read_entry(name)["training"]
        ten_digits = isinstance(models.build(name).task, FixedWidthAddition)
        adam_alone = not made.get("start") and not made.get("recipe", {}).get("polish")
        if ten_digits and adam_alone and made["seeds_tried"] > 1:
            found.append(name)
    return found


def of_seeds(found: Forecast, odd: int) -> Forecast:
    """The forecast with the curves of the seeds of one parity, for :meth:`Forecast.halved` and :meth:`ranked`."""
    table = found.curves.table
    part = table.sel(seed=table.seed.values % 2 == odd)
    return replace(found, curves=replace(found.curves, table=part))


def choose(found: Forecast) -> tuple[tuple[float, float], ...]:
    """The rule with the most grokked seeds per step, and the first of equal ones."""
    return max(RULES, key=lambda rule: _gain(found.halved(rule)))


def _gain(rows: pd.DataFrame) -> float:
    gain = float(rows["gain"].iloc[-1])
    return gain if gain == gain else 0.0


@study("comparison:forecast", "Which seeds will grok, and what ending the others early saves")
def forecast(settings: Settings) -> Made:
    found = grokking_forecast(adders())
    settings.say(found.sentence())
    rule = choose(of_seeds(found, 0))
    judged = of_seeds(found, 1).halved(rule)
    settings.say(f"Chosen on even seeds among {len(RULES)} rules: {_words(rule)}. On odd seeds:")
    settings.say(judged.to_string(index=False))
    kept = replace(found, curves=_thin(found.curves))
    data = {
        "forecast": encode(kept),
        "ranked": records(found.ranked(0.25)),
        "rule": [list(rung) for rung in rule],
        "rules": len(RULES),
        "chosen on": records(of_seeds(found, 0).halved(rule)),
        "judged on": records(judged),
    }
    return Made(data)


def _thin(curves: Curves) -> Curves:
    """Curves reduced to the last evaluation of each seed, as the zoo stores the curves themselves."""
    return replace(curves, table=curves.table[["exact"]].max("step", keep_attrs=True).expand_dims(step=[0], axis=2))


def _words(rule: Any) -> str:
    return ", then ".join(f"after {at:.0%} of the steps the best {share:.0%} go on" for at, share in rule)


@shows("comparison:forecast")
def show_forecast(data: Any) -> list[Section]:
    found: Forecast = decode(Forecast, data["forecast"])
    chosen, judged = (pd.DataFrame(data[key]) for key in ("chosen on", "judged on"))
    ranked = pd.DataFrame(data["ranked"])
    halves = [float(rows["gain"].iloc[-1]) for rows in (chosen, judged)]
    text = (
        f"Of {data['rules']} rules, this one gave the most grokked seeds per step on the seeds of even number: "
        f"{_words(data['rule'])}. There it gave {halves[0]:.2f} times as many as training every seed to its end; on "
        f"the seeds of odd number, which it was not chosen on, {halves[1]:.2f} times as many."
    )
    quarter = "Seeds by their rank within their model after a quarter of the steps, best quarter first, that had not "
    return [
        Section("Forecast", found.sentence(), (found.to_dataframe(),), (found.figure(),)),
        Section("By rank", f"{quarter}grokked by then; 95% Clopper-Pearson intervals.", (ranked,)),
        Section("What ending hopeless seeds saves", text, (judged,)),
    ]
