"""The number that attention writes, against patterns that are planted and a sum that is written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp
import models
from interp.probes.attention_readout import ALONG, CARRY_GAP, EXPLAINED, RATIO, WRITTEN
from models.errors import UserError
from models.tasks.columns.column_places import column_places


def looks(ratio: float, below: float = 1.0, written: float = 1.0) -> Any:
    """The trained adder with planted weights, in percent: its own column, the previous, and the digit written there."""
    model = models.load("microadder-57")
    layout = column_places(model.task)

    def pattern(weights: torch.Tensor, hook: Any) -> torch.Tensor:
        rows = weights.clone()
        for column in range(1, 10):
            query = layout.queries[column]
            rows[:, :, query] = 0
            rows[:, :, query, list(layout.operands[column])] = ratio / 100
            rows[:, :, query, list(layout.operands[column - 1])] = below / 100
            rows[:, :, query, query] = written / 100
        return rows

    model.add_perma_hook("blocks.0.attn.hook_pattern", pattern)
    return model


@pytest.mark.parametrize("ratio", [1.0, 4.0, 20.0])
def test_a_planted_ratio_of_weights_is_found(ratio: float) -> None:
    found = interp.attention_readout(looks(ratio), n=128)
    assert found.value(RATIO) == pytest.approx(ratio, rel=0.03) and found.value(EXPLAINED) > 0.999
    assert found.value(WRITTEN) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("written", [0.0, 3.0])
def test_the_digit_written_before_has_a_weight_of_its_own(written: float) -> None:
    found = interp.attention_readout(looks(10.0, written=written), n=128)
    assert found.value(RATIO) == pytest.approx(10, rel=0.05) and found.value(WRITTEN) == pytest.approx(written, abs=0.1)
    weight = found.cell("value", quantity=WRITTEN)
    assert weight.low <= weight.value <= weight.high and found.value(EXPLAINED) > 0.999


def test_a_model_that_reads_operands_alone_is_not_said_to_weigh_its_column_twice_as_much() -> None:
    """A regression with one coefficient for the previous column and the written digit gives 18.65."""
    found = interp.attention_readout(models.load("adder-491"), n=512)
    ratio = found.cell("value", quantity=RATIO)
    assert 9.5 < ratio.low <= ratio.value <= ratio.high < 10.3 and abs(found.value(WRITTEN)) < 0.1


@pytest.mark.parametrize("written", [0.0, 1.0])
def test_without_weight_on_the_previous_column_there_is_no_ratio(written: float) -> None:
    found = interp.attention_readout(looks(10.0, below=0.0, written=written), n=128)
    assert np.isnan([found.value(RATIO), found.value(WRITTEN), found.value(CARRY_GAP)]).all()
    assert found.value(EXPLAINED) > 0.99 and found.figure().data


def test_without_attention_there_is_no_number() -> None:
    model = models.load("microadder-57")
    model.add_perma_hook("blocks.0.hook_attn_out", lambda value, hook: torch.zeros_like(value))
    with pytest.raises(UserError):
        interp.attention_readout(model, n=32)


def test_noise_in_place_of_attention_is_not_explained() -> None:
    model = models.load("microadder-57")
    generator = torch.Generator().manual_seed(0)
    model.add_perma_hook("blocks.0.hook_attn_out", lambda value, hook: torch.randn(value.shape, generator=generator))
    found = interp.attention_readout(model, n=128)
    assert found.value(EXPLAINED) < 0.1 and np.isnan(found.value(RATIO)) and not found.value(CARRY_GAP) > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_that_explains_less_than_half_has_no_ratio(seed: int) -> None:
    """The weights are still told from 0: what is refused is to call them those of one number."""
    model, generator = looks(10.0), torch.Generator().manual_seed(seed)

    def noisy(value: torch.Tensor, hook: Any) -> torch.Tensor:
        noise = torch.randn(value.shape, generator=generator) * value.std(0) * torch.tensor([[2.0]])
        return value + noise.to(value)

    model.add_perma_hook("blocks.0.hook_attn_out", noisy)
    found = interp.attention_readout(model, n=512)
    assert 0.05 < found.value(EXPLAINED) < 0.5
    assert np.isnan([found.value(RATIO), found.value(WRITTEN), found.value(CARRY_GAP)]).all() and found.figure().data


def test_adders_of_other_formats_are_asked_the_same_and_hand_set_ones_have_no_untrained_copy() -> None:
    other = interp.attention_readout(models.load("adder-456"), n=128)
    assert other.base == 10 and other.value(EXPLAINED) < 0.9
    assert interp.attention_readout(models.load("adder-4-by-hand"), n=64).cell("value", quantity=ALONG).control is None


@pytest.mark.parametrize("name", ["parity-hand-built", "addlm-0.8m"])
def test_models_that_do_not_add_column_by_column_are_refused(name: str) -> None:
    with pytest.raises(UserError):
        interp.attention_readout(models.load(name))
