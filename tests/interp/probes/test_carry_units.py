"""Carry units: planted detectors are named, their rivals are not, and MicroAdder's switch on carry *out*."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import interp
import models
from interp.core.results import Provenance
from interp.core.samples import draw
from interp.probes.carry_units import CarryUnits, compute_carry_units
from interp.probes.neuron_signals import RIVALS, column_signals
from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights
from tests.interp.probes.free_weights import dense_model
from tests.toy_task import ToyAddition

N = 600


@cache
def variables() -> dict[str, np.ndarray]:
    """Intermediate values of a sample, columns 0 to 9."""
    task = TenDigitAddition()
    found = task.variables(draw(task, None, N, 0, 0.5).problems)
    return {name: values[:, :10].numpy() for name, values in found.items()}


def planted(signal: str, noise: float = 0.1, breaks: str = "with") -> CarryUnits:
    """One unit that follows a signal; its ablation breaks the columns "with" the signal, "without" it, or "none"."""
    label = column_signals(variables(), 0)[signal]
    rng = np.random.default_rng(1)
    activation = (2.0 * label - 1 + noise * rng.normal(size=label.shape))[:, :, None, None]
    clean = np.ones_like(label)
    ablated = {"with": ~label, "without": label, "none": clean}[breaks]
    return compute_carry_units(
        activation, np.maximum(activation, 0), variables(), clean, {(0, 0): ablated}, Provenance(N, 0, "made-up units")
    )


@pytest.mark.parametrize("breaks", ["with", "without"])
@pytest.mark.parametrize("signal", [*RIVALS, "odd", "s=7"])
def test_a_unit_that_follows_a_signal_is_said_to_carry_it_and_no_rival(signal, breaks):
    found = planted(signal, breaks=breaks).verdict(0, 0)
    assert found["signal"] == signal
    assert found["kind"] == "switch"
    assert found["accuracy"] == 1.0
    assert found["effect_given_rivals"] > 0.9


@pytest.mark.parametrize("signal", RIVALS)
def test_a_noisy_follower_is_a_detector_but_no_switch(signal):
    result = planted(signal, noise=0.8)
    assert result.verdict(0, 0)["kind"] == "detector"
    assert float(result.table.gap.sel(signal=signal).squeeze()) < 0


def of_activation(pre: np.ndarray, post: np.ndarray) -> dict:
    """The verdict on a unit with this input and output whose ablation breaks the columns with carry out."""
    label = column_signals(variables(), 0)["carry_out"]
    parts = (part[:, :, None, None].astype(float) for part in (pre, post))
    ablated = {(0, 0): ~label}
    made_up = Provenance(N, 0, "made-up units")
    return compute_carry_units(*parts, variables(), np.ones_like(label), ablated, made_up).verdict(0, 0)


def test_a_switch_is_earned_by_saturation():
    """All of them separate carry out with a gap between the ranges of their input."""
    label = column_signals(variables(), 0)["carry_out"]
    total = variables()["digit_sum"] + variables()["carry_in"] - 9.5
    noisy = 2.0 * label - 1 + 0.1 * np.random.default_rng(1).normal(size=label.shape)
    gelu = lambda x: x * torch.special.ndtr(torch.from_numpy(np.asarray(x, dtype=float))).numpy()  # noqa: E731
    kinds = {
        "linear in the sum": of_activation(total, total),
        "linear, of two values and noise": of_activation(noisy, noisy),
        "linear, of two values": of_activation(2.0 * label - 1, 2.0 * label - 1),
        "a ramp from zero on": of_activation(total, np.maximum(total, 0)),
        "a steep gelu": of_activation(8 * noisy, gelu(8 * noisy)),
        "a clipped sum": of_activation(total, np.clip(4 * total, -1, 1)),
        "a clipped sum, upside down": of_activation(-total, np.clip(-4 * total, -1, 1)),
    }
    assert {name: found["signal"] for name, found in kinds.items()} == dict.fromkeys(kinds, "carry_out")
    earned = {name for name, found in kinds.items() if found["kind"] == "switch"}
    assert earned == {"a steep gelu", "a clipped sum", "a clipped sum, upside down"}
    assert {found["kind"] for found in kinds.values()} == {"switch", "detector"}


@pytest.mark.parametrize("signal", RIVALS)
def test_a_follower_whose_ablation_breaks_nothing_is_only_a_correlate(signal):
    assert planted(signal, breaks="none").verdict(0, 0)["kind"] == "correlate"


def breaking(*broken: np.ndarray, clean: np.ndarray | None = None) -> CarryUnits:
    """Units that follow carry out exactly, with the columns that break without each of them."""
    label = column_signals(variables(), 0)["carry_out"]
    clean = np.ones_like(label) if clean is None else clean
    activation = np.repeat((2.0 * label - 1)[:, :, None, None], len(broken), 3)
    ablated = {(0, unit): clean & ~columns for unit, columns in enumerate(broken)}
    made_up = Provenance(N, 0, "made-up units")
    return compute_carry_units(activation, np.maximum(activation, 0), variables(), clean, ablated, made_up)


def test_what_a_unit_is_needed_for_is_judged_among_rivals_alone():
    """Answer digit 5 breaks more than any other, and that is no rival explanation of a carry."""
    signals, rng = column_signals(variables(), 0), np.random.default_rng(4)
    carry, generate, five = (signals[name] for name in ("carry_out", "generate", "s=5"))
    half = rng.random(carry.shape) < 0.5
    everywhere = rng.random(carry.shape) < np.where(carry, 0.8, 0.4)
    result = breaking(carry & (half | five), carry & half, generate, everywhere, ~carry | half, np.zeros_like(carry))
    verdicts = result.verdicts()
    assert verdicts["signal"].tolist() == ["carry_out"] * 6
    assert verdicts["kind"].tolist() == ["detector", "detector", "needed", "needed", "needed", "correlate"]
    needed_for = [result.verdict(0, unit)["needed_for"] for unit in range(6)]
    assert needed_for == ["carry_out", "carry_out", "generate", "carry_out", "carry_out", None]


def test_ablation_of_a_model_that_is_mostly_wrong_is_not_judged():
    rng = np.random.default_rng(5)
    carry = column_signals(variables(), 0)["carry_out"]
    result = breaking(carry, ~carry, clean=rng.random(carry.shape) < 0.3)
    assert set(result.verdicts()["kind"]) == {"not able"}
    assert result.double_dissociation().empty


@pytest.mark.parametrize("side", [True, False])
def test_ablation_is_not_judged_where_the_model_is_wrong_with_the_signal_or_without_it(side):
    """Nothing can be lost there, and what is lost on the other side alone makes no detector."""
    carry = column_signals(variables(), 0)["carry_out"]
    result = breaking(carry, ~carry, np.ones_like(carry), clean=carry == side)
    assert set(result.verdicts()["kind"]) == {"not able"}


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("rare", [0.02, 0.98])
def test_the_side_a_unit_is_on_is_that_of_its_auroc(rare, down):
    """Where the signal is rare, "never" is the best answer whichever side it is said to lie on."""
    rng, label = np.random.default_rng(0), column_signals(variables(), 0)["carry_out"]
    label = rng.random(label.shape) < rare
    activation = (label + 2.0 * rng.normal(size=label.shape)) * (-1 if down else 1)
    own = {"x": label.astype(int)}
    result = compute_carry_units(
        *[activation[:, :, None, None]] * 2, own, np.ones_like(label), {}, Provenance(N, 0, "made-up units")
    )
    row = result.table.sel(layer=0, unit=0, signal="x")
    assert float(row.accuracy) <= float(row.majority) + 0.01 and bool(row.above) == (not down) == (row.auroc > 0.5)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_nothing_is_said_of_a_signal_that_few_problems_have(n):
    """A unit that is on in these columns alone separates them from all others."""

    def kind(n: int) -> str:
        label = np.zeros((N, 10), dtype=int)
        label[:n, 4] = 1
        activation = np.repeat(label[:, :, None, None].astype(float), 2, 3)
        broken, made_up = {(0, 0): label == 0}, Provenance(N, 0, "made-up units")
        all_right = np.ones_like(label, dtype=bool)
        return compute_carry_units(activation, activation, {"x": label}, all_right, broken, made_up).verdict(0, 0)[
            "kind"
        ]

    assert (kind(n), kind(10)) == ("none", "detector")


def test_the_strongest_evidence_is_named_first():
    carry, rng = column_signals(variables(), 0)["carry_out"], np.random.default_rng(8)
    none, weak, half = (carry & (rng.random(carry.shape) < share) for share in (0, 0.3, 0.6))
    result = breaking(none, weak, half, carry)
    assert result.verdicts()["unit"].tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_units_are_listed_by_strength_whatever_their_numbers_and_those_without_a_signal_last(seed: int):
    """In the verdicts, and in the table, where each unit's best signal comes first."""
    carry, rng = column_signals(variables(), 0)["carry_out"], np.random.default_rng(seed)
    follows = (2.0 * carry - 1 + 0.1 * rng.normal(size=carry.shape), carry)
    units = [
        follows,
        (rng.normal(size=carry.shape), carry & False),
        (follows[0], carry & (rng.random(carry.shape) < 0.6)),
    ]
    units += [(follows[0], carry & False), (rng.normal(size=carry.shape), carry)]
    order = rng.permutation(len(units))
    pre = np.stack([units[i][0] for i in order], -1)[:, :, None, :]
    ablated = {(0, place): ~units[i][1] for place, i in enumerate(order)}
    clean = np.ones_like(carry)
    result = compute_carry_units(
        pre, np.maximum(pre, 0), variables(), clean, ablated, Provenance(N, 0, "made-up units")
    )
    listed = result.verdicts()
    assert [order[unit] for unit in listed["unit"]][:3] == [0, 2, 3]
    assert listed["kind"].tolist()[3:] == ["none", "none"] and "none" not in listed["kind"].tolist()[:3]
    frame = result.to_dataframe()
    assert list(dict.fromkeys(frame["unit"])) == listed["unit"].tolist()
    best = frame.groupby("unit", sort=False)["auroc_given_rivals"]
    assert (best.first() == best.max()).all() and len(frame) == len(units) * result.table.signal.size


def test_units_that_break_opposite_columns_dissociate_doubly():
    carry, rng = column_signals(variables(), 0)["carry_out"], np.random.default_rng(6)
    found = breaking(carry, ~carry, carry & (rng.random(carry.shape) < 0.5), np.zeros_like(carry)).double_dissociation()
    assert found[["unit", "other"]].values.tolist() == [["L0N0", "L0N1"], ["L0N2", "L0N1"]]
    first, second = found.to_dict("records")
    assert (first["unit_without"], first["unit_with"], first["other_without"], first["other_with"]) == (1, 0, 0, 1)
    assert first["contrast"] == pytest.approx(2.0) and 0 < second["low"] < second["contrast"] < second["high"] <= 2


def test_harder_columns_are_no_double_dissociation():
    carry, rng = column_signals(variables(), 0)["carry_out"], np.random.default_rng(7)
    result = breaking(carry, carry & (rng.random(carry.shape) < 0.5), rng.random(carry.shape) < 0.5)
    assert all(result.double_dissociation(signal).empty for signal in result.table.signal.values)


@pytest.mark.parametrize("name", ["microadder-57", "microadder-67", "microadder-74"])
def test_microadder_s_two_units_dissociate_carry_out_and_nothing_else(name):
    result = interp.carry_units(models.load(name), n=512)
    (row,) = result.double_dissociation().to_dict("records")
    assert {row["unit"], row["other"]} == {"L0N0", "L0N1"} and row["contrast"] > 1.9
    others = [signal for signal in result.table.signal.values if signal != "carry_out"]
    assert all(result.double_dissociation(signal).empty for signal in others)


@pytest.mark.parametrize("name", ["microadder-57", "adder-456"])
def test_without_what_attention_writes_no_unit_is_causal(name):
    model = models.load(name).dense_copy()
    with torch.no_grad():
        dict(model.weight_map.named_parameters())["blocks/0/attn/W_O"].zero_()
    result = interp.carry_units(model, n=512)
    assert not set(result.verdicts()["kind"]) & {"switch", "detector", "needed"}
    assert result.double_dissociation().empty


def test_a_unit_split_in_two_is_needed_in_both_halves():
    weights = {key: value.detach().clone() for key, value in models.load("microadder-57").all_weights().items()}
    into, bias, out = (f"blocks.0.mlp.{name}" for name in ("W_in", "b_in", "W_out"))
    weights[out][0] /= 2
    weights[out] = torch.cat((weights[out], weights[out][:1]))
    weights[into], weights[bias] = (torch.cat((x, x[..., :1]), -1) for x in (weights[into], weights[bias]))
    config = models.load("microadder-57").config.replace(d_mlp=3)
    split = ArithmeticTransformer(ConstantWeights(config, weights), TenDigitAddition(), name="split").eval()
    found = interp.carry_units(split, n=512).verdicts()
    assert found["signal"].tolist() == ["carry_out"] * 3 and found["kind"].tolist() == ["switch", "needed", "needed"]
    assert found["unit"].iloc[0] == 1


def test_problems_that_are_all_one_are_refused():
    with pytest.raises(UserError):
        interp.carry_units(models.load("microadder-57"), problems=[(9999999999, 9999999999)] * 50)


def test_marginal_auroc_flatters_a_rival_that_holding_the_signal_fixed_unmasks():
    table = planted("carry_out").table.isel(layer=0, unit=0)
    assert float(table.auroc.sel(signal="generate")) > 0.9
    assert float(table.auroc_given_rivals.sel(signal="generate")) < 0.6
    assert str(table.rival.sel(signal="generate").values) == "carry_out"
    assert float(table.auroc.sel(signal="carry_in")) > 0.55


def test_where_two_signals_differ_the_unit_follows_its_own():
    share = planted("carry_out").agreement.share.isel(layer=0, unit=0)
    assert share.sel(signal="carry_out").drop_sel(rival="carry_out").min() == 1.0
    assert float(share.sel(signal="carry_in", rival="carry_out")) < 0.1


def test_noise_carries_nothing():
    rng = np.random.default_rng(2)
    activation = rng.normal(size=(N, 10, 2, 3))
    clean = np.ones((N, 10), dtype=bool)
    ablated = {(1, 2): rng.random((N, 10)) < 0.5}
    result = compute_carry_units(activation, activation, variables(), clean, ablated, Provenance(N, 0, "made-up units"))
    verdicts = result.verdicts()
    assert len(verdicts) == 6 and verdicts["signal"].isna().all() and set(verdicts["kind"]) == {"none"}
    assert np.abs(result.table.auroc.values - 0.5).max() < 0.1


def test_shuffled_labels_are_separated_by_nothing():
    table = planted("carry_out").table.sel(signal="shuffled").squeeze()
    assert float(table.auroc) == pytest.approx(0.5, abs=0.03)
    assert abs(float(table.effect)) < 0.05
    assert float(table.effect_low) < 0 < float(table.effect_high)


def test_ranges_are_the_extremes_with_and_without_the_signal():
    result = planted("carry_in", noise=0.5)
    label = column_signals(variables(), 0)["carry_in"]
    rng = np.random.default_rng(1)
    activation = 2.0 * label - 1 + 0.5 * rng.normal(size=label.shape)
    row = result.table.sel(signal="carry_in").isel(layer=0, unit=0)
    assert row.pre_min.values.tolist() == pytest.approx([activation[~label].min(), activation[label].min()])
    assert row.pre_max.values.tolist() == pytest.approx([activation[~label].max(), activation[label].max()])
    assert row.post_min.values.min() == 0.0


def test_accuracy_is_measured_on_problems_that_did_not_choose_the_threshold():
    """A threshold fitted to noise must not look better than the commoner answer."""
    rng = np.random.default_rng(3)
    small = {name: values[:30] for name, values in variables().items()}
    activation = rng.normal(size=(30, 10, 1, 40))
    clean = np.ones((30, 10), dtype=bool)
    table = compute_carry_units(activation, activation, small, clean, {}, Provenance(30, 0, "made-up units")).table
    gain = table.accuracy - table.majority
    assert float(gain.sel(signal=list(RIVALS)).mean()) < 0.0


def test_units_that_were_not_ablated_say_so():
    label = column_signals(variables(), 0)["carry_out"]
    activation = label[:, :, None, None].astype(float)
    clean = np.ones_like(label)
    result = compute_carry_units(activation, activation, variables(), clean, {}, Provenance(N, 0, "made-up units"))
    assert result.verdict(0, 0)["kind"] == "not ablated"
    with pytest.raises(UserError, match="max_ablated"):
        result.figure("ablation")


# ---- models


def test_published_units_doubly_dissociate_on_carry_out(published):
    table = interp.carry_units(published, n=1024)._without_units("carry_out")
    right = table.set_index(["unit", "present"])["ablated"]
    assert right[0, False] > 0.99 and right[1, True] > 0.99
    assert right[0, True] < 0.02 and right[1, False] < 0.02
    assert (table["clean"] == 1.0).all()
    assert ((table["ablated_low"] <= table["ablated"]) & (table["ablated"] <= table["ablated_high"])).all()


def test_the_published_57_has_the_measured_ranges_and_ablations_on_uniform_problems(published_57):
    result = interp.carry_units(published_57, problems=draw(published_57.task, None, 4096, 0).problems)
    row = result.table.sel(layer=0, unit=0, signal="carry_out")
    low, high = row.pre_min.values, row.pre_max.values
    assert -5.70 < low[0] < -5.60 and 0.10 < high[0] < 0.18  # all inputs: [-5.69, 0.18]
    assert 2.20 < low[1] < 2.30 and 6.15 < high[1] < 6.22  # all inputs: [2.21, 6.21]
    assert row.ablated.values == pytest.approx([0.998, 0.009], abs=2e-3)


def test_carry_in_is_hardly_better_than_guessing_and_loses_to_carry_out_wherever_they_differ(published_57):
    result = interp.carry_units(published_57, problems=draw(published_57.task, None, 4096, 0).problems)
    for unit in (0, 1):
        row = result.table.sel(layer=0, unit=unit, signal="carry_in")
        assert float(row.accuracy) - float(row.majority) < 0.03
        assert abs(float(row.effect_given_rivals)) < 0.05
        share = result.agreement.share.sel(layer=0, unit=unit)
        assert float(share.sel(signal="carry_out", rival="carry_in")) == 1.0
    assert float(row.majority) == pytest.approx(0.556, abs=0.01)


def test_ablation_through_the_probe_is_ablation_by_hand(published_57):
    problems = TenDigitAddition().sample(200, torch.Generator().manual_seed(9))
    result = interp.carry_units(published_57, problems=problems)

    def zero(post, hook):
        post = post.clone()
        post[..., 1] = 0
        return post

    task = published_57.task
    logits = published_57.run_with_hooks(task.encode(problems), fwd_hooks=[("blocks.0.mlp.hook_post", zero)])
    right = logits[:, list(task.query_positions)].argmax(-1)[:, :10] == task.targets(problems)[:, :10]
    carry = task.variables(problems)["carry_out"][:, :10].bool()
    expected = [right[~carry].double().mean().item(), right[carry].double().mean().item()]
    assert result.table.ablated.sel(layer=0, unit=1, signal="carry_out").values == pytest.approx(expected)


def test_only_the_most_separating_units_are_ablated_when_there_are_many():
    result = interp.carry_units(dense_model(), n=64, max_ablated=3)
    done = result.table.ablated.notnull().any(("signal", "present"))
    assert int(done.sum()) == 3
    size = np.abs(result.table.auroc.sel(signal=list(RIVALS)) - 0.5).max("signal")
    assert float(size.where(done).min()) >= float(size.where(~done).max())


def test_the_table_has_a_row_for_every_unit_and_signal():
    result = planted("carry_out")
    frame = result.to_dataframe()
    assert len(frame) == 16
    assert {"auroc", "accuracy_low", "pre_max_with", "pre_max_without", "ablated_with", "n_with"} <= set(frame.columns)
    assert "CarryUnits" in result._repr_html_()


def test_models_and_tasks_without_units_or_carries_are_refused():
    with pytest.raises(UserError, match="no MLP"):
        interp.carry_units(dense_model(d_mlp=0), n=16)
    with pytest.raises(UserError):
        interp.carry_units(dense_model(), task=ToyAddition(), n=16)
    with pytest.raises(UserError, match="no unit 7"):
        planted("carry_out").verdict(0, 7)
    with pytest.raises(UserError, match="no signal 'borrow'"):
        planted("carry_out").double_dissociation("borrow")
