"""Where a task has no more problems than a probe looks at, each of them is looked at once, and the evidence says so."""

from __future__ import annotations

import pytest
import torch

import interp
import models
from interp.core.samples import draw
from models.errors import UserError
from models.tasks import formatted
from tests.applying import applying
from tests.other_tasks import column_addition, exact_adder

#: Probes of problems that change one operand or more, whose domain is another one.
OF_PAIRS = {"group_program"}


@pytest.fixture(scope="module")
def nearly():
    """An adder of 256 problems that is wrong on some of them."""
    model = exact_adder(column_addition(2, 4))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.12 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("n", [256, 1000])
def test_a_score_of_all_problems_is_the_models_own(nearly, n):
    every = nearly.task.domain.problems(nearly.task.domain.numbered(torch.arange(256)))
    truth = models.score(nearly, every).correct
    assert 0 < truth < 256
    found = interp.score(nearly, n=n)
    assert (found.rate().n, found.rate().correct, found.provenance.strength) == (256, truth, "exhaustive")
    assert interp.score(nearly, n=255).provenance.strength == "sampled"


def test_every_probe_of_problems_looks_at_each_once(nearly):
    asked = 0
    for probe in applying(nearly):
        if not (probe.takes("problems") and probe.takes("n")) or probe.name in OF_PAIRS:
            continue
        model = exact_adder(nearly.task) if probe.why_not(nearly) else nearly
        short = {name: value for name, value in {"max_ablated": 1}.items() if probe.takes(name)}
        try:
            found = probe.answer(model, n=1000, **short).provenance
        except UserError:
            continue
        asked += 1
        assert found.n <= 256 and found.strength == "exhaustive", probe.name
    assert asked >= 7


@pytest.mark.parametrize(
    "task",
    [column_addition(2, 4), formatted("{a:1}+{b:1}={s:1}", "a + b", where="a + b < 10")],
    ids=["every pair", "those that a rule allows"],
)
def test_a_sample_is_all_problems_in_an_order_of_its_seed(task):
    size = task.domain.size
    one, same, other = (draw(task, None, size + 50, seed, 0.5).problems for seed in (1, 1, 2))
    assert len(one) == len(one.unique(dim=0)) == size and task.domain.holds(one).all()
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert draw(task, one, 7, 0).provenance.strength == "exhaustive"
    assert draw(task, one[1:].repeat(2, 1), 7, 0).provenance.strength == "sampled"
