"""No answer depends on which token a digit is: the same function with its tokens in another order gives equal numbers.

Only untrained copies and shuffled tables differ, whose random numbers are drawn token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.core.probe import registered
from models.errors import UserError
from models.tasks.columns.addition_algorithms import CHAINED
from models.tasks.columns.column_places import column_places
from models.tasks.named.addition import TenDigitAddition
from studies.population import align
from tests.exams import BRIEFLY
from tests.exams.asking import ask_briefly, asked_of_models, pairs_for
from tests.moved_tokens import MovedTask, moved

N = 48


@cache
def two_orders(name: str) -> tuple[Any, Any]:
    """A model seen through the plain interface of tasks, and the same with its tokens in reverse."""
    model = models.load(name)
    order = list(range(model.cfg.d_vocab))
    return moved(model, order), moved(model, order[::-1])


#: Asked beside the probes.
MORE: dict[str, Callable[[Any], Any]] = {
    "align": lambda m: align(m, two_orders("microadder-57")[m.task.order[0] != 0]).distances(),
    "activation_patching by role": lambda m: interp.activation_patching(m, pairs_for(m), site="v", by="role"),
    "score by target": lambda m: interp.score(m, n=N, by="target"),
}
NO_COPIES = {"untrained": 0}  # which are drawn token by token
ASK = {
    name: partial(ask_briefly, name, **(NO_COPIES if registered()[name].takes("untrained") else {}))
    for name in asked_of_models(but="order")
} | MORE
DRAWN = ("untrained", "shuffled", "p_untrained", "p_shuffled", "control_note", "seconds")
SLOW = {"all_circuits", "compare_models", "smallest_circuit", *(name for name in ASK if BRIEFLY[name].slow)}
IN_BOTH = {"ov_output_shape", "direct_logit_attribution", "circle_fit"}  # in `make test`, of both models
IN_ONE = {*list(ASK)[::3], *IN_BOTH, "interchange_intervention"} - SLOW


def told(name: str, model: Any) -> pd.DataFrame | str:
    """The result as a table without what is drawn token by token, or the refusal."""
    try:
        found = ASK[name](model)
    except UserError as error:
        return str(error)
    table = found if isinstance(found, pd.DataFrame) else found.to_dataframe()
    return table.drop(columns=[column for column in table if str(column).startswith(DRAWN) or is_drawn(str(column))])


def is_drawn(column: str) -> bool:
    """Whether a measure's control is in this column."""
    return any(f"_{name}" in column for name in ("untrained", "shuffled", "random"))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        pytest.param(model, name, marks=[pytest.mark.slow] * (name not in often))
        for model, often in (("microadder-57", IN_ONE), ("adder-456", IN_BOTH))
        for name in ASK
    ],
)
def test_a_question_has_the_same_answer_whatever_the_order_of_tokens(model: str, name: str):
    torch.manual_seed(0)
    one, other = (told(name, each) for each in two_orders(model))
    if isinstance(one, str):
        assert one == other
        return
    assert isinstance(other, pd.DataFrame) and list(one) == list(other)
    for column in one:
        if pd.api.types.is_numeric_dtype(one[column]):
            values, others = (np.asarray(each[column], dtype=float) for each in (one, other))
            assert values == pytest.approx(others, rel=2e-3, abs=2e-4, nan_ok=True), column
        else:
            assert one[column].astype(str).tolist() == other[column].astype(str).tolist(), column


def test_a_task_says_which_token_a_digit_is():
    task = TenDigitAddition()
    assert tuple(task.digit_tokens) == tuple(range(10))
    turned = MovedTask(task, list(range(10))[::-1])
    assert tuple(turned.digit_tokens) == tuple(range(10))[::-1]
    assert turned.digit_values(turned.encode([(123, 456)]))[0, :3].tolist() == [3, 2, 1]
    assert task.digit_values(torch.tensor([[-1, 0, 9, 10]])).tolist() == [[-1, 0, 9, -1]]
    layout, own = column_places(turned), column_places(task)
    problems = task.sample(20, torch.Generator().manual_seed(0))
    assert torch.equal(layout.values(CHAINED, problems)["answer"], own.values(CHAINED, problems)["answer"])
    assert torch.equal(layout.answer_tokens(torch.tensor([0, 9])), torch.tensor([9, 0]))


@pytest.mark.parametrize("digits", [(0, 1), (0,) * 10, (*range(9), 10), (*range(9), -1)])
def test_digits_that_are_no_tokens_are_refused(digits: tuple[int, ...]):
    task = MovedTask(TenDigitAddition(), list(range(10)))
    task.digit_tokens = digits
    with pytest.raises(UserError):
        task.digit_values(torch.zeros(1, 3, dtype=torch.int64))
