"""The problems that probes look at, and the models they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import models
from interp.core.batches import derangement, right_tokens
from interp.core.samples import draw, of_every_chain_length
from interp.core.task_checks import has_chains, resolve_task
from models.errors import UserError
from models.tasks import Parity, formatted
from models.tasks.columns.long_carries import carry_rich
from models.tasks.named.addition import TenDigitAddition
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from tests.toy_task import ToyAddition

TWO = formatted("{a}+{b}={s:2}", "a + b")


def test_the_carry_heavy_share_holds_the_long_chains_that_uniform_problems_lack():
    task = TenDigitAddition()
    problems = draw(task, None, 4000, 0, 0.5).problems
    chain = task.chain_length(problems)
    assert chain[:2000].max() < chain[2000:].max()
    assert (chain[2000:] >= 6).float().mean() > 0.03 > (chain[:2000] >= 6).float().mean()


def test_carry_rich_digits_are_possible_numbers_of_that_many_digits():
    numbers = carry_rich(10, 500, np.random.default_rng(0))
    assert numbers.min() >= 0
    assert numbers.max() < 10**10


@pytest.mark.parametrize("n_digits", [1, 4, 25])
def test_a_task_of_many_operands_gets_carry_rich_problems_where_it_adds_two(n_digits):
    task = MultiOperandAddition(2, n_digits)
    half = 20 if n_digits == 1 else 200  # fewer than there are
    sample = draw(task, None, 2 * half, 0, 0.5)
    assert sample.provenance.source == f"problems ({half} uniform, {half} rich in carry chains)"
    long = task.chain_length(sample.problems) >= 3
    assert long[half:].sum() > 2 * long[:half].sum() or n_digits == 1
    assert n_digits == 1 or sample.problems[..., -1].min() > 0  # as in the task's own problems
    assert draw(MultiOperandAddition(3, n_digits), None, 50, 0, 0.5).provenance.source == "uniform problems"


OWN = {
    "sums, highest digit first": (formatted("{a:3}+{b:3}={s:4}", "a + b", variables="addition"), range(4)),
    "differences": (formatted("{a:4}-{b:4}={s:4r}", "a - b", where="a >= b", variables="subtraction"), range(4)),
    "bits": (formatted("{a:5}+{b:5}={s:6r}", "a + b", base=2, variables="addition"), range(6)),
    "ten digits": (TenDigitAddition(), range(11)),
    "many operands": (MultiOperandAddition(2, 2), range(3)),
}


@pytest.mark.parametrize("name", OWN)
def test_every_length_of_a_chain_that_a_task_has_is_drawn_equally_often(name: str):
    task, lengths = OWN[name]
    sample = of_every_chain_length(task, 40, 0)
    found = task.chain_length(sample.problems).tolist()
    rare = {5: 16} if name == "bits" else {}  # all that there are
    assert {length: found.count(length) for length in set(found)} == dict.fromkeys(lengths, 40) | rare
    assert len(sample.problems.unique(dim=0)) == len(found) or name == "ten digits"
    assert sample.provenance.n == len(found) == len(sample.tokens) and has_chains(task)
    assert torch.equal(of_every_chain_length(task, 40, 0).tokens, sample.tokens)


@pytest.mark.parametrize("task", [Parity(4), formatted("{a:2}={s:2r}", "a"), formatted("{a:2}+{b:2}={s:3}", "a + b")])
def test_a_task_that_names_no_carry_has_no_chains(task):
    assert not has_chains(task)


def test_the_provenance_says_what_was_drawn():
    assert str(draw(TenDigitAddition(), None, 100, 7, 0.25).provenance) == (
        "sampled: n = 100 problems (75 uniform, 25 rich in carry chains), seed 7"
    )
    assert "given problems" in str(draw(TenDigitAddition(), [(1, 2), (3, 4)], 100, 7).provenance)


def test_a_task_without_carry_rich_problems_gets_uniform_ones():
    assert draw(ToyAddition(), None, 50, 0, 0.5).provenance.source == "uniform problems"


@pytest.mark.parametrize("given", [list, np.array, torch.tensor, tuple], ids=lambda kind: kind.__name__)
def test_a_problem_that_is_given_twice_is_one(given):
    task, once = TenDigitAddition(), [(57, 48), (1, 2), (48, 57)]
    sample = draw(task, given([once[i] for i in (0, 1, 0, 2, 1, 0)]), 0, 0)
    assert sample.provenance.n == len(sample.tokens) == 3 and sample.rows is not None
    assert task.numbers(sample.problems) == once and sample.rows.tolist() == [0, 1, 3]
    assert torch.equal(sample.tokens, task.encode(once)) and draw(task, given(once), 0, 0).rows is None
    beside = draw(task, given([once[0]] * 4), 0, 0, beside=[["x", "y", "x", "x"], torch.tensor([1, 1, 1, 2])])
    assert beside.rows is not None and beside.rows.tolist() == [0, 1, 3]
    for alone in ([once[0]] * 200, [once[0]]):
        with pytest.raises(UserError):
            draw(task, given(alone), 0, 0)
    with pytest.raises(UserError):
        draw(task, given(once), 0, 0, beside=[["x", "y"]])


def test_all_problems_of_a_small_task_are_exhaustive_evidence_however_often_some_are_given():
    every = TWO.domain.every()
    assert draw(TWO, torch.cat((every, every[:5])), 0, 0).provenance.strength == "exhaustive"


def test_problems_may_come_from_a_generator():
    assert len(draw(TenDigitAddition(), ((i, i) for i in range(5)), 0, 0).tokens) == 5


@pytest.mark.parametrize(
    ("problems", "n", "share", "says"),
    [
        (None, 1, 0.0, "at least 2"),
        (None, 10, 1.5, "between 0 and 1"),
        ([(1, 2)], 10, 0.0, "at least 2"),
        ([(1, -2), (3, 4)], 10, 0.0, "-2"),
    ],
)
def test_samples_that_cannot_be_drawn_are_refused_in_a_sentence(problems, n, share, says):
    with pytest.raises(UserError, match=says):
        draw(TenDigitAddition(), problems, n, 0, share)


class WithoutTask:
    """Hooks and a config, but no task."""

    training = False
    cfg = models.get_spec("microadder-57").weight_map().config

    def run_with_hooks(self) -> None: ...

    def modules(self) -> list[nn.Module]:
        return []


def test_a_model_without_hooks_a_task_or_the_right_task_is_refused():
    adder = models.build("microadder-57")
    with pytest.raises(UserError, match="run_with_hooks"):
        resolve_task(nn.Linear(2, 2), TenDigitAddition())
    with pytest.raises(UserError, match="pass task="):
        resolve_task(WithoutTask(), None)
    with pytest.raises(UserError, match="not str"):
        resolve_task(adder, "addition")  # type: ignore[arg-type]
    short = ToyAddition()
    short.input_length = 40
    with pytest.raises(UserError, match="40 positions"):
        resolve_task(adder, short)
    short.d_vocab = 14
    with pytest.raises(UserError, match="14 tokens"):
        resolve_task(adder, short)


def test_a_model_with_dropout_in_training_mode_is_refused():
    adder = models.build("microadder-57").train()
    assert resolve_task(adder, None) is adder.task  # nothing random in it
    adder.extra = nn.Dropout(0.1)
    with pytest.raises(UserError, match="training mode"):
        resolve_task(adder, None)


@given(st.integers(2, 60), st.integers(0, 2**31))
def test_a_derangement_moves_every_example(n, seed):
    order = derangement(n, seed)
    assert sorted(order.tolist()) == list(range(n)) and not (order == torch.arange(n)).any()
    assert torch.equal(order, derangement(n, seed))


def test_no_token_is_right_among_logits_that_are_not_numbers():
    logits, right = torch.zeros(2, 1, 10), torch.zeros(2, 1, dtype=torch.int64)
    logits[1, 0, 3] = float("nan")
    assert right_tokens(logits, right).tolist() == [[True], [False]]
