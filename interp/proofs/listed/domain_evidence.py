"""Evidence on every problem of a domain: its shape, and the smallest margins by target and token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from interp.core.views import Picture
from interp.proofs.verdict.verdict import Evidence, margin_grid
from interp.proofs.verdict.verdict_files import reader
from models import UserError
from models.tasks import Task


class SmallestMargins:
    """How the smallest margins stand in a file: a row for each target and right token; infinite margins are null."""

    def write(self, value: xr.Dataset) -> dict[str, Any]:
        rows = value.to_dataframe().reset_index()
        rows = rows[rows.n > 0].replace([np.inf, -np.inf], np.nan).astype(object)
        axes = {f"{axis}s": value[axis].values.tolist() for axis in ("target", "token")}
        return axes | {"rows": rows.where(rows.notna(), None).to_dict("records")}

    def read(self, value: Any) -> xr.Dataset:
        targets, tokens = (reader(tuple[str, ...])(value[axis]) for axis in ("targets", "tokens"))
        n = np.zeros((len(targets), len(tokens)), np.int64)
        margin, problem = np.full(n.shape, np.nan), np.full(n.shape, "", dtype=object)
        for row in value["rows"]:
            at = targets.index(row["target"]), tokens.index(row["token"])
            n[at], problem[at] = reader(int)(row["n"]), reader(str)(row["problem"])
            margin[at] = -np.inf if row["margin"] is None else reader(float)(row["margin"])
        return smallest_margins(n, margin, problem, list(targets), list(tokens))


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
    smallest: Annotated[xr.Dataset, SmallestMargins()]

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
