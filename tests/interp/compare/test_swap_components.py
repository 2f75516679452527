"""Parts of one model in the place of another's: nothing is lost where they are the same, and the controls lose it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import interp
import models
from interp.compare.swap_result import SOURCES, Swaps
from models.errors import UserError
from models.tasks.named.addition import TwoDigitAddition
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from tests.interp.compare.gauge import CONFIG, dense, gauge_copy

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def gauge() -> Swaps:
    trained = models.load("microadder-57")
    return interp.swap_components(trained, gauge_copy(trained), n=64, n_fit=96, untrained=1)


@pytest.fixture(scope="module")
def trained() -> Swaps:
    a, b = models.load("microadder-57"), models.load("microadder-67")
    return interp.swap_components(a, b, n=64, n_fit=96, untrained=2)


def losses(result: Swaps, source: str = "swapped") -> dict[str, float]:
    return {name: float(result.rows(name, source)["loss"].iloc[0]) for name in result.components}


# ---- what must not change


@pytest.mark.parametrize("layers", [1, 2])
def test_a_models_own_parts_change_nothing(layers: int):
    model = dense(config=CONFIG.replace(n_layers=layers))
    result = interp.swap_components(model, model, n=6, n_fit=40, untrained=0)
    whole = float(result.whole["loss"])
    itself, ablated = losses(result, "itself"), losses(result, "ablated")
    for name, loss in losses(result).items():
        assert loss == pytest.approx(whole, abs=1e-9), name
        if name.endswith(("pattern", "patterns")):
            assert loss == whole, f"{name} is copied, bit by bit"
        assert loss == itself[name]
        assert abs(ablated[name] - whole) > 1e-6, name
    mapped = result.table[(result.table["source"] == "swapped") & (result.table["fitted"] > 0)]
    assert len(mapped) and mapped["r2"].to_numpy() == pytest.approx(1)


def test_the_controls_lose_what_the_same_model_keeps(gauge: Swaps):
    for name in gauge.components:
        assert gauge.rows(name, "ablated")["exact"].max() < 0.2, name
        assert gauge.rows(name, "untrained")["exact"].max() < 0.3, name
        if "pattern" not in name:
            assert gauge.rows(name, "shuffled")["exact"].max() < 0.2, name
    pattern = gauge.rows("L0H0 pattern", "shuffled").iloc[0]
    assert pattern["right"] == 64, "where this model looks does not depend on the problem"


# ---- what the numbers are


def test_a_swap_of_the_mlp_is_what_replacing_its_output_by_hand_gives():
    a, b = models.load("microadder-57"), models.load("microadder-67")
    result = interp.swap_components(a, b, components=["L0.mlp"], n=16, n_fit=32, seed=5, untrained=0)
    problems = _problems(a.task, 48, 5)
    queries = list(a.task.query_positions)
    _, own = a.run_with_cache(a.task.encode(problems))
    _, other = b.run_with_cache(b.task.encode(problems))
    y, x = (cache["blocks.0.hook_mlp_out"][:, queries].detach().double().numpy() for cache in (own, other))
    fit, held = slice(0, 32), slice(32, 48)
    dx, dy = ((z[fit] - z[fit].mean(0)).reshape(-1, z.shape[-1]) for z in (x, y))
    weight = np.linalg.lstsq(dx, dy, rcond=1e-6)[0]
    new = y[fit].mean(0) + (x[held] - x[fit].mean(0)) @ weight
    stream = own["blocks.0.hook_resid_mid"][held][:, queries].double() + torch.from_numpy(new)
    logits = a.unembed(a.ln_final(stream.float())).detach()
    targets = a.task.targets(problems[held])
    row = result.swapped("L0.mlp")
    assert row["right"] == int((logits.argmax(-1) == targets).all(1).sum())
    assert row["tokens"] == pytest.approx(float((logits.argmax(-1) == targets).double().mean()))
    expected = torch.nn.functional.cross_entropy(logits.double().transpose(1, 2), targets)
    assert row["loss"] == pytest.approx(float(expected), rel=1e-3)
    left = ((y[held] - new) ** 2).sum() / ((y[held] - y[fit].mean(0)) ** 2).sum()
    assert row["r2"] == pytest.approx(1 - left, abs=1e-5)


def _problems(task: Any, n: int, seed: int) -> Tensor:
    from interp.compare.swap_components import two_samples

    fit, held_out, _ = two_samples(task, n - n // 3, n // 3, seed)
    return torch.cat((fit, held_out))


def test_exact_match_by_carry_chain_adds_up_to_the_whole(trained: Swaps):
    chains = trained.by_chain.groupby(["component", "source", "copy"])[["n", "right"]].sum()
    for row in trained.table.itertuples():
        found = chains.loc[(row.component, row.source, row.copy)]
        assert (found["n"], found["right"]) == (row.n, row.right)
    assert trained.by_chain["chain"].nunique() > 3


# ---- which parts there are


def test_components_are_named_groups_and_sums():
    model = dense()
    asked = ["L0N3", "L0N0 + L0N4", "all patterns + L0.mlp"]
    result = interp.swap_components(model, dense(1), components=asked, n=4, n_fit=8, untrained=0)
    assert result.components == asked
    assert len(result.swapped("L0N0 + L0N4")["partner"].split(", ")) == 2
    assert "all units" in interp.swap_components(model, dense(1), n=4, n_fit=8, untrained=0).components


def test_models_of_other_widths_heads_and_layers_give_what_parts_they_have():
    small, deep = dense(config=CONFIG.replace(n_heads=2, d_mlp=3, d_head=2)), dense(config=CONFIG.replace(n_layers=2))
    fewer = interp.swap_components(dense(), small, n=4, n_fit=40, untrained=0)
    heads = [name for name in fewer.components if name.endswith(" output")]
    assert len(heads) == 2, "one of three heads has no partner"
    assert fewer.swapped("L0H0 output" if "L0H0 output" in heads else heads[0])["fitted"] == 2 * 4
    other = interp.swap_components(dense(), deep, n=4, n_fit=8, untrained=0)
    assert "L0.mlp" not in other.components and "final stream" in other.components
    bare = dense(config=CONFIG.replace(d_mlp=0))
    without = interp.swap_components(bare, bare, n=4, n_fit=8, untrained=0)
    assert "L0.attn" in without.components and not any("N" in name[:3] for name in without.components)


def test_the_hand_built_decoder_and_a_trained_one_are_swapped_both_ways():
    built = models.build("position-coupling-hand-built", max_operands=2, max_digits=2)
    fresh = models.build("position-coupling-1l4h-small")
    task = MultiOperandAddition(2, 2)
    asked = ["all patterns", "all patterns by role", "L0.mlp"]
    forth = interp.swap_components(fresh, built, task=task, components=asked, n=4, n_fit=12, untrained=1)
    back = interp.swap_components(built, fresh, task=task, components=asked, n=4, n_fit=12, untrained=1)
    assert forth.control == (fresh.name_or_path, 1) == back.control, "nothing can be drawn of the hand-built model"
    assert back.whole["exact"] == 1
    overlap = {name: float(forth.swapped(name)["overlap"]) for name in asked[:2]}
    assert overlap["all patterns by role"] != overlap["all patterns"]
    assert 0 <= min(overlap.values()) <= max(overlap.values()) <= 1


def test_a_part_that_does_not_vary_in_the_other_model_is_ablated():
    def still(table: Mapping[str, Tensor]) -> None:
        table["blocks/0/attn/W_V"].zero_()

    result = interp.swap_components(dense(), dense(change=still), components=["all values"], n=6, n_fit=12, untrained=0)
    row = result.swapped("all values")
    assert row["fitted"] == 0 and row["r2"] == 0
    assert row["loss"] == losses(result, "ablated")["all values"]


# ---- which problems


def test_no_problem_is_both_fitted_and_measured_on():
    from interp.compare.swap_components import two_samples

    task = TwoDigitAddition()
    fit, held_out, source = two_samples(task, 700, 900, seed=0)
    numbers = [set(task.numbers(part)) for part in (fit, held_out)]
    assert [len(part) for part in numbers] == [700, 900] and not numbers[0] & numbers[1]
    assert "700" in source


def test_a_small_task_is_asked_all_its_problems_each_once():
    from interp.compare.swap_components import two_samples

    fit, held_out, source = two_samples(MultiOperandAddition(2, 1), 200, 200, seed=0)
    every = torch.cat((fit, held_out)).flatten(1)
    assert len(fit) == len(held_out) and len(every.unique(dim=0)) == len(every) < 400 and "all" in source


# ---- bad input


def test_an_unknown_component_is_refused_with_the_closest_and_so_are_none_and_two_of_one():
    model = models.load("microadder-57")
    with pytest.raises(UserError, match=r"no component 'L0H0 pattrn'.*Did you mean 'L0H0 pattern'"):
        interp.swap_components(model, model, components=["L0H0 pattrn"], n=4, n_fit=4)
    with pytest.raises(UserError, match="no component 'L3.mlp'"):
        interp.swap_components(model, model, components=["L0N0 + L3.mlp"], n=4, n_fit=4)
    with pytest.raises(UserError, match="nothing to swap"):
        interp.swap_components(model, model, components=[], n=4, n_fit=4)
    with pytest.raises(UserError, match="asked for twice"):
        interp.swap_components(model, model, components=["L0.mlp", "L0.mlp"], n=4, n_fit=4)


def test_a_map_is_not_fitted_on_one_problem():
    with pytest.raises(UserError):
        interp.swap_components(dense(), dense(), n=8, n_fit=1)


# ---- what the result says


def test_unknown_rows_are_refused_with_the_closest(trained: Swaps):
    with pytest.raises(UserError, match="Did you mean 'L0.mlp'"):
        trained.rows("L0.mpl")
    with pytest.raises(UserError, match="no source 'shufled'"):
        trained.rows("L0.mlp", "shufled")
    assert [len(trained.rows("L0.mlp", source)) for source in SOURCES] == [1, 1, 1, 1, 2]
