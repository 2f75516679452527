"""The domain belongs to the task: what it says is what there is, and where it says nothing nothing is assumed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import (
    CharacterLanguage,
    Domain,
    MultiOperandAddition,
    Multiplication,
    Parity,
    Task,
    TenDigitAddition,
    TwoDigitAddition,
    problem_pairs,
)
from models.tasks.check_task import domain_of
from models.tasks.named.addition import PaddedAddition
from models.tasks.refusals import NoDomain
from models.tasks.roles import Role
from tests.other_tasks import column_addition, modular_addition
from tests.toy_task import ToyAddition

OURS = [
    TenDigitAddition(), PaddedAddition(), TwoDigitAddition(), ToyAddition(), Parity(5), MultiOperandAddition(3, 2),
    MultiOperandAddition(2, 1), Multiplication().at(2, 3), modular_addition(113), modular_addition(2),
    column_addition(2, 4), column_addition(7), column_addition(12, 3),
]  # fmt: skip
IDS = [f"{task.name}-{task.domain.size}" for task in OURS]


@pytest.mark.parametrize("task", OURS, ids=IDS)
def test_the_domain_is_what_the_task_draws(task: Task):
    drawn = task.sample(3000, torch.Generator().manual_seed(5))
    domain = domain_of(task)
    assert domain.holds(drawn).all()
    digits = domain.digits_of(drawn)
    assert torch.equal(domain.problems(digits), drawn)
    for cell in range(len(domain)):  # every digit that there is, and no other
        assert set(digits[:, cell].tolist()) == set(domain.digits(cell))


@pytest.mark.parametrize("task", [task for task in OURS if task.domain.size <= 2**14], ids=lambda t: t.name)
def test_all_problems_are_gone_through_once_and_written_so_that_they_are_found(task: Task):
    everything = task.domain.every()
    assert len(torch.unique(everything.flatten(1), dim=0)) == task.domain.size
    assert task.domain.holds(everything).all()
    for problem in everything[:: max(1, task.domain.size // 50)].split(1):
        text = task.problem_text(task.numbers(problem)[0])
        assert torch.equal(task.as_problems([text]), task.as_problems(problem))


@pytest.mark.parametrize(("p", "size"), [(2, 4), (7, 49), (12, 144), (113, 12_769)])
def test_residues_are_as_many_as_there_are(p: int, size: int):
    domain = modular_addition(p).domain
    assert domain.size == size and int(domain.every().max()) == p - 1
    assert not domain.holds(torch.tensor([[p, 0], [-1, 0]])).any()


class Silent(ToyAddition):
    domain = Task.domain


class Lying(ToyAddition):
    """It draws two-digit numbers and says that there is one digit."""

    domain = Domain.of((1, 1))


def test_where_a_task_says_nothing_or_what_is_not_so_nothing_is_gone_through():
    for task in (Silent(), CharacterLanguage()):
        with pytest.raises(NoDomain):
            domain_of(task)
        with pytest.raises(NoDomain):
            problem_pairs(task, "variable", variable="carry_out", column=0, n=4)
    with pytest.raises(UserError) as found:
        domain_of(Lying())
    assert not isinstance(found.value, NoDomain)


def test_a_domain_that_cannot_be_is_refused():
    for options in ({"lengths": ()}, {"lengths": (0, 2)}, {"lengths": (1,), "base": 1}):
        with pytest.raises(UserError):
            Domain.of(**options)


@given(base=st.integers(2, 400), digits=st.integers(1, 3), data=st.data())
def test_numbers_and_their_digits_are_the_same_thing(base: int, digits: int, data: st.DataObject):
    domain = Domain.of((digits, 1), base)
    numbers = [data.draw(st.integers(0, base**n - 1)) for n in (digits, 1)]
    problem = torch.tensor([numbers])
    assert domain.holds(problem).all() and torch.equal(domain.problems(domain.digits_of(problem)), problem)
    assert not domain.holds(torch.tensor([[base**digits, 0]])).any()


class Said(ToyAddition):
    """Roles set in ``__init__``, as where they depend on an argument."""

    def __init__(self):
        self.roles = (*ToyAddition.roles[:4], Role("answer", "s0", 0), Role("answer", "s1", 1))
        self.target_roles, self.query_positions = self.roles[4:], (3, 4)


def test_roles_may_be_set_when_a_task_is_made_and_are_asked_for_where_they_are_missing():
    class Bare(Said):
        roles, target_roles, query_positions = Task.roles, Task.target_roles, Task.query_positions

    assert Bare().roles[4].label == "s0" and list(Bare().query_positions) == [3, 4]
    unsaid = object.__new__(Bare)
    for name in ("roles", "target_roles", "query_positions"):
        with pytest.raises(UserError):
            getattr(unsaid, name)


# ---- pairs


@pytest.mark.parametrize("p", [2, 7, 13])
def test_all_pairs_of_a_variable_are_all_there_are(p: int):
    task = modular_addition(p)
    found = problem_pairs(task, "variable", variable="carry_out", column=0, n=None, answer=None)
    residues = range(p)
    one_apart = {
        frozenset(((a, b), other))
        for a in residues
        for b in residues
        for other in [(c, b) for c in residues] + [(a, c) for c in residues]
        if (a + b >= p) != (sum(other) >= p)
    }
    said = {frozenset(map(tuple, pair)) for pair in torch.stack((found.clean, found.corrupted), 1).tolist()}
    assert found.exhaustive and said == one_apart and len(found) == len(one_apart)


@pytest.mark.parametrize("base", [2, 3, 7, 12])
@pytest.mark.parametrize("kind", ["made carry", "passed carry", "same carry", "digit", "chain"])
def test_pairs_about_carries_keep_their_promise_in_every_base(base: int, kind: str):
    task = column_addition(base, 3)
    column = 0 if kind == "digit" else 2
    found = problem_pairs(task, kind, column=column, n=12, seed=1)  # checked as they are made
    assert len(found) == 12 and int(torch.cat((found.clean, found.corrupted)).max()) < base**3
    carry = [task.variables(side)["carry_in"][:, 2] for side in (found.clean, found.corrupted)]
    assert bool((carry[0] != carry[1]).all()) == (kind in ("made carry", "passed carry", "chain"))
    assert bool((carry[0] == carry[1]).all()) == (kind in ("same carry", "digit"))


def test_pairs_reach_digits_above_nine_and_above_255():
    found = problem_pairs(modular_addition(499), "variable", variable="s", column=0, n=200)
    assert int(found.clean.max()) > 400 and int(found.clean.min()) >= 0
