"""Proved ranges of what neurons read, against every problem of small planted models and against trained models."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import models
from interp.proofs.reading.unit_ranges import unit_ranges
from models.errors import UserError
from models.tasks.columns.column_places import column_places
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.interp.proofs.columns.columns_by_hand import Weights, by_hand
from tests.interp.proofs.columns.test_subtraction import all_pairs
from tests.sampling import sampled


def noise(weights: Weights) -> None:
    generator = torch.Generator().manual_seed(1)
    for value in weights.values():
        value.mul_(1 + 0.01 * torch.randn(value.shape, generator=generator))


def inputs(model: ArithmeticTransformer, pairs: torch.Tensor) -> torch.Tensor:
    """[n, column, neuron]: what neurons read at the queries of the columns that have digits."""
    _, cache = model.run_with_cache(model.task.encode(pairs))
    layout = column_places(model.task)
    queries = [query for query, places in zip(layout.queries, layout.operands, strict=True) if places]
    return cache["blocks.0.mlp.hook_pre"][:, queries]


def carries(model: ArithmeticTransformer, pairs: torch.Tensor, signal: str) -> torch.Tensor:
    found = model.task.variables(pairs)[signal.replace(" ", "_")]
    return found[:, : inputs(model, pairs[:1]).shape[1]] == 1


@pytest.mark.parametrize(
    ("kind", "arithmetic"),
    sampled(
        product(("sum", "ordered", "signed"), ("interval", "float32")),
        ("sum", "float32"), ("ordered", "interval"), ("signed", "float32"),
    ),
)  # fmt: skip
def test_every_problem_s_input_is_within_its_range(kind: str, arithmetic: str):
    model = by_hand(2, kind != "sum", noise, kind == "signed")
    pairs = all_pairs(2, kind == "ordered")
    found = unit_ranges(model, arithmetic=arithmetic)
    read = inputs(model.double() if arithmetic == "interval" else model, pairs)
    for row in found.itertuples():
        is_on, value = carries(model, pairs, row.signal), read[..., int(row.neuron[-1])]
        for side, low, high in ((False, row.low_without, row.high_without), (True, row.low_with, row.high_with)):
            values = value[is_on == side]
            assert low <= values.min() and values.max() <= high
            assert high - low <= 1.5 * (values.max() - values.min()) + 0.1  # and ranges are not much wider than that


def test_a_planted_switch_is_found_and_points_the_right_way():
    """A planted neuron reads the level minus a threshold: it rises with a carry and falls with a borrow."""
    for subtracts, signal, switch in ((False, "carry out", "on"), (True, "borrow out", "off")):
        found = unit_ranges(by_hand(3, subtracts))
        assert {(row.signal, row.switch) for row in found.itertuples() if row.switch} == {(signal, switch)}


def test_a_neuron_that_reads_less_than_the_whole_level_is_no_switch():
    def half(weights: Weights) -> None:
        weights["blocks.0.attn.W_O"][1] *= 0.5  # the second number counts half

    found = unit_ranges(by_hand(3, False, half))
    assert (found.switch == "").all() and (found.gap <= 0).all()


def test_the_trained_adder_s_neurons_are_switches_on_all_pairs():
    found = unit_ranges(models.load("microadder-57"), arithmetic="float32")
    switches = found[found.switch != ""]
    assert {(row.neuron, row.switch) for row in switches.itertuples()} == {("L0N0", "on"), ("L0N1", "off")}
    assert (switches.signal == "carry out").all() and switches.gap.min() > 0.5


def test_models_that_cannot_be_bounded_are_refused():
    with pytest.raises(UserError):
        unit_ranges(models.load("toygpt-learned-pre"))
    with pytest.raises(UserError):
        unit_ranges(models.load("microadder-57"), arithmetic="float")
