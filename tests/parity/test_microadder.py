"""MicroAdder's model against its formulas: random parameters of all three sizes, and the published weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from studies.checkpoints import load_published
from tests.comparing import assert_same
from tests.parity import microadder_formulas

PROBLEMS = [(57, 48), (9999999999, 1), (0, 0), (4941000000, 4959000000), (2395527356, 9334186774)]
NAMES = ("microadder-57", "microadder-67", "microadder-74")
# The two layouts of the public code's checkpoints, by the names of the formulas.
FLAT = {
    "A": "tok_arc_A",
    "start": "tok_arc_start",
    "stride": "tok_arc_stride",
    "amp": "spiral_amp",
    "phase": "spiral_phase",
    "slope": "spiral_slope",
    "offset": "spiral_offset",
    "equals": "special_pos_equals",
    "z_hi": "z_hi_pos",
    "theta": "q_phase_angle",
    "W": "q_proj.weight",
    "o_A": "out_proj.A",
    "o_B": "out_proj.B",
    "W1": "fc1.weight",
    "H": "head_proj.weight",
    "F": "head_proj.weight",
    "w": "norm1.weight",
}
NESTED = FLAT | {
    "theta": "blocks.0.attn.q_phase_angle",
    "W": "blocks.0.attn.q_proj.weight",
    "o_A": "blocks.0.attn.out_proj.A",
    "o_B": "blocks.0.attn.out_proj.B",
    "W1": "blocks.0.ffn.fc1.weight",
    "F": "blocks.0.ffn.fc2.weight",  # [5, 2]
    "w": "blocks.0.ln1.weight",
}


def numbers_of(model) -> dict[str, np.ndarray]:
    """The weight map's free and frozen numbers, by the names of the formulas."""
    own = {name: value.detach().double().numpy() for name, value in model.weight_map.named_parameters()}
    own |= {name: value.double().numpy() for name, value in model.weight_map.named_buffers()}
    names = {"A": "arc_A", "start": "arc_start", "stride": "arc_stride", "equals": "pos_equals", "z_hi": "pos_z_hi"}
    names |= {"theta": "q_angle", "W": "W_qk", "o_A": "out_A", "o_B": "out_B", "W1": "W_fc1", "H": "W_head"}
    names |= {name: f"spiral_{name}" for name in ("amp", "phase", "slope", "offset")} | {"w": "norm_w"}
    return {name: own[key] for name, key in names.items()} | {"F": own.get("W_fc2", own["W_head"])}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_model_computes_the_formulas(name, seed):
    model = models.build(name, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    tokens = model.task.encode(PROBLEMS)
    expected = np.stack([microadder_formulas.logits(numbers_of(model), row) for row in tokens.numpy()])
    assert_same(model(tokens), expected, tolerance=1e-5)
    assert_same(model.double()(tokens), expected, tolerance=1e-12)


@pytest.mark.parametrize(
    ("name", "file", "layout"),
    [("microadder-57", "microadder_57p.pt", FLAT), ("microadder-67", "microadder_67p.pt", NESTED)],
)
@pytest.mark.parametrize("which", ["checkpoint", "published_checkpoint"])
def test_an_imported_model_computes_the_formulas_on_the_stored_numbers(request, which, name, file, layout):
    path = request.getfixturevalue(which)(file)
    state = torch.load(path, map_location="cpu", weights_only=True)["model_state_dict"]
    numbers = {key: state[source].double().numpy().squeeze() for key, source in layout.items()}
    numbers["F"] = numbers["F"].T if numbers["F"].shape == (5, 2) else numbers["F"]
    model = load_published(path)
    assert model.name_or_path == name
    tokens = model.task.encode(PROBLEMS)
    expected = np.stack([microadder_formulas.logits(numbers, row) for row in tokens.numpy()])
    if which == "published_checkpoint":
        assert_same(model(tokens), expected, tolerance=1e-5)
    assert_same(model.double()(tokens), expected, tolerance=1e-12)
    answers = expected[:, list(model.task.query_positions)].argmax(-1)
    assert model.task.decode(torch.tensor(answers)) == [a + b for a, b in PROBLEMS]
