"""Sections of stored data that have the form of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from interp.core.sections import Section


def show_tables(data: Mapping[str, Any]) -> list[Section]:
    """One section for every part of ``data`` that is a table: rows as mappings, or columns and rows."""
    sections = []
    for name, value in data.items():
        table = _as_table(value)
        if table is not None and len(table):
            sections.append(Section(name[:1].upper() + name[1:].replace("_", " "), "", (table,), level=3))
    return sections


def _as_table(value: Any) -> pd.DataFrame | None:
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return pd.DataFrame(value)
    if isinstance(value, Mapping) and {"columns", "rows"} <= set(value):
        return pd.DataFrame(value["rows"], columns=value["columns"])
    return None
