"""Exams of the proofs, and of the search where no proof reaches."""

from __future__ import annotations

from typing import Any

import torch

import interp
from interp.core.exam import REFUSED, Case, Exam
from interp.proofs.verdict.verdict import Verdict
from tests.exams import Briefly, register_exam
from tests.exams.subjects import negated, scaled, trained, untrained, without

ONE_ANSWER = (996_655_500 + 1) / 10**20  # right only where that is the sum: what the untrained adder always says


def ties() -> Any:
    """Every logit as large as the right one's."""
    model = untrained()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


#: The certifier reads digits that are tokens 0 to 9, and refuses others.
TOKENS = {"order": "It judges digits that are tokens 0 to 9."}


register_exam(
    Exam(  # what it looks for is a failure
        "attack",
        lambda model: interp.attack(model, runs=200),
        lambda found: (found.n_wrong["attack"] > 0, found.smallest_margin() > 0),
        presence=Case(lambda: scaled("out_A", 0.97), lambda got: got == (True, False)),
        absence=Case(trained, lambda got: got == (False, True)),
        inversion=Case(ties, lambda got: got == (True, False)),
        untrained=Case(untrained, lambda got: got == (True, False)),
    ),
    Briefly(slow_exam=True),
)


def _proved(found: Verdict) -> tuple[str, bool]:
    """The verdict, and whether it shows a pair with another answer than its sum."""
    shown = found.counterexample
    return found.status, shown is not None and shown.predicted != shown.expected


register_exam(
    Exam(
        "certify",
        lambda model: interp.certify(model, arithmetic="interval", tolerance=None),
        _proved,
        presence=Case(trained, ("certified", False)),
        absence=Case(lambda: scaled("out_A", 0.97), ("refuted", True)),  # wrong on 3% of the pairs
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), REFUSED),  # weights of a right model
        untrained=Case(untrained, ("refuted", True)),
    ),
    Briefly(slow=True, slow_exam=True, but=TOKENS),
)
register_exam(
    Exam(
        "accuracy_bounds",
        lambda model: interp.accuracy_bounds(model, tolerance=0.01),
        lambda found: (float(found.lower), float(found.upper)),
        presence=Case(trained, (1.0, 1.0)),
        absence=Case(lambda: without("out_A"), (0.0, 0.0)),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), REFUSED),
        untrained=Case(untrained, (ONE_ANSWER, ONE_ANSWER)),
    ),
    Briefly(slow=True, slow_exam=True, but=TOKENS),
)
register_exam(
    Exam(
        "decompile",
        lambda model: interp.decompile(model),
        lambda found: (found.states, found.gap > 0),
        presence=Case(trained, (741, True)),
        absence=Case(lambda: scaled("out_A", 0.97), REFUSED),  # not certified
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), REFUSED),
        untrained=Case(untrained, REFUSED),
    ),
    Briefly(slow=True, slow_exam=True, but=TOKENS),
)
