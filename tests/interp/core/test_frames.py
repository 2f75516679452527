"""Labelled datasets as tables."""

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.frames import as_frame


def test_what_is_given_with_and_without_a_signal_stands_in_two_columns() -> None:
    values = np.arange(6.0).reshape(3, 2)
    data = {"effect": ("unit", [7.0, 8.0, 9.0]), "right": (("unit", "present"), values), "n": ("present", [4, 5])}
    frame = as_frame(xr.Dataset(data, {"unit": ["a", "b", "c"], "present": [False, True]}), ("right_with",))
    assert list(frame) == ["right_with", "unit", "effect", "right_without", "n_without", "n_with"]
    assert frame.right_without.tolist() == [0, 2, 4] and frame.right_with.tolist() == [1, 3, 5]
    assert frame.n_without.tolist() == [4] * 3 and frame.n_with.tolist() == [5] * 3


def test_a_table_of_a_result_can_be_changed_without_changing_the_result() -> None:
    table = pd.DataFrame({"value": [1, 2]})
    frame = as_frame(table)
    frame["value"] = 0
    assert table.value.tolist() == [1, 2]
