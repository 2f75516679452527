"""All 10,000 two-digit sums at once, for the probes of ToyGPT's task.

With so few problems nothing needs to be sampled. Every number is exhaustive over the domain, and there is an interval
only where something beyond these problems is meant (other seeds, other units pairs).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.results import Provenance
from models.errors import UserError
from models.tasks.two_digit import TwoDigitAddition, all_problems

#: Positions of a sequence and what stands there.
LABELS = ("a1", "a0", "b1", "b0", "s0", "s1")
A1, A0, B1, B0, S0, S1 = range(6)
EVERY_PAIR = Provenance(10_000, None, "pairs of numbers below 100", "exhaustive")
ROWS_AT_ONCE = 1_000


def resolve_two_digit_task(model: HookedModel, task: Any = None) -> TwoDigitAddition:
    """The task of a two-digit adder. Raises UserError for any other task, or a model without hooks."""
    task = resolve_task(model, task)
    if not isinstance(task, TwoDigitAddition):
        raise UserError(f"This probe is about two-digit addition, not {task.name!r}.")
    return task


def teacher_forced_logits(
    model: HookedModel, task: TwoDigitAddition, problems: Int[Tensor, "n 2"] | None = None
) -> Float[Tensor, "n target d_vocab"]:
    """Logits of the three digits of the sum, each given the right digits before it; by default for all problems."""
    tokens = task.encode(all_problems() if problems is None else problems)
    device = getattr(model.cfg, "device", None)
    with torch.no_grad():
        parts = [model(batch.to(device))[:, list(task.query_positions)] for batch in tokens.split(ROWS_AT_ONCE)]
    return torch.cat(parts).float().cpu()
