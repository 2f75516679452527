"""Double dissociation: planted ones are found, chance ones are not, and MicroAdder's is the one measured."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

import interp
import models
from interp.causal.ablation import (
    Head,
    Neuron,
    Together,
    compute_double_dissociation,
    double_dissociation,
    heads,
    neurons,
)
from interp.core.problems import draw
from interp.core.results import Provenance
from interp.core.signal_measures import RIVALS, column_signals
from models.errors import UserError
from models.tasks.addition import TenDigitAddition
from tests.conformance.table import dense
from tests.interp.conftest import stock_copy

N = 300


@cache
def variables():
    task = TenDigitAddition()
    found = task.variables(draw(task, None, N, 0, 0.5).problems)
    return {name: values[:, :10].numpy() for name, values in found.items()}


def planted(**breaks):
    """A whole model that is always right, and units that break the columns they are given."""
    clean = np.ones((N, 10), dtype=bool)
    ablated = {unit: ~broken for unit, broken in breaks.items()}
    return compute_double_dissociation(clean, ablated, variables(), Provenance(N, 0, "made-up units"), draws=59)


def signal(name):
    return column_signals(variables(), 0)[name]


@pytest.mark.parametrize("name", RIVALS)
def test_units_that_break_opposite_columns_are_a_double_dissociation_on_that_signal_alone(name):
    result = planted(one=signal(name), two=~signal(name))
    found = result.dissociations()
    assert found[["signal", "unit", "other"]].values.tolist() == [[name, "one", "two"]]
    assert found.contrast[0] == pytest.approx(2.0)
    assert found.p_value[0] == pytest.approx(1 / 60)


def test_a_unit_that_breaks_more_columns_with_the_signal_is_no_double_dissociation_by_itself():
    rng = np.random.default_rng(0)
    result = planted(one=signal("carry_out"), two=signal("carry_out") & (rng.random((N, 10)) < 0.5))
    assert result.dissociations().empty


def test_units_that_break_columns_at_random_have_effects_like_the_control_s():
    rng = np.random.default_rng(1)
    result = planted(**{f"u{i}": rng.random((N, 10)) < 0.5 for i in range(8)})
    p = result.table.p_value.sel(signal=list(RIVALS)).values
    assert (p < 0.05).mean() < 0.15 and 0.3 < p.mean() < 0.7
    assert result.dissociations().empty


def test_effects_and_contrasts_are_differences_of_accuracies():
    rng = np.random.default_rng(2)
    one, two = rng.random((2, N, 10)) < 0.4
    result, label = planted(one=one, two=two), signal("carry_in")
    row = result.table.sel(signal="carry_in")
    effect = {name: broken[label].mean() - broken[~label].mean() for name, broken in (("one", one), ("two", two))}
    for name, broken in (("one", one), ("two", two)):
        assert row.ablated.sel(unit=name).values == pytest.approx([1 - broken[~label].mean(), 1 - broken[label].mean()])
        assert float(row.effect.sel(unit=name)) == pytest.approx(effect[name])
        assert float(row.effect_low.sel(unit=name)) < effect[name] < float(row.effect_high.sel(unit=name))
    contrast = result.contrast.sel(signal="carry_in", unit="one", other="two")
    assert float(contrast.value) == pytest.approx(effect["one"] - effect["two"])
    assert float(result.contrast.value.sel(signal="carry_in", unit="two", other="two")) == 0


@pytest.mark.parametrize("name", ["microadder-57", "microadder-67", "microadder-74"])
def test_microadder_s_two_units_dissociate_carry_out_and_nothing_else(name):
    model = models.load(name)
    result = double_dissociation(model, units=[*heads(model), *neurons(model)], n=512, draws=59)
    found = result.dissociations()
    assert found.signal.tolist() == ["carry_out"]
    assert {found.unit[0], found.other[0]} == {"L0 neuron 0", "L0 neuron 1"}
    assert found.contrast[0] > 1.9


def test_the_published_57_has_the_measured_accuracies_without_its_first_unit(published_57):
    result = double_dissociation(published_57, units=neurons(published_57), n=4096, carry_heavy=0.0, draws=19)
    row = result.table.sel(signal="carry_out")
    assert row.ablated.sel(unit="L0 neuron 0").values == pytest.approx([0.998, 0.009], abs=2e-3)
    assert row.ablated.sel(unit="L0 neuron 1").values[0] < 0.02 and row.ablated.sel(unit="L0 neuron 1").values[1] > 0.98


def test_neurons_at_zero_are_those_of_carry_units():
    model = models.load("microadder-57")
    ours = double_dissociation(model, units=neurons(model), n=300, seed=3, draws=19).table
    theirs = interp.carry_units(model, n=300, seed=3).table.isel(layer=0)
    for signal_name in ours.signal.values:
        for key in ("ablated", "ablated_low", "effect", "effect_low", "effect_apart"):
            assert ours[key].sel(signal=signal_name).values == pytest.approx(theirs[key].sel(signal=signal_name).values)


def test_both_units_together_break_columns_with_and_without_the_carry():
    model = models.load("microadder-57")
    both = Together((Neuron(0, 0), Neuron(0, 1)), "both units")
    table = double_dissociation(model, units=both, n=200, draws=19).table
    assert table.unit.values.tolist() == ["both units"]
    assert (table.ablated.sel(signal="carry_out").values < 0.05).all()


def test_a_stock_model_gives_the_same_table_under_resampling():
    model = models.load("adder-456")
    chosen = [Head(0, 0), Neuron(0, 13), Neuron(0, 8)]
    ours = double_dissociation(model, units=chosen, replacement="resample", n=60, draws=19)
    stock = double_dissociation(
        stock_copy(model), units=chosen, replacement="resample", task=model.task, n=60, draws=19
    )
    assert ours.table.ablated.values == pytest.approx(stock.table.ablated.values)


BAD = {
    "Did you mean 'carry_out'": lambda m: double_dissociation(m, units=neurons(m), signals=["carryout"], n=20),
    "one value per column": lambda m: double_dissociation(
        models.load("position-coupling-1l4h-small"), units=Head(0, 0), n=20
    ),
    "no signal to compare": lambda m: double_dissociation(m, units=neurons(m), signals=[], n=20),
    "at least 19 draws": lambda m: double_dissociation(m, units=neurons(m), n=20, draws=9),
    "There is no neuron 2": lambda m: double_dissociation(m, units=Neuron(0, 2), n=20),
    "There is no replacement": lambda m: double_dissociation(m, units=Neuron(0, 1), replacement="none", n=20),
    "two in all": lambda m: double_dissociation(dense()(0), units=Head(0, 0), n=20),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_sentence(message):
    with pytest.raises(UserError) as error:
        BAD[message](models.load("microadder-57"))
    assert message in str(error.value)


def test_without_units_there_is_nothing_to_compare():
    with pytest.raises(UserError, match="no unit"):
        planted()


def test_dissociations_are_the_pairs_of_units_that_pass_every_rule():
    wrong = {name: signal(name) if i % 2 else ~signal(name) for i, name in enumerate(RIVALS)}
    result = planted(**wrong, **{f"not {name}": ~broken for name, broken in wrong.items()})
    expected = set()
    for s, a, b in itertools.product(RIVALS, result.table.unit.values, result.table.unit.values):
        one, two = (result.table.sel(unit=unit, signal=s) for unit in (a, b))
        strong = all(float(unit.p_value) <= 0.05 and float(unit.effect_apart) >= 0.1 for unit in (one, two))
        if strong and float(one.effect_low) > 0 > float(two.effect_high):
            expected.add((s, a, b, float(result.contrast.value.sel(unit=a, other=b, signal=s))))
    found = result.dissociations()
    found = found[found.signal.isin(RIVALS)]
    assert expected and set(zip(found.signal, found.unit, found.other, found.contrast, strict=True)) == expected


def test_the_result_tabulates_and_draws_itself():
    result = planted(one=signal("carry_out"), two=~signal("carry_out"))
    frame = result.to_dataframe()
    assert len(frame) == 12 and {"ablated_without", "ablated_with", "effect", "p_value"} <= set(frame.columns)
    figure = result.figure()
    cells = dict(zip(figure.data[0].x, figure.data[0].text[0], strict=True))
    assert next(text for name, text in cells.items() if name.startswith("carry out")) == "1.000 / 0.000"
    assert next(text for name, text in cells.items() if name.startswith("shuffled")).startswith("(")
