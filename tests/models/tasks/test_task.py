"""A task of one's own is one method and three attributes; all else follows from them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import models
from models.errors import UserError
from models.tasks import Automaton, Domain, Machine, Role, Task, formatted, machine_of, require_sound, variable_pairs
from models.tasks.machines.automaton_machines import machine_of_automaton
from models.tasks.machines.column_machines import Cell
from models.tasks.machines.machine import target_slots
from models.tasks.refusals import NoDomain, NoMachine


class LastTwice(Task):
    """The last of five letters, twice."""

    vocabulary = "abcd|"
    domain = Domain.of((1,) * 5, base=4)
    prompt, answer = "x0 x1 x2 x3 x4 |", "y0 y1"

    def tokens(self, problems: Tensor) -> tuple[Tensor, Tensor]:
        bar = torch.full_like(problems[:, :1], 4)
        return torch.cat((problems, bar), 1), problems[:, -1:].expand(-1, 2)


class Sum(Task):
    """Two-digit numbers, and their sum from the units on."""

    vocabulary = "0123456789+="
    domain = Domain.of((2, 2))
    prompt, answer = "a1 a0 + b1 b0 =", "s0 s1 s2"

    def tokens(self, problems: Tensor) -> tuple[Tensor, Tensor]:
        a, b = problems.T
        mark = torch.full_like(a, 10)
        total = a + b
        prompt = torch.stack((a // 10, a % 10, mark, b // 10, b % 10, mark + 1), 1)
        return prompt, torch.stack((total % 10, total // 10 % 10, total // 100), 1)

    def variables(self, problems: Tensor) -> dict[str, Tensor]:
        found = self.as_problems(problems)
        return {"carry_out": ((found % 10).sum(1) >= 10).long()[:, None]}


def test_roles_queries_and_tokens_follow_from_labels_and_one_method():
    task = LastTwice()
    assert task.name == "LastTwice" and (task.d_vocab, task.input_length) == (5, 7)
    assert task.query_positions == (5, 6) and [role.label for role in task.target_roles] == ["y0", "y1"]
    assert task.roles[3] == Role("operand", "x3", 0, 3) and task.roles[5] == Role("delimiter", "|")
    assert task.encode([(0, 1, 2, 3, 1)]).tolist() == [[0, 1, 2, 3, 1, 4, 1]]
    assert task.encode_prompt([(0, 1, 2, 3, 1)]).tolist() == [[0, 1, 2, 3, 1, 4]]
    assert task.targets([(0, 1, 2, 3, 1)]).tolist() == [[1, 1]] and require_sound(task) is task


def test_a_sum_of_ones_own_has_the_columns_of_one_that_is_a_format():
    task, other = Sum(), formatted("{a:2}+{b:2}={s:3r}", "a + b", vocabulary="0123456789+=")
    problems = other.domain.every()
    assert torch.equal(task.domain.every(), problems)
    assert torch.equal(task.encode(problems), other.encode(problems))
    assert torch.equal(task.targets(problems), other.targets(problems))
    assert list(task.roles) == list(other.roles) and task.query_positions == other.query_positions
    assert [task.relative_roles(i) for i in range(3)] == [other.relative_roles(i) for i in range(3)]
    assert task.decode(task.targets(problems)) == problems.sum(1).tolist()
    assert task.as_problems(["47 + 85", "5 9"]).tolist() == [[47, 85], [5, 9]]
    assert task.problem_text((47, 85)) == "47 85" and task.answer_text(task.targets([(47, 85)])) == "132"


def test_problems_are_drawn_held_out_and_counted():
    task = LastTwice()
    held, drawn = task.held_out.problems, task.sample(500, torch.Generator().manual_seed(0))
    assert len(held) == 102 and task.domain.holds(drawn).all() and len(task.domain.every()) == 4**5
    keys = models.tasks.counter_rng.row_keys(0, 0, 1_000, torch.device("cpu"))
    assert not task.held_out.holds(task.held_out.training(keys)).any()
    counts = torch.bincount(drawn.flatten(), minlength=4)
    assert counts.min() > 500  # of 625 each
    assert task.chain_length(drawn).tolist() == [0] * 500 and task.variables(drawn) == {}


def test_its_machine_is_found_by_running_all_problems():
    task = LastTwice()
    with pytest.raises(NoMachine):
        task.derived_machine()
    machine = machine_of(task)
    assert machine.count() == 4**5 and max(machine.states) == 4  # the last letter is remembered, and nothing else


def test_a_machine_that_somebody_gives_is_compared_with_the_task():
    class Said(LastTwice):
        domain = Domain.of((1,) * 12, base=4)  # 16 million, which are not run
        prompt = " ".join(f"x{i}" for i in range(12)) + " |"

        def derived_machine(self) -> Machine:
            wrong = self.name == "wrong"
            keeps = Automaton(lambda s, x: s if wrong else x, lambda s: torch.stack((s, s), 1))
            cells = [Cell(f"x{i}", i, (0, 1, 2, 3), i, i) for i in range(12)]
            slots, sizes = [target_slots(self, i) for i in range(2)], (self.input_length, 2)
            return machine_of_automaton(keeps, cells, slots, range(4), {12: 4}, sizes, torch.zeros(12).long())

    machine = machine_of(Said())
    assert machine.checked_on == 2_000 and machine.count() == 4**12
    wrong = Said()
    wrong.name = "wrong"
    with pytest.raises(UserError):
        machine_of(wrong)


def test_a_machine_is_kept_on_a_task_of_this_package():
    task = formatted("{a:2}+{b:2}={s:3}", "a + b")
    assert machine_of(task) is machine_of(task)


def test_pairs_differ_in_a_variable_of_ones_own():
    pairs = variable_pairs(Sum(), "carry_out", 0, 8)
    assert (pairs.changed["carry_out"][:, 0]).all() and pairs.check() is pairs


def test_what_is_not_said_is_asked_for():
    class Bare(Task):
        vocabulary = "01"

    for read in (lambda: Bare().roles, lambda: Bare().target_roles, lambda: Bare().tokens(torch.zeros(1, 1).long())):
        with pytest.raises(UserError):
            read()
    with pytest.raises(NoDomain):
        Bare().as_problems([(0, 1)])
    with pytest.raises(UserError):
        _ = Bare().held_out.problems


@pytest.mark.parametrize("bad", [[(0, 1, 2, 3)], [(0, 1, 2, 3, 4)], "1 2", [(0.5, 1, 2, 3, 1)], torch.rand(2, 5), []])
def test_what_is_no_problem_is_refused(bad: object):
    with pytest.raises(UserError):
        LastTwice().encode(bad)
