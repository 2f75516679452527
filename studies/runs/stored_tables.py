"""Sections of stored data that have the form of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from interp.core.as_json import decode
from interp.core.sections import Section
from models.errors import UserError


def show_tables(data: Mapping[str, Any]) -> list[Section]:
    """One section for every part of ``data`` that is a table (rows as mappings or as numbers, columns and rows, one
    mapping to numbers, or a stored frame or result), with the sentence that ``data`` has for it; then the other
    sentences."""
    sentences = data.get("sentences", [data["sentence"]] if "sentence" in data else {})
    sentences = dict(sentences) if isinstance(sentences, Mapping) else dict.fromkeys(sentences, "")
    sections = []
    for name, value in _parts(data).items():
        table = _as_table(value)
        if table is not None and len(table):
            sections.append(Section(_heading(name), sentences.pop(name, ""), (table,), level=3))
    if any(sentences.values()):
        rest = pd.DataFrame(list(sentences.items()), columns=["question", "answer"])
        sections.append(Section("In words", "", (rest,), level=3))
    elif sentences:
        sections.append(Section("In words", "", (pd.DataFrame({"finding": list(sentences)}),), level=3))
    return sections


def _parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What may be a table, by name; a mapping of tables, as of several models, gives each of them."""
    parts = {**data, **data.get("tables", {})}
    for name, value in data.items():
        if name != "tables" and isinstance(value, Mapping) and all(_as_table(x) is not None for x in value.values()):
            parts |= {f"{name}, {which}": table for which, table in value.items()}
    return parts


def _heading(name: str) -> str:
    return name[:1].upper() + name[1:].replace("_", " ")


def _as_table(value: Any) -> pd.DataFrame | None:
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return pd.DataFrame(value)
    if isinstance(value, list) and value and all(isinstance(row, list) and _are_numbers(row) for row in value):
        return pd.DataFrame(value)
    if not isinstance(value, Mapping):
        return None
    if value and _are_numbers(value.values()):
        return pd.DataFrame([value])
    if {"columns", "rows"} <= set(value):
        return pd.DataFrame(value["rows"], columns=value["columns"])
    try:
        return decode(pd.DataFrame, value.get("table", value))
    except UserError:  # no frame
        return None


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)
