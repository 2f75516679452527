"""A task's mistakes are refused where it is first used, and no task of this project has one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import interp
import models
from models.errors import UserError
from models.tasks import (
    MultiOperandAddition,
    Multiplication,
    Parity,
    TenDigitAddition,
    TwoDigitAddition,
    function,
    pairs,
)
from models.tasks.check_task import require_sound
from models.tasks.task import Task
from studies.adderboard.framed_addition import Frame, framed_addition
from tests.other_tasks import column_addition, modular_addition
from tests.toy_task import ToyAddition

PLAIN = TwoDigitAddition()
SOUND = [
    *(
        TwoDigitAddition(),
        TenDigitAddition(),
        ToyAddition(),
        Parity(9),
        function("01", 16, "balanced"),
        Multiplication(2, 3),
    ),
    *(MultiOperandAddition(3, 4), modular_addition(7), column_addition(3, 3, True, False), column_addition(12)),
    framed_addition(Frame(operands_down=True, answer_down=True)),
]


@pytest.mark.parametrize("task", SOUND, ids=lambda task: task.name)
def test_the_tasks_of_this_project_are_sound(task: Task):
    assert require_sound(task) is task


def _shifted(problems: Any) -> Tensor:
    return PLAIN.encode(problems).roll(1, 0)  # each row is another problem's


#: What is wrong -> the attributes of a two-digit addition that make it so.
MISTAKES: dict[str, dict[str, Any]] = {
    "a query before the start": {"query_positions": (-3, -2, -1)},
    "a query after the end": {"query_positions": (3, 4, 6)},
    "queries out of order": {"query_positions": (4, 3, 5)},
    "a query twice": {"query_positions": (3, 3, 5)},
    "fewer queries than targets": {"query_positions": (3, 4)},
    "no query": {"query_positions": ()},
    "a query that is no number": {"query_positions": (3, 4.0, 5)},
    "fewer roles than positions": {"roles": PLAIN.roles[:3]},
    "a role outside the sequence": {"relative_roles": lambda target: {"own operands": [target, 99]}},
    "a role before the start": {"relative_roles": lambda target: {"own operands": [-1]}},
    "a role after its query": {"relative_roles": lambda target: {"previous output": [5]}},
    "roles that are no groups": {"relative_roles": lambda target: [1, 2]},
    "roles that raise": {"relative_roles": lambda target: {}["own"]},
    "another length": {"input_length": 7},
    "no length": {"input_length": 0},
    "too few tokens": {"d_vocab": 4},
    "another problem's tokens": {"encode": _shifted},
    "another problem's answers": {"targets": lambda problems: PLAIN.targets(problems).roll(1, 0)},
    "another problem's prompt": {"encode_prompt": lambda problems: PLAIN.encode_prompt(problems).roll(1, 0)},
    "too few targets": {"targets": lambda problems: PLAIN.targets(problems)[:, :2]},
    "tokens that are fractions": {"encode": lambda problems: PLAIN.encode(problems).double()},
    "tokens of one problem": {"encode": lambda problems: PLAIN.encode(problems)[0]},
    "no tensor": {"encode": lambda problems: PLAIN.encode(problems).tolist()},
    "an encoding that raises": {"encode": lambda problems: PLAIN.encode(problems)[:, [99]]},
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_mistake_of_a_task_is_refused_by_everything_that_uses_it(mistake: str):
    wrong: Any = TwoDigitAddition()
    for name, value in MISTAKES[mistake].items():
        object.__setattr__(wrong, name, value)
    model = models.load("toygpt-none-none")
    for use in (
        lambda: require_sound(wrong),
        lambda: interp.attention_by_role(model, task=wrong, n=8),
        lambda: interp.logit_lens(model, task=wrong, n=8),
        lambda: pairs(wrong, [(15, 27)], [(15, 22)]),
        lambda: models.score(model, [(15, 27)], task=wrong),
    ):
        with pytest.raises(UserError):
            use()


def test_a_task_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    task, asked = TwoDigitAddition(), []
    encode = task.encode
    monkeypatch.setattr(task, "encode", lambda problems: asked.append(1) or encode(problems))
    before = torch.random.get_rng_state()
    require_sound(task), require_sound(task)
    assert 0 < len(asked) <= 8 and torch.equal(torch.random.get_rng_state(), before)
