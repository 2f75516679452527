"""Where a two-digit adder goes wrong: which digit, which kind of slip, and how close it was. All 10,000 pairs.

Every digit is judged given the right digits before it. The first wrong digit is then the one that greedy decoding gets
wrong first, and a problem is right under greedy decoding exactly if all its digits are right.

    kind of a wrong tens digit   from (predicted - true) mod 10 and the carry out of the units column:
                                 missed    9, with a carry: the digit of the sum without it
                                 spurious  1, without one: the digit of the sum with it
                                 other     anything else
    margin                       logit of the right tens digit minus the logit of its carry-flipped twin, the digit that
                                 the other carry would give; in nats, negative where the twin is preferred

The margin is tabulated by the sum of the units digits, 0 to 18: a carry that is computed by a threshold on that sum is
least sure next to it, at 9 and 10.

Exhaustive, so a share needs no interval. The interval of the 500 held-out pairs (Clopper-Pearson) is about pairs drawn
like them. Source: ToyGPT, section 1 (c), which shows three wrong sums and calls the tens digit the one that goes wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.papers.toygpt.problems import EVERY_PAIR, resolve_two_digit_task, teacher_forced_logits
from models.errors import UserError
from models.evaluation import Rate
from models.tasks.two_digit import TwoDigitAddition, all_problems, held_out_problems

KINDS = ("missed", "spurious", "other")
DIGITS = ("units", "tens", "hundreds")
UNITS_SUMS = range(19)
KEPT_FAILURES = 12


@dataclass(frozen=True, eq=False)
class CarryErrors(Result):
    """Errors of one model.

    * ``test``, ``train``, ``all``: problems entirely right, of the 500 held out, the 9,500 others, and all.
    * ``digits``: right digits of all problems, by name.
    * ``first_wrong``: wrong problems by their first wrong digit.
    * ``kinds``: wrong tens digits by kind. ``with_carry``: tens digits with a carry into them, of all.
    * ``by_sum``: Dataset over ``units_sum`` 0..18: ``n``, ``wrong`` tens digits, ``missed``, ``spurious``, ``other``,
      and of the margin ``mean``, ``lowest`` and ``low`` (5% quantile).
    * ``failures``: the first few wrong problems as (a, b, claimed sum), digits as teacher-forced.
    """

    name: str
    test: Rate
    train: Rate
    all: Rate
    digits: dict[str, int]
    first_wrong: dict[str, int]
    kinds: dict[str, int]
    with_carry: int
    by_sum: xr.Dataset
    failures: tuple[tuple[int, int, int], ...]
    provenance: Provenance

    @property
    def wrong_tens(self) -> int:
        return sum(self.kinds.values())

    def sentence(self) -> str:
        text = f"{self.name}: {self.all.correct:,} of {self.all.n:,} sums right"
        if self.test.n:
            low, high = self.test.interval
            rate = f"{self.test.accuracy:.3f} [{low:.3f}, {high:.3f}]"
            text += f", {self.test.correct} of {self.test.n} held out ({rate})"
        wrong = self.all.n - self.all.correct
        if not wrong:
            return f"{text}."
        first = ", ".join(f"{name} {count:,}" for name, count in self.first_wrong.items() if count)
        text += f"; first wrong digit of {wrong:,}: {first}"
        if not self.wrong_tens:
            return f"{text}; no tens digit is wrong."
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items() if count)
        share = (self.by_sum.wrong / self.by_sum["n"]).values
        worst = int(np.argmax(np.nan_to_num(share)))
        here = self.by_sum.sel(units_sum=worst)
        return (
            f"{text}; wrong tens digits: {kinds}; they are most frequent where the units sum to {worst} "
            f"({int(here.wrong)} of {int(here['n'])})."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row a sum of the units digits."""
        return self.by_sum.to_dataframe().reset_index()


def compute_carry_errors(
    logits: Float[Tensor, "rows target d_vocab"],
    problems: Int[Tensor, "n 2"],
    held_out: Int[Tensor, "m 2"],
    name: str,
    provenance: Provenance,
) -> CarryErrors:
    """Errors from the teacher-forced logits of the sum's digits, units first.

    Raises:
        UserError: no problem, or logits of other problems.
    """
    if not len(problems) or len(logits) != len(problems):
        raise UserError(f"Logits of {len(logits)} problems do not fit {len(problems)} problems.")
    task = TwoDigitAddition()
    expected, predicted = task.targets(problems), _most_likely(logits)
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
    failed = (~exact).nonzero()[:KEPT_FAILURES, 0]
    return CarryErrors(
        name=name,
        test=_rate(exact, is_test),
        train=_rate(exact, ~is_test),
        all=Rate(len(exact), int(exact.sum())),
        digits={digit: int(right[:, i].sum()) for i, digit in enumerate(DIGITS)},
        first_wrong={digit: int((first == i).sum()) for i, digit in enumerate(DIGITS)},
        kinds={kind: int(rows.sum()) for kind, rows in kinds.items()},
        with_carry=int(carry.sum()),
        by_sum=_by_sum(units_sum.numpy(), margin.numpy(), {"wrong": is_wrong, **kinds}),
        failures=tuple((*problems[i].tolist(), task.decode(predicted[i : i + 1])[0]) for i in failed.tolist()),
        provenance=provenance,
    )


def _most_likely(logits: Float[Tensor, "n target d_vocab"]) -> Int[Tensor, "n target"]:
    highest, token = logits.max(-1)  # max returns NaN if any logit is NaN
    return torch.where(highest.isnan(), -1, token)


def _rate(exact: Tensor, rows: Tensor) -> Rate:
    return Rate(int(rows.sum()), int(exact[rows].sum()))


def _by_sum(units_sum: Int[np.ndarray, " n"], margin: Float[np.ndarray, " n"], counts: dict[str, Tensor]) -> xr.Dataset:
    names = ("n", *counts, "mean", "lowest", "low")
    data = {name: np.full(len(UNITS_SUMS), np.nan) for name in names}
    for i, total in enumerate(UNITS_SUMS):
        rows = units_sum == total
        data["n"][i] = rows.sum()
        for name, where in counts.items():
            data[name][i] = where.numpy()[rows].sum()
        if rows.any():
            here = margin[rows]
            data["mean"][i], data["lowest"][i], data["low"][i] = here.mean(), here.min(), np.quantile(here, 0.05)
    return xr.Dataset(
        {name: ("units_sum", values) for name, values in data.items()}, coords={"units_sum": list(UNITS_SUMS)}
    )


def carry_errors(model: HookedModel, task: Any = None) -> CarryErrors:
    """Errors of a two-digit adder on all 10,000 pairs; see the module. Cost: 10,000 forward passes of six tokens.

    Raises:
        UserError: a model without hooks, or another task.
    """
    task = resolve_two_digit_task(model, task)
    name = model_name(model)
    return compute_carry_errors(
        teacher_forced_logits(model, task), all_problems(), held_out_problems(), name, EVERY_PAIR
    )
