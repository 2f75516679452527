"""Evidence on every problem of a domain: its shape, and the smallest margins by target and token."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from interp.core.results import Strength
from interp.core.views import Picture
from interp.proofs.verdict import (
    RUNGS,
    ArithmeticName,
    CertifyOptions,
    Evidence,
    Status,
    Verdict,
    is_count,
    margin_grid,
    stored_shape,
)
from interp.proofs.wrong_answers import WrongAnswer
from models import UserError
from models.tasks import ProblemSpace, Task

SLACK = 1e-6  # how far a bound may differ with another machine's library


@dataclass(frozen=True, eq=False, kw_only=True)
class SmallDomainEvidence(Evidence):
    """What was found on all problems of a task's shape.

    Attributes:
        shape: the task's shape, where it has several. what: a word for the problems, in the plural.
        smallest: over ``target`` and ``token`` (the right one): ``n``, how many problems; the least ``margin`` among
            them (NaN without a problem); and the ``problem`` that has it.
    """

    shape: tuple[int, ...]
    what: str
    smallest: xr.Dataset

    def picture(self) -> Picture:
        """The smallest margin (or proved bound of margins) of each right token at each target, with its problem."""
        targets, tokens = self.smallest.target.values.tolist(), self.smallest.token.values.tolist()
        frame = self.smallest[["margin", "problem"]].to_dataframe().reset_index()
        grid, lowest = margin_grid(frame[frame["margin"].notna()], "target", "right token", targets, tokens)
        return Picture([grid], note=f"Smallest lead of the right token over all {self.what}. Lowest: {lowest}")

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

    def misnamed(self, task: Task) -> str | None:
        """Whether the problems with the least margins are problems, with the right tokens that they stand for."""
        space, table = ProblemSpace.of(task), self.smallest
        for target, column in np.argwhere(table.n.values > 0):
            problem, token = str(table.problem.values[target, column]), str(table.token.values[column])
            try:
                right = task.token_text(int(task.targets(space.find(problem))[0, target]))
            except UserError:
                right = None
            if right != token:
                return f"{problem!r} is not a problem with {token!r} as its {table.target.values[target]}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON; infinite margins are null."""
        rows = self.smallest.to_dataframe().reset_index()
        rows = rows[rows.n > 0].replace([np.inf, -np.inf], np.nan).astype(object)
        table = {f"{axis}s": self.smallest[axis].values.tolist() for axis in ("target", "token")}
        return super().to_dict() | {"smallest": table | {"rows": rows.where(rows.notna(), None).to_dict("records")}}


@dataclass(frozen=True, eq=False, kw_only=True)
class ProvedEvidence(SmallDomainEvidence):
    """What was found by proofs, each of a problem or of a class of them.

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

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each target and right token: how many there are, the least proved margin, a problem that has it."""
        rows = self.smallest.to_dataframe().reset_index()
        return rows[rows.n > 0].reset_index(drop=True)


def rung_of(verdict: Verdict) -> Strength:
    """How strong a claim a proof supports."""
    return RUNGS[verdict.arithmetic] if verdict.status == "certified" else "sampled"


def require_all_targets(task: Task, asked: CertifyOptions) -> None:
    """Raise UserError where only a part of an answer is asked for."""
    if asked.targets != "all":
        raise UserError(
            f"Digits are judged apart from EOS for ten-digit adders; of {task.name} every token is asked for."
        )


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
    """The table of :attr:`SmallDomainEvidence.smallest`."""
    axes = ("target", "token")
    data = {"n": (axes, n), "margin": (axes, margin), "problem": (axes, problem)}
    return xr.Dataset(data, coords={"target": targets, "token": tokens})


def stored_domain(value: dict[str, Any], targets: list[str]) -> dict[str, Any]:
    """A file's fields of a :class:`SmallDomainEvidence`. Raises KeyError, TypeError or ValueError for anything else."""
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
    return {"shape": stored_shape(value), "what": value["what"], "smallest": table}


def stored_proof(value: dict[str, Any], whole: str, *counts: str) -> dict[str, Any]:
    """The fields of a :class:`ProvedEvidence` on all of ``whole``, and those counts, from a file's fields.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    counted = {name: value[name] for name in (whole, *counts, "right", "wrong")}
    if not all(map(is_count, counted.values())):
        raise ValueError("numbers that are none")
    arithmetic, obstacle = value["arithmetic"], value["obstacle"]
    if arithmetic not in ("interval", "float32") or not (obstacle is None or isinstance(obstacle, str)):
        raise ValueError("an unknown arithmetic, or an obstacle that is none")
    if value["status"] == "certified" and not value["right"] == value[whole] > 0:
        raise ValueError(f"certified without all {whole}")
    own = {"arithmetic": arithmetic, "obstacle": obstacle}
    return stored_domain(value, list(value["smallest"]["targets"])) | own | counted


def proofs_fall_short(verdict: Verdict, found: Verdict, same: tuple[str, ...]) -> str | None:
    """What a verdict by proofs claims beyond the one found again, in words; the fields of ``same`` must be equal."""
    if any(getattr(verdict, name) != getattr(found, name) for name in same) or (
        verdict.right > found.right or verdict.wrong > found.wrong
    ):
        return f"proved again, {found.sentence()}"
    stored, again = verdict.smallest, found.smallest
    if not np.array_equal(stored.n, again.n) or stored.token.values.tolist() != again.token.values.tolist():
        return "it counts other problems"
    claimed, proved = stored.margin.values, again.margin.values
    held = (claimed <= proved + SLACK * (1 + np.abs(proved)))[stored.n.values > 0]
    return "it claims larger margins than are proved" if verdict.status == "certified" and not held.all() else None
