"""Exams of the proofs, and of the search where no proof reaches."""

from __future__ import annotations

from typing import Any

import torch

import interp
from tests.exams.exam import Case, Exam, register_exam
from tests.exams.subjects import (
    scaled,
    trained,
    untrained,
)


def ties() -> Any:
    """Every logit as large as the right one's."""
    model = untrained()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


register_exam(
    Exam(  # what it looks for is a failure
        "attack",
        lambda model: interp.attack(model, runs=200),
        lambda found: (found.n_wrong["attack"] > 0, found.smallest_margin() > 0),
        presence=Case(lambda: scaled("out_A", 0.97), lambda got: got == (True, False)),
        absence=Case(trained, lambda got: got == (False, True)),
        inversion=Case(ties, lambda got: got == (True, False)),
        untrained=Case(untrained, lambda got: got == (True, False)),
    )
)
