"""Labelled datasets as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import xarray as xr

from models.errors import UserError


def as_frame(table: xr.Dataset | pd.DataFrame, first: Sequence[str] = ()) -> pd.DataFrame:
    """One row per cell of a labelled dataset, with the columns ``first`` in front. Values with and without a signal
    (the dimension ``present``) get columns ``_without`` and ``_with``. A table is copied."""
    if isinstance(table, pd.DataFrame):
        return leading(table.copy(), first)
    if "present" in table.dims:
        columns = {}
        for name, values in table.drop_vars("present").items():
            if "present" in values.dims:
                columns[f"{name}_without"], columns[f"{name}_with"] = values.isel(present=0), values.isel(present=1)
            else:
                columns[name] = values
        table = xr.Dataset(columns)
    return leading(table.to_dataframe().reset_index(), first)


def select(table: xr.Dataset, **places: int) -> xr.Dataset:
    """The part of a labelled dataset at some coordinates, such as ``layer=0, head=1``. Raises UserError if there is
    none."""
    for name, value in places.items():
        if value not in table[name].values:
            raise UserError(f"There is no {name} {value}; there are {table.sizes[name]}, counted from 0.")
    return table.sel(places)


def leading(frame: pd.DataFrame, first: Sequence[str]) -> pd.DataFrame:
    """The table with these columns in front."""
    return frame[[*first, *(column for column in frame if column not in first)]]
