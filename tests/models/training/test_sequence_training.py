"""Training on sequences of many lengths: the loss, resuming, publishing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import models
from models.errors import UserError
from models.families.position_coupling import SMALL, DecoderSize
from models.registry import recipe_of
from models.training import train
from models.training.named_recipes import get_recipe
from models.training.publish import publish
from models.training.run_folder import RunFolder
from models.training.sequence_objective import SequenceObjective, SequenceStream, SequenceValidator
from models.training.stacked_objective import ParameterLayout

NAME = "position-coupling-1l4h-d32-small"


@pytest.fixture
def recipe():
    problems = SMALL["addition"].replace(longest=2, most=2).training_set
    return recipe_of(NAME).replace(
        steps=6, warmup_steps=2, batch_size=16, eval_every=2, validation_size=32, snapshots=2, problems=problems
    )


def test_the_loss_is_the_mean_over_all_response_tokens_of_the_hooked_forward(recipe) -> None:
    model = models.build(NAME, seed=1)
    layout = ParameterLayout(model)
    theta = layout.flatten(model)[None].requires_grad_()
    stream = SequenceStream(model.task, recipe.problems, 16, [5], torch.device("cpu"))
    batch = stream.batch(0)
    loss = SequenceObjective(model).loss(layout.unflatten(theta), *batch)
    (grad,) = torch.autograd.grad(loss.sum(), theta)

    total, count = torch.zeros(()), 0
    for bucket in batch[0][0]:
        logits = model(bucket.tokens, position_ids=bucket.position_ids)[:, bucket.first :]
        total = total + F.cross_entropy(logits.flatten(0, 1), bucket.targets.flatten(), reduction="sum")
        count += int((bucket.targets >= 0).sum())
    expected = total / count
    torch.testing.assert_close(loss[0], expected.detach())
    grads = torch.autograd.grad(expected, list(model.parameters()))
    torch.testing.assert_close(grad[0], torch.cat([g.flatten() for g in grads]), rtol=1e-3, atol=1e-6)


def test_a_run_cut_in_two_ends_with_the_same_bits(tmp_path: Path, recipe) -> None:
    whole = train(NAME, tmp_path / "whole", recipe=recipe, progress=False)
    train(NAME, tmp_path / "cut", recipe=recipe, progress=False, stop_at_step=3)
    cut = train(NAME, tmp_path / "cut", recipe=recipe, progress=False)
    assert cut.complete
    from models.training.run_folder import RunFolder

    one, other = (RunFolder(result.folder).load_checkpoint()[1] for result in (whole, cut))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_seed_trains_alike_alone_and_beside_another(tmp_path: Path, recipe) -> None:
    from models.training.run_folder import RunFolder

    both = train(NAME, tmp_path / "both", seeds=2, recipe=recipe, progress=False)
    alone = train(NAME, tmp_path / "alone", first_seed=1, recipe=recipe, progress=False)
    of = lambda result: RunFolder(result.folder).load_checkpoint()[1]["theta"]  # noqa: E731
    assert torch.equal(of(both)[1], of(alone)[0])


@pytest.mark.slow
def test_the_loss_falls(tmp_path: Path, recipe) -> None:
    train(NAME, tmp_path / "run", recipe=recipe.replace(steps=80, eval_every=4, lr=5e-3), progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"][0] < 0.8 * lines[0]["loss"][0]


def test_validation_counts_whole_responses_and_tokens() -> None:
    """The hand-built adder, put in the place of a trained one, is right on all of them."""
    model = models.build("position-coupling-hand-built", max_operands=4, max_digits=4)
    source = SMALL["addition"].training_set
    objective = SequenceObjective(model)
    objective.weights_of = lambda parameters, seed: model.effective_weights()  # it has no parameters to stack
    layout = ParameterLayout(models.build(NAME))
    theta = torch.zeros(1, layout.n)
    report = SequenceValidator(model.task, source, 64, torch.device("cpu")).measure(objective, layout, theta)
    assert report["exact"].item() == 1.0
    assert report["token"].item() == 1.0


def test_an_untrained_model_is_right_on_few_tokens_and_no_response() -> None:
    model = models.build(NAME)
    layout = ParameterLayout(model)
    validator = SequenceValidator(model.task, SMALL["addition"].training_set, 64, torch.device("cpu"))
    report = validator.measure(SequenceObjective(model), layout, layout.flatten(model)[None])
    assert report["exact"].item() == 0.0
    assert report["token"].item() < 0.5


def test_without_a_rule_of_its_own_the_seed_that_is_best_on_validation_is_published(tmp_path: Path, recipe) -> None:
    train(NAME, tmp_path / "run", seeds=2, recipe=recipe, progress=False)
    folder, score = publish([tmp_path / "run"], tmp_path / "entry")
    (state,) = [RunFolder(tmp_path / "run").load_checkpoint().state]
    best = max(state["seeds"], key=lambda seed: (seed["best_exact"], -seed["seed"]))
    assert models.zoo.read_entry(folder)["training"]["seed"] == best["seed"]
    assert (score.n, score.correct) == (1_000, models.score(models.load(folder)).correct)


def test_an_unfinished_run_is_not_published(tmp_path: Path, recipe) -> None:
    train(NAME, tmp_path / "run", recipe=recipe, progress=False, stop_at_step=3)
    with pytest.raises(UserError, match="not finished"):
        publish([tmp_path / "run"], tmp_path / "entry")


@pytest.mark.parametrize("variant", SMALL.values(), ids=lambda v: v.name)
def test_every_task_trains(tmp_path: Path, variant) -> None:
    from models.families.position_coupling import register_variant

    tiny = variant.replace(size=DecoderSize(1, 2, 16, 16), longest=2, most=min(2, variant.most))
    name = register_variant(tiny)
    recipe = get_recipe(name).replace(steps=2, batch_size=8, eval_every=2, validation_size=8, snapshots=1)
    result = train(name, tmp_path / "run", recipe=recipe, progress=False)
    assert result.complete
