"""Interchange accuracy of every hook point at every position (whole sites), to find where a variable lives.

All sites are tried on the same pairs; a cell's interval is Clopper-Pearson and ignores that many cells were tried. That
of the best one in the sentence does not: it holds for all sites together (Bonferroni). Test the best one
(:meth:`InterchangeSweep.best`) by :func:`interp.causal.interchange.interchange` with another seed, on fresh pairs and
with its controls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.causal.interchange.interchange_pairs import draw_pairs
from interp.core import runs
from interp.core.drawings import drawing
from interp.core.measured import Measured
from interp.core.model_checks import with_writable_stream
from interp.core.named_places import find_place
from interp.core.places import Place
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.stats import LEVEL, clopper_pearson, proportion
from interp.core.task_checks import resolve_task
from interp.core.views import Grid, Picture
from models.calls import Count, Index
from models.errors import UserError
from models.number_format import counted, in_percent_with
from models.tasks import Algorithm, Task, TaskVariables, causal_model, column_layout
from models.transformer import HookedModel, in_block, model_name


@dataclass(frozen=True, eq=False)
class InterchangeSweep(Result):
    """``right`` over (hook, position, pair), for pairs whose answer the intervention changes in the causal model;
    ``live`` over (hook, position): whether the source's activation differs from the base's in any pair."""

    model: str
    algorithm: str
    variable: str
    column: int
    right: xr.DataArray
    live: xr.DataArray
    provenance: Provenance

    @property
    def accuracy(self) -> xr.DataArray:
        """Interchange accuracy [hook, position]."""
        return self.right.mean("pair")

    def best(self) -> Place:
        """The site with the highest accuracy (the first of them in the model's order)."""
        hook, position = np.unravel_index(int(self.accuracy.values.argmax()), self.accuracy.shape)
        return Place(str(self.right.hook.values[hook]), _where(str(self.right.position.values[position])))

    def sentence(self) -> str:
        site = self.best()
        right = self.right.sel(hook=site.hook, position=str(site.at)).values
        found, n, above = proportion(right), self.accuracy.size, int((self.accuracy.values > 0.9).sum())
        low, high = clopper_pearson(found.successes, found.n, 1 - (1 - LEVEL) / n)
        variable = self.variable.replace("_", " ")
        return (
            f"{self.model}, {variable} of column {self.column} ({self.algorithm}): {site} has the highest "
            f"interchange accuracy of {counted(n, 'site')}, {in_percent_with(found.value, low, high)} (the interval "
            f"is that of the best of {n:,}) on {counted(found.n, 'pair')} whose answer the variable changes; "
            f"{counted(above, 'site')} above 90%."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per site: n, accuracy with its interval, and whether source and base ever differ there."""
        rows = []
        for hook in self.right.hook.values.tolist():
            for position in self.right.position.values.tolist():
                found = proportion(self.right.sel(hook=hook, position=position).values)
                live = bool(self.live.sel(hook=hook, position=position))
                row = {"hook": hook, "position": position, "n": found.n, "accuracy": found.value}
                rows.append(row | {"low": found.low, "high": found.high, "live": live})
        return pd.DataFrame(rows)


def _where(place: str) -> int | str:
    return int(place) if place.removeprefix("-").isdigit() else place


def residual_hooks(model: HookedModel) -> list[str]:
    """The residual stream before the first layer and after every sublayer."""
    names = ["blocks.0.hook_resid_pre"]
    for layer in range(model.cfg.n_layers):
        names += [in_block(layer, f"hook_resid_{where}") for where in ("mid", "post")]
    return [name for name in names if name in model.hook_dict]


def _best_site(found: InterchangeSweep) -> Measured:
    """The accuracy at the best site, with the interval of the best of so many."""
    site, sites = found.best(), found.accuracy.size
    best = proportion(found.right.sel(hook=site.hook, position=str(site.at)).values)
    ends = clopper_pearson(best.successes, best.n, 1 - (1 - LEVEL) / sites)
    return Measured(best.value, *ends, best.n, note=f"column {found.column}, {site}")


def _carry_at_the_query(model: Any, task: Any, n: int, seed: int) -> dict[str, Any]:
    column = len(column_layout(task)) // 2
    return {"variable": "carry_in", "column": column, "algorithm": "ripple", "positions": ["query"], "n": min(n, 200)}


@probe(
    "Where does a variable of the algorithm live?",
    scalar=Scalar(
        "carry in, interchanged at the query",
        "share",
        _best_site,
        0.01,
        _carry_at_the_query,
        asked_by=("compare_models",),
    ),
)
def interchange_sweep(
    model: HookedModel,
    variable: str,
    column: Index,
    *,
    algorithm: str | Algorithm | TaskVariables | None = None,
    hooks: Sequence[str] | None = None,
    positions: Sequence[int | str] | None = None,
    task: Task | None = None,
    n: int = 200,
    seed: int = 0,
    step: Count | None = None,
) -> InterchangeSweep:
    """Interchange accuracy of one variable at many sites; the answer digit of its own column is read.

    Args:
        algorithm: the causal model, as in :func:`interp.causal.interchange.interchange`.
        hooks: hook points; default the residual stream at every depth.
        positions: positions, role labels ("a3", "s2") or other places of :class:`Place`; default all up to the query.
        n: pairs drawn, by default 200, as they are run once for every site; only those whose answer the intervention
            changes count.

    Cost: one run over these pairs per site.

    Raises:
        UserError: as :func:`interp.causal.interchange.interchange`, or if source and base differ at no site.
    """
    task = resolve_task(model, task)
    causal, layout = causal_model(task, algorithm, step)
    query = layout.queries[layout.require_column(column)]
    layout.require_variable(causal, variable, column)
    labels = [role.label for role in task.roles]
    if positions is None:  # delimiters may share a label; these are given by number
        positions = [label if labels.count(label) == 1 else str(at) for at, label in enumerate(labels[: query + 1])]
    chosen = list(dict.fromkeys(map(str, positions)))
    names = list(dict.fromkeys(residual_hooks(model) if hooks is None else hooks))
    if not chosen or not names:
        raise UserError("Give at least one hook point and one position.")
    called, model = model_name(model), with_writable_stream(model, task, names)
    (pairs,) = draw_pairs(layout, (n,), seed)
    values = pairs.source_values(causal, variable, column)
    wanted = pairs.counterfactual(causal, variable, column, values, [column])[:, 0]
    changed = wanted != pairs.base_answers(causal)[:, column]
    if not changed.any():
        raise UserError(f"Setting {variable} changes the answer digit of column {column} in none of {n:,} pairs.")
    base, source, wanted = pairs.base[changed], pairs.source[changed], wanted[changed]
    right = np.zeros((len(names), len(chosen), len(wanted)), dtype=bool)
    live = np.zeros(right.shape[:2], dtype=bool)
    for i, name in enumerate(names):
        places = [find_place(model, layout, Place(name, _where(at)), column) for at in chosen]
        (held, _), (own, _) = (runs.read(model, tokens, places, [query]) for tokens in (source, base))
        for j, place in enumerate(places):
            live[i, j] = bool((held[j] != own[j]).any())
            logits = runs.run(model, base, [place.put(lambda _, rows, new=held[j]: new[rows])], [query])
            right[i, j] = (logits[:, 0].argmax(-1).cpu() == wanted).numpy()
    if not live.any():
        raise UserError("No site holds anything else in the source than in the base: nothing can be interchanged.")
    coords = {"hook": names, "position": chosen}
    return InterchangeSweep(
        model=called,
        algorithm=causal.name,
        variable=variable,
        column=column,
        right=xr.DataArray(right, coords=coords, dims=("hook", "position", "pair")),
        live=xr.DataArray(live, coords=coords, dims=("hook", "position")),
        provenance=Provenance(len(wanted), seed, f"pairs whose answer changes, of {n:,} drawn"),
    )


@drawing(InterchangeSweep)
def sweep_view(result: InterchangeSweep) -> Picture:
    """Interchange accuracy of every site; grey where source and base never differ."""
    hooks = [str(name).replace("blocks.", "L").replace(".hook_", " ") for name in result.right.hook.values]
    places = [str(place) for place in result.right.position.values]
    values = np.where(result.live.values, result.accuracy.values, np.nan)
    grey = ~result.live.values.astype(bool)
    shown = Grid("position", "layer and stream", "", values, hooks, places, "accuracy", grey=grey)
    return Picture([shown], note="One whole site at a time; grey: source and base agree there")
