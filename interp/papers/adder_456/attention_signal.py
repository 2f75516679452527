"""What attention writes at an answer query: one number, and what it is made of.

The output of the attention sublayer at the query of digit i is projected on the direction in which it varies most, and
that number is fitted by least squares, with an intercept, on

    own      x_i + y_i            the digit sum of the column that is predicted
    below    x_{i-1} + y_{i-1}    the digit sum of the previous column
    last     s_{i-1}              the digit that was written last

``own / below`` of B = 10 means that the two columns are written as one two-digit number, 10 (x_i + y_i) + x_{i-1} +
y_{i-1}; subtracting s_{i-1} leaves 10 (x_i + y_i + carry), minus at most 1. ``r2`` says how linear it is, ``first`` how
much of the output's variance that one direction holds (1 for an output matrix of rank 1). The control is the fit to
the digit sums of another problem. Sampled; intervals (Student t) over the digits s1 to s9.

Source: the 10:1 rule is measured on MicroAdder's published weights; its paper does not state it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.core import runs
from interp.core.model import HookedModel
from interp.core.problems import draw
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.core.stats import mean_interval
from interp.papers.adder_456.columns import adder_task, only_layer
from models.errors import UserError

TERMS = ("own", "below", "last")


@dataclass(frozen=True, eq=False)
class AttentionSignal(Result):
    """``table`` is a Dataset over target (s1 to s9) with ``first``, ``r2`` and ``control``, and over term with
    ``coefficient``, scaled so that "below" is 1."""

    model: str
    table: xr.Dataset
    provenance: Provenance

    def mean(self, term: str) -> tuple[float, float, float]:
        """The mean coefficient over targets with its interval, in units of that of "below"."""
        return mean_interval(self.table.coefficient.sel(term=term).values)

    def sentence(self) -> str:
        own, last = (f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in map(self.mean, ("own", "last")))
        first = math.floor(1e4 * float(self.table["first"].min())) / 1e4  # never rounded up to 1
        return (
            f"What {self.model}'s attention writes is one number (at least {first:.2%} of its variance), linear in "
            f"digit sums (R^2 {float(self.table.r2.min()):.4f} or more; another problem's sums: "
            f"{float(self.table.control.max()):.3f} or less): the column's own counts {own} times the one below, the "
            f"last output digit {last} times."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per target."""
        wide = self.table.coefficient.to_pandas()
        return self.table[["first", "r2", "control"]].to_dataframe().join(wide).reset_index()


def compute_attention_signal(
    output: Float[np.ndarray, "n target d_model"],
    terms: Float[np.ndarray, "n target 3"],
    targets: list[str],
    provenance: Provenance,
    model: str = "the model",
) -> AttentionSignal:
    """The signal, from attention outputs and the values of the three terms.

    Raises:
        UserError: too few problems to fit, or an output that does not vary.
    """
    n = len(output)
    if n < 10:
        raise UserError("The fit needs at least 10 problems.")
    first, r2, control, coefficient = [], [], [], []
    shifted = np.roll(terms, 1, axis=0)
    for target in range(len(targets)):
        centred = output[:, target] - output[:, target].mean(0)
        _, values, directions = np.linalg.svd(centred, full_matrices=False)
        if values[0] < 1e-9:
            raise UserError(f"The attention output is the same on every problem at {targets[target]}.")
        signal = centred @ directions[0]
        fits = [_fit(signal, x[:, target]) for x in (terms, shifted)]
        first.append(values[0] ** 2 / (values**2).sum())
        r2.append(fits[0][1])
        control.append(fits[1][1])
        coefficient.append(fits[0][0] / fits[0][0][TERMS.index("below")])
    table = xr.Dataset(
        {
            "first": ("target", np.array(first)),
            "r2": ("target", np.array(r2)),
            "control": ("target", np.array(control)),
            "coefficient": (("target", "term"), np.array(coefficient)),
        },
        {"target": targets, "term": list(TERMS)},
    )
    return AttentionSignal(model, table, provenance)


def _fit(signal: Float[np.ndarray, " n"], terms: Float[np.ndarray, "n term"]) -> tuple[np.ndarray, float]:
    """Least-squares coefficients (without the intercept) and R^2."""
    design = np.column_stack((np.ones(len(terms)), terms))
    found, *_ = np.linalg.lstsq(design, signal, rcond=None)
    return found[1:], 1 - float(np.square(signal - design @ found).sum() / np.square(signal - signal.mean()).sum())


def attention_signal(model: HookedModel, task: Any = None, n: int = 2048, seed: int = 0) -> AttentionSignal:
    """What the attention of a one-layer ten-digit adder writes at the queries of s1 to s9, on ``n`` uniform problems.

    Raises:
        UserError: another task, more than one layer, too few problems.
    """
    task = adder_task(model, task)
    only_layer(model)
    sample = draw(task, None, n, seed)
    targets = range(1, 10)
    written = Site("blocks.0.hook_attn_out", tuple(task.query_positions[i] for i in targets))
    (output,), _ = runs.read(model, sample.tokens, [written])
    values = {name: x.numpy().astype(float) for name, x in task.variables(sample.problems).items()}
    own, below, last = values["digit_sum"][:, 1:10], values["digit_sum"][:, :9], values["s"][:, :9]
    labels = [task.target_roles[i].label for i in targets]
    name = model_name(model)
    terms = np.stack((own, below, last), -1)
    return compute_attention_signal(output.double().cpu().numpy(), terms, labels, sample.provenance, name)
