"""Sections of stored data that have the form of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from interp.core.as_json import decode
from interp.core.sections import Section
from models.errors import UserError


def show_tables(data: Mapping[str, Any]) -> list[Section]:
    """One section for every part of ``data`` that is a table (rows as mappings, columns and rows, or a stored frame or
    result), with the sentence that ``data`` has for it; then the other sentences."""
    parts = {**data, **data.get("tables", {})}
    sentences = data.get("sentences", {})
    sentences = dict(sentences) if isinstance(sentences, Mapping) else dict.fromkeys(sentences, "")
    sections = []
    for name, value in parts.items():
        table = _as_table(value)
        if table is not None and len(table):
            sections.append(Section(_heading(name), sentences.pop(name, ""), (table,), level=3))
    if sentences:
        rest = pd.DataFrame([(name, text) for name, text in sentences.items()], columns=["question", "answer"])
        sections.append(Section("In words", "", (rest if rest.answer.any() else rest[["question"]],), level=3))
    return sections


def _heading(name: str) -> str:
    return name[:1].upper() + name[1:].replace("_", " ")


def _as_table(value: Any) -> pd.DataFrame | None:
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return pd.DataFrame(value)
    if not isinstance(value, Mapping):
        return None
    if {"columns", "rows"} <= set(value):
        return pd.DataFrame(value["rows"], columns=value["columns"])
    try:
        return decode(pd.DataFrame, value.get("table", value))
    except UserError:  # no frame
        return None
