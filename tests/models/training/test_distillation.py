"""A teacher's logits: the fast objective is the formula, and no teacher of another language is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import models
from models.errors import UserError
from models.families.hand_built.adders import ADDERS
from models.registry import recipe_of
from models.training import train
from models.training.choose_objective import make_objective
from models.training.distillation import TaughtObjective, distilled
from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe, Teacher
from models.training.run_folder import RunFolder
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import GeneralObjective
from tests.models.training.stacked import assert_stream_is_split, batch, stack
from tests.sampling import sampled

TEACHERS = (Teacher("microadder-57"), Teacher("adder-3-by-hand", weight=0.3, temperature=2.0, sharpness=1024.0))


def by_its_own_forward(name: str, tokens: torch.Tensor) -> torch.Tensor:
    """[seed, vocab, target, row]: what the stored teacher says, seed by seed, as any user would ask it."""
    teacher = models.load(name)
    queries = list(teacher.task.query_positions)
    with torch.no_grad():
        said = [teacher(rows[: teacher.task.input_length].T.long())[:, queries] for rows in tokens]
    return torch.stack([logits.permute(2, 1, 0) for logits in said])


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])
@pytest.mark.parametrize("teacher", TEACHERS, ids=lambda teacher: teacher.name)
@pytest.mark.parametrize("student", sampled(["microadder-57", "microadder-53", "microadder-100"], "microadder-53"))
def test_the_taught_loss_is_hintons_in_value_and_gradient(student: str, teacher: Teacher, kernel: bool):
    model, layout, theta = stack(student)
    tokens, targets = batch(task=model.task)
    objective = make_objective(model, get_recipe("microadder").replace(teacher=teacher))
    assert isinstance(objective, TaughtObjective)
    if not kernel:
        objective.kernel = objective.answering = None
    loss = objective.loss(layout.unflatten(theta), tokens, targets)
    (gradient,) = torch.autograd.grad(loss.sum(), theta)

    taught = teacher.sharpness * by_its_own_forward(teacher.name, tokens)
    logits = GeneralObjective(model).logits(layout.unflatten(theta), tokens)
    n, t = taught.shape[2], teacher.temperature
    hard = F.cross_entropy(logits, targets.long(), reduction="none")  # [seed, target, row]
    soft = F.kl_div((logits[:, :, :n] / t).log_softmax(1), (taught / t).softmax(1), reduction="none").sum(1)
    per_target = torch.cat(((1 - teacher.weight) * hard[:, :n] + teacher.weight * t * t * soft, hard[:, n:]), 1)
    expected = per_target.mean((1, 2))
    (expected_gradient,) = torch.autograd.grad(expected.sum(), theta)
    torch.testing.assert_close(loss, expected, rtol=2e-5, atol=1e-5)
    scale = expected_gradient.abs().amax(1, keepdim=True)
    assert ((gradient - expected_gradient).abs() / scale).max() < 1e-4


def test_a_student_that_says_what_its_teacher_says_has_nothing_to_learn_from_it():
    logits = torch.randn(2, 10, 12, 8, generator=torch.Generator().manual_seed(1))
    targets = logits.argmax(1).to(torch.uint8)
    assert distilled(logits, targets, logits, 1.0, 3.0).abs().max() < 1e-6
    assert (distilled(logits, targets, logits.roll(1, 1), 1.0, 3.0) > 0.1).all()


def test_eos_keeps_its_cross_entropy_where_the_teacher_writes_none():
    model, layout, theta = stack("microadder-57")
    tokens, targets = batch(task=model.task)
    assert not models.load("adder-3-by-hand").task.parsed.delimiters[-1] and model.task.parsed.delimiters[-1]
    objective = make_objective(model, Recipe(teacher=Teacher("adder-3-by-hand", weight=1.0, sharpness=1024.0)))
    parameters = layout.unflatten(theta)
    wrong = targets.clone()
    wrong[:, :-1] = (wrong[:, :-1] + 1) % 10  # digits alone: a teacher of weight 1 does not look at them
    assert torch.equal(objective.loss(parameters, tokens, targets), objective.loss(parameters, tokens, wrong))
    wrong[:, -1] = 1
    assert (objective.loss(parameters, tokens, targets) != objective.loss(parameters, tokens, wrong)).all()


@pytest.mark.parametrize("name", [adder.name for adder in ADDERS])
def test_the_adders_by_hand_keep_the_promise_of_a_split_stream(name: str):
    model = models.load(name)
    assert PositionOnlyObjective.applies_to(model)
    assert_stream_is_split(model)


@pytest.mark.parametrize(("student", "teacher"), [("microadder-57", "adder-456"), ("adder-3-by-hand", "microadder-57")])
def test_who_speaks_another_language_is_no_teacher(student: str, teacher: str):
    with pytest.raises(UserError):
        make_objective(models.build(student), Recipe(teacher=Teacher(teacher)))


def test_sequences_of_many_lengths_have_no_teacher():
    recipe = recipe_of("position-coupling-1l4h-small")
    with pytest.raises(UserError):
        make_objective(models.build("position-coupling-1l4h-small"), recipe.replace(teacher=TEACHERS[0]))
    with pytest.raises(UserError):
        make_objective(models.build("microadder-57"), Recipe(teacher=Teacher("no-such-model")))


def test_a_run_with_a_teacher_can_be_stopped_and_is_another_run(tmp_path: Path):
    recipe = Recipe(steps=20, batch_size=32, eval_every=10, validation_size=32, snapshots=0, teacher=TEACHERS[0])
    how = {"seeds": 2, "progress": False, "compile": False, "device": "cpu"}

    def losses(folder: str, recipe: Recipe, **more: int) -> list[float]:
        train("microadder-57", tmp_path / folder, recipe=recipe, **how, **more)
        return [line["loss"] for line in RunFolder(tmp_path / folder).metrics()]

    losses("sliced", recipe, stop_at_step=13)
    assert losses("sliced", recipe) == losses("whole", recipe) != losses("alone", recipe.replace(teacher=None))
