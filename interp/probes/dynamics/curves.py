"""How training went: accuracy over steps for every seed of a stored model's runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.core.stats import clopper_pearson
from models.checkpoint import parse_weights
from models.zoo import entry_file, read_entry


@dataclass(frozen=True, eq=False)
class GrokkingCurves(Result):
    """Validation accuracy over training, all seeds. ``table`` is a Dataset over (seed, step): ``exact``, ``token``,
    ``loss`` (nats) and, in newer entries, ``uniform`` (exact match on the uniform half); NaN once a seed had ended.
    ``first_perfect``: the first step at which a seed was perfect on validation. ``grokked``: seeds that answer the
    whole test set."""

    model: str
    table: xr.Dataset
    chosen: int
    first_perfect: dict[int, int]
    grokked: int
    start: str | None  # the model near which all seeds began; None: at random
    provenance: Provenance

    def sentence(self) -> str:
        n = self.table.sizes["seed"]
        low, high = clopper_pearson(self.grokked, n)
        step = self.first_perfect.get(self.chosen)
        reached = "is never" if step is None else "is first"
        at = "" if step is None else f" at step {step:,}"
        rate = f"{self.grokked / n:.1%}, 95% interval {low:.1%}-{high:.1%}"
        if self.start is not None:
            rate = f"all begun near {self.start}"
        return (
            f"{self.grokked} of {n} seeds of {self.model} answer the whole test set ({rate}); seed {self.chosen} "
            f"{reached} perfect on all of validation{at}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row per seed and evaluation."""
        return self.table.to_dataframe().dropna().reset_index()


@probe("When did each seed of an entry learn to add?")
def grokking_curves(entry: str) -> GrokkingCurves:
    """The stored learning curves of a zoo entry.

    Raises:
        UserError: no such entry, or one without curves.
    """
    import json

    config = read_entry(entry)
    curves, _ = parse_weights(entry_file(entry, "curves.safetensors"), f"the curves of {entry}")
    rows = json.loads(entry_file(entry, "seeds.json"))
    dims = ("seed", "step")
    coords = {dim: curves[dim].numpy() for dim in dims}
    names = [name for name in ("exact", "token", "loss", "uniform") if name in curves]
    table = xr.Dataset({name: (dims, curves[name].numpy().astype(np.float32)) for name in names}, coords)
    made = config["training"]
    size = made["recipe"]["validation_size"]
    exact = {seed: table.exact.sel(seed=seed).values for seed in coords["seed"].tolist()}
    return GrokkingCurves(
        model=config["model"],
        table=table,
        chosen=made["seed"],
        first_perfect={seed: int(coords["step"][(row == 1).argmax()]) for seed, row in exact.items() if 1 in row},
        grokked=sum(row["exact_on_test"] == config["score"]["n"] for row in rows),
        start=made["start"]["origin"] if made.get("start") else None,
        provenance=Provenance(size, 0, "validation problems an evaluation, half uniform and half carry-rich"),
    )
