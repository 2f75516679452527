"""Subjects whose truth is stored nowhere: planted models and trained ones of a new seed, made and judged on demand.

Nobody can tune a method to them. A trained one is right on every problem of its task, all of which are run, or it is
trained again from the next seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.circuits import planted, recipes
from benchmarks.circuits.subjects import Subject, own_subject, planted_subject
from benchmarks.provability.train import store

#: Kinds that train in less than a minute.
TRAINED = ("subtract-mod-23", "max-3-of-16", "sorted-3-of-10", "copy-4", "less-of-32", "brackets-8")
TRIES = 5


def fresh_subjects(seed: int, folder: Path, say: Callable[[str], None] = print) -> list[Subject]:
    """One subject of each kind that is planted, and of each of :data:`TRAINED`; what is in the folder is kept."""
    found = [planted_subject(kind, seed) for kind in planted.KINDS]
    for kind in TRAINED:
        for own in range(seed, seed + TRIES):
            recipe = recipes.recipe(kind, own)
            if not (folder / recipe.name).exists():
                model = recipes.train(kind, own)
                if model is None:
                    continue
                store(recipe, own, *model, models=folder)
                say(f"{recipe.name} is trained")
            found.append(own_subject(kind, own, folder))
            break
    return found
