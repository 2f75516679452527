"""Methods that say where a variable of the program lives: one function and one registration each.

    @variable_method("mine", "what it does, in a few words")
    def mine(case: VariableCase) -> tuple[str, Any]: ...     # a place of case.places, and directions there, or None

A method sees pairs of problems. What it names is judged on others: the *interchange accuracy* there is the share of
pairs in which the model answers as the program does when the variable is taken from the other problem, among those in
which that changes the program's answer (:func:`interp.interchange_intervention`). The *regret* is how much more
the best of all methods has. Places are the hook points of each layer at the position that predicts the column; in each
a method may take one direction, so that what it names is comparable. Every method chooses its place by one criterion:
where interchanging along its direction works best on the pairs that it sees. "whole" takes everything that a place
holds, and "sae-8" takes eight directions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import models
from benchmarks.circuits.dictionary import Dictionary, train_dictionary
from benchmarks.circuits.subjects import TRUTH_SEED
from interp.causal.interchange.interchange_intervention import InterchangeIntervention, interchange_intervention
from interp.probes.lens.ridge_probe import directions
from models.errors import UserError, known_name
from models.files.checkpoint import write_json_atomic
from models.tasks.columns.addition_algorithms import ALGORITHMS
from models.tasks.columns.column_places import column_places
from models.transformer.part_names import in_block

VARIABLES = ("carry_in", "digit_sum", "total")
PLACES = ("hook_resid_pre", "attn.hook_z", "hook_resid_mid", "mlp.hook_post")
N_TRAIN, N_CHOSEN, N_JUDGED = 400, 200, 400
STEPS = 60
LEAST_FOR_SAE, STEPS_OF_SAE = 64, 500  # 97% of the variance in other problems, at three places of toygpt-long


@dataclass(eq=False)
class VariableCase:
    """What a method is given: a model, a variable of the addition algorithm in its middle column, and interchanges."""

    model: Any
    variable: str
    seed: int
    dictionaries: dict[tuple[str, int], Dictionary] = field(default_factory=dict)  # of all variables of a model

    @cached_property
    def column(self) -> int:
        return max(1, len(column_places(self.model.task)) // 2)

    @cached_property
    def places(self) -> tuple[str, ...]:
        names = [in_block(layer, place) for layer in range(self.model.cfg.n_layers) for place in PLACES]
        return tuple(name for name in names if name in self.model.hook_dict)

    def interchange(self, place: str, subspace: Any = None, method: str = "das") -> InterchangeIntervention | None:
        """What interchanging the variable at a place does on the method's pairs, with directions found on others of
        them; None where there is nothing to interchange."""
        return self._interchange(place, subspace, method, N_CHOSEN, self.seed)

    def judged(self, place: str, subspace: Any = None) -> float:
        """The interchange accuracy on the pairs that judge; 0 where there is nothing to interchange."""
        found = self._interchange(place, subspace, "das", N_JUDGED, TRUTH_SEED)
        return 0.0 if found is None else found.largest("accuracy").value

    def _interchange(self, place: str, subspace: Any, method: str, n: int, seed: int) -> InterchangeIntervention | None:
        try:
            return interchange_intervention(
                self.model, self.variable, self.column, sites=place, subspace=subspace, method=method,
                algorithm="ripple", controls=False, n=n, n_train=N_TRAIN, das_steps=STEPS, seed=seed,
            )  # fmt: skip
        except UserError:
            return None

    def best(self, found: dict[str, InterchangeIntervention | None]) -> tuple[str, Any]:
        """The place with the highest accuracy, with its directions."""
        known = {place: each for place, each in found.items() if each is not None}
        if not known:
            return self.places[0], None
        place = max(known, key=lambda name: known[name].largest("accuracy").value)
        return place, known[place].bases[0]

    @cached_property
    def readings(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(activations [n, width], the variable's values) at each place, in random problems."""
        task, layout = self.model.task, column_places(self.model.task)
        problems = task.sample(N_TRAIN, torch.Generator().manual_seed(self.seed))
        values = layout.values(ALGORITHMS["ripple"], problems)[self.variable][:, self.column].numpy().astype(float)
        with torch.no_grad():
            _, cached = self.model.run_with_cache(task.encode(problems), names_filter=lambda name: name in self.places)
        at = layout.queries[self.column]
        return {place: (cached[place][:, at].flatten(1).double().cpu().numpy(), values) for place in self.places}

    def dictionary(self, place: str, steps: int = STEPS_OF_SAE) -> Dictionary:
        """A sparse autoencoder of what the place holds in the same problems; without steps, an untrained one."""
        if (place, steps) not in self.dictionaries:
            x = torch.from_numpy(self.readings[place][0]).float()
            self.dictionaries[place, steps] = train_dictionary(x, steps, self.seed)
        return self.dictionaries[place, steps]


_Named = Callable[[VariableCase], tuple[str, Any]]


@dataclass(frozen=True)
class VariableMethod:
    """``least_width``: it is left out on models whose residual stream is narrower."""

    what: str
    function: _Named
    least_width: int = 1


VARIABLE_METHODS: dict[str, VariableMethod] = {}


def variable_method(name: str, what: str, *, least_width: int = 1) -> Callable[[_Named], _Named]:
    """Register a method. Raises UserError if another one has the name."""

    def add(function: _Named) -> _Named:
        known = VARIABLE_METHODS.get(name)
        if known is not None and known.function.__module__ != function.__module__:
            raise UserError(f"A method named {name!r} is registered already.")
        VARIABLE_METHODS[name] = VariableMethod(what, function, least_width)
        return function

    return add


@variable_method("whole", "the place where interchanging everything works best")
def whole(case: VariableCase) -> tuple[str, Any]:
    return case.best({place: case.interchange(place) for place in case.places})


@variable_method("das", "one direction by distributed alignment search (Geiger et al., 2024), and its best place")
def das(case: VariableCase) -> tuple[str, Any]:
    return case.best({place: case.interchange(place, 1) for place in case.places})


@variable_method("dbm", "one number by desiderata-based masking (Davies et al., 2023), and its best place")
def dbm(case: VariableCase) -> tuple[str, Any]:
    return case.best({place: case.interchange(place, 1, "dbm") for place in case.places})


@variable_method("linear probe", "the direction from which ridge regression reads the variable, and its best place")
def linear_probe(case: VariableCase) -> tuple[str, Any]:
    found = {}
    for place, (x, values) in case.readings.items():
        found[place] = case.interchange(place, torch.from_numpy(directions(x, values[:, None])).float())
    return case.best(found)


@variable_method("means", "the direction in which the variable's values differ most, and its best place")
def means(case: VariableCase) -> tuple[str, Any]:
    return case.best({place: case.interchange(place, 1, "means") for place in case.places})


@variable_method("random", "a random direction, and its best place: the control")
def random(case: VariableCase) -> tuple[str, Any]:
    generator = torch.Generator().manual_seed(case.seed)
    drawn = {place: torch.randn(x.shape[1], 1, generator=generator) for place, (x, _) in case.readings.items()}
    return case.best({place: case.interchange(place, direction) for place, direction in drawn.items()})


@variable_method("sae", "the latent of a sparse autoencoder that follows it best", least_width=LEAST_FOR_SAE)
def sae(case: VariableCase) -> tuple[str, Any]:
    return _by_latents(case, 1, STEPS_OF_SAE)


@variable_method("sae-8", "the eight latents that follow it best: eight directions", least_width=LEAST_FOR_SAE)
def sae_8(case: VariableCase) -> tuple[str, Any]:
    return _by_latents(case, 8, STEPS_OF_SAE)


@variable_method("sae, untrained", "as sae, among random directions: its control", least_width=LEAST_FOR_SAE)
def sae_untrained(case: VariableCase) -> tuple[str, Any]:
    return _by_latents(case, 1, 0)


def _by_latents(case: VariableCase, k: int, steps: int) -> tuple[str, Any]:
    """The decoder's directions of the k latents that correlate most with the variable in the problems that the method
    sees, and of all places the one where interchanging along them works best on its pairs."""
    found = {}
    for place, (x, values) in case.readings.items():
        dictionary = case.dictionary(place, steps)
        strength = dictionary.latents(torch.from_numpy(x).float()).double().numpy()
        order = np.argsort(-np.abs(_correlations(strength, values)), kind="stable")
        found[place] = case.interchange(place, dictionary.decoder[:, order[:k].copy()])
    return case.best(found)


def _correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each column with y; 0 for columns that are constant."""
    x, y = x - x.mean(0), y - y.mean()
    scale = np.sqrt((x**2).sum(0) * (y**2).sum())
    return np.divide(y @ x, scale, out=np.zeros(x.shape[1]), where=scale > 0)


def with_columns(names: list[str]) -> list[str]:
    """Those of these models that add column by column, of which the variables are."""
    return [name for name in names if _columns(name)]


@cache
def _columns(name: str) -> bool:
    try:
        return not column_places(models.load(name).task).subtracts
    except UserError:
        return False


def run_variables(
    out: Path | str,
    only: list[str],
    methods: list[str] | None = None,
    say: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """One row per model, variable and method: the ``place``, whether a ``direction`` or all of it was taken, the
    ``accuracy`` there, and the ``regret``. What is in ``out`` is kept; one file per model.

    Raises:
        UserError: an unknown method, or models that are too narrow for all of them.
    """
    for name in methods or ():
        known_name("method", name, VARIABLE_METHODS)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for model in with_columns(only):
        path = folder / f"{model.replace('/', '_')}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        have = {(row["variable"], row["method"]) for row in known}
        loaded = models.load(model)
        suited = [
            name for name in methods or VARIABLE_METHODS if VARIABLE_METHODS[name].least_width <= loaded.cfg.d_model
        ]
        first = VariableCase(loaded, VARIABLES[0], 0)
        for variable in VARIABLES:
            case = replace(first, variable=variable)
            for name in suited:
                if (variable, name) not in have:
                    place, basis = VARIABLE_METHODS[name].function(case)
                    row = {"model": model, "variable": variable, "method": name, "place": place}
                    known.append(row | {"direction": basis is not None, "accuracy": case.judged(place, basis)})
        write_json_atomic(path, known)
        rows += known
        if say is not None:
            say(model)
    if not rows:
        raise UserError("None of these models is wide enough for these methods.")
    table = pd.DataFrame(rows)
    best = table.groupby(["model", "variable"])["accuracy"].transform("max")
    return table.assign(regret=best - table["accuracy"])
