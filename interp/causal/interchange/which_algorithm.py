"""Which algorithm a model follows: its answers where candidates disagree, after a corrupted previous output token.

On uncorrupted sequences all addition algorithms agree. Here the written digit before one column's query is replaced,
and only that column's prediction is read. Ripple carry and look-ahead ignore outputs; the chained algorithm
(:mod:`models.tasks.columns.addition_algorithms`) reads the carry off the written digit. This is an interchange of the
variable ``previous``: the digit is what another problem shows there. There are two kinds of sources:

    plausible   the previous column adds up to 9 (and is not the units), so it shows 9 or 0 without or with a carry in;
                it is given the other of the two. Everything near the query is as in an existing problem; only columns
                further below show that the digit is wrong. No algorithm has to round here.
    any         any other digit, uniformly, in any column. Most differences x' + y' - z' then never occur in training;
                what the chained algorithm does is a matter of rounding, and a model may do something else altogether.

Where the answer starts with its highest digit, the digit before the query is that of the column above. It says what was
carried into that column, so that it tells the carry into the query's own column where this one passes a carry on: its
digits add up to 9. The candidate that reads it is *chained from above*. A plausible digit is then the one of the other
carry, before such columns; the difference is z'' - x'' - y'' modulo the base, where 0 and 1 occur uncorrupted.

Accuracies are over examples where the algorithms do not all agree, with one corrupted column per problem and
Clopper-Pearson intervals. ``followed`` is the share that gives the algorithm's digit among the examples where the
corruption changes the *model's* prediction, the *algorithm's* own answer, or *both*. The first also counts predictions
that change where the algorithm says that they should not, the second those that stay where it says that they should
change; the third asks only whether the two change to the same digit. The control is an untrained twin. With any wrong
digit, ``within`` limits how far a difference may lie from those that occur uncorrupted (-1, 0, 9, 10).

An algorithm is *followed* only by a model that is right on most uncorrupted columns and gives the algorithm's digit in
most cases where they disagree, both with and without a carry in that digit: each time the lower end of the interval
must lie above one half (``ABLE``). And where the corrupted digit is plausible, it must give that digit in at least nine
of ten of all these cases (``FOLLOWS``): what does so in 55% mixes two algorithms. A model that never carries gives the
digit of ripple wherever no carry comes in, and nowhere else; one that copies the last output often gives the digit of
chained, but adds nothing. Both follow none.

Ripple and look-ahead are the same function of the inputs, so they always tie here. Interventions on their inner
variables (:func:`interp.interchange_intervention`) could tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr

from interp.causal.interchange.corrupted_outputs import answers_to, corrupted_at, draw_corruptible
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, columns, probe
from interp.core.results import Provenance, Result
from interp.core.stats import Proportion, proportion
from interp.core.task_checks import resolve_task
from interp.core.thresholds import ABLE, FOLLOWS
from interp.core.views import Bars, Picture, Series
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError, known_name
from models.tasks import CHAINED_FROM_ABOVE, Algorithm, TaskLike, column_places, resolve_algorithm
from models.transformer import HookedModel, model_name

CORRUPTIONS = ("plausible", "any")
CHANGED_BY = ("model", "algorithm", "both")


@dataclass(frozen=True, eq=False)
class WhichAlgorithm(Result):
    """``examples``: Dataset over (corruption, example) of the predicted ``column``, its ``digit_sum`` and the
    ``difference`` (x' + y' - z' of the previous column, with the corrupted z', or with ``highest_first`` that of the
    column above); ``before`` and ``after``, the model's
    digit without and with the corruption; ``untrained``, the untrained twin's; ``right``, the true digit; and over
    (corruption, algorithm, example) ``answer`` and ``answer_before``, the algorithms' digits with and without it."""

    model: str
    examples: xr.Dataset
    provenance: Provenance
    base: int = 10
    highest_first: bool = False

    @property
    def _occurring(self) -> tuple[int, ...]:
        """The differences of uncorrupted sequences."""
        return (0, 1) if self.highest_first else (-1, 0, self.base - 1, self.base)

    def _disagree(self, corruption: str = "plausible") -> np.ndarray:
        """Which examples the algorithms do not all answer in the same way."""
        answers = self._kind(corruption).answer.transpose("algorithm", "example").values
        return (answers != answers[0]).any(0)

    def accuracy(self, algorithm: str, corruption: str = "plausible", of: str = "after") -> Proportion:
        """How often the model (``of="untrained"``: its twin) gives the algorithm's digit, where they disagree."""
        where = self._disagree(corruption)
        return proportion((self._kind(corruption)[of].values == self._answer(algorithm, corruption))[where])

    def followed(
        self, algorithm: str, corruption: str = "plausible", within: int | None = None, changed_by: str = "model"
    ) -> Proportion:
        """How often the model gives the algorithm's digit, where the corruption changes something.

        Args:
            changed_by: what must change: the "model"'s prediction, the "algorithm"'s answer, or "both".
            within: count only examples whose difference is at most this far from one that occurs uncorrupted.

        Raises:
            UserError: an unknown name.
        """
        known_name("kind of change", changed_by, CHANGED_BY)
        kind, answer = self._kind(corruption), self._answer(algorithm, corruption)
        counted = np.ones(len(answer), dtype=bool)
        if changed_by != "algorithm":
            counted &= kind.before.values != kind.after.values
        if changed_by != "model":
            counted &= kind.answer_before.sel(algorithm=algorithm).values != answer
        if within is not None:
            counted &= np.abs(kind.difference.values[:, None] - np.array(self._occurring)).min(1) <= within
        return proportion((kind.after.values == answer)[counted])

    def clean(self, corruption: str = "plausible") -> Proportion:
        """How often the model is right without the corruption."""
        kind = self._kind(corruption)
        return proportion(kind.before.values == kind.right.values)

    def ranking(self, corruption: str = "plausible") -> list[tuple[str, ...]]:
        """Algorithms from most to least accurate; those that give the same answers everywhere share a place."""
        places: dict[bytes, list[str]] = {}
        for name in self.examples.algorithm.values.tolist():
            places.setdefault(self._answer(name, corruption).tobytes(), []).append(name)
        groups = [tuple(names) for names in places.values()]
        return sorted(groups, key=lambda names: -self.accuracy(names[0], corruption).value)

    def _ahead(self, corruption: str = "plausible") -> tuple[str, ...] | None:
        """The first of the ranking if its interval lies above that of the second, else None (also if all agree)."""
        first, *others = self.ranking(corruption)
        apart = others and self.accuracy(first[0], corruption).low > self.accuracy(others[0][0], corruption).high
        return first if apart else None

    def _by_carry(self, algorithm: str, corruption: str = "plausible") -> dict[int, Proportion]:
        """:meth:`accuracy` by the carry (0 or 1) in the algorithm's digit; empty cases are left out."""
        kind, answer = self._kind(corruption), self._answer(algorithm, corruption)
        carry = (answer - kind.digit_sum.values) % self.base
        cases = {bit: self._disagree(corruption) & (carry == bit) for bit in (0, 1)}
        return {bit: proportion((kind.after.values == answer)[case]) for bit, case in cases.items() if case.any()}

    def winner(self, corruption: str = "plausible") -> tuple[str, ...] | None:
        """The algorithms that the model follows: the first of the ranking if its interval lies above the second's, all
        shares lie above ``ABLE``, and with plausible digits also reach ``FOLLOWS``; else None."""
        first = self._ahead(corruption)
        if first is None or self.clean(corruption).low <= ABLE:
            return None
        if corruption == "plausible" and self.accuracy(first[0], corruption).value < FOLLOWS:
            return None
        return first if min(share.low for share in self._by_carry(first[0], corruption).values()) > ABLE else None

    @property
    def _deciding(self) -> str:
        """The corruption on which the verdict rests: "plausible", unless the algorithms all agree there."""
        return "plausible" if self._disagree("plausible").any() else "any"

    @property
    def verdict(self) -> str:
        """The algorithm that the model follows, in words."""
        winner = self.winner(self._deciding)
        return "none of these" if winner is None else " or ".join(winner)

    def _implied_carries(self, corruption: str = "any") -> pd.DataFrame:
        """One row per difference: n and, for each carry -1, 0, 1, 2, the share of predictions that are the
        digit sum plus that carry; "other" is the rest. A digit fits at most one of them; bases below 4 start at 0."""
        kind = self._kind(corruption)
        least = -1 if self.base >= 4 else 0
        implied = (kind.after.values - kind.digit_sum.values - least) % self.base + least
        rows = []
        for difference in np.unique(kind.difference.values):
            here = implied[kind.difference.values == difference]
            shares = {str(carry): float((here == carry).mean()) for carry in (-1, 0, 1, 2)}
            rows.append({"difference": int(difference), "n": len(here), **shares, "other": 1 - sum(shares.values())})
        return pd.DataFrame(rows)

    def _kind(self, corruption: str) -> xr.Dataset:
        known_name("corruption", corruption, self.examples.corruption.values)
        return self.examples.sel(corruption=corruption)

    def _answer(self, algorithm: str, corruption: str) -> np.ndarray:
        known_name("algorithm", algorithm, self.examples.algorithm.values)
        return self._kind(corruption).answer.sel(algorithm=algorithm).values

    def sentence(self) -> str:
        what = {"plausible": "a plausible wrong digit", "any": "any wrong digit"}
        names = self.examples.algorithm.values.tolist()
        winner = self.winner(self._deciding)
        if winner is None:
            found = f"without corruption {self.clean(self._deciding)} of its answers are right"
            verdict = f"{self.verdict} ({', '.join(names)}); {found}"
        else:
            shares = [
                f"in {self.accuracy(winner[0], corruption)} of the cases with {digit}"
                for corruption, digit in what.items()
                if self._disagree(corruption).any()
            ]
            verdict = f"the {self.verdict} algorithm {' and '.join(shares)}"
        return " ".join(
            (
                f"{self.model} follows {verdict}.",
                *(self._told(corruption, what[corruption]) for corruption in what),
            )
        )

    def _told(self, corruption: str, digit: str) -> str:
        """The findings for one corruption, in two sentences."""
        disagree, best = int(self._disagree(corruption).sum()), self.ranking(self._deciding)[0][0]
        if disagree:
            shares = [
                f"that of {' and '.join(names)} in {self.accuracy(names[0], corruption)}"
                for names in self.ranking(corruption)
            ]
            cases = "the one case" if disagree == 1 else f"the {disagree:,} cases"
            text = f"With {digit} before the query, it gives {' and '.join(shares)} of {cases} where they disagree."
            text = text.replace("it gives that of", "it gives the digit of", 1)
        else:
            text = f"With {digit} before the query, all algorithms agree."
        model, algorithm, both = (self.followed(best, corruption, changed_by=by) for by in CHANGED_BY)
        if not model.n:
            return f"{text} None of its predictions changes."
        n = self.examples.sizes["example"]
        if model.n == algorithm.n == both.n == n and model.value == 1:
            return f"{text} Every prediction changes, and each becomes the digit that the {best} algorithm gives."
        many = f"All its {n:,} predictions change" if model.n == n else f"{model.n:,} of its {n:,} predictions change"
        text += f" {many}{'s' * (1 == model.n < n)}, {model} of them to the digit of {best}"
        if not algorithm.n:
            return f"{text}, which never changes its own."
        if model.n == algorithm.n == both.n:
            return f"{text}, which changes its own in the same cases."
        text += f"; where {best} changes its own (n = {algorithm.n:,}) it is followed in {algorithm}"
        return f"{text}, and where both change (n = {both.n:,}) in {both}." if both.n else f"{text}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per corruption and algorithm, with n and interval: accuracy where they disagree; share followed
        among changed predictions, among changed answers of the algorithm ("rule"), and where both change; the untrained
        twin's accuracy, and the model's accuracy without corruption."""
        rows = []
        for corruption in CORRUPTIONS:
            for names in self.ranking(corruption):
                for name in names:
                    found = self.accuracy(name, corruption)
                    row = {"corruption": corruption, "algorithm": name, "n_disagree": found.n, "accuracy": found.value}
                    row |= {"low": found.low, "high": found.high}
                    for by, suffix in zip(CHANGED_BY, ("", "_rule", "_both"), strict=True):
                        share = self.followed(name, corruption, changed_by=by)
                        row |= {f"n_changed{suffix}": share.n, f"followed{suffix}": share.value}
                        row |= {f"followed{suffix}_low": share.low, f"followed{suffix}_high": share.high}
                    row["untrained"] = self.accuracy(name, corruption, of="untrained").value
                    rows.append(row | {"clean": self.clean(corruption).value})
        return pd.DataFrame(rows)


def _chained(found: WhichAlgorithm) -> Estimate:
    """How often it reads the carry off the digit written before, where that gives another answer."""
    kind, name = found._deciding, CHAINED_FROM_ABOVE.name if found.highest_first else "chained"
    share, blank = (found.accuracy(name, kind, of) for of in ("after", "untrained"))
    note = f"follows {found.verdict}"
    return Estimate(
        share.value, share.low, share.high, share.n, control=blank.value, control_note="untrained", note=note
    )


@probe(
    "Which symbolic algorithm do its answers follow?",
    needs=[columns(3)],
    scalar=Scalar(
        "carry follows the written digit",
        "share",
        _chained,
        0.01,
        lambda _, __, n, ___: {"n": max(2, n // 4)},
        asked_by=("compare_models",),
    ),
)
def which_algorithm(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    n: Count = 1000,
    seed: Seed = 0,
    algorithms: Sequence[str | Algorithm] | None = None,
) -> WhichAlgorithm:
    """Rank addition algorithms by how often a model gives their answers where they disagree.

    Args:
        model: any model with TransformerLens hooks, in evaluation mode.
        n: problems per corruption, by default 1,000: there are two corruptions, with three runs of each.
        algorithms: candidates, default ripple, look-ahead and chained (chained from above, where the answer starts with
            its highest digit).

    Cost: three runs on ``2 n`` sequences.

    Raises:
        UserError: fewer than two algorithms, algorithms that never disagree, a task that they do not fit, or a model in
            training mode.
    """
    task = resolve_task(model, task)
    layout = column_places(task)
    chosen = [resolve_algorithm(algorithm) for algorithm in (layout.algorithms if algorithms is None else algorithms)]
    if len(chosen) < 2 or len({algorithm.name for algorithm in chosen}) < len(chosen):
        raise UserError("Give two or more different algorithms to choose between.")
    if len(layout) < 3:
        raise UserError(
            f"which_algorithm puts a wrong digit before a query, where a carry could have come in, and the task "
            f"{task.name!r} writes {len(layout)} digit{'s' * (len(layout) != 1)} and needs 3."
        )
    twin = untrained_twin(model, task, seed)
    kinds = []
    for offset, corruption in enumerate(CORRUPTIONS):
        tokens, column = draw_corruptible(layout, corruption, n, seed + offset)
        corrupted = corrupted_at(layout, tokens, column, corruption, torch.Generator().manual_seed(seed + offset))
        kinds.append(answers_to(model, twin, layout, chosen, tokens, corrupted, column))
    examples: Any = xr.concat(kinds, xr.IndexVariable("corruption", list(CORRUPTIONS)))
    result = WhichAlgorithm(
        model_name(model),
        examples,
        Provenance(n, seed, "problems of each corruption, half of them rich in carry chains"),
        layout.base,
        layout.highest_first,
    )
    if not any(result._disagree(corruption).any() for corruption in CORRUPTIONS):
        raise UserError(
            f"These algorithms never disagree in {n:,} problems of each corruption; choose others, or more problems."
        )
    return result


@drawing(WhichAlgorithm)
def which_algorithm_view(result: WhichAlgorithm) -> Picture:
    """How often the model gives each algorithm's digit where they disagree, and the carry that predictions imply."""
    names = [name for group in result.ranking() for name in group]
    followed = []
    for corruption, said in (("plausible", "the digit of the other carry"), ("any", "any wrong digit")):
        for of, control in (("after", False), ("untrained", True)):
            found = [result.accuracy(name, corruption, of=of) for name in names]
            name = f"untrained, {said}" if control else f"{said} (n = {found[0].n:,})"
            value, low, high = (np.array([getattr(p, part) for p in found]) for part in ("value", "low", "high"))
            followed.append(Series(name, names, value, low, high, control=control, said={"n": [p.n for p in found]}))
    table = result._implied_carries("any")
    carries = [
        Series.of(table, "difference", carry, f"carry {carry}".replace("-", "−"), said=("n",))
        for carry in ("-1", "0", "1", "2")
    ]
    carries.append(Series.of(table, "difference", "other", "no such carry", said=("n",), control=True))
    occurring = ", ".join(map(str, result._occurring)).replace("-", "−")
    difference = f"z'' − x'' − y'' modulo {result.base}" if result.highest_first else "x' + y' − z'"
    x = f"difference {difference} ({occurring} occur uncorrupted)"
    title = "any wrong digit: the carry a prediction implies"
    return Picture(
        [
            Bars("algorithm", "share with its digit", "where the algorithms disagree", followed, "share"),
            Bars(x, "share of predictions", title, carries, "share", stacked=True),
        ],
        note="The output before one query is replaced. Intervals: 95% Clopper-Pearson",
    )
