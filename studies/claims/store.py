"""Where this project's numbers are stored: zoo entries, results of studies, grids, certificates.

Claims call the public functions of a :class:`Store` by name (:mod:`studies.claims.read`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import xarray as xr

from interp.core import stored_data
from interp.probes.learning_curves import LearningCurves, learning_curves
from models import zoo
from studies.claims.ours import NotStored, Ours, share
from studies.claims.stored_texts import read_stored
from studies.papers import DATA


@dataclass(frozen=True)
class Store:
    """The zoo, the studies' stored results and the library's; tests use other folders. What is missing raises
    NotStored."""

    zoo: Path = zoo.ZOO
    data: Path = DATA
    library: Path = stored_data.DATA

    def _folder(self, entry: str) -> str:
        """An entry's folder as a path that the zoo's functions take."""
        path = self.zoo / entry
        if not (path / zoo.CONFIG).is_file():
            raise NotStored(f"The zoo holds no {entry}.")
        return str(path.resolve())

    def entry(self, name: str) -> dict[str, Any]:
        """What the zoo says of an entry."""
        return zoo.read_entry(self._folder(name))

    def load(self, name: str) -> Any:
        """An entry's model."""
        return zoo.load(self._folder(name))

    def curves(self, name: str, what: str = "exact") -> LearningCurves:
        """The learning curves of an entry's seeds."""
        return learning_curves(self._folder(name), what=what)

    def curve(self, name: str, what: str = "exact") -> xr.DataArray:
        """The learning curve of an entry's stored seed."""
        curves = self.curves(name)
        return curves.of(name, what).sel(seed=curves.chosen[name]).dropna("step")

    def steps(self, name: str, reached: float = 1.0) -> list[int]:
        """The steps at which those seeds of an entry that are ever perfect first have this share of uniform validation
        problems right; earliest first."""
        curves = self.curves(name, "uniform")
        perfect = curves.onset(name)
        if not perfect:
            raise NotStored(f"No stored seed of {name} was ever perfect.")
        return sorted(step for seed, step in curves.onset(name, reached).items() if seed in perfect)

    def stored(self, what: str) -> dict[str, Any]:
        """A stored result of a study, such as "microadder-ladder", or of the library."""
        for path in (self.data / f"{what}.json", self.library / f"{what}.json"):
            if path.is_file():
                return _parse(path, path.stat().st_mtime_ns)
        raise NotStored(f"No {what}.json is stored.")

    # ---- kinds of numbers that every paper has

    def score(self, name: str) -> Ours:
        """The share of its test set that an entry answers rightly."""
        score = self.entry(name)["score"]
        return share(score["correct"], score["n"], f"problems of {score['problems']}", score["strength"], model=name)

    def certified(self, name: str) -> Ours:
        """The share of all 10^20 pairs that a stored proof covers, which is 1 if there is one."""
        from interp.proofs.stored_verdicts import stored_certificate

        certificate = stored_certificate(self._folder(name))
        if certificate is None or certificate.status != "certified":
            raise NotStored(f"No certificate of {name} is stored.")
        return Ours(1.0, certificate.provenance, 1.0, 1.0, model=name, remark="right on all 10^20 pairs")

    def grokked(self, name: str) -> Ours:
        """The share of an entry's seeds that answer its whole test set, each seed once."""
        made = self.entry(name)["training"]
        rate, again = zoo.seed_rate(made), zoo.repeated_seeds(made)
        remark = f"on a build that rounds differently, {again} of the same seeds" if again else ""
        return replace(share(rate.correct, rate.n, f"seeds of {name}", model=name), remark=remark)


def free_numbers(model: Any) -> SimpleNamespace:
    """A model's free parameters by name, in float64, as NumPy arrays."""
    with torch.no_grad():
        return SimpleNamespace(**{key: p.double().numpy() for key, p in model.weight_map.named_parameters()})


@lru_cache(maxsize=64)
def _parse(path: Path, changed: int) -> dict[str, Any]:
    return read_stored(path)
