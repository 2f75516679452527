"""A wave over layers gives what the layers give one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.run import wave
from models.run.groups import everywhere
from models.run.run import Frame, Run
from models.run.variants import Variants
from models.run.wave import patched_in_layers
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.models.run.hooked import two_batches

CASES = {
    "rotary, gated": {"positional_embedding_type": "rotary", "gated_mlp": True, "n_layers": 4},
    "norms after": {"norm_placement": "both", "n_layers": 3, "normalization_type": "LN"},
    "FIRE": {"positional_embedding_type": "fire", "fire_L0": 3.0, "n_layers": 3},
    "top 3": {"attn_scores": "neg_l1", "attn_top_k": 3, "n_layers": 3},
    "parallel, attention bias": {"parallel_attn_mlp": True, "attn_bias": True, "use_qk_norm": True, "n_layers": 3},
}
Found = dict[tuple[int, int, int], Tensor]


def taken(found: Found, layer: int) -> Any:
    def emit(parts: slice, which: list[int], logits: Tensor) -> None:
        for i, part in enumerate(range(parts.start, parts.stop)):
            for j, group in enumerate(which):
                assert (layer, part, group) not in found
                found[layer, part, group] = logits[i, j]

    return emit


@pytest.mark.parametrize("read", [(5,), (2, 4)], ids=["last", "two"])
@pytest.mark.parametrize("rows_held", [1, 2**14])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_wave_is_one_layer_after_the_other(name: str, rows_held: int, read: tuple[int, ...], monkeypatch) -> None:
    monkeypatch.setattr(wave, "WIDE", 1)
    monkeypatch.setattr(wave, "ROWS", 7)
    monkeypatch.setattr(wave, "ROWS_HELD", rows_held)
    model = dense(**CASES[name])(0).double()
    tokens, other = two_batches(model)
    frame = Frame(model, read)
    source = Run(frame, other)
    positions = tuple((p,) for p in range(tokens.shape[1]))
    for site, groups in (
        ("resid_pre", positions),
        ("mlp_out", positions),
        ("z", positions),
        ("z", everywhere(frame.n_pos)),
        ("post", everywhere(frame.n_pos)),
        ("resid_pre", everywhere(frame.n_pos)),
    ):
        new = {layer: source.get(site, layer) for layer in range(model.config.n_layers)}
        found: Found = {}
        wanted: Found = {}
        patched_in_layers(Run(frame, tokens), site, new, groups, lambda layer, into=found: taken(into, layer))
        run = Run(frame, tokens)
        for layer, x in new.items():
            Variants(run, groups, taken(wanted, layer)).patched(site, layer, x)
        assert set(found) == set(wanted)
        base = run.logits()
        assert any(float((x - base).abs().max()) > 1e-3 for x in wanted.values())
        for key, x in wanted.items():
            assert_same(found[key], x, 1e-9, f"{site} {key}")


@torch.no_grad()
def test_an_infinity_stays_in_its_own_variants(monkeypatch) -> None:
    monkeypatch.setattr(wave, "WIDE", 1)
    model = dense(n_layers=3)(0).double()
    tokens, other = two_batches(model)
    frame = Frame(model, (5,))
    source, holed, plain = Run(frame, other), {}, {}
    new = {layer: source.get("resid_pre", layer) for layer in range(3)}
    infinite = {layer: x.index_fill(1, torch.tensor([2]), float("inf")) for layer, x in new.items()}
    groups = tuple((p,) for p in range(6))
    for into, given in ((plain, new), (holed, infinite)):
        patched_in_layers(Run(frame, tokens), "resid_pre", given, groups, lambda layer, into=into: taken(into, layer))
    for (layer, part, group), x in plain.items():
        if group == 2:
            assert not holed[layer, part, group].isfinite().any()
        else:
            assert_same(holed[layer, part, group], x, 1e-11)
