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
change; the third asks only whether the two change to the same digit. The control is an untrained copy.

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool

from interp.causal.interchange.corrupted_outputs import answers_to, corrupted_at, draw_corruptible
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.probe import Summary, columns, probe
from interp.core.results import Provenance
from interp.core.stats import proportion
from interp.core.table_result import ENDS, Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.thresholds import ABLE, FOLLOWS
from interp.core.views import Bars, Picture, Series
from interp.core.wording import listed
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError, known_name
from models.tasks import CHAINED_FROM_ABOVE, Algorithm, TaskLike, column_places, resolve_algorithm
from models.transformer import HookedModel, model_name

CORRUPTIONS = ("plausible", "any")
MEASURES = (
    Measure("accuracy", SHARE, ("untrained",), "answers that are the algorithm's"),
    Measure("without_carry", SHARE, title="its digits without a carry"),
    Measure("with_carry", SHARE, title="its digits with a carry"),
    Measure("clean", SHARE, title="right without corruption"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class WhichAlgorithm(TableResult):
    """A row for each corruption and algorithm, those with the most answers first, with intervals:

    * ``accuracy``: how often the model gives the algorithm's digit in the ``n`` examples where they do not all agree,
      ``accuracy_untrained`` the untrained copy; ``without_carry`` and ``with_carry``: the same by the carry in the
      algorithm's digit; ``place``: algorithms that give the same answers everywhere share one
    * ``followed``, ``followed_rule``, ``followed_both``: the share that gives the algorithm's digit where the model's
      prediction, the algorithm's or both change (``n_changed``, ``n_changed_rule``, ``n_changed_both``)
    * ``clean``: how often the model is right without the corruption; ``follows``: whether the algorithm is followed

    ``examples``: Dataset over (corruption, example) of the predicted ``column``, its ``digit_sum`` and the
    ``difference`` (x' + y' - z' of the previous column, with the corrupted z', or with ``highest_first`` that of the
    column above); ``before`` and ``after``, the model's digit without and with the corruption; ``untrained``, the
    untrained copy's; ``right``, the true digit; and over (corruption, algorithm, example) ``answer`` and
    ``answer_before``, the algorithms' digits with and without it.
    """

    examples: xr.Dataset
    base: int = 10
    highest_first: bool = False

    def ranking(self, corruption: str = "plausible") -> list[tuple[str, ...]]:
        """Algorithms from most to least accurate; those that give the same answers everywhere share a place."""
        rows = self.rows_at(corruption=known_name("corruption", corruption, CORRUPTIONS))
        return [tuple(names) for _, names in rows.groupby("place")["algorithm"]]

    def winner(self, corruption: str = "plausible") -> tuple[str, ...] | None:
        """The algorithms that the model follows: the first of the ranking if its interval lies above the second's, all
        shares lie above ``ABLE``, and with plausible digits also reach ``FOLLOWS``; else None."""
        first = self.ranking(corruption)[0]
        return first if self.rows_at(corruption=corruption)["follows"].iloc[0] else None

    @property
    def deciding(self) -> str:
        """The corruption on which the verdict rests: "plausible", unless the algorithms all agree there."""
        return "plausible" if (self.rows_at(corruption="plausible")["n"] > 0).all() else "any"

    @property
    def verdict(self) -> str:
        """The algorithm that the model follows, in words."""
        winner = self.winner(self.deciding)
        return "none of these" if winner is None else " or ".join(winner)

    def _finding(self, model: str) -> str:
        kind, (first, *others) = self.deciding, self.ranking(self.deciding)
        best = self.cell("accuracy", corruption=kind, algorithm=first[0])
        digit = "a plausible wrong digit" if kind == "plausible" else "any wrong digit"
        beside = best.against
        if others:
            beside += f"; {' and '.join(others[0])} {self.cell('accuracy', corruption=kind, algorithm=others[0][0])}"
        names = [name for names in (first, *others) for name in names]
        said = f"the {self.verdict} algorithm" if self.winner(kind) else f"none of {listed(names)}"
        text = f"{model} follows {said}: with {digit} before the query, {best} of {best.n:,} answers that tell them "
        text += f"apart are those of {' and '.join(first)} ({beside})"
        if self.winner(kind):
            return f"{text}."
        clean, *by_carry = (
            self.cell(name, corruption=kind, algorithm=first[0]) for name in ("clean", "without_carry", "with_carry")
        )
        if (clean.low or 0.0) <= ABLE:
            return f"{text}; without it {clean} are right."
        cases = zip(by_carry, ("without", "with"), strict=True)
        return f"{text}; {' and '.join(f'{each} {words} a carry' for each, words in cases if each.n)}."


def compute_which_algorithm(
    examples: xr.Dataset, provenance: Provenance, model: str = "the model", base: int = 10, highest_first: bool = False
) -> WhichAlgorithm:
    """The result, from the answers to every example."""
    rows = [row for kind in CORRUPTIONS for row in _rows(examples.sel(corruption=kind), kind, base)]
    found = WhichAlgorithm(
        "", pd.DataFrame(rows), provenance, ("corruption", "algorithm"), MEASURES,
        examples=examples, base=base, highest_first=highest_first,
    )  # fmt: skip
    return found.saying(found._finding(model))


def _rows(kind: xr.Dataset, corruption: str, base: int) -> list[dict[str, Any]]:
    """The rows of one corruption, the most accurate algorithms first."""
    answers, before = (kind[name].transpose("algorithm", "example").values for name in ("answer", "answer_before"))
    differ, changed = (answers != answers[0]).any(0), kind.before.values != kind.after.values
    clean = proportion(kind.before.values == kind.right.values)
    places: dict[bytes, list[dict[str, Any]]] = {}
    for name, answer, earlier in zip(kind.algorithm.values.tolist(), answers, before, strict=True):
        agrees, rule = kind.after.values == answer, earlier != answer
        carry = (answer - kind.digit_sum.values) % base
        row: dict[str, Any] = {"corruption": corruption, "algorithm": name, "n": int(differ.sum())}
        row |= _share("accuracy", agrees[differ])
        row |= _share("accuracy_untrained", (kind.untrained.values == answer)[differ])
        for bit, words in ((0, "without_carry"), (1, "with_carry")):
            row |= _share(words, agrees[differ & (carry == bit)]) | {f"n_{words}": int((differ & (carry == bit)).sum())}
        for suffix, counted in (("", changed), ("_rule", rule), ("_both", changed & rule)):
            row |= {f"n_changed{suffix}": int(counted.sum())} | _share(f"followed{suffix}", agrees[counted])
        row |= MEASURES[3].cells(clean.value, clean.low, clean.high) | {"n_clean": clean.n}
        places.setdefault(answer.tobytes(), []).append(row)
    ranked = sorted(places.values(), key=lambda rows: -rows[0]["accuracy"])
    first = ranked[0][0]
    lows = [first[f"{words}_low"] for words in ("without_carry", "with_carry") if first[f"n_{words}"]]
    follows = (
        len(ranked) > 1
        and first["accuracy_low"] > ranked[1][0]["accuracy_high"]
        and min([clean.low, *lows]) > ABLE
        and (corruption == "any" or first["accuracy"] >= FOLLOWS)
    )
    return [row | {"place": at, "follows": follows and not at} for at, rows in enumerate(ranked) for row in rows]


def _share(name: str, right: Bool[np.ndarray, " example"]) -> dict[str, float]:
    found = proportion(right)
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def implied_carries(kind: xr.Dataset, base: int) -> pd.DataFrame:
    """One row per difference of one corruption's examples: n and, for each carry -1, 0, 1, 2, the share of predictions
    that are the digit sum plus that carry; "other" is the rest. A digit fits at most one of them; bases below 4 start
    at 0."""
    least = -1 if base >= 4 else 0
    implied = (kind.after.values - kind.digit_sum.values - least) % base + least
    rows = []
    for difference in np.unique(kind.difference.values):
        here = implied[kind.difference.values == difference]
        shares = {str(carry): float((here == carry).mean()) for carry in (-1, 0, 1, 2)}
        rows.append({"difference": int(difference), "n": len(here), **shares, "other": 1 - sum(shares.values())})
    return pd.DataFrame(rows)


def _chained(found: WhichAlgorithm) -> Estimate:
    """How often it reads the carry off the digit written before, where that gives another answer."""
    name = CHAINED_FROM_ABOVE.name if found.highest_first else "chained"
    return replace(
        found.cell("accuracy", corruption=found.deciding, algorithm=name), name="", note=f"follows {found.verdict}"
    )


@probe(
    "Which symbolic algorithm do its answers follow?",
    needs=[columns(3)],
    summary=Summary(
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
    provenance = Provenance(n, seed, "problems of each corruption, half of them rich in carry chains")
    result = compute_which_algorithm(examples, provenance, model_name(model), layout.base, layout.highest_first)
    if not (result.table["n"] > 0).any():
        raise UserError(
            f"These algorithms never disagree in {n:,} problems of each corruption; choose others, or more problems."
        )
    return result


@drawing(WhichAlgorithm)
def which_algorithm_view(result: WhichAlgorithm) -> Picture:
    """How often the model gives each algorithm's digit where they disagree, and the carry that predictions imply."""
    names, followed = [name for group in result.ranking() for name in group], []
    for corruption, said in (("plausible", "the digit of the other carry"), ("any", "any wrong digit")):
        rows = result.rows_at(corruption=corruption).set_index("algorithm").loc[names].reset_index()
        for name, control in (("accuracy", False), ("accuracy_untrained", True)):
            title = f"untrained, {said}" if control else f"{said} (n = {rows['n'][0]:,})"
            ends = [f"{name}_{end}" for end in ENDS]
            followed.append(Series.of(rows, "algorithm", name, title, ends, ["n"], control=control))
    table = implied_carries(result.examples.sel(corruption="any"), result.base)
    carries = [
        Series.of(table, "difference", carry, f"carry {carry}".replace("-", "−"), said=("n",))
        for carry in ("-1", "0", "1", "2")
    ]
    carries.append(Series.of(table, "difference", "other", "no such carry", said=("n",), control=True))
    occur = (0, 1) if result.highest_first else (-1, 0, result.base - 1, result.base)
    occurring = ", ".join(map(str, occur)).replace("-", "−")
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
