"""Exams of the probes of modular adders: their subjects are a clock, a pizza and a table, which are built by hand."""

from __future__ import annotations

from typing import Any

import torch

import interp
import models
from interp.causal.interchange.group_program import NONE
from interp.core.exam import REFUSED, Case, Exam
from tests.exams import register_exam

P = 13


def built(program: str) -> Any:
    return models.build(f"modular-{program}-hand-built", p=P)


def shuffled(program: str, what: str = "embed/W_E") -> Any:
    """A construction whose numbers' embeddings have changed places, so that it adds no more."""
    model = built(program)
    rows = model.weight_map.get_buffer(what)
    rows[:P] = rows[torch.randperm(P, generator=torch.Generator().manual_seed(1))]
    return model


def untrained() -> Any:
    model = built("clock")
    generator = torch.Generator().manual_seed(1)
    for value in model.weight_map.buffers():
        value.copy_(torch.randn(value.shape, generator=generator))
    return model


register_exam(
    Exam(
        "group_program",
        lambda model: interp.group_program(model, n=400),
        lambda found: found.verdict,
        presence=Case(lambda: built("pizza"), "pizza"),
        absence=Case(lambda: built("table"), NONE),
        inversion=Case(lambda: built("clock"), "clock"),
        untrained=Case(untrained, REFUSED),
    )
)


def _losses(found: Any) -> tuple[bool, bool]:
    """Whether the kept frequencies alone are better than a guess, and whether the rest is."""
    rows, guess = found.table.set_index("logits")["loss"], float(found.table["loss_uniform_guess"][0])
    return float(rows["restricted"].iloc[0]) < guess - 0.05, float(rows["excluded"].iloc[0]) < guess - 0.05


register_exam(
    Exam(
        "restricted_loss",
        lambda model: interp.restricted_loss(model),
        _losses,
        presence=Case(lambda: built("clock"), (True, False)),
        absence=Case(lambda: shuffled("clock"), lambda got: not got[0]),
        inversion="A loss has no other way round.",
        untrained=Case(untrained, lambda got: not got[0]),
    )
)


def _marks(found: Any) -> tuple[float, float]:
    values = found.table["value"]
    return round(float(values[0]), 2), round(float(values[1]), 2)


register_exam(
    Exam(
        "group_symmetry",
        lambda model: interp.group_symmetry(model, n=400),
        _marks,
        presence=Case(lambda: built("pizza"), lambda got: got[0] == 1.0 and got[1] < 0.3),
        absence=Case(lambda: built("clock"), lambda got: abs(got[0]) < 0.15 and got[1] > 0.8),
        inversion="Symmetry has no other way round.",
        untrained=Case(untrained, lambda got: abs(got[0]) < 0.9 and got[1] > 0.5),
    )
)
