"""Which token of the response goes wrong first: by running sum, digit, and at the boundaries between numbers.

Teacher-forced over problems of one shape. For every target (running sum i, digit k, or the boundary behind it: ">" or
EOS)

    first     problems whose first wrong token it is, of all problems (greedy decoding fails at the same token)
    wrong     problems in which it is wrong, given the right tokens before
    reached   problems right up to it;  hazard = first / reached

with Clopper-Pearson intervals. Boundaries are counted apart, against the share of targets that are boundaries: the
control for "errors sit at the boundaries", with an exact binomial p-value over problems with an error (one first error
a problem, so these are independent). ``confusions`` counts what was predicted in place of what at first errors.

Limits. Sampled, with position ids from 1; other offsets can differ much. A teacher-forced token behind the first error
is one that decoding would never see in this context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int

from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.results import Provenance, Result
from interp.core.stats import clopper_pearson
from interp.papers.position_coupling.keys import KeySets, draw_coupled, key_sets, resolve_coupled_task
from models.errors import UserError
from models.evaluation import predict
from models.tasks.multi_addition import MultiOperandAddition

BOUNDARY = "boundary"


@dataclass(frozen=True, eq=False)
class FirstErrors(Result):
    """First errors by place. ``table`` is a Dataset over (step, place), places "0" ... and "boundary": ``first``,
    ``reached``, ``hazard`` with ``low``, ``high``, and ``wrong``. ``labels`` names the targets.

    ``confusions`` over (expected, predicted): tokens "digit", ">", "$", other, at first errors. ``wrong_problems``:
    problems with an error. ``boundary_share``: share of first errors at boundaries with interval, and of targets.
    """

    table: xr.Dataset
    confusions: xr.DataArray
    wrong_problems: int
    boundary_errors: int
    boundary_targets: float
    p_boundary: float
    shape: tuple[int, int]
    provenance: Provenance

    @property
    def n(self) -> int:
        return self.provenance.n

    def sentence(self) -> str:
        right = self.n - self.wrong_problems
        low, high = clopper_pearson(right, self.n)
        text = f"{right:,} of {self.n:,} responses right ({right / self.n:.3f} [{low:.3f}, {high:.3f}])"
        if not self.wrong_problems:
            return f"{text}; no first error to place."
        share = self.boundary_errors / self.wrong_problems
        low, high = clopper_pearson(self.boundary_errors, self.wrong_problems)
        worst = self.table.hazard.fillna(-1).stack(cell=("step", "place"))
        step, place = worst.cell.values[int(worst.values.argmax())]
        cell = self.table.sel(step=step, place=place)
        where = f"the boundary behind b{step}" if place == BOUNDARY else f"digit {place} of b{step}"
        return (
            f"{text}; {self.boundary_errors:,} of {self.wrong_problems:,} first errors sit at a boundary ({share:.3f} "
            f"[{low:.3f}, {high:.3f}], where {self.boundary_targets:.3f} of the targets are, "
            f"p = {self.p_boundary:.1e}); "
            f"most hazardous is {where}: {int(cell['first']):,} of {int(cell.reached):,} that get there "
            f"({float(cell.hazard):.3f} [{float(cell.low):.3f}, {float(cell.high):.3f}])."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row a running sum and place."""
        return self.table.to_dataframe().reset_index().assign(n=self.n)


def compute_first_errors(
    predicted: Int[np.ndarray, "n target"],
    expected: Int[np.ndarray, "n target"],
    keys: KeySets,
    vocabulary: str,
    shape: tuple[int, int],
    provenance: Provenance,
) -> FirstErrors:
    """Errors by place from predicted and right tokens.

    Args:
        predicted, expected: tokens of every target; -1 where nothing was predicted.
        keys: says which running sum and digit a target is.
        vocabulary: one character a token.
        shape: (operands, digits).
        provenance: what the problems are.

    Raises:
        UserError: no problem, or other targets than the task's.
    """
    from scipy.stats import binomtest

    if not len(predicted) or predicted.shape != expected.shape or predicted.shape[1] != len(keys.step):
        raise UserError(f"Predictions of {predicted.shape} do not fit {len(keys.step)} targets of some problems.")
    wrong = predicted != expected
    failed = wrong.any(1)
    first = wrong.argmax(1)
    n = len(wrong)
    at_first = np.bincount(first[failed], minlength=wrong.shape[1])
    reached = n - np.concatenate(([0], np.cumsum(at_first)[:-1]))
    steps = sorted(set(keys.step.tolist()))
    places = [*map(str, sorted(set(keys.column.tolist()) - {-1})), BOUNDARY]
    names = ("first", "reached", "hazard", "low", "high", "wrong")
    data = {name: np.full((len(steps), len(places)), np.nan) for name in names}
    for target, (step, column) in enumerate(zip(keys.step.tolist(), keys.column.tolist(), strict=True)):
        cell = steps.index(step), places.index(BOUNDARY if column < 0 else str(column))
        count, base = int(at_first[target]), int(reached[target])
        low, high = clopper_pearson(count, base)
        hazard = count / base if base else np.nan
        for name, value in zip(names, (count, base, hazard, low, high, int(wrong[:, target].sum())), strict=True):
            data[name][cell] = value
    boundary = keys.column < 0
    errors, share = int(at_first[boundary].sum()), float(boundary.mean())
    total = int(failed.sum())
    rows = np.flatnonzero(failed)
    return FirstErrors(
        table=xr.Dataset(
            {name: (("step", "place"), values) for name, values in data.items()},
            coords={"step": steps, "place": places},
        ),
        confusions=_confusions(expected[rows, first[rows]], predicted[rows, first[rows]], vocabulary),
        wrong_problems=total,
        boundary_errors=errors,
        boundary_targets=share,
        p_boundary=float(binomtest(errors, total, share, alternative="greater").pvalue) if total else 1.0,
        shape=shape,
        provenance=provenance,
    )


def _confusions(
    expected: Int[np.ndarray, " error"], predicted: Int[np.ndarray, " error"], vocabulary: str
) -> xr.DataArray:
    kinds = ("digit", ">", "$", "other")

    def kind(token: int) -> str:
        text = vocabulary[token] if token >= 0 else "other"
        return "digit" if text.isdigit() else text if text in kinds else "other"

    counts = np.zeros((3, 4), dtype=int)
    for right, given in zip(expected.tolist(), predicted.tolist(), strict=True):
        counts[kinds.index(kind(right)), kinds.index(kind(given))] += 1
    return xr.DataArray(
        counts, dims=("expected", "predicted"), coords={"expected": list(kinds[:3]), "predicted": list(kinds)}
    )


@probe("Where does the response go wrong first?", needs=[task_of(MultiOperandAddition)])
def first_errors(
    model: HookedModel, *, task: Any = None, problems: Any = None, n: int = 1_000, seed: int = 0
) -> FirstErrors:
    """Where a model of multi-operand addition goes wrong first; see the module.

    Args:
        model: any model with TransformerLens hooks.
        task: in the shape to look at; ``model.task`` unless given.
        problems: problems to answer; otherwise ``n`` are drawn from T_A with ``seed``.

    Raises:
        UserError: another task, ids beyond the model's tables, fewer than 2 problems.
    """
    task = resolve_coupled_task(model, task)
    sample, keys = draw_coupled(task, problems, n, seed), key_sets(task)
    batch = max(1, 2**24 // (model.cfg.n_heads * sample.tokens.shape[1] ** 2))
    predicted = predict(model, sample.problems, batch_size=batch, task=task).cpu().numpy()
    expected = task.targets(sample.problems).numpy()
    return compute_first_errors(predicted, expected, keys, task.vocabulary, task.shape, sample.provenance)
