"""The 456-parameter family against its formulas: random parameters of all five sizes, and the published weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from models.families.low_rank_adder import OPTIONS
from tests.comparing import assert_same
from tests.parity import low_rank_formulas

PROBLEMS = [(57, 48), (9999999999, 1), (0, 0), (4941000000, 4959000000), (2395527356, 9334186774)]
NORMS = {"ln1": "ln1", "ln2": "ln2", "final": "ln_final"}
MATRICES = {"pos": "pos", "qkv": "qkv", "out": "out", "up": "mlp_in", "down": "mlp_out"}
PUBLISHED = {
    "E": "token_emb.weight",
    "pos.A": "pos_emb.A",
    "pos.B": "pos_emb.B",
    **{f"out.{x}": f"blocks.0.attn.proj.{x}" for x in "AB"},
    **{f"up.{x}": f"blocks.0.mlp.fc1.{x}" for x in "AB"},
    **{f"down.{x}": f"blocks.0.mlp.fc2.{x}" for x in "AB"},
    **{"ln1.w": "blocks.0.ln1.weight", "ln2.w": "blocks.0.ln2.weight", "final.w": "ln_f.weight"},
}
BIASES = {"ln1.b": "blocks.0.ln1.bias", "ln2.b": "blocks.0.ln2.bias", "final.b": "ln_f.bias"}
FILES = {
    "adder456_s43.pt": ("adder-456", {x: f"blocks.0.attn.qkv_{x}" for x in ("A", "Bq", "Bkv")}),
    "adder512_s42.pt": ("adder-512", {f"qkv.{x}": f"blocks.0.attn.qkv.{x}" for x in "AB"} | BIASES),
}


def numbers_of(model) -> dict[str, np.ndarray]:
    """The weight map's parameters, by the names of the formulas."""
    own = {name: value.detach().double().numpy() for name, value in model.weight_map.named_parameters()}
    found = {"E": own["W_E"]}
    for name, ours in NORMS.items():
        found |= {f"{name}.{x}": own[f"{ours}_{x}"] for x in "wb" if f"{ours}_{x}" in own}
    for name, ours in MATRICES.items():
        found |= {f"{name}.{x}" if x != "W" else name: own[f"{ours}.{x}"] for x in "ABW" if f"{ours}.{x}" in own}
    if model.weight_map.options.tie_kv:
        both = found.pop("qkv.B")
        found |= {"A": found.pop("qkv.A"), "Bq": both[:, :7], "Bkv": both[:, 7:]}
    return found


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(2))
def test_a_random_model_computes_the_formulas(name: str, seed: int):
    model = models.build(name, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    tokens = model.task.encode(PROBLEMS)
    expected = np.stack([low_rank_formulas.logits(numbers_of(model), row) for row in tokens.numpy()])
    assert_same(model(tokens), expected, tolerance=2e-5)
    assert_same(model.double()(tokens), expected, tolerance=1e-11)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("which", ["checkpoint", "published_checkpoint"])
def test_an_imported_model_computes_the_formulas_on_the_stored_numbers(request, which: str, file: str):
    name, own = FILES[file]
    path = request.getfixturevalue(which)(file)
    state = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    numbers = {key: state[source].double().numpy() for key, source in (PUBLISHED | own).items()}
    model = models.load(path)
    assert model.registered == name
    tokens = model.task.encode(PROBLEMS)
    expected = np.stack([low_rank_formulas.logits(numbers, row) for row in tokens.numpy()])
    assert_same(model(tokens), expected, tolerance=2e-4)
    assert_same(model.double()(tokens), expected, tolerance=1e-10)
    answers = torch.tensor(expected[:, list(model.task.query_positions)].argmax(-1))
    assert model.task.decode(answers) == [a + b for a, b in PROBLEMS]
