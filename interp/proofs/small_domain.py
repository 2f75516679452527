"""The base of verdicts on every problem of a domain: its shape, and the smallest margins by target and token."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.results import Rung
from interp.proofs.verdict import (
    RUNGS,
    ArithmeticName,
    Status,
    Verdict,
    WrongAnswer,
    identify,
    is_count,
    require_claim,
    stored,
    stored_shape,
    wrong_answer,
)
from models.errors import UserError
from models.hooked import registered_name
from models.tasks.base import Task
from models.tasks.problem_space import ProblemSpace
from models.tasks.sequences import SequenceTask

SLACK = 1e-6  # how far a bound may differ with another machine's library


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SmallDomainVerdict(Verdict):
    """A verdict on all problems of a task's shape.

    Attributes:
        shape: the task's shape, where it has several. what: a word for the problems, in the plural.
        smallest: over ``target`` and ``token`` (the right one): ``n``, how many problems; the least ``margin`` among
            them (NaN without a problem); and the ``problem`` that has it.
    """

    shape: tuple[int, ...]
    what: str
    smallest: xr.Dataset
    counterexample: WrongAnswer | None = None

    @property
    def smallest_margin(self) -> float:
        """The least of all margins."""
        return float(self.smallest.margin.min())

    @property
    def witness(self) -> str:
        """The problem with the least margin; empty if no margin is known."""
        margin = self.smallest.margin.values
        if np.isnan(margin).all():
            return ""
        return str(self.smallest.problem.values[np.unravel_index(np.nanargmin(margin), margin.shape)])

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON; infinite margins are null."""
        rows = self.smallest.to_dataframe().reset_index()
        rows = rows[rows.n > 0].replace([np.inf, -np.inf], np.nan).astype(object)
        table = {f"{axis}s": self.smallest[axis].values.tolist() for axis in ("target", "token")}
        return super().to_dict() | {"smallest": table | {"rows": rows.where(rows.notna(), None).to_dict("records")}}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProvedVerdict(SmallDomainVerdict):
    """A verdict by proofs, each of a problem or of a class of them.

    Attributes:
        right: of how many the right token is proved to lead; of ``wrong`` it is proved not to.
        obstacle: why it ended before the last one, if it did.
    """

    arithmetic: ArithmeticName
    right: int
    wrong: int
    obstacle: str | None = None

    @property
    @abstractmethod
    def domain(self) -> str:
        """What it is about, in words."""

    @property
    def rung(self) -> Rung:
        return RUNGS[self.arithmetic] if self.status == "certified" else "sampled"

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each target and right token: how many there are, the least proved margin, a problem that has it."""
        rows = self.smallest.to_dataframe().reset_index()
        return rows[rows.n > 0].reset_index(drop=True)


def status_of(proved: bool, wrong: WrongAnswer | None) -> Status:
    """The status of a search that proved all, or did not, and found this ``wrong`` answer, or none."""
    return "refuted" if wrong is not None else "certified" if proved else "undecided"


def smallest_margins(
    n: Int[np.ndarray, "target token"],
    margin: Float[np.ndarray, "target token"],
    problem: np.ndarray,
    targets: list[str],
    tokens: list[str],
) -> xr.Dataset:
    """The table of :attr:`SmallDomainVerdict.smallest`."""
    axes = ("target", "token")
    data = {"n": (axes, n), "margin": (axes, margin), "problem": (axes, problem)}
    return xr.Dataset(data, coords={"target": targets, "token": tokens})


def stored_domain(value: dict[str, Any], targets: list[str], *names: str) -> dict[str, Any]:
    """A file's fields of a :class:`SmallDomainVerdict`, and those of ``names``.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    if not isinstance(value["what"], str):
        raise ValueError("a domain that is none")
    tokens = list(value["smallest"]["tokens"])
    n = np.zeros((len(targets), len(tokens)), np.int64)
    margin, problem = np.full(n.shape, np.nan), np.full(n.shape, "", dtype=object)
    for row in value["smallest"]["rows"]:
        at = targets.index(row["target"]), tokens.index(row["token"])
        n[at], problem[at] = row["n"], row["problem"]
        margin[at] = -np.inf if row["margin"] is None else row["margin"]
    table = smallest_margins(n, margin, problem, targets, tokens)
    return stored(value, "what", *names) | {"shape": stored_shape(value), "smallest": table}


def stored_proof(value: dict[str, Any], whole: str, *counts: str) -> dict[str, Any]:
    """The fields of a :class:`ProvedVerdict` on all of ``whole``, and those counts, from a file's fields.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    counts = (whole, *counts, "right", "wrong")
    if not all(is_count(value[name]) for name in counts):
        raise ValueError("numbers that are none")
    obstacle = value["obstacle"]
    if value["arithmetic"] not in ("interval", "float32") or not (obstacle is None or isinstance(obstacle, str)):
        raise ValueError("an unknown arithmetic, or an obstacle that is none")
    if value["status"] == "certified" and not value["right"] == value[whole] > 0:
        raise ValueError(f"certified without all {whole}")
    return stored_domain(value, list(value["smallest"]["targets"]), "arithmetic", "obstacle", *counts)


def require_same(certificate: Any, again: Any, same: tuple[str, ...]) -> None:
    """Check that what was proved ``again`` is as strong as a certificate says, and equal in the fields of ``same``.

    Raises:
        UserError: it is not.
    """
    stored, found = certificate.smallest, again.smallest
    if any(getattr(certificate, name) != getattr(again, name) for name in same) or (
        certificate.right > again.right or certificate.wrong > again.wrong
    ):
        raise UserError(f"This certificate does not hold: proved again, {again.sentence()}.")
    if (
        not np.array_equal(stored.n, found.n)
        or certificate.smallest.token.values.tolist() != found.token.values.tolist()
    ):
        raise UserError("This certificate does not hold: it counts other problems.")
    claimed, proved = stored.margin.values, found.margin.values
    if (
        certificate.status == "certified"
        and not (claimed <= proved + SLACK * (1 + np.abs(proved)))[stored.n.values > 0].all()
    ):
        raise UserError("This certificate does not hold: it claims larger margins than are proved.")


def require_wrong(certificate: SmallDomainVerdict, model: HookedModel, task: Task) -> None:
    """A certificate's counterexample, if it has one, must be what the model answers. Raises UserError if it is not."""
    if certificate.counterexample is not None:
        problem = ProblemSpace.of(task).find(certificate.counterexample.problem)
        if wrong_answer(model, task, problem) != certificate.counterexample:
            raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")


def task_of(certificate: SmallDomainVerdict, model: HookedModel, task: Any) -> Task:
    """The task that a certificate is about, in its shape.

    Raises:
        UserError: a certificate of another model, or one that claims nothing.
    """
    task = resolve_task(model, task)
    if isinstance(task, SequenceTask) and certificate.shape:
        task = task.at(*certificate.shape)
    require_claim(certificate, identify(model, task), registered_name(model), task)
    return task
