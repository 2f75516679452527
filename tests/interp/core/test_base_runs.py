"""A run that is resumed at its edits gives what the whole hooked run with these edits gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import models
from interp.causal.ablation.components import AttentionEdges, Component, Head, Neuron, Sublayer, Together, hooks_of
from interp.core import runs
from interp.core.places import Place, Replacement
from interp.core.runs import base_runs, passes
from models.errors import UserError
from models.run import has_run
from models.transformer import in_block
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.comparing import assert_same
from tests.conformance.table import ROWS, Row, covered

SMALL = [row for row in ROWS if row.config.n_layers * row.config.d_model <= 100]
MODELS = [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name in covered())) for row in SMALL]


def edits(component: Component) -> list[Replacement]:
    return [part.put(lambda piece, rows: 2 * piece + 0.5) for part in component.parts]


def components(model: ArithmeticTransformer) -> list[Component]:
    found: list[Component] = [Place("blocks.0.hook_resid_pre", 1), AttentionEdges(0, 0, ((3, 1),))]
    for layer in range(model.config.n_layers):
        heads: list[Component] = [Head(layer, model.config.n_heads - 1), Sublayer(layer, "attention")]
        neurons: list[Component] = [Neuron(layer, 1), Sublayer(layer, "mlp")] if model.config.d_mlp else []
        found += [*heads, *neurons]
        found += [Together((one, other)) for one in heads for other in neurons]
        if neurons:
            found.append(Together((Head(layer, 0, (1,)), Neuron(layer, 0, (0, 2)))))
    return [*found, Together((found[2], found[-1]))]


def whole(model: ArithmeticTransformer, tokens: torch.Tensor, some: Sequence[Replacement]) -> torch.Tensor:
    return torch.cat([logits for _, logits, _ in passes(model, tokens, some)])


@pytest.mark.parametrize("row", MODELS)
@torch.no_grad()
def test_a_resumed_run_is_the_hooked_run(row: Row) -> None:
    model = row.build(0).double()
    tokens = model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))[:, :9]
    chosen, clean = components(model), model(tokens)
    wanted = [whole(model, tokens, edits(each)) for each in chosen]
    assert any(not torch.allclose(true, clean) for true in wanted)
    for first in (0, tokens.shape[1] - 2):
        (base,) = base_runs(model, tokens, first)
        assert base.rows == slice(0, 3)
        assert_same(base.logits()[:, first:], clean[:, first:], 1e-9)
        kept = next(passes(model, tokens, keep=hooks_of(chosen)))[2]
        assert_same(base.held(list(kept)), dict(kept), 1e-9)
        for each, true in zip(chosen, wanted, strict=True):
            found = base.replaced(edits(each))
            assert found.shape == true.shape
            assert (found - true)[:, first:].abs().max() <= 1e-9 * true.abs().max()
        assert bool(base.replaced(edits(chosen[2]))[:, :first].isnan().all()) or not has_run(model)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("row", MODELS)
@torch.no_grad()
def test_each_head_and_neuron_is_replaced_by_itself(row: Row, hooked: bool) -> None:
    model = row.build(0).double()
    first, second = (model.task.encode(model.task.sample(3, torch.Generator().manual_seed(s)))[:, :9] for s in (1, 2))
    other = model.run_with_cache(second)[1]
    if hooked:
        model.add_hook("blocks.0.hook_attn_out", lambda x, hook: 0.9 * x)
    for layer in range(model.config.n_layers):
        parts: dict[str, Place] = {"attn.hook_z": Head(layer, model.config.n_heads - 1)}
        if model.config.d_mlp:
            parts["mlp.hook_post"] = Neuron(layer, 1)
        for name, place in parts.items():
            part = place.neuron if place.head is None else place.head
            assert part is not None
            for new in (other[in_block(layer, name)], other[in_block(layer, name)].mean(0, keepdim=True)):
                (base,) = base_runs(model, first, 2)
                ((found, logits),) = base.each(in_block(layer, name), [part], new)
                change = Replacement(place.hook, lambda x, rows, at=place, new=new: at.take(x, new.expand_as(x)))
                assert found == part
                assert_same(logits[:, 2:], whole(model, first, [change])[:, 2:], 1e-9)


@torch.no_grad()
def test_a_model_with_a_hook_of_its_own_is_run_whole() -> None:
    model = models.load("microadder-57")
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    edit = edits(Neuron(0, 0))
    (found,) = [base.replaced(edit) for base in base_runs(model, tokens)]
    with model.hooks(fwd_hooks=[("blocks.0.mlp.hook_pre", lambda value, hook: value + 1)]):
        (hooked,) = [base.replaced(edit) for base in base_runs(model, tokens)]
        assert torch.equal(hooked, whole(model, tokens, edit))
        assert torch.isfinite(hooked).all()
    assert not torch.allclose(hooked, found)


@pytest.mark.parametrize("hook", ["blocks.0.attn.hook_z", "blocks.1.mlp.hook_post", "blocks.1.hook_mlp_out"])
def test_a_run_without_answers_says_where_its_first_number_that_is_not_finite_stands(hook: str) -> None:
    model = next(row for row in SMALL if row.config.n_layers == 2 and row.config.d_mlp).build(0)
    tokens = model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))
    spoilt = Place(hook, tokens.shape[1] - 1).put(torch.nan)
    with pytest.raises(UserError, match=hook):
        runs.run(model, tokens, [spoilt])
    model.add_hook(hook, lambda value, hook: value * torch.inf)
    with pytest.raises(UserError, match=hook):
        runs.read(model, tokens, [Place("blocks.0.hook_resid_pre", None)])
