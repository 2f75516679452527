"""A task's machine: its paths are the task's problems with their answers, each once, and it is as small as possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import (
    AdditionFormat,
    Automaton,
    Machine,
    MultiOperandAddition,
    Multiplication,
    Parity,
    Task,
    TenDigitAddition,
    TwoDigitAddition,
    formatted,
    function,
    machine_of,
)
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.machines.machine import sequences
from models.tasks.named.addition import DelimitedAddition, PaddedAddition, UnendedAddition

DIGITS = "0123456789"
COMPLEMENT = "(a - b) % 100 + 100 * (a < b)"
BY_OPERATOR = {"+": "a + b", "-": "a - b"}

#: Tasks that are so small that all of their problems are run.
SMALL: dict[str, Callable[[], Task]] = {
    "units first": lambda: formatted("{a:2r}+{b:2r}={s:3r}<EOS>", "a + b"),
    "highest digit first": lambda: formatted("{a:2}+{b:2}={s:3}", "a + b"),
    "other digits": lambda: formatted("{a:2}+{b:2}={s:3}", "a + b", vocabulary=["_", *"9876543210=+"]),
    "base 2": lambda: formatted("{a:5}+{b:5}={s:6r}", "a + b", base=2),
    "base 17": lambda: formatted("{a:1}+{b:2}={s:3r}", "a + b", base=17),
    "other widths": lambda: formatted("{a:3}+{b:1}={s:4}", "a + b"),
    "cut sums": lambda: formatted("{a:2}+{b:2}={s:2}", "(a + b) % 100"),
    "ordered differences": lambda: formatted("{a:2}-{b:2}={s:2}", "a - b", where="a >= b"),
    "signed differences": lambda: formatted("{a:2}-{b:2}={s:+2}", "a - b"),
    "complements": lambda: formatted("{a:2}-{b:2}={s:3}", COMPLEMENT, variables="complement"),
    "distances": lambda: formatted("{a:2}-{b:2}={s:2r}", "abs(a - b)"),
    "three numbers": lambda: formatted("{a:1}+{b:1}+{c:2}={s:3r}", "a + b + c"),
    "weighted": lambda: formatted("{a:2}+{b:1}={s:+4}", "7 * a - 12 * b - 5"),
    "order": lambda: formatted("{a:2}?{b:2}=", "a < b"),
    "three orders": lambda: formatted("{a:2}?{b:2}=", "(a < b) + 2 * (a == b)"),
    "larger": lambda: formatted("{a:2}?{b:2}={s:2}", "max(a, b)"),
    "smaller": lambda: formatted("{a:2}?{b:2}={s:2r}", "min(a, b)"),
    "remainders": lambda: formatted("{a:2}+{b:2}=", "(a + b) % 7"),
    "large remainders": lambda: formatted("{a:2}+{b:2}={s:2}", "(3 * a + 5 * b) % 97"),
    "residues": lambda: formatted("{a}{b}=", "(a + b) % 31", base=31),
    "products of residues": lambda: formatted("{a}{b}=", "(a * b) % 31", base=31),
    "products": lambda: formatted("{a:2}*{b:1}={s:3r}", "a * b"),
    "bits": lambda: formatted("{a:4}^{b:4}={s:4}", "a ^ b", base=2),
    "nibbles": lambda: formatted("{a:2}&{b:1}={s:3r}", "(a & b) + a", base=16),
    "operators": lambda: formatted("{a:2}{op}{b:2}={s:+3}", BY_OPERATOR),
    "two rules": lambda: formatted("{a:2}+{b:2}={s:3}", "a + b", where="(a < b) & (a + b != 7) | (b == 3)"),
    "answers of one text": lambda: function("0123", 3, "sum", answers=["x", "y", "x", "y"]),
    "signs of one token": lambda: formatted(
        "{a:1}-{b:1}={s:+1}", "a - b", vocabulary={str(i): i for i in range(10)} | {"-": 10, "+": 10, "=": 11}
    ),
    "rules by operator": lambda: formatted("{a:2}{op}{b:2}={s:3}", BY_OPERATOR, where={"-": "a >= b"}),
    "a number that nothing reads": lambda: formatted("{a:1}+{b:1}+{c:1}={s:2}", "a + b + 0 * c"),
    "copies": lambda: formatted("{a:4}>{s:4}", "a"),
    "a function in Python": lambda: formatted("{a:2}+{b:2}={s:3}", lambda a, b: a + b + (a == 37).long()),
    "a digit that is always the same": lambda: formatted(
        "{a:2}+{b:1}={s:3}", lambda a, b: a * b, where=lambda a, b: a // 10 == 3
    ),
    "a rule of one number": lambda: formatted("{a:1}{op}{b:1}={s:+2}", BY_OPERATOR, where="a"),
    "a rule in Python": lambda: formatted("{a:2}-{b:2}={s:2}", "a - b", where=lambda a, b: a >= b),
    "two-digit addition": TwoDigitAddition,
    "parity": lambda: function("01", 9, "parity"),
    "parity in Python": lambda: function("01", 9, lambda bits: bits.sum(1) % 2),
    "sums of tokens": lambda: function("01234", 4, "sum"),
    "maxima": lambda: function(DIGITS, 4, "max"),
    "minima": lambda: function(DIGITS, 3, "min"),
    "majorities": lambda: function("01", 9, "majority"),
    "brackets": lambda: function("01", 10, "balanced"),
    "copied strings": lambda: function("abc", 5, "copy"),
    "reversed strings": lambda: function("abc", 5, "reversed"),
    "running sums of tokens": lambda: function("012", 6, "running sum"),
    "sorted strings": lambda: function("0123", 5, "sorted"),
    "sorted in Python": lambda: function("0123", 4, lambda x: x.sort(1).values, answers="0123"),
    "strings with a rule": lambda: function("0123", 4, "max", where=lambda x: x[:, 0] != x[:, 1]),
    "an automaton": lambda: function("01", 8, Automaton(lambda s, x: (2 * s + x) % 5, lambda s: s == 0)),
    "running parities": lambda: Parity(6),
    "parities alone": lambda: Parity(6, scratchpad=False),
    "running sums": lambda: MultiOperandAddition(3, 1),
    "running sums from the first": lambda: MultiOperandAddition(2, 2, AdditionFormat(zero_start=False)),
    "sums alone": lambda: MultiOperandAddition(2, 2, AdditionFormat(scratchpad=False, reversed_query=True)),
    "long multiplication": lambda: Multiplication(2, 1),
}

#: Larger ones, with the numbers of states of the smallest machine.
LARGE: dict[str, tuple[Callable[[], Task], tuple[int, ...]]] = {
    "ten digits": (TenDigitAddition, (1, *[2] * 10, 1)),
    "ten digits without an end": (UnendedAddition, (1, *[2] * 10, 1)),
    "ten digits, delimited": (DelimitedAddition, (1, *[2] * 10, 1)),
    "ten digits, padded": (PaddedAddition, (1, *[2] * 10, 1)),
    "six and three digits": (lambda: formatted("{a:6}+{b:3}={s:7}", "a + b"), (1, *[2] * 6, 1)),
    "ordered": (lambda: formatted("{a:6}-{b:6}={s:6r}", "a - b", where="b <= a"), (1, *[2] * 5, 1)),
    "three numbers": (lambda: formatted("{a:4}+{b:4}+{c:4}={s:5}", "a + b + c"), (1, 3, 3, 3, 3, 1)),
    "comparison": (lambda: formatted("{a:6}<{b:6}=", "a < b"), (1, *[2] * 6, 1)),
    "maximum of four": (lambda: function([str(i) for i in range(64)], 4, "max"), (1, 64, 64, 64, 64, 1)),
    "parity of 24": (lambda: function("01", 24, "parity"), (1, *[2] * 24, 1)),
    "running parity of 24": (lambda: Parity(24), (1, *[2] * 23, 1)),
    "reversal of 8": (lambda: function("01234567", 8, "reversed"), (1,) * 9),
    "running sums": (lambda: MultiOperandAddition(3, 5), (1, 4, 4, 4, 4, 4, 1)),
}

#: Functions in Python of too many problems to run them all.
TRIED: dict[str, Callable[[], Task]] = {
    "sums": lambda: formatted("{a:5}+{b:5}={s:6}", lambda a, b: a + b),
    "signed differences": lambda: formatted("{a:5}-{b:5}={s:+5}", lambda a, b: a - b, variables="subtraction"),
    "complements": lambda: formatted("{a:3}-{b:4}={s:5}", lambda a, b: (a - b) % 10000 + 10000 * (a < b)),
    "comparisons": lambda: formatted("{a:5}?{b:5}=", lambda a, b: a >= b),
    "parity": lambda: function("01", 24, lambda bits: bits.sum(1) % 2),
    "maxima": lambda: function(DIGITS, 8, lambda x: x.amax(1), answers=DIGITS, machine="max"),
}

#: Functions that seem to be one of those, and are another for a few problems.
PLANTED: dict[str, Callable[[], Task]] = {
    "twice the same number": lambda: formatted("{a:5}+{b:5}={s:6}", lambda a, b: a + b + (a == b).long()),
    "a long carry": lambda: formatted("{a:5}+{b:5}={s:6}", lambda a, b: a + b - (a + b == 99_999).long()),
    "nothing taken away": lambda: formatted("{a:5}-{b:5}={s:+5}", lambda a, b: a - b + (b == 0).long()),
    "one token in all places": lambda: function(
        DIGITS, 8, lambda x: x.amax(1) + (x == 3).all(1).long(), answers=DIGITS, machine="max"
    ),
    "the same, unsaid": lambda: function(DIGITS, 8, lambda x: x.amax(1) + (x == 3).all(1).long(), answers=DIGITS),
}

#: Tasks without a machine that is known.
REFUSED: dict[str, Callable[[], Task]] = {
    "long products": lambda: formatted("{a:5}*{b:5}={s:10}", "a * b"),
    "a large domain with a rule in Python": lambda: formatted(
        "{a:5}-{b:5}={s:5}", lambda a, b: a - b, where=lambda a, b: a >= b
    ),
    "any function of many tokens": lambda: function("01", 30, lambda bits: bits[:, :15].sum(1) > bits[:, 15:].sum(1)),
    "no fixed places": lambda: MultiOperandAddition(3, 2, AdditionFormat(zero_padding=False)),
}


def assert_says(task: Task, machine: Machine, problems: torch.Tensor) -> None:
    """These problems are paths of the machine, which give them back."""
    tokens = sequences(task, problems)
    paths = machine.run(tokens)
    assert np.array_equal(machine.tokens(paths), tokens)
    assert torch.equal(machine.problems(paths), problems)


def assert_sound(task: Task, machine: Machine) -> None:
    """Each slot is said once, each option leads on and is reached, and no two say the same from one state."""
    said = [slot for step in machine.layers for slot in step.slots] + list(machine.fixed)
    assert sorted(said) == list(range(task.input_length + len(task.query_positions)))
    assert (machine.input_length, machine.n_targets) == (task.input_length, len(task.query_positions))
    assert len(machine.states) == len(machine.layers) + 1
    for step, n, after in zip(machine.layers, machine.states, machine.states[1:], strict=False):
        assert set(step.before.tolist()) == set(range(n)) and set(step.after.tolist()) == set(range(after))
        options = np.concatenate((step.before[:, None], step.tokens), 1)
        assert len(np.unique(options, axis=0)) == len(options)
        # states with the same options and the same states after them would be one state
        labels = np.unique(step.tokens, axis=0, return_inverse=True)[1].reshape(-1)
        rows = [frozenset(zip(labels[step.before == k], step.after[step.before == k], strict=True)) for k in range(n)]
        assert len(set(rows)) == n
    assert machine.count() == task.domain.size


@pytest.mark.parametrize("name", SMALL)
def test_the_paths_are_all_problems_and_their_answers(name: str):
    task = SMALL[name]()
    machine = machine_of(task)
    assert_sound(task, machine)
    assert_says(task, machine, task.domain.every())
    assert machine.checked_on is None


@pytest.mark.parametrize("name", LARGE)
def test_large_machines_are_small(name: str):
    make, states = LARGE[name]
    task = make()
    machine = machine_of(task)
    assert machine.states == states and machine.checked_on is None
    assert_sound(task, machine)
    draws = torch.Generator().manual_seed(1)
    assert_says(task, machine, task.sample(2_000, draws))
    for rare in (False, True):
        paths = machine.sample(2_000, draws, rare)
        assert np.array_equal(sequences(task, machine.problems(paths)), machine.tokens(paths))


def test_paths_are_drawn_uniformly():
    machine = machine_of(formatted("{a:1}-{b:1}={s:1}", "a - b", where="a >= b"))
    problems = machine.problems(machine.sample(55_000, torch.Generator().manual_seed(0)))
    counts = (10 * problems[:, 0] + problems[:, 1]).bincount()
    counts = counts[counts > 0].double()
    assert len(counts) == 55 and float(((counts - 1000) ** 2 / 1000).sum()) < 100  # 54 expected


@pytest.mark.parametrize("name", ["signed differences", "operators", "sorted strings", "running sums"])
def test_the_least_sum_through_each_option_is_that_of_all_problems(name: str):
    task = SMALL[name]()
    machine = machine_of(task)
    paths = machine.run(sequences(task, task.domain.every()))
    draws = np.random.default_rng(0)
    values = [draws.normal(size=len(step.before)) for step in machine.layers]
    values[-1][0] = np.inf
    sums = sum(each[paths[:, k]] for k, each in enumerate(values))
    for at in range(len(machine.layers)):
        least, found = machine.cheapest_paths(values, at)
        expected = np.full(len(least), np.inf)
        np.minimum.at(expected, paths[:, at], sums)
        assert np.allclose(least, expected)
        assert np.array_equal(found[:, at], np.arange(len(least)))
        assert np.allclose(sum(each[found[:, k]] for k, each in enumerate(values)), least)
        assert (task.domain.holds(machine.problems(found))).all()


@pytest.mark.parametrize("name", TRIED)
def test_what_was_only_tried_says_so(name: str):
    task = TRIED[name]()
    machine = machine_of(task)
    assert machine.checked_on is not None and machine.checked_on >= 2_000
    assert_sound(task, machine)


@pytest.mark.parametrize("name", PLANTED)
def test_an_answer_that_is_another_for_few_problems_is_found(name: str):
    with pytest.raises(UserError):
        machine_of(PLANTED[name]())


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_machine_is_refused(name: str):
    with pytest.raises(UserError):
        machine_of(REFUSED[name]())


def test_an_exception_in_the_text_of_an_answer_is_part_of_the_machine():
    task = formatted("{a:6}+{b:6}={s:7}", "a + b + (a == 123456) * (b == 654321)")
    machine = machine_of(task)
    assert machine.checked_on is None and max(machine.states) > 2
    assert_sound(task, machine)
    near = torch.tensor([[123456 + i, 654321 + j] for i, j in product((-1, 0, 1), (-1, 0, 1))])
    assert_says(task, machine, near)


def test_an_answer_that_does_not_fit_for_a_rare_problem_is_refused():
    task = formatted("{a:6}+{b:6}={s:6}", "(a + b) * (a + b < 1000000) + 1000000 * (a == 123456) * (b == 1)")
    with pytest.raises(UserError):
        machine_of(task)


def test_a_task_whose_methods_were_replaced_is_run_or_tried():
    class Reversed(FormattedTask):
        def targets(self, problems: Any) -> torch.Tensor:
            return super().targets(problems).flip(1)

        def encode(self, problems: Any) -> torch.Tensor:
            return torch.cat((self.encode_prompt(problems), self.targets(problems)[:, :-1]), 1)

    small, large = Reversed("{a:1}+{b:1}={s:2}", "a + b"), Reversed("{a:5}+{b:5}={s:6}", "a + b")
    assert_says(small, machine_of(small), small.domain.every())
    with pytest.raises(UserError):
        machine_of(large)


def test_a_wrong_row_is_no_path():
    task = formatted("{a:3}+{b:3}={s:4}", "a + b")
    machine, tokens = machine_of(task), sequences(task, [(123, 989), (5, 7)])
    for slot in range(tokens.shape[1]):
        wrong = tokens.copy()
        wrong[1, slot] = (wrong[1, slot] + 1) % task.d_vocab
        with pytest.raises(UserError):
            machine.run(wrong)


NUMBERS = st.sampled_from(["a", "b", "a", "b", "1", "3", "10", "12"])


def _grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    infix = st.sampled_from(["+", "-", "<", "<=", "==", "!=", ">", ">="])
    return st.one_of(
        st.tuples(parts, infix, parts).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(parts, st.sampled_from(["%", "//", "*"]), st.integers(1, 12)).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), parts, parts).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        parts.map(lambda part: f"abs({part})"),
    )


@settings(max_examples=80, deadline=None)
@given(st.recursive(NUMBERS, _grown, max_leaves=5), st.sampled_from([2, 3, 10]), st.booleans())
def test_any_expression_is_its_machine(text: str, base: int, backwards: bool):
    widths = {2: (3, 2), 3: (2, 2), 10: (2, 1)}[base]
    first, second = (f":{width}{'r' if backwards else ''}" for width in widths)
    try:
        task = formatted(
            f"{{a{first}}},{{b{second}}}={{s:+{12 if base == 2 else 6}}}", f"{text} + 0 * a * 1", base=base
        )
    except UserError:  # an answer that does not fit
        return
    machine = machine_of(task)
    assert_sound(task, machine)
    assert_says(task, machine, task.domain.every())
