"""Attention scores by source: parts that add up exactly, the formula written out, and what has no such parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp
import models
from interp.probes.lens.attention_score_sources import score_parts, sources_of
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import ROWS, dense
from tests.interp.probes.lens.made import SWITCHES, random_model

#: Rows whose scores are products and whose stream is a sum.
EXACT = (
    "LN, 1 layer", "gated, no biases", "rotary, halves, 4 layers", "parallel, part rotary", "attention only", "FIRE",
    "coupled positions", "eps outside", "microadder-57",
)  # fmt: skip
MORE: dict[str, dict[str, Any]] = {
    "norms of queries and keys": {"use_qk_norm": True, "positional_embedding_type": "rotary"},
    "numbers added to scores": {"attn_bias": True},
    "groups of norms": {"norm_groups": 2},
}


def built(name: str) -> ArithmeticTransformer:
    if name in MORE:
        return dense(**MORE[name])(0).double()
    return next(row for row in ROWS if row.name == name).build(0).double()


def own_scores(model: ArithmeticTransformer, tokens: torch.Tensor, layer: int) -> torch.Tensor:
    """[head, query, key, n], -inf at later keys."""
    return model.run_with_cache(tokens)[1][f"blocks.{layer}.attn.hook_attn_scores"].permute(1, 2, 3, 0)


@pytest.mark.parametrize("name", [*EXACT, *MORE])
@torch.no_grad()
def test_the_parts_of_every_score_add_up_to_it(name: str):
    model = built(name)
    tokens = model.task.encode(model.task.sample(7, torch.Generator().manual_seed(0)))
    query = 2
    for layer in range(model.config.n_layers):
        scores = own_scores(model, tokens, layer)
        for key in range(query + 1):
            keys = torch.zeros(model.config.n_heads, 1, tokens.shape[1])
            keys[..., key] = 1
            parts, own = score_parts(model, tokens, [query], layer, keys)
            assert parts.shape[2] == parts.shape[3] == len(sources_of(model, layer))
            true = scores[:, [query], key]
            assert (own - true).abs().max() <= 1e-10 * max(1.0, float(true.abs().max()))
            assert (parts.sum((2, 3)) - true).abs().max() <= 1e-10 * max(1.0, float(true.abs().max()))


@pytest.mark.parametrize("name", ["ln", "rms", "no-norm"])
@torch.no_grad()
def test_a_part_is_what_one_source_asks_for_in_what_another_one_offers(name: str):
    """The formula, source by source and problem by problem."""
    model = random_model(name).double()
    problems = model.task.sample(5, torch.Generator().manual_seed(1))
    layer, head, query, key = 2, 1, 3, 1
    keys = torch.zeros(2, 1, model.task.input_length)
    keys[..., key] = 1
    parts, _ = score_parts(model, model.task.encode(problems), [query], layer, keys)
    cache = model.run_with_cache(model.task.encode(problems))[1]
    wrote = {"embed": cache["hook_embed"], "pos_embed": cache["hook_pos_embed"]}
    for before in range(layer):
        for each in range(2):
            wrote[f"L{before}H{each}"] = cache[f"blocks.{before}.attn.hook_z"][:, :, each] @ model.W_O[before, each]
        wrote[f"L{before}.mlp"] = cache[f"blocks.{before}.mlp.hook_post"] @ model.W_out[before]
    names = sources_of(model, layer)
    assert names == [*wrote, "bias"]
    gain = model.all_weights().get(f"blocks.{layer}.ln1.w")
    for i, asks in enumerate(wrote):
        for j, offers in enumerate(wrote):
            ends = []
            for source, place, matrix in ((asks, query, model.W_Q), (offers, key, model.W_K)):
                x = wrote[source][:, place]
                if name != "no-norm":
                    x = x - x.mean(-1, keepdim=True) if name == "ln" else x
                    x = x / cache[f"blocks.{layer}.ln1.hook_scale"][:, place] * gain
                ends.append(x @ matrix[layer, head])
            true = (ends[0] * ends[1]).sum(-1) / model.config.score_scale
            assert torch.allclose(parts[head, 0, i, j], true, rtol=1e-9, atol=1e-9), (asks, offers)


@pytest.mark.parametrize("over", ["others", "nothing"])
def test_the_result_is_the_mean_of_a_role_s_scores_or_its_lead(over: str):
    model = models.load("toygpt-learned-pre").double()
    problems = model.task.sample(20, torch.Generator().manual_seed(2))
    found = interp.attention_attribution(model, problems=problems, over=over, role="own operands")
    scores, pattern = (
        model.run_with_cache(model.task.encode(problems))[1][f"blocks.1.attn.hook_{name}"].mean(0).detach().numpy()
        for name in ("attn_scores", "pattern")
    )
    for target, label in enumerate(["s0", "s1"]):
        query = model.task.query_positions[target]
        own = model.task.relative_roles(target)["own operands"]
        others = [key for key in range(query + 1) if key not in own]
        true = scores[3, query, own].mean() - (scores[3, query, others].mean() if over == "others" else 0)
        rows = found.table[(found.table["head"] == "L1H3") & (found.table.target == label)]
        assert rows.part.sum() == pytest.approx(true, abs=1e-9)
        assert rows.score.iloc[0] == pytest.approx(true, abs=1e-9)
        assert rows.weight.iloc[0] == pytest.approx(pattern[3, query, own].sum(), abs=1e-6)
    assert found.table.deviation.max() < 1e-10
    first = found.table[found.table["head"] == "L0H0"]
    assert set(first.query_source) == {"embed", "pos_embed", "bias"}
    assert (found.table.part_low <= found.table.part).all()
    assert {"L0H2", "L2.mlp"} <= set(found.table.query_source)
    drawn = found.figure(head="L1H3", target="s0").data[0]
    assert np.shape(drawn.z) == (8, 8) and found.figure()


def test_a_head_by_itself_and_the_role_it_looks_at_most():
    model = models.load("toygpt-learned-pre")
    found = interp.attention_attribution(model, n=32, layer=0, head=1)
    assert set(found.table["head"]) == {"L0H1"}
    assert set(found.table[found.table.target == "s2"].role) == {"previous operands"}
    whole = interp.attention_attribution(model, n=32).table
    assert np.allclose(found.table.part, whole[whole["head"] == "L0H1"].part)


def test_where_roles_tell_no_keys_apart_positions_do():
    """The first layer of an induction model looks at the previous token by position."""
    found = interp.attention_attribution(models.load("induction-6"), n=64, layer=0)
    part = found.table.loc[found.table.part.abs().idxmax()]
    assert part.role in ("x0", "x1", "x2", "x3", "x4", "x5") and part.deviation < 1e-4
    assert {part.query_source, part.key_source} <= {"embed", "pos_embed"}


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != "ln"])
def test_other_parts_of_models_change_nothing(name: str):
    found = interp.attention_attribution(random_model(name), n=16)
    assert found.table.deviation.max() < 1e-3 and np.isfinite(found.table.score).all()


def test_what_has_no_such_parts_is_refused():
    adder = models.load("microadder-57")
    for says, asked in {
        "is not the sum of what is written": lambda: interp.attention_attribution(models.load("toygpt-learned-post")),
        "are no products": lambda: interp.attention_attribution(built("AddLM, L1 only"), n=8),
        "Did you mean 'own operands'": lambda: interp.attention_attribution(adder, role="own operand"),
        "There is no head 3": lambda: interp.attention_attribution(adder, head=3),
        "There is no layer 1": lambda: interp.attention_attribution(adder, layer=1),
        "thing to lead over 'other'": lambda: interp.attention_attribution(adder, over="other"),
    }.items():
        with pytest.raises(UserError, match=says):
            asked()
