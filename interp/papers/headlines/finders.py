"""Finders of our numbers for every paper: in the zoo, or counted on models that are built for it.

A finder is a function of a store and of the arguments that a row gives (:mod:`interp.papers.headlines.read`). It
returns our number, or raises :class:`~interp.papers.headlines.store.NotStored`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import models
from interp.papers.headlines.rules import Ours, counted, holm
from interp.papers.headlines.store import Store, pick
from models.registry import get_spec, parameter_count
from models.training.recipes import get_recipe

score, certified, grokked = Store.score, Store.certified, Store.grokked


def ranked(store: Store, experiment: str, label: str, base: str) -> Ours:
    """The chance that a seed of a sweep's variant gets further than a seed of the model that it changes, by rank.

    The p-value is corrected for all variants that were compared with the same seeds of that model.
    """
    stored = store.experiment(experiment)
    compared = [row for row in stored["comparisons"] if row["a"] == base]
    own = pick(compared, f"No comparison of {label!r} with {base} is stored.", b=label)
    corrected = holm([row["p_rank"] for row in compared])[compared.index(own)]
    n, of = (len(pick(stored["sweeps"], f"No sweep {one!r} is stored.", label=one)["seeds"]) for one in (label, base))
    against = "as many" if n == of else f"{of}"
    remark = f"the smallest of {len(compared)} comparisons counts {len(compared)} times"
    return replace(
        counted(n, f"seeds of {label}, against {against} without").with_value(own["superiority"], remark), p=corrected
    )


def parameters(store: Store, model: str) -> Ours:
    return counted(parameter_count(model), f"parameters of {model}, counted on the model")


def numbers_named(store: Store, model: str, *beginnings: str) -> Ours:
    """How many free parameters of a model have names that begin like this."""
    named = models.build(model).weight_map.named_parameters()
    n = sum(p.numel() for name, p in named if name.startswith(beginnings))
    return counted(n, f"free numbers of {model}, counted on the model")


def config(store: Store, model: str, field: str, what: str = "") -> Ours:
    """A size of a registered model, "d_model"."""
    return counted(getattr(models.build(model).config, field), what or f"{field} of {model}")


def recipe(store: Store, model: str, field: str) -> Ours:
    """A number of the recipe that an entry was trained with, such as "steps" or "problems.carry_mix.share"."""
    return _named(store.entry(model)["training"]["recipe"], model, field)


def planned(store: Store, model: str, field: str) -> Ours:
    """A number of the recipe that a registered model would be trained with."""
    return _named(asdict(get_recipe(get_spec(model).recipe or "")), model, field)


def _named(value: Any, model: str, field: str) -> Ours:
    for key in field.split("."):
        value = value[key if isinstance(value, dict) else int(key)]
    return counted(value, f"{field} of the recipe of {model}")


def minutes(store: Store, model: str) -> Ours:
    """The wall time of the run that trained all of an entry's seeds together, on one CPU thread, in minutes."""
    made = store.entry(model)["training"]
    remark = f"for {made['seeds_tried']} seeds together; one alone was not timed"
    run = counted(1, f"run of {model} on one CPU thread of a shared machine")
    return run.with_value(made["seconds"] / 60, remark)
