"""Which algorithm a model runs: planted algorithms are named, MicroAdder's chained one wins, the counts are right."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
import models
from interp.causal.interchange import which_algorithm
from interp.probes.attention_readout import EXPLAINED, RATIO
from models.errors import UserError
from models.tasks import Parity
from models.tasks.columns.addition_algorithms import ALGORITHMS, CHAINED_FROM_ABOVE, RIPPLE, chained
from models.tasks.columns.column_places import column_places
from models.tasks.task import Task
from tests.comparing import numbers_are_finite
from tests.sampling import sampled

module = import_module("interp.causal.interchange.which_algorithm")  # the package has the function by this name


def accuracy(found, algorithm, corruption="plausible"):
    """How often the answers are the algorithm's."""
    return found.cell("accuracy", corruption=corruption, algorithm=algorithm)


class Planted(torch.nn.Module):
    """Runs an algorithm: logits are one-hot at its digits. Only what :func:`which_algorithm` asks of a model."""

    def __init__(self, algorithm, task: Task, inner=None):
        super().__init__()
        self.algorithm, self.task, self.layout = algorithm, task, column_places(task)
        self.inner = inner or models.build("microadder-57")
        self.cfg, self.name_or_path = self.inner.cfg, f"planted {algorithm.name}"
        self.eval()

    def run_with_hooks(self, tokens, fwd_hooks=()):
        digits = self.layout.answer_tokens(self.algorithm.answer(self.layout.inputs(tokens)))
        logits = torch.zeros(*tokens.shape, self.cfg.d_vocab)
        queries = torch.tensor(self.layout.queries).expand(len(tokens), -1)
        rows = torch.arange(len(tokens))[:, None]
        return logits.index_put((rows, queries, digits), torch.ones(()))


class Digits:
    """A rule for the digit, with the little that a planted model asks of an algorithm."""

    def __init__(self, run):
        self.name, self.run = run.__name__, run

    def answer(self, inputs):
        return self.run(inputs)["digit"]


@pytest.fixture
def planted(monkeypatch):
    """Makes planted models; their untrained twin is that of a real one."""
    twin = module.untrained_twin
    monkeypatch.setattr(module, "untrained_twin", lambda model, task, seed: twin(model.inner, task, seed))
    return lambda algorithm: Planted(algorithm, models.get_spec("microadder-57").task())


@pytest.mark.parametrize("algorithm", list(ALGORITHMS.values()), ids=lambda x: x.name)
def test_a_planted_algorithm_wins_with_all_predictions(planted, algorithm):
    found = which_algorithm(planted(algorithm), n=150)
    expected = ("chained",) if algorithm.reads_outputs else ("ripple", "look-ahead")
    for corruption in ("plausible", "any"):
        assert found.winner(corruption) == expected == found.ranking(corruption)[0]
        rows = found.rows_at(corruption=corruption).set_index("algorithm").loc[list(expected)]
        assert (rows[["accuracy", "clean"]] == 1).all(axis=None)
    changed = found.rows_at(algorithm="chained").set_index("corruption")
    if algorithm.reads_outputs:
        assert changed.n_changed["plausible"] == 150 and changed.followed["any"] == 1
    else:
        assert changed.n_changed["plausible"] == 0  # nothing changes a model that ignores outputs


HIGHEST_FIRST = Path(__file__).parents[4] / "benchmarks/provability/models/add-3-highest-first-0"


@pytest.mark.parametrize("algorithm", [RIPPLE, CHAINED_FROM_ABOVE], ids=lambda x: x.name)
def test_of_answers_that_start_with_the_highest_digit_a_planted_algorithm_wins(planted, algorithm):
    trained = models.load(HIGHEST_FIRST)
    found = which_algorithm(Planted(algorithm, trained.task, trained), n=150)
    expected = ("chained from above",) if algorithm.reads_outputs else ("ripple", "look-ahead")
    plausible = found.examples.sel(corruption="plausible")
    assert set(plausible.digit_sum.values.tolist()) == {9} and set(plausible.difference.values.tolist()) == {0, 1}
    for corruption in ("plausible", "any"):
        assert found.winner(corruption) == expected
        row = found.rows_at(corruption=corruption, algorithm=expected[0])
        assert row["accuracy"].item() == row["clean"].item() == 1


def test_a_trained_adder_that_starts_with_the_highest_digit_is_asked_about_the_digit_above():
    """It mostly looks ahead, and in a part of the cases goes by what it wrote: no rule is followed."""
    found = which_algorithm(models.load(HIGHEST_FIRST), n=300)
    assert found.highest_first and (found.table["clean"] > 0.99).all() and found.winner() is None
    assert 0.15 < accuracy(found, "chained from above").value < 0.4 < accuracy(found, "look-ahead").value < 0.85
    assert accuracy(found, "look-ahead").control < 0.3
    assert numbers_are_finite(found.figure().layout.title.text)
    written = interp.attention_readout(models.load(HIGHEST_FIRST), n=200)
    ratio, explained = (written.cell("value", quantity=name) for name in (RATIO, EXPLAINED))
    assert abs(ratio.value) < 0.2 and explained.control < 0.2 < 0.8 < explained.value


def test_what_follows_the_carry_from_the_units_says_why_it_does_not_take_such_answers():
    trained = models.load(HIGHEST_FIRST)
    for ask in (interp.decompile, interp.accuracy_bounds):
        with pytest.raises(UserError):
            ask(trained)


def copies(inputs):
    """The last output again."""
    return {"digit": inputs["previous"]}


def never_carries(inputs):
    return {"digit": (inputs["a"] + inputs["b"]) % 10}


def always_carries(inputs):
    return {"digit": (inputs["a"] + inputs["b"] + 1) % 10}


def guesses(inputs):
    return {"digit": (7 * inputs["a"] + 3 * inputs["b"] + inputs["previous"]) % 10}


@pytest.mark.parametrize("run", [copies, never_carries, always_carries, guesses])
def test_a_model_that_does_not_add_follows_none_of_the_algorithms(planted, run):
    found = which_algorithm(planted(Digits(run)), n=400)
    assert found.winner() is None and found.winner("any") is None
    assert found.verdict == "none of these"


def test_a_follower_of_one_half_of_the_cases_follows_nothing(planted):
    """Ripple where no carry comes in, the sum without its carry elsewhere: ahead, and no follower."""
    found = which_algorithm(planted(Digits(never_carries)), n=400)
    shares = found.rows_at(corruption="plausible", algorithm="ripple").iloc[0]
    assert (shares.without_carry, shares.with_carry, shares.n_without_carry + shares.n_with_carry) == (1, 0, 400)


def test_a_planted_threshold_is_told_from_another(planted):
    found = which_algorithm(planted(chained(7)), n=300, algorithms=[chained(3), chained(7), RIPPLE])
    assert found.winner("any") == ("chained (threshold 7)",)
    table = module.implied_carries(found.examples.sel(corruption="any"), 10).set_index("difference")
    assert table.loc[6, "0"] == 1 and table.loc[7, "1"] > 0.8  # a total of 19 + 1 is clamped


@pytest.mark.parametrize("size", [57, 67, 74])
def test_microadder_chains_through_its_outputs(size):
    """The issue's bar, 80% of changed predictions, holds for digits that a problem could show there."""
    found = which_algorithm(models.load(f"microadder-{size}"), n=400)
    assert found.winner() == ("chained",) == found.winner("any")
    changed = found.rows_at(corruption="plausible", algorithm="chained").iloc[0]
    assert changed.n_changed == 400 and changed.followed_low > 0.98
    assert accuracy(found, "ripple").high < 0.02
    assert found.rows_at(corruption="plausible", algorithm="chained")["accuracy_untrained_high"].item() < 0.5


@pytest.mark.parametrize("size", sampled([57, 67, 74], 67))
def test_where_rule_and_model_both_change_microadder_mostly_takes_the_rules_digit(size):
    """With any wrong digit, roundings included: 87 to 100% where both change, 78 to 89% where the rule does."""
    found = which_algorithm(models.load(f"microadder-{size}"), n=1500)
    rows = found.rows_at(corruption="any").set_index("algorithm")
    row, ripple = rows.loc["chained"], rows.loc["ripple"]
    assert row.followed_both_low > 0.8 and row.followed_rule_low > 0.68
    assert row.n_changed_both < min(row.n_changed_rule, row.n_changed)
    assert row.n_changed_rule == row.n and ripple.n_changed_rule == ripple.n_changed_both == 0  # which never change


def test_followed_counts_what_it_says(planted):
    """By hand: a model that rounds at 7 judged by the rule that rounds at 5."""
    found = which_algorithm(planted(chained(7)), n=300)
    kind = found.examples.sel(corruption="any")
    rule = kind.answer.sel(algorithm="chained").values
    assert (kind.answer_before == kind.right).all()
    masks = {"model": kind.after.values != kind.before.values, "algorithm": rule != kind.right.values}
    masks["both"] = masks["model"] & masks["algorithm"]
    row = found.rows_at(corruption="any", algorithm="chained").iloc[0]
    for suffix, mask in zip(("", "_rule", "_both"), masks.values(), strict=True):
        assert row[f"n_changed{suffix}"] == mask.sum() and 0 < mask.sum() < 300
        assert row[f"followed{suffix}"] == pytest.approx((kind.after.values == rule)[mask].mean())


def test_algorithms_that_agree_on_plausible_digits_are_told_apart_by_any(planted):
    found = which_algorithm(planted(chained(7)), n=200, algorithms=[chained(3), chained(7)])
    assert found.winner() is None and found.deciding == "any"
    assert tuple(found.winner("any") or ()) == ("chained (threshold 7)",)
    assert numbers_are_finite(found.sentence() + found.figure().to_json().split('"title"')[-1])


def test_a_model_that_never_reacts_is_said_not_to(planted):
    found = which_algorithm(planted(RIPPLE), n=100)
    assert (found.to_dataframe()["n_changed"] == 0).all() and numbers_are_finite(found.sentence())
    assert numbers_are_finite(found.figure().layout.title.subtitle.text)


@pytest.mark.slow
def test_few_problems_are_enough_or_counted():
    """Two plausible examples always part the algorithms; two-digit sums have few with nines between."""
    assert which_algorithm(models.load("microadder-57"), n=2).rows_at(corruption="plausible")["n"].eq(2).all()
    two = models.load("toygpt-learned-pre")
    assert which_algorithm(two, n=300).provenance.n == 300
    with pytest.raises(
        UserError, match=r"4\d\d problems of the task 'two-digit-addition' were found .* fewer than n = 1,000"
    ):
        which_algorithm(two, n=1000)


@pytest.mark.parametrize(
    "name",
    sampled(
        ["microadder-11", "adder-456", "addlm-adder-ten-digit", "toygpt-learned-pre"], "adder-456", "toygpt-learned-pre"
    ),
)
def test_other_adders_believe_a_plausible_output_too(name):
    found = which_algorithm(models.load(name), n=100)
    assert found.winner() == ("chained",)


def test_the_hand_built_adder_follows_its_threshold_exactly():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=4)
    found = which_algorithm(model, n=150, algorithms=["ripple", "chained", chained(6)], task=model.task.at(3, 3))
    assert found.winner() == ("chained", "chained (threshold 6)")  # they agree where nothing is rounded
    assert accuracy(found, "chained (threshold 6)", "any").value == 1 > accuracy(found, "chained", "any").value


def test_plausible_corruptions_are_plausible_and_any_is_any():
    found = which_algorithm(models.load("microadder-74"), n=300)
    plausible, any_digit = (found.examples.sel(corruption=kind) for kind in ("plausible", "any"))
    assert set(np.unique(plausible.difference)) == {0, 9}
    assert plausible.column.min() >= 2 and any_digit.column.min() == 1
    assert len(np.unique(any_digit.difference)) > 15
    assert (found.rows_at(corruption="plausible")["n"] == 300).all() and (
        found.rows_at(corruption="any")["n"] < 300
    ).all()


def test_the_seed_decides_which_problems_are_asked():
    model = models.load("microadder-57")
    own, again = which_algorithm(model, n=60), which_algorithm(model, n=60)
    assert own.examples.equals(again.examples)
    assert not own.examples.column.equals(which_algorithm(model, n=60, seed=1).examples.column)


def test_bad_input_is_named():
    model = models.load("microadder-57")
    with pytest.raises(UserError, match="two or more different algorithms"):
        which_algorithm(model, algorithms=["ripple"])
    with pytest.raises(UserError, match="two or more different algorithms"):
        which_algorithm(model, algorithms=["ripple", RIPPLE])
    with pytest.raises(UserError, match="never disagree"):
        which_algorithm(model, n=20, algorithms=["ripple", "look-ahead"])
    with pytest.raises(UserError, match="n of at least 2"):
        which_algorithm(model, n=1)
    with pytest.raises(UserError, match="Did you mean 'ripple'"):
        which_algorithm(model, algorithms=["riple", "chained"])
    with pytest.raises(UserError, match="does not add two numbers"):
        which_algorithm(model, task=Parity())
    found = which_algorithm(model, n=20)
    with pytest.raises(UserError, match="Did you mean 'plausible'"):
        found.ranking("plausable")
    with pytest.raises(UserError):
        accuracy(found, "carry")


@pytest.mark.parametrize(
    ("share", "follows"),
    sampled(
        [(0.55, None), (0.85, None), (0.97, ("chained",)), (1.0, ("chained",))], (0.85, None), (0.97, ("chained",))
    ),
)
def test_a_mixture_of_two_algorithms_follows_neither(share, follows):
    found = which_algorithm(models.load("microadder-57"), n=300)
    answer, after = found.examples.answer, found.examples.after.copy(deep=True)
    other = np.random.default_rng(0).random(after.shape) >= share
    after.values[other] = answer.sel(algorithm="ripple").transpose(*after.dims).values[other]
    mixed = module.compute_which_algorithm(found.examples.assign(after=after), found.provenance)
    assert mixed.winner() == follows
    for corruption, of_other in zip(module.CORRUPTIONS, other, strict=True):
        answers = answer.sel(corruption=corruption).transpose("algorithm", "example").values
        kept = ~of_other[(answers != answers[0]).any(0)]
        most = found.cell(
            "accuracy", corruption=corruption, algorithm="chained"
        ).value  # of the model itself, before the mixture
        assert accuracy(mixed, "chained", corruption).value == pytest.approx(kept.mean() * most, abs=0.05)
