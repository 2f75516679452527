"""Where the carry can be read: linear probes in a two-digit adder's residual stream, on units pairs they never saw.

For every stream (after embeddings, attention and MLP of each layer), sublayer output and position, ridge regression on
the label +1 (carry out of the units) or -1, thresholded at zero:

    w = argmin |X w - y|^2 / n + lambda |w|^2,   X standardised with intercept, lambda = 1e-3

The 100 units pairs (a0, b0) are cut into five folds; every problem is classified by the probe that saw none with its
units pair. Otherwise 128 dimensions could learn the table of pairs by heart. The control does the same with labels that
are shuffled over the units pairs: what a probe gets without a regularity, about the share of the commoner label (0.55).
The second control is the same probe on an untrained copy (:func:`untrained_twin`): what it gets from random features.

Limits. "Can be read" is not "is used": a carry is a threshold on a0 + b0, so wherever both digits lie linearly, a probe
finds it; :mod:`interp.papers.toygpt.carry` asks what is used. Intervals are Korn-Graubard's with units pairs as
clusters. :mod:`interp.probes.lens.probes` asks the same of other signals, sites and tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.model import HookedModel
from interp.core.random_draws import untrained_twin
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.core.stats import clustered_proportion
from interp.papers.toygpt.problems import LABELS, resolve_two_digit_task
from interp.probes.lens.ridge import FOLDS, compute_probe
from models.errors import UserError
from models.tasks.two_digit import all_problems


@dataclass(frozen=True, eq=False)
class CarryProbes(Result):
    """``table``: one row per place with ``kind`` ("stream" or "sublayer"), ``site``, ``layer``, ``position``, ``n``,
    ``accuracy`` with ``low`` and ``high``, ``control`` and ``untrained``."""

    name: str
    table: pd.DataFrame
    points: tuple[str, ...]
    provenance: Provenance

    def stream(self, position: str) -> pd.DataFrame:
        """The streams at one position, in order of depth."""
        table = self.table[(self.table.kind == "stream") & (self.table.position == position)]
        if table.empty:
            raise UserError(f"There is no position {position!r}; there is {', '.join(LABELS)}.")
        return table.set_index("site").loc[list(self.points)].reset_index()

    def sentence(self) -> str:
        texts = []
        for position in ("b0", "s0"):
            stream = self.stream(position)
            rises = stream.accuracy.diff().fillna(0.0)
            i = int(rises.argmax())
            best = stream.iloc[int(stream.accuracy.argmax())]
            texts.append(
                f"at {position} from {stream.accuracy[max(i - 1, 0)]:.3f} to {stream.accuracy[i]:.3f} at "
                f"{stream.site[i]}, best {best.accuracy:.3f} [{best.low:.3f}, {best.high:.3f}] at {best.site}, "
                f"of an untrained copy at most {stream.untrained.max():.3f}"
            )
        return (
            f"{self.name}: the carry is read from units pairs never seen, {'; '.join(texts)}; controls with labels "
            f"shuffled reach at most {self.table.control.max():.3f}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per place."""
        return self.table.copy()


def carry_probes(model: HookedModel, task: Any = None, seed: int = 0) -> CarryProbes:
    """Probe a two-digit adder for the carry out of the units; see the module. ``seed`` deals folds and control labels.

    Cost: one pass of 10,000 sums a layer and five fits for each of some hundred places, of the model and of the copy; a
    minute.

    Raises:
        UserError: a model without hooks, or another task.
    """
    task = resolve_two_digit_task(model, task)
    problems = all_problems()
    units = problems % 10
    cell = (units[:, 0] * 10 + units[:, 1]).numpy()
    rng = np.random.default_rng(seed)
    carry_of_cell = (np.arange(100) // 10 + np.arange(100) % 10) >= 10
    fold = rng.permutation(np.arange(100) % FOLDS)[cell]
    labels = np.stack([carry_of_cell[cell], rng.permutation(carry_of_cell)[cell]], 1)
    rows, points, tokens = [], [], task.encode(problems)
    both = (_activations(one, tokens) for one in (model, untrained_twin(model, task, seed)))
    for (kind, site, layer, activations), (*_, blank) in zip(*both, strict=True):
        if kind == "stream":
            points.append(site)
        for position, label in enumerate(LABELS):
            right = compute_probe(activations[:, position].double().numpy(), labels, fold)
            untrained = compute_probe(blank[:, position].double().numpy(), labels[:, :1], fold)
            found = clustered_proportion(right[:, 0], cell)
            rows.append(
                {"kind": kind, "site": site, "layer": layer, "position": label, "n": len(right)}
                | {"accuracy": found.value, "low": found.low, "high": found.high, "control": right[:, 1].mean()}
                | {"untrained": untrained[:, 0].mean()}
            )
    return CarryProbes(
        name=model_name(model),
        table=pd.DataFrame(rows),
        points=tuple(points),
        provenance=Provenance(len(problems), seed, f"pairs, {FOLDS} folds of units pairs", "exhaustive"),
    )


def _activations(
    model: HookedModel, tokens: Int[Tensor, "n pos"]
) -> Iterator[tuple[str, str, int, Float[Tensor, "n pos d_model"]]]:
    """(kind, site, layer, activations) of the whole domain, a layer at a time to bound the memory."""
    for layer in range(model.cfg.n_layers):
        parts = {f"L{layer} mid": "hook_resid_mid", f"L{layer} post": "hook_resid_post"}
        streams = {"embed": "hook_resid_pre", **parts} if layer == 0 else parts
        sublayers = {f"L{layer} attn_out": "hook_attn_out", f"L{layer} mlp_out": "hook_mlp_out"}
        names = {site: f"blocks.{layer}.{hook}" for site, hook in (streams | sublayers).items()}
        found, _ = runs.read(model, tokens, [Site(name, None) for name in names.values()])
        for site, values in zip(names, found, strict=True):
            yield "stream" if site in streams else "sublayer", site, layer, values.cpu()
