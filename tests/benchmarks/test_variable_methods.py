"""Methods that say where a variable lives, judged on models whose places are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from benchmarks.circuits import variable_methods
from benchmarks.circuits.dictionary import train_dictionary
from benchmarks.circuits.variable_methods import (
    VARIABLE_METHODS,
    VariableCase,
    VariableMethod,
    run_variables,
    variable_method,
)
from models.errors import UserError


def test_a_method_for_variables_is_one_function_and_a_run_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("N_TRAIN", 64), ("N_CHOSEN", 40), ("N_JUDGED", 60), ("VARIABLES", ("total",))):
        monkeypatch.setattr(variable_methods, name, value)
    asked = []

    def mine(case: VariableCase):
        asked.append(case.variable)
        return "blocks.0.hook_resid_mid", None

    monkeypatch.setitem(VARIABLE_METHODS, "mine", VariableMethod("everything before the MLP", mine))
    for _ in range(2):
        table = run_variables(tmp_path, ["microadder-57"], ["mine", "means", "linear probe", "random"])
    rows = table.set_index("method")
    assert asked == ["total"] and set(rows["model"]) == {"microadder-57"}
    assert rows.accuracy["mine"] == 1 and rows.regret["mine"] == 0  # all that the MLP and the logits read
    assert rows.accuracy["means"] > 0.9 and rows.place["means"] == "blocks.0.hook_resid_mid"
    assert max(rows.accuracy["random"], rows.accuracy["linear probe"]) < 0.5
    with pytest.raises(UserError, match="'means'"):
        run_variables(tmp_path, ["microadder-57"], ["meens"])
    with pytest.raises(UserError, match="registered already"):
        variable_method("means", "another")(lambda case: ("", None))


@pytest.mark.slow  # eai-sparsify takes long to import
def test_a_sparse_autoencoder_finds_planted_features_and_an_untrained_one_does_not():
    """Forty directions in 32 numbers, of which five are on at a time."""
    pytest.importorskip("sparsify")
    generator = torch.Generator().manual_seed(0)
    features = torch.nn.functional.normalize(torch.randn(40, 32, generator=generator), dim=1)
    strength = torch.rand(4000, 40, generator=generator) * (torch.rand(4000, 40, generator=generator) < 0.1)
    x = strength @ features
    found, untrained = (train_dictionary(x[:3000], steps) for steps in (1500, 0))
    best = [(features @ each.decoder).max(1).values for each in (found, untrained)]
    assert (best[0] > 0.9).double().mean() > 0.8 and (best[1] > 0.9).double().mean() == 0
    assert found.explained(x[3000:]) > 0.9 > untrained.explained(x[3000:])
    latents = found.latents(x[3000:])
    assert ((latents > 0).sum(1) <= 8).all() and latents.shape == (1000, 128)
    assert torch.equal(train_dictionary(x[:3000], 20).decoder, train_dictionary(x[:3000], 20).decoder)
    with pytest.raises(UserError, match="differ"):
        train_dictionary(torch.ones(300, 32), 1)


def test_narrow_models_are_asked_of_no_sparse_autoencoder_and_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "sparsify", None)
    with pytest.raises(UserError, match=r"pip install 'carrylens\[sae\]'"):
        train_dictionary(torch.randn(300, 8), 1)
    for name, value in (("N_TRAIN", 64), ("N_CHOSEN", 40), ("N_JUDGED", 60), ("VARIABLES", ("total",))):
        monkeypatch.setattr(variable_methods, name, value)
    assert set(run_variables(tmp_path, ["microadder-57"], ["sae", "random"])["method"]) == {"random"}
