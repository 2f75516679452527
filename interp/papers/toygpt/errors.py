"""Where a two-digit adder goes wrong: which digit, which kind of error, and how close it was, on all 10,000 pairs.

Every digit is judged given the right digits before it. The first wrong digit is then the one that greedy decoding gets
wrong first, and a problem is right under greedy decoding exactly if all its digits are right.

    kind of a wrong tens digit   from (predicted - true) mod 10 and the carry out of the units column:
                                 missed    9, with a carry: the digit of the sum without it
                                 spurious  1, without one: the digit of the sum with it
                                 other     anything else
    margin                       logit of the right tens digit minus the logit of its carry-flipped twin, the digit that
                                 the other carry would give; in nats, negative where the twin is preferred

The margin is tabulated by the sum of the units digits, 0 to 18: a carry that is computed by a threshold on that sum is
least sure next to the threshold, at 9 and 10.

The test is exhaustive, so a share needs no interval. The interval of the 500 held-out pairs (Clopper-Pearson) is about
pairs drawn like them. Source: ToyGPT, section 1 (c), which shows three wrong sums and says that the tens digit goes
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.results import Provenance
from interp.core.sites import model_name
from interp.papers.toygpt.problems import EVERY_PAIR, resolve_two_digit_task
from interp.probes.score import tabulated
from interp.probes.scored import Scores
from models.errors import UserError
from models.evaluation import Rate, most_likely, teacher_forcing
from models.tasks.two_digit import TwoDigitAddition, all_problems, held_out_problems

KINDS = ("missed", "spurious", "other")
DIGITS = ("units", "tens", "hundreds")
KEPT_FAILURES = 12
ROWS_AT_ONCE = 1_000


def compute_carry_errors(
    logits: Float[Tensor, "rows target d_vocab"],
    problems: Int[Tensor, "n 2"],
    held_out: Int[Tensor, "m 2"],
    name: str,
    provenance: Provenance,
) -> Scores:
    """Errors, from the teacher-forced logits of the sum's digits, units first.

    The table has right tens digits by ``units_sum``, with the wrong ones by kind and the margin's ``mean``, ``lowest``
    and ``low`` (5% quantile). ``about`` has the problems entirely right among the 500 held out (``test``), the 9,500
    others (``train``) and ``all``; right ``digits``; wrong problems by their ``first_wrong`` digit; wrong tens digits
    by ``kinds``; tens digits ``with_carry`` into them; and ``failures``, the first few wrong problems as (a, b, claimed
    sum).

    Raises:
        UserError: no problem, or logits of other problems.
    """
    if not len(problems) or len(logits) != len(problems):
        raise UserError(f"Logits of {len(logits)} problems do not fit {len(problems)} problems.")
    task = TwoDigitAddition()
    expected, predicted = task.targets(problems), most_likely(logits)
    right = predicted == expected
    exact = right.all(1)
    variables = task.variables(problems)
    carry, units_sum = variables["carry_out"][:, 0], variables["digit_sum"][:, 0]
    tens, claimed = expected[:, 1], predicted[:, 1]
    twin = (tens + torch.where(carry == 1, -1, 1)) % 10
    margin = (logits[:, 1].gather(1, tens[:, None]) - logits[:, 1].gather(1, twin[:, None]))[:, 0]
    is_wrong = ~right[:, 1]
    flipped = is_wrong & (claimed == twin)
    kinds = {"missed": flipped & (carry == 1), "spurious": flipped & (carry == 0), "other": is_wrong & ~flipped}
    key = problems[:, 0] * 100 + problems[:, 1]
    is_test = torch.isin(key, held_out[:, 0] * 100 + held_out[:, 1])
    first = (~right).long().argmax(1)[~exact]
    by_sum = tabulated(right[:, 1].numpy(), {"units_sum": units_sum.numpy()})
    margins = pd.Series(margin.numpy()).groupby(units_sum.numpy())
    counted = {name: pd.Series(rows.numpy()).groupby(units_sum.numpy()).sum() for name, rows in kinds.items()}
    columns = counted | {"mean": margins.mean(), "lowest": margins.min(), "low": margins.quantile(0.05)}
    about = {
        "test": Rate(int(is_test.sum()), int(exact[is_test].sum())),
        "train": Rate(int((~is_test).sum()), int(exact[~is_test].sum())),
        "all": Rate(len(exact), int(exact.sum())),
        "digits": {digit: int(right[:, i].sum()) for i, digit in enumerate(DIGITS)},
        "first_wrong": {digit: int((first == i).sum()) for i, digit in enumerate(DIGITS)},
        "kinds": {kind: int(rows.sum()) for kind, rows in kinds.items()},
        "with_carry": int(carry.sum()),
        "failures": tuple(
            (*problems[i].tolist(), task.decode(predicted[i : i + 1])[0])
            for i in (~exact).nonzero()[:KEPT_FAILURES, 0].tolist()
        ),
    }
    table = by_sum.assign({name: ("units_sum", each.to_numpy()) for name, each in columns.items()})
    table = table.assign_coords(rung=provenance.rung)
    return Scores(name, table, provenance, said=_said(name, table, about), about=about)


def _said(name: str, table: xr.Dataset, about: Mapping[str, Any]) -> str:
    every, test = about["all"], about["test"]
    text = f"{name}: {every.correct:,} of {every.n:,} sums right"
    if test.n:
        low, high = test.interval
        text += f", {test.correct} of {test.n} held out ({test.accuracy:.3f} [{low:.3f}, {high:.3f}])"
    if every.correct == every.n:
        return f"{text}."
    first = ", ".join(f"{digit} {count:,}" for digit, count in about["first_wrong"].items() if count)
    text += f"; first wrong digit of {every.n - every.correct:,}: {first}"
    if not sum(about["kinds"].values()):
        return f"{text}; no tens digit is wrong."
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in about["kinds"].items() if count)
    worst = table.isel(units_sum=int((table.correct / table.n).values.argmin()))
    return (
        f"{text}; wrong tens digits: {kinds}; they are most frequent where the units sum to {int(worst.units_sum)} "
        f"({int(worst.n - worst.correct)} of {int(worst.n)})."
    )


def carry_errors(model: HookedModel, task: Any = None) -> Scores:
    """Errors of a two-digit adder on all 10,000 pairs; see the module. Cost: 10,000 forward passes of six tokens.

    Raises:
        UserError: a model without hooks, or another task.
    """
    task = resolve_two_digit_task(model, task)
    name = model_name(model)
    with teacher_forcing(model, task) as forced:
        logits = torch.cat([forced(batch) for batch in all_problems().split(ROWS_AT_ONCE)]).float().cpu()
    return compute_carry_errors(logits, all_problems(), held_out_problems(), name, EVERY_PAIR)
