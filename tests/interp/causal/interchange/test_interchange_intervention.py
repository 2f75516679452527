"""Interchange interventions: planted truth gives 100% at its place, controls and wrong places do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from interp.causal.interchange import InterchangeIntervention, Place, which_algorithm
from interp.causal.interchange import interchange_intervention as interchange
from interp.causal.interchange.aligned_subspaces import (
    TrainingPairs,
    das_basis,
    das_starts,
    matched_move,
    means_basis,
    orthonormal,
    project,
    random_basis,
)
from interp.causal.interchange.interchange_pairs import distinct_problems, draw_pairs
from interp.causal.interchange.interchange_runs import CONTROLS
from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.named_places import find_place
from interp.core.stats import clopper_pearson
from models.errors import UserError
from models.tasks.columns.addition_algorithms import CHAINED, RIPPLE, chained
from models.tasks.columns.column_places import column_places
from models.tasks.named.addition import TwoDigitAddition
from tests.sampling import sampled

MID, N = "blocks.0.hook_resid_mid", 200


@pytest.fixture(scope="module")
def built():
    """The hand-built adder, which knows where everything is, its task, and unit vectors by the dimensions' names."""
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=4)
    eye, dims = torch.eye(model.cfg.d_model), model.weight_map.dims
    return model, model.task.at(3, 3), lambda *names: torch.cat([eye[:, dims[name]] for name in names], 1)


@pytest.fixture(scope="module")
def adder():
    return models.load("microadder-57")


# ---- planted truth: g = PRE_SUM + (PRE_CARRY - NUM) / 10 + 0.21, so that the chained threshold is 6


@pytest.mark.parametrize(
    "variable, dims",
    sampled(
        [
            ("digit_sum", ("PRE_SUM",)),
            ("previous_sum", ("PRE_CARRY",)),
            ("previous", ("NUM",)),
            ("total", ("PRE_SUM", "PRE_CARRY", "NUM")),
        ],
        ("previous_sum", ("PRE_CARRY",)),
        ("total", ("PRE_SUM", "PRE_CARRY", "NUM")),
    ),
)
def test_each_variable_lives_where_it_was_built(built, variable, dims):
    model, task, unit = built
    found = interchange(model, variable, 2, sites=MID, algorithm=chained(6), subspace=unit(*dims), n=N, task=task)
    assert found.largest("accuracy").value == 1 and found.table["clean"][0] == 1
    assert found.measures[0].controls == CONTROLS
    for control in CONTROLS:
        assert found.table[f"accuracy_{control}_high"][0] < 0.6, control


def test_the_carry_is_the_difference_of_two_dimensions(built):
    model, task, unit = built
    direction = unit("PRE_CARRY") - unit("NUM")
    for algorithm in ("chained", "ripple", "look-ahead"):  # uncorrupted sources have the same carry in all
        found = interchange(model, "carry_in", 2, sites=MID, algorithm=algorithm, subspace=direction, n=N, task=task)
        assert found.largest("accuracy").value == 1


@pytest.mark.parametrize("dims", [("PRE_SUM",), ("PRE_CARRY", "PRE_SUM"), ("SUM",)], ids="+".join)
def test_the_carry_does_not_live_elsewhere(built, dims):
    model, task, unit = built
    hook = "blocks.0.hook_resid_post" if dims == ("SUM",) else MID
    where = {"sites": hook, "subspace": unit(*dims)}
    found = interchange(model, "carry_in", 2, algorithm=chained(6), n=N, task=task, controls=False, **where)
    assert found.largest("accuracy").high < 0.5


def test_another_position_does_not_move_the_answer(built):
    model, task, _ = built
    elsewhere = Place(MID, "b2[1]")
    found = interchange(model, "total", 2, sites=elsewhere, algorithm=chained(6), n=N, task=task, controls=False)
    assert found.largest("accuracy").value == 0 and found.table["clean"][0] == 1


@pytest.mark.parametrize(
    "method, cosine, least",
    sampled([("das", 0.99, 0.9), ("least squares", 0.99, 0.9), ("means", 0.9, 0.6)], ("das", 0.99, 0.9)),
)
def test_the_carry_direction_is_found_from_training_pairs(built, method, cosine, least):
    model, task, unit = built
    fit = {"subspace": 1, "method": method, "n_train": 800, "das_steps": 2}
    found = interchange(model, "carry_in", 2, sites=MID, algorithm=chained(6), n=N, task=task, controls=False, **fit)
    assert found.largest("accuracy").low > least
    true = orthonormal(unit("PRE_CARRY") - unit("NUM"))
    assert abs(float(true[:, 0] @ torch.from_numpy(found.bases[0])[:, 0])) > cosine


@pytest.mark.slow
def test_das_finds_the_plane_of_the_answer_from_a_random_one(adder):
    """MicroAdder's head reads two directions. Without steps the start is kept."""
    layout, hook = column_places(adder.task), "blocks.0.hook_resid_post"
    (pairs,) = draw_pairs(layout, (300,), 1)
    place, queries = find_place(adder, layout, Place(hook), 4), [layout.queries[4]]
    source = runs.read(adder, pairs.source, [place])[0][0].flatten(1)
    values = pairs.source_values(CHAINED, "total", 4)
    answers = pairs.counterfactual(CHAINED, "total", 4, values, [4])
    start = random_basis(5, 2, torch.Generator().manual_seed(2))
    to = TrainingPairs(adder, place, pairs.base, source, answers, queries)
    descend = lambda steps, lr: das_basis(to, [start], torch.Generator().manual_seed(0), steps, lr)  # noqa: E731
    torch.testing.assert_close(descend(0, 0.1), start)
    found = descend(100, 0.05)
    torch.testing.assert_close(found.T @ found, torch.eye(2))
    before, after = (
        interchange(adder, "total", 4, sites=hook, subspace=u, n=N, controls=False) for u in (start, found)
    )
    assert after.largest("accuracy").low > 0.95 > 0.6 > before.largest("accuracy").high


# ---- trained models


@pytest.mark.slow
def test_toygpt_moves_the_carry_along_one_direction_in_its_second_layer():
    """At the query, behind layer 1's attention; a layer later the direction is no longer what decides the answer."""
    model = models.load("toygpt-learned-pre")

    def ask(hook: str) -> InterchangeIntervention:
        how = {"algorithm": "ripple", "subspace": 1, "method": "means", "controls": hook.startswith("blocks.1")}
        return interchange(model, "carry_in", 1, sites=hook, n=N, n_train=600, **how)

    found = ask("blocks.1.hook_resid_mid")
    assert found.largest("accuracy").low > 0.8
    for control in CONTROLS:
        assert found.table[f"accuracy_{control}_high"][0] < 0.5
    assert ask("blocks.2.hook_resid_post").largest("accuracy").high < 0.3


def test_more_columns_are_a_stricter_reading(adder):
    """The digits of column 4 also decide the carry into column 5, where an off-manifold difference may be misread."""
    values = Place("blocks.0.attn.hook_v", "own operands")
    one = interchange(adder, "digit_sum", 4, sites=values, n=N, controls=False)
    two = interchange(adder, "digit_sum", 4, sites=values, n=N, controls=False, read=(4, 5))
    assert two.largest("accuracy").value < one.largest("accuracy").value
    assert two.largest("accuracy").n >= one.largest("accuracy").n  # what changes one digit changes the two


def test_without_sites_the_stream_is_searched_and_dead_sites_are_marked(adder):
    found = interchange(adder, "total", 4, n=60)
    best = found.best()
    assert best == Place(MID, "s3") and not found.measures[0].controls
    table = found.to_dataframe().set_index(["hook", "position"])
    assert table.accuracy[MID, "s3"] == 1 and table.accuracy[MID, "a4"] == 0
    assert not table.live["blocks.0.hook_resid_pre", "+"] and table.live["blocks.0.hook_resid_pre", "a4"]
    assert len(table) == 3 * (column_places(adder.task).queries[4] + 1) and found.figure().data
    fresh = interchange(adder, "total", 4, sites=best, n=60, seed=1, controls=False)
    assert fresh.largest("accuracy").value == 1


def test_many_sites_have_the_numbers_that_each_has_alone(adder):
    """With its controls, but for that along other directions, which are drawn one site after the other."""
    sites = [Place(MID), Place("blocks.0.attn.hook_z", head=0), Place("blocks.0.hook_resid_post", "query")]
    together = interchange(adder, "total", 4, sites=sites, n=60).to_dataframe()
    for i, site in enumerate(sites):
        found = interchange(adder, "total", 4, sites=site, n=60)
        alone = found.to_dataframe()
        assert found.best() == site and together["head"][i] == (-1 if site.head is None else site.head)
        columns = [name for name in alone if not name.startswith("accuracy_random")]
        assert alone[columns].iloc[0].to_dict() == together[columns].iloc[i].to_dict()


# ---- parts


@pytest.mark.parametrize("task", [TwoDigitAddition(), models.get_spec("microadder-57").task()], ids=lambda t: t.name)
def test_no_problem_is_in_two_splits_nor_twice(task):
    layout = column_places(task)
    train, test = draw_pairs(layout, (120, 90), 3)
    rows = [
        tuple(sorted(zip(inputs["a"].tolist(), inputs["b"].tolist(), strict=True)))
        for tokens in (train.base, train.source, test.base, test.source)
        for inputs in [layout.inputs(tokens)]
    ]
    assert sum(map(len, rows)) == 420
    numbers = [frozenset((tuple(a), tuple(b))) for part in rows for a, b in part]
    assert len(set(numbers)) == 420  # a + b and b + a are one problem


def test_too_many_problems_are_refused():
    with pytest.raises(UserError, match="has not 6,000 different problems"):
        distinct_problems(column_places(TwoDigitAddition()), 6000, 0)


def test_places_of_a_column_share_no_position():
    layout = column_places(models.get_spec("microadder-57").task())
    for column in range(len(layout)):
        everything = [at for positions in layout.places(column).values() for at in positions]
        assert sorted(everything) == list(range(layout.queries[column] + bool(column)))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_control_moves_as_far_as_the_intervention(k):
    generator = torch.Generator().manual_seed(k)
    base, source = torch.randn(2, 50, 7, generator=generator)
    basis, other = (random_basis(7, k, generator) for _ in range(2))
    moved = project(base, source, basis) - base
    control = matched_move(base, source, basis, other) - base
    torch.testing.assert_close(moved.norm(dim=1), control.norm(dim=1))
    assert not torch.allclose(moved, control)
    torch.testing.assert_close(basis @ (basis.T @ (base + moved).T), basis @ (basis.T @ source.T))
    rest = torch.eye(7) - basis @ basis.T
    torch.testing.assert_close((base + moved) @ rest, base @ rest)


def test_means_are_the_line_between_two_classes():
    values = torch.arange(40) % 2
    activations = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)) + 3 * values[:, None]
    basis = means_basis(activations, values, 1)
    line = activations[values == 1].mean(0) - activations[values == 0].mean(0)
    torch.testing.assert_close((basis[:, 0] @ line).abs(), line.norm())
    assert len(das_starts(activations, values, 1, torch.Generator().manual_seed(0))) == 10


def test_an_answer_counts_where_the_causal_model_s_changes(adder):
    """The digit at the query, taken from another problem: only the source's total decides the answer."""
    found = interchange(adder, "total", 4, sites=MID, n=60, controls=False)
    layout = column_places(adder.task)
    _, pairs = draw_pairs(layout, (1, 60), 0)
    sums = [
        layout.values(CHAINED, problems)["total"][:, 4] for problems in (pairs.base_problems, pairs.source_problems)
    ]
    assert found.largest("accuracy").n == int((sums[0] % 10 != sums[1] % 10).sum()) < 60


def test_untrained_twins_are_the_same_shape_and_know_nothing(built, adder):
    for model, task in ((adder, adder.task), built[:2]):
        twin = untrained_twin(model, task, 0)
        assert twin.config == model.config
        assert models.score(twin, task.sample(50, torch.Generator().manual_seed(0)), task=task).correct == 0
        again = untrained_twin(model, task, 0)
        assert all(
            torch.equal(a, b) for a, b in zip(twin.all_weights().values(), again.all_weights().values(), strict=True)
        )


# ---- bad input


def test_logits_that_are_nan_are_no_digits(adder):
    """The largest of NaNs is at index 0, which would pass for the digit 0."""
    broken = models.load("microadder-57")
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    for ask in (
        lambda: interchange(broken, "answer", 3, sites="blocks.0.hook_resid_post", n=10),
        lambda: interchange(broken, "answer", 3, n=10),
        lambda: which_algorithm(broken, n=10),
    ):
        with pytest.raises(UserError, match="logits are NaN|not finite numbers"):
            ask()


def test_directions_may_be_whole_numbers(adder):
    axis = torch.zeros(adder.cfg.d_model, 2, dtype=torch.int64)
    axis = axis.index_put((torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])), torch.tensor(1))
    whole, real = (
        interchange(adder, "answer", 3, sites="blocks.0.hook_resid_post", subspace=given, n=40, controls=False)
        for given in (axis, axis.float())
    )
    assert np.allclose(whole.bases[0], real.bases[0]) and whole.table.equals(real.table)


def test_sites_are_taken_at_positions_by_number_and_each_once(adder):
    query, post = column_places(adder.task).queries[3], "blocks.0.hook_resid_post"
    asked = [query, "query", str(query), query - adder.task.input_length, "query"]
    found = interchange(adder, "answer", 3, positions=asked, sites=[post] * 2, n=30, controls=False)
    assert found.to_dataframe().position.tolist() == [str(query), "query", str(asked[3])]
    assert (found.table["accuracy"] == 1).all() and found.best().at == query
    one = interchange(adder, "answer", 3, positions=["query"], sites=[post], n=30, controls=False)
    assert one.table["accuracy"].tolist() == [1]


def test_a_label_that_positions_share_is_all_of_them(built):
    model, task, _ = built
    place = find_place(model, column_places(task), Place(MID, "+"), 2)
    assert place.at == tuple(at for at, role in enumerate(task.roles) if role.label == "+")
    assert len(place.at) == 2


def test_one_column_may_be_read_by_its_number(adder):
    one, several = (
        interchange(adder, "answer", 3, sites="blocks.0.hook_resid_post", read=read, n=30, controls=False)
        for read in (3, [3])
    )
    assert one.table.equals(several.table)


def test_bad_input_is_named(adder):
    def ask(match: str, variable: str = "total", site: Place | str = MID, column: int = 4, **options: object) -> None:
        with pytest.raises(UserError, match=match):
            interchange(adder, variable, column, sites=site, n=20, n_train=20, controls=False, **options)

    ask("Did you mean 'blocks.0.hook_resid_mid'", site="blocks.0.hook_resid_middle")
    ask("Did you mean 'carry_in'", variable="carry")
    ask("Did you mean 'own operands'", site=Place(MID, "own operand"))
    ask("There is no position 99", site=Place(MID, 99))
    ask("has no positions that are 'own operands'", site=Place(MID, "own operands"), column=10)
    ask("has no heads", site=Place(MID, head=0))
    ask("There is no head 5", site=Place("blocks.0.attn.hook_z", head=5))
    ask("minus infinity", site="blocks.0.attn.hook_attn_scores")
    ask("would never run", site="blocks.0.attn.hook_result")
    ask("Columns go from 0 to 10", column=11)
    ask("Did you mean 'least squares'", subspace=1, method="least square")
    ask("a subspace of 6 directions does not fit", subspace=6)
    ask("directions have 4", subspace=torch.ones(4, 1))
    ask("not linearly independent", subspace=torch.ones(5, 2))
    ask("changes nothing in any of 20 pairs", site=Place("blocks.0.hook_resid_pre", "+"))
    ask("in none of 20 pairs", variable="digit_sum", column=4, read=(2,))
    found = interchange(adder, "total", 4, sites=MID, n=20, controls=False)
    with pytest.raises(UserError):
        found.cell("accuracy", site="blocks.0.hook_resid_post at query")
    with pytest.raises(UserError):
        interchange(adder, "total", 4, sites=[], n=20)


def test_an_intervention_without_effect_on_the_causal_model_is_an_error(adder):
    assert not RIPPLE.reads_outputs
    with pytest.raises(UserError, match="in none of 20 pairs"):
        interchange(adder, "previous", 4, algorithm="ripple", n=20)
    assert interchange(adder, "previous", 4, algorithm=CHAINED, n=60).largest("accuracy").n


def test_the_best_of_many_sites_is_corrected_for_their_number():
    """An untrained model's best site of a hundred has an interval that holds what chance gives."""
    model = models.build("microadder-57", seed=5).eval()
    found = interchange(model, "total", 4, n=60)
    one, best = found.largest("accuracy"), found.best_accuracy()
    expected = clopper_pearson(round(one.value * one.n), one.n, 1 - 0.05 / len(found.table))
    assert (best.low, best.high) == pytest.approx(expected) and best.low < one.low
