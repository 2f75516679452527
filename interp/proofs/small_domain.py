"""The base of verdicts on every problem of a small domain: its shape, and the smallest margins by target and token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.sites import model_name
from interp.proofs.verdict import Verdict, WrongAnswer, identify, require_claim, stored, stored_shape
from models.errors import UserError
from models.tasks.base import Task
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


def task_of(certificate: SmallDomainVerdict, model: HookedModel, task: Any) -> Task:
    """The task that a certificate is about, in its shape.

    Raises:
        UserError: a certificate of another model, or one that claims nothing.
    """
    task = resolve_task(model, task)
    if isinstance(task, SequenceTask) and certificate.shape:
        task = task.at(*certificate.shape)
    require_claim(certificate, identify(model, task), model_name(model))
    return task
