"""Which token of the response goes wrong first: by running sum, digit, and at the boundaries between numbers.

Teacher-forced over problems of one shape, for every target (running sum i, digit k, or the boundary after it: ">" or
EOS):

    first     problems whose first wrong token it is, of all problems (greedy decoding fails at the same token)
    wrong     problems in which it is wrong, given the right tokens before
    n         problems right up to it; the hazard first / n is one minus its accuracy there

with Clopper-Pearson intervals. Boundaries are counted separately and compared with the share of targets that are
boundaries, as a control for "errors sit at the boundaries", with an exact binomial p-value over problems with an error
(one first error per problem, so these are independent). ``confusions`` counts what was predicted in place of what at
first errors.

Limits: sampled, with position ids from 1; other offsets can differ much. A teacher-forced token after the first error
is one that decoding would never see in this context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int

from interp.compare.construction.needed_keys import KeySets, draw_coupled, key_sets, resolve_coupled_task
from interp.core.results import Provenance
from interp.core.samples import N_PROBLEMS
from interp.core.stats import clopper_pearson
from interp.probes.score_result import Scores
from models.errors import UserError
from models.evaluation import predict
from models.number_format import p_value
from models.tasks import Task
from models.transformer import HookedModel, model_name

BOUNDARY = "boundary"


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstErrors(Scores):
    """Errors by place: ``table`` over (step, place), with places "0" ... and "boundary": ``n`` problems right up to
    there, ``correct`` ones right there too, ``first`` errors, and ``wrong`` tokens in all.

    ``about`` has ``wrong_problems``, those with an error; ``boundary_errors``, how many of them are at a boundary;
    ``boundary_targets``, the share of targets that are boundaries; ``p_boundary``; and ``confusions`` over (expected,
    predicted): tokens "digit", ">", "$", other, at first errors.
    """

    about: Mapping[str, Any]


def compute_first_errors(
    predicted: Int[np.ndarray, "n target"],
    expected: Int[np.ndarray, "n target"],
    keys: KeySets,
    vocabulary: str,
    shape: tuple[int, int],
    provenance: Provenance,
    name: str = "",
) -> FirstErrors:
    """Errors by place, from predicted and right tokens.

    Args:
        predicted, expected: tokens of every target; -1 where nothing was predicted.
        keys: which running sum and digit each target is.
        vocabulary: one character per token.
        shape: (operands, digits).
        provenance: what the problems are.

    Raises:
        UserError: no problem, or other targets than the task's.
    """
    from scipy.stats import binomtest

    if not len(predicted) or predicted.shape != expected.shape or predicted.shape[1] != len(keys.step):
        raise UserError(f"Predictions of {predicted.shape} do not fit {len(keys.step)} targets of some problems.")
    wrong = predicted != expected
    failed, first, n = wrong.any(1), wrong.argmax(1), len(wrong)
    at_first = np.bincount(first[failed], minlength=wrong.shape[1])
    reached = n - np.concatenate(([0], np.cumsum(at_first)[:-1]))
    boundary, total = keys.column < 0, int(failed.sum())
    places = [BOUNDARY if column < 0 else str(column) for column in keys.column.tolist()]
    columns = {"n": reached, "correct": reached - at_first, "first": at_first, "wrong": wrong.sum(0)}
    frame = pd.DataFrame({"step": keys.step, "place": places} | columns).set_index(["step", "place"])
    order = [*sorted(set(places) - {BOUNDARY}, key=int), BOUNDARY]
    table = frame.to_xarray().sel(place=order).fillna({"n": -1, "correct": 0, "first": 0, "wrong": 0}).astype(int)
    errors, share, rows = int(at_first[boundary].sum()), float(boundary.mean()), np.flatnonzero(failed)
    about = {
        "wrong_problems": total,
        "boundary_errors": errors,
        "boundary_targets": share,
        "p_boundary": float(binomtest(errors, total, share, alternative="greater").pvalue) if total else 1.0,
        "confusions": _confusions(expected[rows, first[rows]], predicted[rows, first[rows]], vocabulary),
    }
    operands, digits = shape
    said = f"{operands} numbers of {digits} digits: {_said(n, about)}"
    found = FirstErrors.of(name, table, provenance, about=about)
    return found.saying(f"{said}{found.worst()}.")


def _said(n: int, about: Mapping[str, Any]) -> str:
    right, wrong, errors = n - about["wrong_problems"], about["wrong_problems"], about["boundary_errors"]
    low, high = clopper_pearson(right, n)
    text = f"{right:,} of {n:,} responses right ({right / n:.3f} [{low:.3f}, {high:.3f}]); "
    if not wrong:
        return f"{text}there is no first error to place; "
    low, high = clopper_pearson(errors, wrong)
    return (
        f"{text}{errors:,} of {wrong:,} first errors sit at a boundary ({errors / wrong:.3f} [{low:.3f}, {high:.3f}], "
        f"where {about['boundary_targets']:.3f} of the targets are, {p_value(about['p_boundary'])}); "
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


def first_error_position(
    model: HookedModel, *, task: Task | None = None, problems: Any = None, n: int = N_PROBLEMS, seed: int = 0
) -> FirstErrors:
    """Where a model of multi-operand addition goes wrong first; see the module.

    Args:
        model: any model with TransformerLens hooks.
        task: the task in the shape to use; by default ``model.task``.
        problems: problems to answer; by default ``n`` are drawn from T_A with ``seed``.

    Raises:
        UserError: another task, ids beyond the model's tables, fewer than 2 problems.
    """
    task = resolve_coupled_task(model, task)
    sample, keys = draw_coupled(task, problems, n, seed), key_sets(task)
    batch = max(1, 2**24 // (model.cfg.n_heads * sample.tokens.shape[1] ** 2))
    predicted = predict(model, sample.problems, batch_size=batch, task=task).cpu().numpy()
    expected = task.targets(sample.problems).numpy()
    return compute_first_errors(
        predicted,
        expected,
        keys,
        task.vocabulary,
        (task.n_operands, task.n_digits),
        sample.provenance,
        model_name(model),
    )
