"""Methods that name neurons, and dictionaries, on models whose neurons are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.circuits import latent_scores, unit_methods
from benchmarks.circuits.latent_scores import judged, told_by
from benchmarks.circuits.subjects import SUBJECTS, Subject, planted_subject
from benchmarks.circuits.unit_methods import UNIT_METHODS, UnitCase, gaps, run_units, truths_of


def _subject(name: str) -> Subject:
    return next(subject for subject in SUBJECTS if subject.name == name)


def test_a_gap_is_between_sets_of_answers_in_every_problem():
    right = torch.tensor([0, 0, 1, 1, 2, 2])
    pre = torch.tensor([[0.0, 5, 4, 4, 1, 2], [0.0, 2, 1, 3, 2, 4], [0.0, 1, 5, 6, 1.5, 4]]).T
    width, middle = gaps(pre, right)
    assert width.tolist() == [-1.0, -1.0, 1.0]
    assert middle[2] == 4.5  # answer 1 alone above, though 0 and 2 are 0.5 apart


def test_the_neuron_of_a_planted_and_is_needed_and_is_a_switch():
    own = planted_subject("and", 5)
    found = truths_of(own)
    assert found["needed"].tolist() == found["switch"].tolist() == [True, False]  # the other one is a constant


def test_a_neuron_that_is_not_needed_may_be_fixed_in_the_models_own_run():
    own = _subject("subtract-2-two-layers-0")
    case, needed = UnitCase(own), truths_of(own)["needed"]
    problems = own.model.task.domain.every()
    tokens, right = own.model.task.encode(problems), own.model.task.targets(problems)[:, case.pairs.target]
    (post,) = case.read(tokens, unit_methods.POST)
    for unit in (int(needed.argmax()), int(needed.argmin())):

        def fixed(value: torch.Tensor, hook: object, unit: int = unit) -> torch.Tensor:
            at = torch.zeros_like(value, dtype=torch.bool)
            at[:, case.position, unit] = True
            return torch.where(at, post[:, unit].mean(), value)

        with torch.no_grad():
            logits = own.model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.mlp.hook_post", fixed)])
        assert bool((logits[:, case.position].argmax(-1) != right).any()) == needed[unit]


def test_every_method_gives_each_neuron_a_score_and_ablation_is_that_of_a_run_with_a_hook():
    case = UnitCase(_subject("compare-2-2"))
    for _, function in UNIT_METHODS.values():
        scores = function(case)
        assert scores.shape == (128,) and scores.isfinite().all()
    gradient, small = case.gradient[:, 3], 1e-3
    stream = case.clean[1]
    moved = case.lead(stream + small * case.own["W_out"][3]) - case.lead(stream - small * case.own["W_out"][3])
    assert torch.allclose(gradient, moved / (2 * small), atol=1e-2, rtol=1e-2)


def test_proved_switches_of_adders_are_judged_and_wide_tasks_have_no_neuron_that_is_known_to_be_needed():
    rows = run_units([_subject("adder-456"), _subject("add-3-rotary-0")], say=lambda line: None)
    assert set(rows["subject"]) == {"adder-456"} and rows["switches"].tolist() == [4] * len(UNIT_METHODS)
    assert rows["needed"].isna().all() and rows.set_index("method")["switch"]["difference"] > 0.9


def test_a_latent_that_is_on_at_one_side_alone_tells_it():
    sides = torch.tensor([[True, True, False, False], [True, False, False, False]]).T
    on = torch.tensor([[False, False, True, True], [True, False, True, False]]).T
    told, which = told_by(on, sides)
    assert told.tolist() == pytest.approx([1.0, 5 / 6]) and which.tolist() == [0, 1]


@pytest.mark.slow  # eai-sparsify takes long to import
def test_dictionaries_are_judged_beside_untrained_ones(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("sparsify")
    monkeypatch.setattr(latent_scores, "STEPS", 200)
    rows = {row[1]: row[2:] for row in judged(_subject("subtract-2-two-layers-0"))}
    assert rows["the neuron"][:2] == (1.0, 1.0) and len(rows) == 5
    for name in ("sparse autoencoder", "transcoder"):
        assert rows[name][3] > 0.8 > rows[f"{name}, untrained"][3]
    assert np.isfinite([row[2] for row in rows.values()]).all()
    assert judged(_subject("parity-5-0")) == []
