"""Scores of a model: how often it is right, by stratum.

    interp.score(model)                                       by the length of the longest carry chain
    interp.score(model, by=("carries", "digits"))             a heat map of two strata
    interp.score(model, problems=mine, by={"kind": labels})   labels of your own, one per problem
    interp.score(model, by="target")                          token by token, each given the right ones before it
    interp.score(model, by="suite", n=20_000)                 ten-digit adders: problems that uniform tests lack

Uniform problems, AdderBoard's among them, contain no long chains, so a perfect score on them says little about the
cases where adders fail. Where a task can plant carry chains, ``n`` problems of every length are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.samples import draw, of_every_chain_length
from interp.core.task_checks import resolve_task
from interp.probes.score_result import Scores, share_right
from interp.probes.stress_suites import SHARE, suites
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError, unknown_name
from models.evaluation import predict
from models.tasks import LIMIT, Task, TaskLike
from models.tasks.named.addition import adds_pairs_below
from models.transformer import HookedModel, model_name

#: Columns of the result, which no label can be named.
TAKEN = ("n", "correct", "accuracy", "accuracy_low", "accuracy_high", "strength", "wrong_example", "index")
#: Name -> function that labels problems; "target" is a stratum as well.
STRATA: dict[str, Callable[[Task, Any], Any]] = {
    "chain_length": lambda task, problems: task.chain_length(problems),
    "carries": lambda task, problems: task.variables(problems)["carry_out"].flatten(1).sum(1),
    "digits": lambda task, problems: [max(len(str(x)) for x in numbers) for numbers in task.numbers(problems)],
}


def _natural(model: Any, task: Task, n: int, seed: int) -> dict[str, Any]:
    """All problems of two digits, else some from the task's own distribution."""
    return {"problems": task.domain.every() if adds_pairs_below(task) == 100 else draw(task, None, n, seed).problems}


@probe("How often is it right, stratum by stratum?", summary=Summary("right", "share", share_right, 0.01, _natural))
def score(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 1000,
    seed: Seed = 0,
    by: str | Sequence[str] | Mapping[str, Any] = "chain_length",
) -> Scores:
    """Share of whole answers right, teacher-forced (greedy decoding gives the same verdicts), by one or two strata.

    Args:
        problems: problems to answer, each counted once (once with each label). By default ``n`` (1,000) are drawn: so
            many of every carry-chain length if that is the only stratum and the task can plant chains, else from the
            task's own distribution.
        by: names of :data:`STRATA`, "target" or "suite"; or labels by name, one per problem. Labels may have
            any name but those of the result's own columns (:data:`TAKEN`). "suite" draws the problems of
            :mod:`interp.probes.stress_suites`, ``n`` of every suite of one case, and a tenth of that of every other
            case; its strata are the cases ("suite: case"), with the coordinates suite and strength.

    Raises:
        UserError: a model without hooks or task, an unknown stratum or one named twice, labels that are not one per
            problem or of which one is missing, a name that is taken, or suites of a task that is not ten-digit
            addition.
    """
    task = resolve_task(model, task)
    names = [by] if isinstance(by, str) else list(by)
    if names == ["suite"] and not isinstance(by, Mapping):
        return _by_suite(model, task, problems, n, seed)
    for name in names:
        if name == "suite" and not isinstance(by, Mapping):
            raise UserError("Suites are strata of their own: ask with by='suite' alone.")
        if not isinstance(by, Mapping) and name not in (*STRATA, "target"):
            raise unknown_name("stratum", str(name), [*STRATA, "target", "suite"])
    if not names:
        raise UserError("There is nothing to sort the problems by.")
    if len(set(names)) < len(names):
        raise UserError(f"A stratum is named twice: {', '.join(map(str, names))}.")
    own = by if isinstance(by, Mapping) else {}
    if taken := [name for name in own if not isinstance(name, str) or not name or name in (*TAKEN, "target")]:
        raise UserError(
            f"Labels cannot be named {taken[0]!r}: the result has columns {', '.join(TAKEN)}, and 'target' stands for "
            "the tokens of the answer."
        )
    planted = names == ["chain_length"] and problems is None and adds_pairs_below(task) == LIMIT
    sample = of_every_chain_length(task, n, seed) if planted else draw(task, problems, n, seed, beside=[*own.values()])
    problems, provenance = task.as_problems(sample.problems), sample.provenance
    if sample.rows is not None:
        listed = {name: list(each) for name, each in own.items()}
        own = {name: [each[row] for row in sample.rows.tolist()] for name, each in listed.items()}
    labels = {name: own[name] if name in own else STRATA[name](task, problems) for name in names if name != "target"}
    right, wrong_example = verdicts(model, task, problems)
    if "target" not in names:
        table = tabulated(np.asarray(right.all(1)), labels, wrong_example)
    else:
        targets = np.array([role.label for role in task.target_roles])
        repeated = {name: np.repeat(np.asarray(each), len(targets)) for name, each in labels.items()}
        table = tabulated(right.flatten(), repeated | {"target": np.tile(targets, len(right))})
    table = table.assign_coords(strength=provenance.strength)
    return Scores.of(model_name(model), table, provenance, errors=len(names) == 1)


def _by_suite(model: HookedModel, task: Task, problems: Any, n: int, seed: int) -> Scores:
    """The score of every case of the suites that are drawn for ten-digit adders."""
    if adds_pairs_below(task) != LIMIT:
        raise UserError(f"Suites are problems of ten-digit addition, not of {task.name}.")
    if problems is not None:
        raise UserError("Suites draw their own problems; give none with by='suite'.")
    if n < SHARE:
        raise UserError(f"Suites need n of at least {SHARE}, not {n}: most cases get a tenth of it.")
    drawn = suites(n, seed)
    labels = [f"{suite}: {case}" for suite, case, _, here in drawn for _ in range(len(here))]
    found = score(model, task=task, problems=torch.cat([here for *_, here in drawn]), by={"case": labels})
    table = found.table.assign_coords(
        suite=("case", [suite for suite, *_ in drawn]), strength=("case", [strength for _, _, strength, _ in drawn])
    )
    provenance = Provenance(len(labels), seed, "problems in all suites; strengths by case")
    return Scores.of(found.model, table, provenance, errors=True, series="suite")


def verdicts(
    model: HookedModel, task: Task, problems: Int[Tensor, "n *operand"]
) -> tuple[Bool[np.ndarray, "n target"], Callable[[int], str]]:
    """Whether each target of each problem is right, given the right ones before it, and a function that words a wrong
    answer."""
    predicted, expected = predict(model, problems, task=task).cpu(), task.targets(problems).cpu()

    def words(i: int) -> str:
        claimed = None if (predicted[i] < 0).any() else task.decode(predicted[i : i + 1])[0]
        return f"{task.problem_text(task.numbers(problems[i : i + 1])[0])} = {claimed}"

    return np.asarray(predicted == expected), words


def tabulated(
    right: Bool[np.ndarray, " n"], labels: Mapping[str, Any], wrong_example: Callable[[int], str] | None = None
) -> xr.Dataset:
    """``n`` and ``correct`` over the labels, -1 and 0 for combinations that no problem has, and the first wrong answer.

    Labels that are numbers are sorted; words are in the order of their first problems.

    Raises:
        UserError: the labels are not one per problem, or one is missing.
    """
    columns = {name: np.asarray(each) for name, each in labels.items()}
    for name, each in columns.items():
        if each.shape != right.shape:
            raise UserError(f"Strata need one label for each of the {len(right)} problems.")
        given = labels[name]
        given = pd.Series(given, dtype=object) if isinstance(given, (list, tuple)) else each  # NumPy makes NaN "nan"
        if (missing := np.flatnonzero(pd.isna(given))).size:
            raise UserError(
                f"The label {name!r} is missing for {missing.size} problems, the first of which is number "
                f"{missing[0]}; give those a label of their own."
            )
    frame = pd.DataFrame(columns | {"correct": right})
    table = frame.groupby(list(columns), sort=False)["correct"].agg(n="size", correct="sum")
    if wrong_example is not None:
        first = frame[~right].reset_index().groupby(list(columns))["index"].first()
        table["wrong_example"] = [
            wrong_example(int(first[cell])) if cell in first.index else "" for cell in table.index
        ]
    found = table.to_xarray().fillna({"n": -1, "correct": 0} | ({"wrong_example": ""} if wrong_example else {}))
    found = found.assign({name: found[name].astype(int) for name in ("n", "correct")})
    words = {name: pd.unique(each) for name, each in columns.items() if each.dtype.kind not in "biuf"}
    return found.sortby([name for name in columns if name not in words]).sel(words)
