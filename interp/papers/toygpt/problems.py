"""All 10,000 two-digit sums at once, for the probes of ToyGPT's task.

With so few problems nothing needs to be sampled. Every number is exhaustive over the domain, and there is an interval
only where something beyond these problems is meant (other seeds, other units pairs).
"""

from __future__ import annotations

from typing import Any

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.results import Provenance
from models.errors import UserError
from models.tasks.two_digit import TwoDigitAddition

#: Positions of a sequence and what stands there.
LABELS = ("a1", "a0", "b1", "b0", "s0", "s1")
A1, A0, B1, B0, S0, S1 = range(6)
EVERY_PAIR = Provenance(10_000, None, "pairs of numbers below 100", "exhaustive")


def resolve_two_digit_task(model: HookedModel, task: Any = None) -> TwoDigitAddition:
    """The task of a two-digit adder. Raises UserError for any other task, or a model without hooks."""
    task = resolve_task(model, task)
    if not isinstance(task, TwoDigitAddition):
        raise UserError(f"This probe is about two-digit addition, not {task.name!r}.")
    return task
