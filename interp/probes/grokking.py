"""When do seeds grok, and how many? Validation curves of several models next to each other.

A seed has grokked when it once answered every uniform validation problem; the share of seeds that do comes with its
Clopper-Pearson interval, seeds being the independent units. The step is the first validation at which that happened, so
it is known up to the distance between validations.

Source: "A 456-Parameter Transformer Solves 10-Digit Addition", section 1.3 and Figure 1, which shows five seeds of 456
and one chosen seed each of 582 and 512.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance, Result
from models.checkpoint import parse_weights, read_json
from models.errors import UserError
from models.evaluation import Rate
from models.training.run_folder import RunFolder
from models.zoo import entry_file


@dataclass(frozen=True, eq=False)
class GrokkingComparison(Result):
    """``curves``: model -> exact match on uniform validation problems, a DataArray over (seed, step)."""

    curves: Mapping[str, xr.DataArray]
    provenance: Provenance

    def first_steps(self, model: str) -> dict[int, int]:
        """The first perfect validation of each seed of a model that has one."""
        perfect = self.curves[model] == 1.0
        steps = perfect.step.values
        rows = zip(perfect.seed.values.tolist(), perfect.values, strict=True)
        return {seed: int(steps[row.argmax()]) for seed, row in rows if row.any()}

    def rate(self, model: str) -> Rate:
        """Seeds that grokked, of all."""
        return Rate(self.curves[model].sizes["seed"], len(self.first_steps(model)))

    def sentence(self) -> str:
        texts = []
        for model in self.curves:
            rate, steps = self.rate(model), sorted(self.first_steps(model).values())
            low, high = rate.interval
            when = f", first at step {steps[0]:,} and at the median {int(np.median(steps)):,}" if steps else ""
            texts.append(f"{model}: {rate.correct} of {rate.n} seeds grok ({low:.1%}-{high:.1%}){when}")
        return "; ".join(texts) + "."

    def to_dataframe(self) -> pd.DataFrame:
        """A row per model: seeds, how many grok, the share with its 95% interval, first, median and last step."""
        rows = []
        for model in self.curves:
            rate, steps = self.rate(model), list(self.first_steps(model).values())
            low, high = rate.interval
            row = {"model": model, "seeds": rate.n, "grokked": rate.correct, "share": rate.accuracy}
            spread = (int(min(steps)), int(np.median(steps)), int(max(steps))) if steps else ("–",) * 3
            row |= {"low": low, "high": high, "last step of training": int(self.curves[model].step.max())}
            rows.append(row | dict(zip(("first step", "median step", "latest step"), spread, strict=True)))
        return pd.DataFrame(rows)


def curve_of_entry(entry: str) -> xr.DataArray:
    """The stored curves of a zoo entry's runs. Raises UserError for one without uniform validation."""
    tensors, _ = parse_weights(entry_file(entry, "curves.safetensors"), f"the curves of {entry}")
    if "uniform" not in tensors:
        raise UserError(f"The curves of {entry} do not hold accuracy on uniform problems apart.")
    return _curve(tensors["uniform"].numpy(), tensors["seed"].tolist(), tensors["step"].tolist())


def curve_of_run(folder: Path) -> xr.DataArray:
    """The curves of a run folder. Raises UserError where there is none."""
    lines = RunFolder(folder).metrics() if folder.exists() else []
    if not lines or "uniform" not in lines[0]:
        raise UserError(f"{folder} holds no validation results yet.")
    first = read_json(RunFolder(folder).config_path)["first_seed"]
    values = np.array([line["uniform"] for line in lines], dtype=float).T
    return _curve(values, list(range(first, first + len(values))), [line["step"] for line in lines])


def _curve(values: np.ndarray, seeds: list[int], steps: list[int]) -> xr.DataArray:
    return xr.DataArray(values.astype(float), dims=("seed", "step"), coords={"seed": seeds, "step": steps})
