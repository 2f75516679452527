"""Heads that see near position ids alone."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from models.families.position_coupling import TWO_BY_TWO
from models.run import exact_match, logits_from
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights
from tests.conformance.table import dense
from tests.models.coders import coder

Window = int | tuple[tuple[int, ...], ...] | None


def with_window(model: ArithmeticTransformer, window: Window) -> ArithmeticTransformer:
    weights = ConstantWeights(model.config.replace(attn_window=window), model.effective_weights())
    return ArithmeticTransformer(weights, model.task)


def test_the_construction_needs_two_columns_of_two_sums_and_nothing_else():
    model = models.build("position-coupling-hand-built", max_operands=6, max_digits=6)
    problems = model.task.sample(20, torch.Generator().manual_seed(0))

    def right(window: Window) -> int:
        return int(exact_match(with_window(model, window), model.task, problems).sum())

    assert [right(window) for window in (0, 1, 2, TWO_BY_TWO)] == [0, 20, 20, 20]
    for needed in TWO_BY_TWO[1:]:
        assert right(tuple(offset for offset in TWO_BY_TWO if offset != needed)) < 20, needed


def test_a_head_attends_to_bos_and_to_near_ids_in_every_level_and_to_nothing_else():
    model = coder("-window1")
    task = model.task.at(3, 4)
    tokens = task.sequences(task.sample(2, torch.Generator().manual_seed(0))).inputs
    _, cache = model.run_with_cache(tokens)
    ids = task.position_ids(tokens)
    for query in range(tokens.shape[1]):
        attended = cache["pattern", 0][0, :, query].amax(0) > 0
        for key in range(tokens.shape[1]):
            near = all(abs(a - b) <= 1 for a, b in zip(ids[0, query].tolist(), ids[0, key].tolist(), strict=True))
            assert bool(attended[key]) == (key <= query and (near or key == 0))


def test_what_is_far_away_changes_nothing_in_one_layer():
    """The first operand's digits do not reach the predictions about the last partial sum's, whatever they are."""
    model = coder("-window1")
    task = model.task.at(5, 3)
    problems = task.sample(1, torch.Generator().manual_seed(0)).repeat(2, 1, 1)
    tokens = task.sequences(problems).inputs
    last, far = tokens.shape[1] - 1, 1
    other = tokens.clone()
    other[:, far] = (other[:, far] + 1) % 10
    assert bool((task.position_ids(tokens)[0, last] - task.position_ids(tokens)[0, far]).abs().max() > 1)
    ids = task.position_ids(tokens)
    one, two = (model(x, position_ids=ids)[:, last] for x in (tokens, other))
    assert torch.equal(one, two)
    assert not torch.equal(*(with_window(model, None)(x, position_ids=ids)[:, last] for x in (tokens, other)))


def test_a_window_keeps_the_models_kind_of_number():
    model = coder("-window1").to(torch.bfloat16)
    tokens = model.task.at(3, 2).sequences(["57+48+96"]).inputs
    with torch.no_grad():
        assert model(tokens).dtype == torch.bfloat16
    assert logits_from(model, tokens, 3, model.effective_weights()).dtype == torch.bfloat16


def test_layers_that_are_run_alone_need_the_tokens_to_know_what_is_near():
    model = coder("-window1", layers=2)
    tokens = model.task.at(3, 2).sequences(["57+48+96"]).inputs
    stream = model(tokens, stop_at_layer=1)
    assert torch.allclose(model(stream, start_at_layer=1, tokens=tokens), model(tokens), atol=1e-5)
    with pytest.raises(UserError, match="tokens"):
        model(stream, start_at_layer=1)
    with pytest.raises(UserError, match="tokens"):
        model.blocks[1](stream)


@pytest.mark.parametrize("switches", [{}, {"positional_embedding_type": "coupled", "attn_window": -1}])
def test_a_window_is_a_distance_between_ids_of_coupled_positions(switches):
    with pytest.raises(UserError, match="attn_window"):
        dense(**({"attn_window": 1} | switches))(0)
