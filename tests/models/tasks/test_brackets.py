"""Balanced brackets: what is read as a problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models.errors import UserError
from models.tasks.named.brackets import BalancedBrackets


@pytest.mark.parametrize("bad", [[7, 8], [1.5], ["01"], 7, ["0a01"], torch.zeros(1, 4), []])
def test_what_is_no_string_of_brackets_is_refused(bad: Any) -> None:
    with pytest.raises(UserError):
        BalancedBrackets(4).as_problems(bad)


def test_texts_and_lists_of_brackets_are_read_alike() -> None:
    task = BalancedBrackets(4)
    assert torch.equal(task.as_problems("0101"), task.as_problems([[0, 1, 0, 1]]))
    assert task.targets(["0011", "0110"]).tolist() == [[1], [0]]
