"""Every question about a model in half precision: a right result, or one sentence."""

from __future__ import annotations

import pytest
import torch

import interp
import models
from interp.core.probe import registered
from models.errors import UserError
from models.tasks import problem_pairs
from tests.interp.test_other_formats import SHORT
from tests.other_tasks import column_addition, exact_adder
from tests.sampling import sampled

HALF = [torch.bfloat16, torch.float16]
#: Of minutes, or of a search whose end is its time.
SLOW = {
    "attack",
    "certify",
    "all_circuits",
    "edge_attribution",
    "parameter_ablation",
    "which_algorithm",
}


def subject(name: str, dtype: torch.dtype) -> models.ArithmeticTransformer:
    return (models.load(name) if name else exact_adder(column_addition(3))).to(dtype)


@pytest.mark.parametrize("dtype", sampled(HALF, torch.bfloat16), ids=str)
@pytest.mark.parametrize("name", sampled(["", "microadder-57"], ""))
def test_every_question_of_a_model_answers_or_refuses_in_a_sentence(name: str, dtype: torch.dtype) -> None:
    model, answered = subject(name, dtype), 0
    for probe in registered().values():
        if probe.why_not(model) or probe.name in SLOW or probe.subjects not in (("model",), ("model", "pairs")):
            continue
        pairs = [problem_pairs(model.task, "variable", variable="s", column=0, n=12)] * ("pairs" in probe.subjects)
        try:
            found = probe.ask(model, *pairs, **{key: value for key, value in SHORT.items() if probe.takes(key)})
        except UserError as error:
            assert "\n" not in str(error)
            continue
        answered += 1
        assert found.sentence() and len(found.to_dataframe())
    assert answered >= 10


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["", "microadder-57"])
def test_attributions_are_those_of_the_same_numbers_in_float32(name: str, dtype: torch.dtype) -> None:
    """Rounding within microadder-57 is larger than what attributions may miss: there they are refused."""
    half = subject(name, dtype)
    if name:
        with pytest.raises(UserError, match="half precision"):
            interp.direct_logit_attribution(half, n=32)
        return
    wide = subject(name, dtype).to(torch.float32)
    ours, theirs = (interp.direct_logit_attribution(each, n=32).to_dataframe() for each in (half, wide))
    largest = theirs["contribution"].abs().max()
    assert (ours["contribution"] - theirs["contribution"]).abs().max() < 0.05 * largest


def test_a_diverged_model_has_no_score() -> None:
    model = models.build("microadder-57")
    assert models.score(model, ["57+48"]).n == 1
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(UserError, match="finite"):
        models.score(model, ["57+48"])
