"""Evidence on every problem of a domain: its shape, and the smallest margins by target and token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from interp.core.views import Picture
from interp.proofs.verdict.verdict import Evidence, margin_grid
from interp.proofs.verdict.verdict_files import stored_shape
from models import UserError
from models.tasks import Task


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
        table = self.smallest
        for target, column in np.argwhere(table.n.values > 0):
            problem, token = str(table.problem.values[target, column]), str(table.token.values[column])
            try:
                right = task.token_text(int(task.targets([problem])[0, target]))
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
