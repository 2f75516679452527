"""The suite's own guard: annotated shapes are checked while it runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from tests.conformance.table import dense
from tests.shape_checks import Share, checked, unchecked_shapes


def test_a_wrong_shape_inside_a_model_is_an_error():
    norm = dense()(0).ln_final
    assert norm(torch.ones(2, 3, 12)).shape == (2, 3, 12)
    for wrong in (torch.ones(2, 3, 12, dtype=torch.long), [1.0]):
        with pytest.raises(jaxtyping.TypeCheckError):
            norm(wrong)


class Sums:
    @checked
    def product(self, a: Float[Tensor, "b c"], b: Float[Tensor, "c d"], wrong: Any = None) -> Float[Tensor, "b d"]:
        return a @ b if wrong is None else wrong


@checked
def total(parts: dict[str, Float[np.ndarray, " n"]], weight: int = 1) -> float:
    return weight * float(sum(part.sum() for part in parts.values()))


@checked
@dataclasses.dataclass
class Line:
    x: Float[Tensor, " n"]
    y: Float[Tensor, " n"]


def test_each_call_is_checked_and_not_the_first_alone():
    ask, two, three = Sums().product, torch.ones(2, 2), torch.ones(3, 3)
    for _ in range(2):  # right, and found right before
        assert ask(two, two).shape == (2, 2) and ask(three, b=three[:, :2]).shape == (3, 2)
        for wrong in ((two, three), (two, two.long()), (two, two[0]), (two,), (two, two.numpy())):
            with pytest.raises(TypeError):
                ask(*wrong)
        for answer in (three, two[0], two.long(), "two"):  # of arguments that were right with another result
            with pytest.raises(jaxtyping.TypeCheckError):
                ask(two, two, answer)


def test_arrays_within_others_numbers_and_fields_are_checked():
    for _ in range(2):
        assert total({"a": np.ones(3)}, 2) == 6.0
        for wrong in (({"a": np.ones((3, 1))},), ({1: np.ones(3)},), ({"a": np.ones(3)}, 2.0), ([np.ones(3)],)):
            with pytest.raises(jaxtyping.TypeCheckError):
                total(*wrong)
        assert Line(torch.ones(2), torch.ones(2)).x.shape == (2,)
        with pytest.raises(jaxtyping.TypeCheckError):
            Line(torch.ones(2), torch.ones(3))


def test_the_checks_can_be_switched_off():
    with unchecked_shapes():
        assert Line(torch.ones(2), torch.ones(3)).y.shape == (3,)
    with pytest.raises(jaxtyping.TypeCheckError):
        Line(torch.ones(2), torch.ones(3))


def test_every_copy_of_a_function_within_a_function_is_checked():
    def copy() -> Any:
        @checked
        def added(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
            return x + y

        return added

    for _ in range(2):
        assert copy()(torch.ones(2), torch.ones(2)).shape == (2,)
        with pytest.raises(jaxtyping.TypeCheckError):
            copy()(torch.ones(2), torch.ones(1))


def test_a_wrong_shape_is_found_after_many_right_ones(monkeypatch: pytest.MonkeyPatch):
    """Of calls without end some are looked at, and in the next test the first ones again."""
    monkeypatch.setattr(Share, "every", 8)
    ask, two, three = Sums().product, torch.ones(2, 2), torch.ones(3, 3)
    for _ in range(100):
        ask(two, two)
    with pytest.raises(jaxtyping.TypeCheckError):
        for _ in range(8):
            ask(two, two, three)
    Share.test += 1
    with pytest.raises(jaxtyping.TypeCheckError):
        ask(two, two, three)
