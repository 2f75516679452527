"""Tables as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd


def columns_of(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Column by column, None for what is not finite."""
    kept = table.to_dict("list")
    return {
        str(name): [None if isinstance(x, float) and not math.isfinite(x) else x for x in kept[name]] for name in kept
    }


def table_of(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """What :func:`columns_of` wrote; None becomes NaN."""
    return pd.DataFrame(
        {name: [math.nan if value is None else value for value in values] for name, values in columns.items()}
    )
