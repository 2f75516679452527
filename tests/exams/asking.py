"""How the tests that go over all probes ask each of them: of which model, and with which short options.

A probe needs nothing here. What it must be given beyond a model, and what keeps it short beyond :data:`SHORT`, stands
with its exam (:func:`tests.exams.register_exam`).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import models
import tests.exams
from interp.core.probe import MODELS, SEVERAL_MODELS, registered
from interp.core.samples import middle_carry_pairs
from models.errors import UserError
from models.tasks import problem_pairs
from tests.exams import BRIEFLY
from tests.exams.coupled_subjects import built
from tests.exams.subjects import ADDER

#: Options by name, with which the probes that have them take little time.
SHORT = {
    "n": 32, "n_fit": 32, "n_train": 64, "n_per_length": 2, "n_random": 3, "untrained": 1, "steps": 4, "runs": 50,
    "max_ablated": 2,
}  # fmt: skip
for each in pkgutil.iter_modules(tests.exams.__path__):
    if not each.name.startswith("test_") and each.name != "asking":
        import_module(f"tests.exams.{each.name}")  # which registers its exams


def _summer() -> Any:
    """A trained adder of several operands."""
    model: Any = models.load("position-coupling-1l4h-no-scratchpad-small")
    model.task = model.task.at(3, 3)
    return model


#: Models of each kind: a probe is asked of the first to which it applies.
KINDS: dict[str, Callable[[], Any]] = {
    "adder": lambda: models.load(ADDER),
    "summer": _summer,
    "built": built,
    "modular": lambda: models.build("modular-pizza-hand-built", p=13),
    "layers": lambda: models.load("toygpt-learned-pre"),
}
model_of = cache(lambda kind: KINDS[kind]())


@cache
def kind_of(probe: str) -> str:
    """The kind of models that a probe is asked of; that of the first where it applies to none."""
    kinds = [kind for kind in KINDS if not registered()[probe].why_not(model_of(kind))]
    return kinds[0] if kinds else next(iter(KINDS))


def pairs_for(model: Any, n: int = 12) -> Any:
    """Pairs that differ in a carry, else in another variable of the task."""
    try:
        return middle_carry_pairs(model.task, n, 0)
    except UserError:
        return problem_pairs(model.task, "variable", variable="s", column=0, n=n)


def asked_of_models(but: str = "") -> list[str]:
    """The probes that can be asked of a model, as far as their exams except none from the test ``but``."""
    given = {*MODELS, *SEVERAL_MODELS, "pairs"}
    return [
        each.name for each in registered().values() if given & {*each.subjects} and but not in BRIEFLY[each.name].but
    ]


def options_of(name: str, model: Any) -> dict[str, Any]:
    """The options, and further arguments, with which a probe is asked briefly of a model."""
    probe, of_exam = registered()[name], BRIEFLY[name].options
    options: dict[str, Any] = {key: value for key, value in SHORT.items() if probe.takes(key)}
    return options | dict(of_exam(model) if callable(of_exam) else of_exam)


def ask_briefly(name: str, model: Any, other: Any = None, **more: Any) -> Any:
    """What a probe answers about a model, or about it and an ``other`` one of its format (by default itself)."""
    probe = registered()[name]
    given: dict[str, Any] = dict.fromkeys(MODELS, model) | {"b": other or model, "models": [model, other or model]}
    if "pairs" in probe.subjects:
        given["pairs"] = pairs_for(model)
    subjects = {key: given[key] for key in probe.subjects if key in given}
    return probe.ask(**subjects | options_of(name, model) | more)
