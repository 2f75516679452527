"""Published checkpoints of the 456-parameter family come in whole, and nothing else comes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.importers import load_published
from models.low_rank_adder import OPTIONS

FILES = {"adder-456": "adder456_s43.pt", "adder-512": "adder512_s42.pt"}
SWITCHES = ("pos_rank", "qkv_rank", "attn_out_rank", "ffn_rank")


def as_published(name: str) -> dict[str, Any]:
    """A checkpoint in the public code's layout with our fresh parameters: torch's linear layers are transposed."""
    model, options = models.build(name, seed=5), OPTIONS[name]
    own = {key: value.detach().clone() for key, value in model.weight_map.named_parameters()}
    state = {"token_emb.weight": own["W_E"], "lm_head.weight": own["W_E"]}
    for ours, theirs in (("ln1", "blocks.0.ln1"), ("ln2", "blocks.0.ln2"), ("ln_final", "ln_f")):
        state |= {
            f"{theirs}.{t}": own[f"{ours}_{o}"] for o, t in (("w", "weight"), ("b", "bias")) if f"{ours}_{o}" in own
        }
    places = {"pos": "pos_emb", "qkv": "blocks.0.attn.qkv", "out": "blocks.0.attn.proj"}
    places |= {"mlp_in": "blocks.0.mlp.fc1", "mlp_out": "blocks.0.mlp.fc2"}
    for ours, theirs in places.items():
        if f"{ours}.W" in own:
            full = own[f"{ours}.W"]
            state[f"{theirs}.weight"] = full if ours == "pos" else full.T.contiguous()
        elif ours == "qkv" and options.tie_kv:
            halves = own["qkv.B"].split(7, 1)
            state |= {f"{theirs}_A": own["qkv.A"], f"{theirs}_Bq": halves[0], f"{theirs}_Bkv": halves[1]}
        else:
            state |= {f"{theirs}.{x}": own[f"{ours}.{x}"] for x in "AB"}
    ranks = (options.position_rank, options.qkv_rank, options.out_rank, options.mlp_rank)
    config = {"n_layer": 1, "d_model": 7, "n_head": 1, "d_ff": 14, "dropout": 0.0, "max_seq_len": 33, "vocab_size": 14}
    config |= {switch: rank or 0 for switch, rank in zip(SWITCHES, ranks, strict=True)}
    if options.normalization_type == "RMS":
        config |= {"use_rmsnorm": True}
    if options.tie_kv:
        config |= {"tie_qkv": "shareA_tieKV"}
    return {"model_state": state, "model_config": config, "step": 1}


def stored(content: dict[str, Any], folder: Path) -> Path:
    torch.save(content, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_size_comes_in_to_the_bit(name: str, tmp_path: Path):
    model = load_published(stored(as_published(name), tmp_path))
    assert model.name_or_path == name
    expected = dict(models.build(name, seed=5).weight_map.named_parameters())
    for key, parameter in model.weight_map.named_parameters():
        assert torch.equal(parameter, expected[key])


@pytest.mark.parametrize("name", FILES)
def test_the_published_files_are_recognised_by_their_content(name: str, checkpoint: Callable[[str], Path]):
    model = load_published(checkpoint(FILES[name]))
    assert model.name_or_path == name
    assert sum(p.numel() for p in model.parameters()) == int(name.split("-")[1])
    problems = [(9999999999, 1), (1234567890, 9876543210), (0, 0), (999, 1)]
    assert models.score(model, problems, method="greedy").correct == 4


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_state"].pop(key)


def set_config(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_config"].update(values)


def set_state(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_state"].update({key.replace("__", "."): v for key, v in values.items()})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (drop("pos_emb.B"), "lacks pos_emb.B"),
        (drop("lm_head.weight"), "lacks lm_head.weight"),
        (set_state(extra=torch.zeros(1)), "unknown extra"),
        (set_state(lm_head__weight=torch.zeros(14, 7)), "should be one tensor"),
        (set_state(pos_emb__A="text"), "str where the tensor pos_emb.A"),
        (set_state(pos_emb__A=torch.zeros(33)), "1 axes"),
        (set_state(pos_emb__A=torch.zeros(33, 4)), "pos.A"),
        (set_config(qkv_rank=4), "qkv_rank=4"),
        (set_config(tie_qkv="all"), "tie_qkv='all'"),
        (set_config(d_model=8), "d_model=8"),
        (set_config(rotary=True), "rotary=True"),
        (set_config(dropout=[0.0]), "list as its setting dropout"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(change: Callable, complaint: str, tmp_path: Path):
    content = as_published("adder-456")
    change(content)
    with pytest.raises(UserError) as error:
        load_published(stored(content, tmp_path))
    assert complaint in str(error.value)
