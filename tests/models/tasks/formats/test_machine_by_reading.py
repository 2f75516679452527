"""Machines that are read off the text of any answer, digit by digit."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tasks import formatted
from models.tasks.expressions import Expression
from models.tasks.formats.machine_by_reading import machine_by_reading
from models.tasks.machines.machine import sequences
from models.tasks.machines.machine_of import machine_of
from models.tasks.machines.partial_evaluation import ends, known, normal
from models.tasks.refusals import NoMachine

NAMES = ("a", "b", "c")
BASE = 4
BITS = [f"x{i}" for i in range(24)]


def expressions() -> st.SearchStrategy[str]:
    """Texts of whole numbers from 0 to 3."""
    leaves = st.sampled_from([*NAMES, *NAMES, "0", "1", "2", "5"])
    joined = lambda inner: st.one_of(  # noqa: E731
        st.tuples(inner, st.sampled_from(["+", "-", "*", "^", "&", "|", "<", "<=", ">", ">=", "==", "!="]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["max", "min", "gcd"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(inner, st.sampled_from(["%", "//"]), st.sampled_from(["2", "3", "(1 + a)"]))
        .map(" ".join)
        .map("({})".format),
        inner.map("abs({})".format),
        inner.map("(-{})".format),
        inner.map("{} ** 2".format).map("({})".format),
    )
    return st.recursive(leaves, joined, max_leaves=8)


@settings(max_examples=60)
@given(text=expressions(), order=st.permutations(NAMES))
def test_numbers_that_become_known_one_by_one_give_the_expressions_value(text: str, order: list[str]):
    expression, limits = Expression(text), dict.fromkeys(NAMES, BASE)
    whole = normal(expression.tree, limits)
    low, high = ends(whole)
    for values in itertools.product(range(BASE), repeat=3):
        of_name = dict(zip(NAMES, values, strict=True))
        form = whole
        for name in order:
            form = known(form, name, of_name[name])
        right = int(expression(**{name: of_name[name] for name in expression.names}))
        assert form == right and low <= right <= high


@settings(max_examples=30)
@given(text=expressions(), rule=st.none() | expressions())
def test_paths_are_the_tasks_problems_with_their_answers(text: str, rule: str | None):
    expression = Expression(text)
    used = {node.id for node in ast.walk(expression.tree) if isinstance(node, ast.Name)}
    if not used:
        return
    answer = f"({text} + 0 * (a + b + c)) % 4"
    where = None if rule is None or not set(NAMES) & set(Expression(rule).names) else f"{rule} != 0"
    every = torch.tensor(list(itertools.product(range(BASE), repeat=3)))
    if where is not None:
        own = Expression(where)
        allowed = [bool(own(**{n: row[NAMES.index(n)] for n in own.names})) for row in every.tolist()]
        if not any(allowed):
            return
        every = every[allowed]
    task = formatted("{a}{b}{c}=", answer, base=BASE, where=where)
    machine = machine_by_reading(task.parsed)
    assert machine.count() == len(every)
    paths = machine.run(sequences(task, every))
    assert torch.equal(machine.problems(paths), every) and (machine.tokens(paths) == sequences(task, every)).all()


@pytest.mark.parametrize(
    ("task", "size", "states"),
    [
        (formatted("{a}{b}{c}{d}=", "max(max(a, b), max(c, d))", base=40), 40**4, 40),
        pytest.param(
            formatted("{a}{b}{c}{d}{e}{f}=", "max(max(max(a, b), max(c, d)), max(e, f))", base=64), 64**6, 64,
            marks=pytest.mark.slow,
        ),
        (formatted("".join(f"{{{name}}}" for name in BITS) + "=", " ^ ".join(BITS), base=2), 2**24, 2),
        (formatted("{a}{b}{c}={m},{n}", "max(a, max(b, c)), min(a, min(b, c))", base=32), 32**3, 528),
        (formatted("{a:6}*{b}={s:7}", "a * b % 10", base=10), 10**7, 10),
    ],
)  # fmt: skip
def test_folds_of_many_tokens_have_small_machines(task, size: int, states: int):
    machine = machine_of(task)
    assert machine.checked_on is None and machine.count() == size and max(machine.states) == states


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("abs(a % (b + 1)) // 2 >= 1 + 0 * c", None),  # a quotient of what has no known bound
        ("(max(0, a % (b + 1)) ^ c) >= 1", None),
        ("a // b + 0 * c", "b > 0"),
        ("a % b + c", "(b ^ a) > a - (b > 0)"),
    ],
)
def test_quotients_whose_bounds_are_not_known_at_first_are_read_rightly(answer: str, rule: str | None):
    task = formatted("{a}{b}{c}={s:2}", answer, where=rule)
    every, machine = task.domain.every(), machine_of(task)
    assert machine.checked_on is None and machine.count() == len(every)
    paths = machine.run(sequences(task, every))
    assert torch.equal(machine.problems(paths), every)


def test_a_quotient_by_what_may_be_zero_is_left_to_runs_of_all_problems():
    task = formatted("{a}/{b}/{c}={s}", "a // b + 0 * c", where="gcd(b, c) < c")  # so b is not 0
    with pytest.raises(NoMachine):
        machine_by_reading(task.parsed)
    assert machine_of(task).count() == len(task.domain.every())


def test_what_has_to_be_remembered_whole_is_not_decided():
    with pytest.raises(NoMachine):
        machine_by_reading(formatted("{a:5}*{b:5}={s:10}", "a * b").parsed)
