"""A run that is resumed at its edits gives what the whole hooked run with these edits gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import models
from interp.core.places import Component, Head, Neuron, Replacement, Sublayer, Together, hooks_of
from interp.core.resumed_runs import resumed
from interp.core.runs import passes
from models.fast import stands_for
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import ROWS, Row, covered

SMALL = [row for row in ROWS if row.config.n_layers * row.config.d_model <= 100]


def edits(component: Component) -> list[Replacement]:
    return [part.put(lambda piece, rows: 2 * piece + 0.5) for part in component.parts]


def components(model: ArithmeticTransformer) -> list[Component]:
    found: list[Component] = []
    for layer in range(model.config.n_layers):
        heads: list[Component] = [Head(layer, model.config.n_heads - 1), Sublayer(layer, "attention")]
        neurons: list[Component] = [Neuron(layer, 1), Sublayer(layer, "mlp")] if model.config.d_mlp else []
        found += [*heads, *neurons]
        found += [Together((one, other)) for one in heads for other in neurons]
        if neurons:
            found.append(Together((Head(layer, 0, (1,)), Neuron(layer, 0, (0, 2)))))
    return [*found, Together((found[0], found[-1]))]


def whole(model: ArithmeticTransformer, tokens: torch.Tensor, some: Sequence[Replacement]) -> torch.Tensor:
    return torch.cat([logits for _, logits, _ in passes(model, tokens, some)])


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name in covered())) for row in SMALL]
)
@torch.no_grad()
def test_a_resumed_run_is_the_hooked_run(row: Row) -> None:
    model = row.build(0).double()
    tokens = model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))[:, :9]
    chosen, clean = components(model), model(tokens)
    wanted = [whole(model, tokens, edits(each)) for each in chosen]
    assert any(not torch.allclose(true, clean) for true in wanted)
    for first in (0, tokens.shape[1] - 2):
        ((rows, unedited, run),) = resumed(model, tokens, hooks_of(chosen), first)
        assert rows == slice(0, 3)
        assert torch.equal(unedited, clean)
        for each, true in zip(chosen, wanted, strict=True):
            found = run(edits(each))
            assert found.shape == true.shape
            assert (found - true)[:, first:].abs().max() <= 1e-9 * true.abs().max()
        assert bool(run(edits(chosen[0]))[:, :first].isnan().all()) or not stands_for(model)


@torch.no_grad()
def test_a_model_with_a_hook_of_its_own_is_run_whole() -> None:
    model = models.load("microadder-57")
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    edit = edits(Neuron(0, 0))
    (found,) = [run(edit) for _, _, run in resumed(model, tokens, [edit[0].hook])]
    with model.hooks(fwd_hooks=[("blocks.0.mlp.hook_pre", lambda value, hook: value + 1)]):
        (hooked,) = [run(edit) for _, _, run in resumed(model, tokens, [edit[0].hook])]
        assert torch.equal(hooked, whole(model, tokens, edit))
        assert torch.isfinite(hooked).all()
    assert not torch.allclose(hooked, found)
