"""Interchange interventions on held-out problems: at which site does a variable of an algorithm live?

The base's run is repeated with a site's activation (or the part of it in a subspace) taken from the source's run. The
model's answer is compared with the causal model's: the algorithm run on the base with the variable set to its value in
the source. A pair is right if the answer digits of the columns read agree (by default the variable's own column; what a
variable does in later columns shows only if they are read). Only pairs whose answer the intervention changes *in the
causal model* are informative (a model that never reacts has all others right). Sites that are named have three controls
on the same pairs, the first two with a freshly fitted subspace:

    random labels      the variable's values are shuffled among the sources (in training and in test)
    untrained model    the same architecture with fresh parameters
    random subspace    the activation is moved as far (pair by pair) along other directions; if the whole site is
                       taken, its change is rotated

Without names every position of the residual stream up to the query is tried at every depth, without controls, to find a
site: ask for the best one (:meth:`InterchangeIntervention.best`) by name with another seed, on fresh pairs.

Bases and sources are drawn at random and share no problem with each other or with training pairs; intervals are
Clopper-Pearson, each for one site. That of the best one in the sentence holds for all sites together (Bonferroni). A
high accuracy says that the site (or subspace) carries the variable *to the answer*. With the whole site other variables
come along, so a low accuracy may mean that it carries too much: take a subspace, or a later variable.

Source: interchange interventions, Geiger et al. (2021), arXiv 2106.02997; subspaces: Geiger et al. (2024), arXiv
2303.02536.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from interp.causal.interchange.aligned_subspaces import METHODS
from interp.causal.interchange.interchange_pairs import draw_pairs
from interp.causal.interchange.interchange_runs import HYPOTHESIS, InterchangeExperiment, InterchangeRuns
from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.model_checks import with_writable_stream
from interp.core.named_places import find_place, stream_points
from interp.core.places import QUERY, Place
from interp.core.probe import Summary, probe
from interp.core.results import Provenance, Result
from interp.core.stats import LEVEL, Proportion, clopper_pearson, proportion
from interp.core.table_result import ENDS
from interp.core.task_checks import resolve_task
from interp.core.views import Grid, Picture, Points, Series
from models.calls import Count, Index, Seed
from models.errors import UserError, known_name
from models.number_format import counted, in_percent, in_percent_with
from models.tasks import Algorithm, ColumnPlaces, TaskLike, TaskVariables, causal_model, column_places
from models.transformer import HookedModel, model_name

WHOLE = "the whole site"  # a hypothesis that names no subspace takes this
_ALL = -1  # in place of the number of a head or neuron: the site is all of them
_EVERYWHERE = "all"


@dataclass(frozen=True, eq=False)
class InterchangeIntervention(Result):
    """``outcomes``: Dataset over (site, run, pair) of ``right``, over (run, pair) of ``changed`` (whether the causal
    model's answer changes; only pairs that change in some run are kept), and over (site) of ``live``, whether the
    intervention changes the activation in any pair. Runs are "hypothesis" and the controls. A site has the coordinates
    ``hook``, ``position``, ``head`` and ``neuron`` (-1: all).

    ``clean``: bases that the model answers right without an intervention, in the columns read. ``bases``: directions
    [width, k] that span each site's subspace; None where the whole site was taken.
    """

    model: str
    algorithm: str
    variable: str
    column: int
    subspace: str
    outcomes: xr.Dataset
    clean: Proportion
    bases: tuple[Float[np.ndarray, "width k"] | None, ...]
    provenance: Provenance

    @property
    def runs(self) -> list[str]:
        """The hypothesis, and the controls that were run."""
        return self.outcomes.run.values.tolist()

    @property
    def accuracies(self) -> xr.DataArray:
        """Interchange accuracy of every site."""
        chosen = self.outcomes.sel(run=HYPOTHESIS)
        return chosen.right.isel(pair=np.flatnonzero(chosen.changed.values)).mean("pair")

    def accuracy(self, run: str = HYPOTHESIS, site: str | None = None) -> Proportion:
        """Share right among the pairs whose answer the intervention changes, at the best site or at another.

        Raises:
            UserError: an unknown run or site.
        """
        known_name("run", run, self.runs)
        site = self._best if site is None else known_name("site", site, self.outcomes.site.values.tolist())
        chosen = self.outcomes.sel(run=run, site=site)
        return proportion(chosen.right.values[chosen.changed.values])

    def best(self) -> Place:
        """The site with the highest accuracy (the first of them in the order in which they were given)."""
        at = self.outcomes.sel(site=self._best)
        head, neuron = (None if int(at[name]) == _ALL else int(at[name]) for name in ("head", "neuron"))
        return Place(str(at.hook.item()), _where(str(at.position.item())), head=head, neuron=neuron)

    @property
    def _best(self) -> str:
        return str(self.outcomes.site.values[int(self.accuracies.values.argmax())])

    def sentence(self) -> str:
        found, sites = self.accuracy(), self.outcomes.sizes["site"]
        controls = [f"{run} {self.accuracy(run)}" for run in self.runs if run != HYPOTHESIS]
        listed = f"; {', '.join(controls)}" if controls else ""
        about = f"{self.model}, {self.variable.replace('_', ' ')} of column {self.column} ({self.algorithm})"
        subspace = "" if self.subspace == WHOLE and sites > 1 else f", {self.subspace}"
        where = f"{self._best}{subspace}"
        right = f"{in_percent(self.clean.value)} right without intervention"
        if sites == 1:
            return (
                f"{about} in {where}: interchange accuracy {found} on the {found.n:,} of "
                f"{counted(self.clean.n, 'pair')} whose answer it changes ({right}){listed}."
            )
        low, high = _of_the_best(found, sites)
        above = int((self.accuracies.values > 0.9).sum())
        return (
            f"{about}: {where} has the highest interchange accuracy of {counted(sites, 'site')}, "
            f"{in_percent_with(found.value, low, high)} (the interval is that of the best of {sites:,}) on "
            f"{counted(found.n, 'pair')} whose answer the variable changes; {counted(above, 'site')} above 90% "
            f"({right}){listed}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per site: the number of pairs whose answer changes, the share right among them with its interval, the
        same of each control, the share right without intervention, and whether the site ever differs. A head or neuron
        is given where a site is one."""
        rows = []
        for site in self.outcomes.site.values.tolist():
            at = self.outcomes.sel(site=site)
            found = self.accuracy(HYPOTHESIS, site)
            row = {"hook": at.hook.item(), "position": at.position.item(), "head": at["head"].item()}
            row |= {"neuron": at.neuron.item(), "n": found.n, "accuracy": found.value, "low": found.low}
            row["high"] = found.high
            for run in self.runs[1:]:
                control, name = self.accuracy(run, site), run.replace(" ", "_")
                row |= {name: control.value, f"{name}_low": control.low, f"{name}_high": control.high}
            rows.append(row | {"clean": self.clean.value, "live": bool(at.live)})
        frame = pd.DataFrame(rows)
        return frame.drop(columns=[name for name in ("head", "neuron") if (frame[name] == _ALL).all()])


def _of_the_best(found: Proportion, sites: int) -> tuple[float, float]:
    """The interval of the best of so many sites."""
    return clopper_pearson(found.successes, found.n, 1 - (1 - LEVEL) / sites)


def _where(position: str) -> int | str | tuple[int | str, ...] | None:
    """The positions of a place, as its coordinate says them."""
    each = [int(word) if word.removeprefix("-").isdigit() else word for word in position.split(", ")]
    return None if position == _EVERYWHERE else tuple(each) if len(each) > 1 else each[0]


def _position(site: Place) -> str:
    at = site.at if isinstance(site.at, tuple) else (site.at,)
    return _EVERYWHERE if site.at is None else ", ".join(map(str, at))


def _sites(
    model: HookedModel,
    layout: ColumnPlaces,
    column: int,
    sites: Place | str | Sequence[Place | str] | None,
    positions: Sequence[int | str] | None,
) -> list[Place]:
    """The sites that are asked about, each once."""
    given = (
        list(stream_points(model).values())
        if sites is None
        else [sites]
        if isinstance(sites, (Place, str))
        else list(sites)
    )
    places = [Place(each) if isinstance(each, str) else each for each in given]
    if sites is None and positions is None:  # delimiters may share a label; these are given by number
        labels = [role.label for role in layout.task.roles]
        upto = enumerate(labels[: layout.queries[column] + 1])
        positions = [label if labels.count(label) == 1 else at for at, label in upto]
    if positions is not None:
        places = [replace(place, at=_where(str(at))) for place in places for at in positions]
    if not places:
        raise UserError("Give at least one site, and one position.")
    return list({str(place): place for place in places}.values())


def _best_site(found: InterchangeIntervention) -> Estimate:
    """The accuracy at the best site, with the interval of the best of so many."""
    best = found.accuracy()
    ends = _of_the_best(best, found.outcomes.sizes["site"])
    return Estimate(best.value, *ends, best.n, note=f"column {found.column}, {found.best()}")


def _carry_at_the_query(model: Any, task: Any, n: int, seed: int) -> dict[str, Any]:
    column = len(column_places(task)) // 2
    return {"variable": "carry_in", "column": column, "algorithm": "ripple", "positions": [QUERY], "n": min(n, 200)}


@probe(
    "Where does a variable of the algorithm live?",
    summary=Summary(
        "carry in, interchanged at the query",
        "share",
        _best_site,
        0.01,
        _carry_at_the_query,
        asked_by=("compare_models",),
    ),
)
def interchange_intervention(
    model: HookedModel,
    variable: str,
    column: Index,
    *,
    sites: Place | str | Sequence[Place | str] | None = None,
    positions: Sequence[int | str] | None = None,
    subspace: Any = None,
    method: str = "das",
    algorithm: str | Algorithm | TaskVariables | None = None,
    read: int | Sequence[int] | None = None,
    controls: bool | None = None,
    task: TaskLike | None = None,
    n: Count = 200,
    n_train: Count = 1000,
    das_steps: Index = 200,
    seed: Seed = 0,
) -> InterchangeIntervention:
    """Interchange accuracy of "``variable`` of ``column`` lives at this site", for every site; see the module.

    Args:
        model: any model with TransformerLens hooks, in evaluation mode.
        sites: a :class:`Place` or the name of a hook point, read at the query, or several; by default the residual
            stream at every depth and at all ``positions``.
        positions: positions, role labels ("a3", "s2") or other places of :class:`Place`, at each of which every site is
            taken; default those of the sites, or all up to the query if there are none.
        subspace: None for whole sites; directions [width, k], orthonormalised; or a number of directions k to be found
            on ``n_train`` training pairs by ``method`` ("das", "dbm", "least squares", "means") or drawn ("random").
        algorithm: the causal model: "chained", "ripple", "look-ahead", an
            :class:`~models.tasks.columns.addition_algorithms.Algorithm`,
            or :class:`~models.tasks.columns.variable_hypotheses.TaskVariables`, which any task has. Default "chained"
            if the task adds column by column, else the task's variables.
        read: answer columns that must agree, default ``column``.
        controls: whether the three controls are run; by default where sites are given.
        n: held-out pairs, by default 200, as they are run once for every site; only those whose answer the intervention
            changes count.
        das_steps: gradient steps of DAS and of masks.

    Cost: one run over the pairs per site, three more for its controls, and ``das_steps`` runs with gradients per fit.

    Raises:
        UserError: a variable, site or column that does not exist, an intervention that changes nothing in the model or
            in the causal model, a task that the algorithms do not fit, or a model in training mode.
    """
    task = resolve_task(model, task)
    causal, layout = causal_model(task, algorithm)
    layout.require_variable(causal, variable, layout.require_column(column))
    asked = column if read is None else read
    columns = tuple(layout.require_column(k) for k in ([asked] if isinstance(asked, int) else asked))
    if not columns:
        raise UserError("Give at least one answer column to read.")
    known_name("method", method, METHODS)
    chosen = _sites(model, layout, column, sites, positions)
    name, model = model_name(model), with_writable_stream(model, task, [site.hook for site in chosen])
    queries = [layout.queries[k] for k in columns]
    of = partial(
        InterchangeRuns, queries=queries, read=columns, algorithm=causal, variable=variable, column=column,
        subspace=subspace, method=method, steps=das_steps,
    )  # fmt: skip
    fitted = isinstance(subspace, int)
    sizes = (n_train if fitted else 1, n) if fitted or sites is not None else (n,)
    *training, test = draw_pairs(layout, sizes, seed)
    train = training[0] if training else test  # nothing is fitted without training pairs
    base_answers = test.base_answers(causal)[:, list(columns)]
    clean = runs.run(model, test.base, (), queries).argmax(-1).cpu() == base_answers
    controls = sites is not None if controls is None else controls
    untrained = of(untrained_twin(model, task, seed)) if controls else None
    experiment = InterchangeExperiment(of(model), untrained, train, seed)
    test, wanted, changed = experiment.informative(test, base_answers)
    right, live, bases = experiment.at_sites([find_place(model, layout, site, column) for site in chosen], test, wanted)
    if not any(live):
        raise UserError(
            f"Taking {counted(len(chosen), 'site')} from the source changes nothing in any of {n:,} pairs: every base "
            "holds there what its source holds."
        )
    coords = {
        "site": [str(site) for site in chosen],
        "run": list(wanted),
        "hook": ("site", [site.hook for site in chosen]),
        "position": ("site", [_position(site) for site in chosen]),
        "head": ("site", [_ALL if site.head is None else site.head for site in chosen]),
        "neuron": ("site", [_ALL if site.neuron is None else site.neuron for site in chosen]),
    }
    data = {"right": (("site", "run", "pair"), right), "changed": (("run", "pair"), changed), "live": ("site", live)}
    return InterchangeIntervention(
        model=name,
        algorithm=causal.name,
        variable=variable,
        column=column,
        subspace=_described(subspace, bases[0], method),
        outcomes=xr.Dataset(data, coords),
        clean=proportion(clean.all(1).numpy()),
        bases=tuple(None if basis is None else basis.detach().cpu().numpy() for basis in bases),
        provenance=Provenance(
            n, seed, f"held-out pairs of problems, {n_train:,} for training" if fitted else "pairs of problems"
        ),
    )


def _described(subspace: Any, basis: Tensor | None, method: str) -> str:
    if basis is None:
        return WHOLE
    return f"{counted(basis.shape[1], 'direction')} {f'by {method}' if isinstance(subspace, int) else 'given'}"


@drawing(InterchangeIntervention)
def interchange_view(result: InterchangeIntervention) -> Picture:
    """A map of hook points and positions where every one of them was tried; else each site next to its controls."""
    table = result.to_dataframe()
    hooks, places = table.hook.unique(), table.position.unique()
    if len(result.runs) == 1 and len(table) == len(hooks) * len(places) > 1:
        values = table.accuracy.where(table.live).to_numpy().reshape(len(hooks), len(places))
        names = [name.replace("blocks.", "L").replace(".hook_", " ") for name in hooks]
        shown = Grid("position", "layer and stream", "", values, names, places, "accuracy", grey=np.isnan(values))
        return Picture([shown], note="One whole site at a time; grey: source and base agree there")
    series = []
    for run in result.runs:
        found = [result.accuracy(run, site) for site in result.outcomes.site.values.tolist()]
        frame = pd.DataFrame([{"value": each.value, "low": each.low, "high": each.high, "n": each.n} for each in found])
        frame["site"] = result.outcomes.site.values
        series.append(Series.of(frame, "site", "value", run, ENDS, ("n",), control=run != HYPOTHESIS))
    y = "share of pairs with the causal model's answer, where it changes"
    return Picture([Points("site", y, scale="share", across=True, series=series)])
