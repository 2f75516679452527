"""A teacher for a small student: arms differ in the teacher alone, and the row is the difference of two shares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import models
from interp.core.stats import rate_difference
from interp.papers.headlines import NotStored, Store
from interp.papers.microadder.distillation import STUDENTS, TEACHERS, arms, distillation
from interp.papers.microadder.headlines import teacher_adds
from interp.papers.studies import Settings
from models.training.objectives import objective_for


def test_arms_of_a_student_differ_in_their_teacher_alone():
    found = arms()
    assert len(found) == len(STUDENTS) * len(TEACHERS) == len({arm.folder for arm in found})
    for name in STUDENTS.values():
        own = [arm for arm in found if arm.model == name]
        assert [arm.recipe.teacher for arm in own] == list(TEACHERS.values())
        assert len({arm.recipe.replace(teacher=None).steps for arm in own}) == 1
        assert all(arm.recipe.replace(teacher=None) == own[0].recipe for arm in own)
        assert {arm.first_seed for arm in own} == {0}


@pytest.mark.parametrize("teacher", [teacher for teacher in TEACHERS.values() if teacher], ids=lambda one: one.name)
def test_a_softened_teacher_is_right_and_not_sure(teacher):
    """The rule by which the sharpness was fixed: the least power of two at which this is at least 0.8."""
    model = models.load(teacher.name)
    tokens, targets = model.task.encode_rows(model.task.sample(512, torch.Generator().manual_seed(0)))
    parameters = {name: p.detach()[None] for name, p in model.weight_map.named_parameters()}
    with torch.no_grad():
        logits = objective_for(model).logits(parameters, tokens[None])

    def sure(sharpness: float) -> float:
        softened = (sharpness * logits / teacher.temperature).softmax(1)
        return softened.gather(1, targets[None, None].long()).mean().item()

    assert sure(teacher.sharpness / 2) < 0.8 <= sure(teacher.sharpness) < 0.9


def test_without_time_there_is_nothing_to_show(tmp_path: Path):
    with pytest.raises(NotStored):
        teacher_adds(Store(tmp_path, tmp_path), "53 parameters", "taught by 57")
    assert distillation.run(Settings(out=tmp_path, minutes=0.0, say=lambda _: None)) is None


def test_what_a_teacher_adds_is_a_difference_of_two_shares(tmp_path: Path):
    def row(label: str, right: int) -> dict:
        seeds = list(range(8))
        return {
            "label": label, "model": "microadder-53", "parameters": 53, "steps": 10, "planned": 10, "seeds": seeds,
            "best_exact": [1.0] * 8, "token": [1.0] * 8, "first_perfect": [None] * 8, "n_test": 10_010,
            "on_test": [10_010] * right + [None] * (8 - right), "weights": {}, "curve_steps": [], "curves": [],
        }  # fmt: skip

    (tmp_path / "experiments").mkdir()
    sweeps = [row("53 parameters, no teacher", 1), row("53 parameters, taught by 57", 4)]
    (tmp_path / "experiments" / "microadder-distillation.json").write_text(json.dumps({"sweeps": sweeps}))
    ours = teacher_adds(Store(tmp_path, tmp_path), "53 parameters", "taught by 57")
    assert (ours.value, ours.low, ours.high) == rate_difference(4, 8, 1, 8)
    assert ours.value == 3 / 8 and ours.provenance.n == 16
