"""Whatever a result may hold goes through JSON and comes back as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jaxtyping import Float, Int
from torch import Tensor

import interp
import models
from interp.core.as_json import decode, encode
from models.errors import UserError


def through_json(kind: Any, value: Any) -> Any:
    return decode(kind, json.loads(json.dumps(encode(value), allow_nan=False)))


@dataclass(frozen=True)
class Leaf:
    name: str
    value: float | None = None


@dataclass(frozen=True)
class Other:
    why: str


@dataclass(frozen=True, eq=False)
class Tree:
    leaves: tuple[Leaf | Other, ...]
    counts: Mapping[tuple[int, str], int]
    nested: dict[int, dict[str, float]]
    array: Float[np.ndarray, "row column"]
    tensor: Int[Tensor, " n"]
    note: str = ""
    extra: list[int] = field(default_factory=list)


def test_a_dataclass_comes_back_with_its_types() -> None:
    tree = Tree(
        (Leaf("a", math.nan), Other("no such column"), Leaf("b")),
        {(1, "x"): 3, (2, "y"): 4},
        {3: {"a": math.inf, "b": -math.inf}},
        np.array([[1.0, math.nan], [math.inf, -2.5]]),
        torch.arange(3),
    )
    again = through_json(Tree, tree)
    assert [type(leaf) for leaf in again.leaves] == [Leaf, Other, Leaf] and math.isnan(again.leaves[0].value)
    assert again.counts == tree.counts and again.nested == tree.nested and again.extra == []
    np.testing.assert_array_equal(again.array, tree.array)
    assert torch.equal(again.tensor, tree.tensor)


def test_what_is_at_its_default_is_not_written() -> None:
    assert encode(Leaf("a")) == {"name": "a"}


@given(
    arrays.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_arrays_keep_bits_shape_and_dtype(array: np.ndarray) -> None:
    again = through_json(np.ndarray, array)
    assert again.dtype == array.dtype and again.shape == array.shape
    np.testing.assert_array_equal(again, array)


def test_labelled_arrays_keep_labels_and_the_order_of_dimensions() -> None:
    data = xr.Dataset(
        {"value": (("unit", "step"), np.arange(6.0).reshape(2, 3)), "n": ("unit", [4, 5])},
        coords={"step": [10, 20, 30], "unit": ["L0N0", "L0N1"]},
        attrs={"seed": 3},
    )
    again = through_json(xr.Dataset, data)
    assert again.identical(data) and list(again.sizes) == list(data.sizes)
    assert through_json(xr.DataArray, data["value"]).identical(data["value"])


def test_tables_keep_columns_and_index() -> None:
    table = pd.DataFrame({"name": ["a", None], "value": [0.5, math.nan], 3: [1, 2]}, index=["x", "y"])
    again = through_json(pd.DataFrame, table)
    pd.testing.assert_frame_equal(again, table)
    texts = pd.DataFrame({"said": np.array(["nan", np.nan, "inf", np.inf], dtype=object)})
    pd.testing.assert_frame_equal(through_json(pd.DataFrame, texts), texts)
    empty = pd.DataFrame({"name": pd.Series(dtype=object), "value": pd.Series(dtype=float)})
    pd.testing.assert_frame_equal(through_json(pd.DataFrame, empty), empty)


@pytest.mark.parametrize("value", [{"name": 3}, {"nam": "a"}, {}, [], None, "a", {"name": "a", "value": "x"}])
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(UserError):
        decode(Leaf, value)


def test_a_function_has_no_form_in_json() -> None:
    with pytest.raises(UserError):
        encode(print)


def test_a_result_of_an_earlier_version_is_read_with_the_names_of_this_one() -> None:
    """`strength` was called `rung`, in fields and in a table's coordinates."""
    fields, table = interp.circle_fit(models.load("microadder-74")), interp.score(models.load("microadder-57"), n=64)
    for found in (fields, table):
        text = json.dumps(found.to_dict())
        assert '"strength"' in text and '"rung"' not in text
        again = type(found).from_dict(json.loads(text.replace('"strength"', '"rung"')))
        assert again.to_dict() == found.to_dict()
    whole = models.score(models.load("microadder-57"), problems=[(57, 48), (99, 1)])
    earlier = {{"strength": "rung"}.get(name, name): value for name, value in whole.to_dict().items()}
    assert type(whole).from_dict(earlier) == whole
