"""Where this project's numbers are stored: zoo entries, stored results of experiments, grids, certificates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.core import stored_data
from interp.core.stored_data import read_stored
from interp.probes.curves import Curves, learning_curves
from interp.probes.score_result import GridPanels
from models import zoo
from models.errors import UserError
from studies.claims.rules import Ours, share
from studies.papers import DATA


class NotStored(UserError):
    """Raised for a number that was not measured yet, or whose result is not stored."""


@dataclass(frozen=True)
class Store:
    """The zoo, the studies' stored results and the library's; tests use other folders."""

    zoo: Path = zoo.ZOO
    data: Path = DATA
    library: Path = stored_data.DATA

    def folder(self, entry: str) -> str:
        """An entry's folder as a path that the zoo's functions take. Raises NotStored."""
        path = self.zoo / entry
        if not (path / zoo.CONFIG).is_file():
            raise NotStored(f"The zoo holds no {entry}.")
        return str(path.resolve())

    def entry(self, name: str) -> dict[str, Any]:
        return zoo.read_entry(self.folder(name))

    def model(self, name: str) -> Any:
        return zoo.load(self.folder(name))

    def numbers(self, name: str) -> dict[str, np.ndarray]:
        """A stored model's free parameters by name, in float64."""
        with torch.no_grad():
            return {key: p.double().numpy() for key, p in self.model(name).weight_map.named_parameters()}

    def curves(self, name: str, what: str = "exact") -> Curves:
        """The learning curves of an entry's seeds."""
        return learning_curves(self.folder(name), what=what)

    def experiment(self, what: str) -> dict[str, Any]:
        """A stored result of an experiment, such as "microadder-ladder"."""
        return _read_json(self.data / "experiments" / f"{what}.json")

    def read(self, file: str) -> dict[str, Any]:
        """Another stored result, such as "hand_built_grid"."""
        path = self.data / f"{file}.json"
        return _read_json(path if path.is_file() else self.library / path.name)

    def grids(self, what: str) -> GridPanels:
        """Stored panels of a figure, such as "position-coupling-fig1-small"."""
        return GridPanels.from_dict(_read_json(self.data / "reproduced" / f"{what}.json"))

    # ---- kinds of numbers that every paper has

    def score(self, name: str) -> Ours:
        """The share of its test set that an entry answers rightly."""
        score = self.entry(name)["score"]
        return share(score["correct"], score["n"], f"problems of {score['problems']}", score["rung"], model=name)

    def certified(self, name: str) -> Ours:
        """The share of all 10^20 pairs that a stored proof covers, which is 1 if there is one."""
        from interp.proofs.stored_certificates import stored_certificate

        certificate = stored_certificate(self.folder(name))
        if certificate is None or certificate.status != "certified":
            raise NotStored(f"No certificate of {name} is stored.")
        return Ours(1.0, certificate.provenance, 1.0, 1.0, model=name, remark="right on all 10^20 pairs")

    def grokked(self, name: str) -> Ours:
        """The share of an entry's seeds that answer its whole test set, each seed once."""
        made = self.entry(name)["training"]
        rate, again = zoo.seed_rate(made), zoo.repeated_seeds(made)
        remark = f"on a build that rounds differently, {again} of the same seeds" if again else ""
        return replace(share(rate.correct, rate.n, f"seeds of {name}", model=name), remark=remark)


def pick(rows: Iterable[dict[str, Any]], missing: str, **values: Any) -> dict[str, Any]:
    """The first row of a stored table with these values. Raises NotStored with the message ``missing`` without one."""
    for row in rows:
        if all(row[key] == value for key, value in values.items()):
            return row
    raise NotStored(missing)


@lru_cache(maxsize=64)
def _parse(path: Path, changed: int) -> dict[str, Any]:
    return read_stored(path)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise NotStored(f"No {path.name} is stored.")
    return _parse(path, path.stat().st_mtime_ns)
