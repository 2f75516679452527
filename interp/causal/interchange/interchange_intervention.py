"""Interchange interventions on held-out problems: at which site does a variable of an algorithm live?

The base's run is repeated with a site's activation (or the part of it in a subspace) taken from the source's run. The
model's answer is compared with the causal model's: the algorithm run on the base with the variable set to its value in
the source. A pair is right if the answer digits of the columns read agree (by default the variable's own column; what a
variable does in later columns shows only if they are read). Only pairs whose answer the intervention changes *in the
causal model* are informative (a model that never reacts has all others right). Sites that are named have three controls
on the same pairs, the first two with a freshly fitted subspace:

    shuffled     the variable's values are shuffled among the sources (in training and in test)
    untrained    the same architecture with fresh parameters
    random       the activation is moved as far (pair by pair) along other directions; if the whole site is taken, its
                 change is rotated

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
from jaxtyping import Float
from torch import Tensor

from interp.causal.interchange.aligned_subspaces import METHODS
from interp.causal.interchange.interchange_pairs import draw_pairs
from interp.causal.interchange.interchange_runs import CONTROLS, HYPOTHESIS, InterchangeExperiment, InterchangeRuns
from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.estimate import SHARE, Estimate
from interp.core.model_checks import with_writable_stream
from interp.core.named_places import find_place, stream_points
from interp.core.places import QUERY, Place
from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.stats import LEVEL, clopper_pearson, proportion
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from models.calls import Count, Index, Seed
from models.errors import UserError, known_name
from models.number_format import counted
from models.tasks import Algorithm, ColumnPlaces, TaskLike, TaskVariables, causal_model, column_places
from models.transformer import HookedModel, model_name

WHOLE = "the whole site"  # a hypothesis that names no subspace takes this
_ALL = -1  # in place of the number of a head or neuron: the site is all of them
_EVERYWHERE = "all"
CONTROL_WORDS = {"shuffled": "shuffled values", "untrained": "an untrained copy", "random": "random directions"}


SITE = ("site", "hook", "position", "head", "neuron")


@dataclass(frozen=True, eq=False, kw_only=True)
class InterchangeIntervention(TableResult):
    """A row for each site: its ``hook`` and ``position``, and ``head`` or ``neuron`` where a site is one (-1: all).

    ``accuracy`` is the share with the causal model's answer among the ``n`` pairs whose answer changes in it, with the
    interval of one site, and ``accuracy_shuffled``, ``accuracy_untrained``, ``accuracy_random`` its controls with
    theirs; ``clean``: bases that the model answers right without an intervention, in the columns read; ``live``:
    whether the intervention changes the activation in any pair.

    ``bases``: directions [width, k] that span each site's subspace; None where the whole site was taken.
    """

    bases: tuple[Float[np.ndarray, "width k"] | None, ...]

    def best(self) -> Place:
        """The site with the highest accuracy (the first of them in the order in which they were given)."""
        at = self.table.loc[self.table["accuracy"].idxmax()]
        head, neuron = (None if at.get(name, _ALL) == _ALL else int(at[name]) for name in ("head", "neuron"))
        return Place(at["hook"], _where(at["position"]), head=head, neuron=neuron)

    def best_accuracy(self) -> Estimate:
        """The highest accuracy, with the interval of the best of so many sites (Bonferroni)."""
        found = self.largest("accuracy")
        right, confidence = round(found.value * (found.n or 0)), 1 - (1 - LEVEL) / len(self.table)
        low, high = clopper_pearson(right, found.n or 0, confidence)
        return replace(found, low=low, high=high, note=str(self.best()), parts=())


def _finding(result: InterchangeIntervention, about: str, subspace: str) -> str:
    row, sites = result.table.loc[result.table["accuracy"].idxmax()], len(result.table)
    notes = [*([] if subspace == WHOLE and sites > 1 else [subspace]), *([f"the best of {sites:,}"] * (sites > 1))]
    best, clean = result.best_accuracy(), Estimate(row["clean"], unit=SHARE)
    text = f"{about}: interchanging {row['site']} ({', '.join(notes)}) gives the algorithm's answer in {best} of "
    text += f"{counted(best.n or 0, 'pair')} whose answer this changes."
    beside = [(words, f"accuracy_{name}") for name, words in CONTROL_WORDS.items()]
    beside = [f"{words} {Estimate(row[name], unit=SHARE)}" for words, name in beside if name in row]
    controls = f"Controls: {', '.join(beside)}; without" if beside else "Without"
    return f"{text} {controls} it {clean} are right."


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


def _carry_at_the_query(model: Any, task: Any, n: int, seed: int) -> dict[str, Any]:
    column = len(column_places(task)) // 2
    return {"variable": "carry_in", "column": column, "algorithm": "ripple", "positions": [QUERY], "n": min(n, 200)}


@probe(
    "Where does a variable of the algorithm live?",
    summary=Summary(
        "carry in, interchanged at the query",
        "share",
        InterchangeIntervention.best_accuracy,
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
    rows, whole = [], float(clean.all(1).double().mean())
    for site, of_site, moved in zip(chosen, right, live, strict=True):
        row = dict(zip(SITE, (str(site), site.hook, _position(site), site.head, site.neuron), strict=True))
        row |= {"n": int(changed[0].sum())}
        for run, found, counts in zip(wanted, of_site, changed, strict=True):
            share, measure = proportion(found[counts]), "accuracy" if run == HYPOTHESIS else f"accuracy_{run}"
            row |= Measure(measure).cells(share.value, share.low, share.high)
        rows.append(row | {"clean": whole, "live": moved})
    table = pd.DataFrame(rows)
    for part in ("head", "neuron"):
        table = table.drop(columns=part) if table[part].isna().all() else table.fillna({part: _ALL}).astype({part: int})
    grid = not controls and len(table) == table["hook"].nunique() * table["position"].nunique() > 1
    source = f"held-out pairs of problems, {n_train:,} for training" if fitted else "pairs of problems"
    result = InterchangeIntervention(
        "", table, Provenance(n, seed, source), ("hook", "position") if grid else ("site",),
        (Measure("accuracy", SHARE, CONTROLS if controls else (), "interchange accuracy"),),
        bases=tuple(None if basis is None else basis.detach().cpu().numpy() for basis in bases),
    )  # fmt: skip
    about = f"{name}, {variable.replace('_', ' ')} of column {column} ({causal.name})"
    return result.saying(_finding(result, about, _described(subspace, bases[0], method)))


def _described(subspace: Any, basis: Tensor | None, method: str) -> str:
    if basis is None:
        return WHOLE
    return f"{counted(basis.shape[1], 'direction')} {f'by {method}' if isinstance(subspace, int) else 'given'}"
