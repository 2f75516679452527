"""A grid's cells on disk, one line each, so that a killed evaluation resumes where it stopped.

The first line says what is being evaluated; every further line is one cell. A line cut short by a crash is dropped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import write_bytes_atomic

Cell = tuple[int, ...]
Counts = dict[str, int]


class CellStore:
    """Cells of one grid, read on opening; :meth:`add` appends. ``path=None`` keeps nothing."""

    def __init__(self, path: Path | None, question: dict[str, Any]):
        """Raise UserError, and write nothing, if the file holds another grid."""
        self.path, self.cells = path, dict[Cell, Counts]()
        if path is None:
            return
        question = json.loads(json.dumps(question))
        lines = _complete_lines(path)
        if lines:
            other = _differing(lines[0], question)
            if other:
                raise UserError(f"{path} holds another grid (its {other} differs); give another file or remove it.")
            self.cells = {tuple(line["shape"]): line["counts"] for line in lines[1:]}
        kept = [question, *({"shape": list(shape), "counts": counts} for shape, counts in self.cells.items())]
        write_bytes_atomic(path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def add(self, shape: Cell, counts: Counts) -> None:
        self.cells[shape] = counts
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"shape": list(shape), "counts": counts}) + "\n")
                file.flush()
                os.fsync(file.fileno())


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:  # cut short by a crash, so it is the last line
            break
    if lines and "shape" in lines[0]:
        raise UserError(f"{path} does not start with what it holds; remove it.")
    return lines


def _differing(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    return next((key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)), None)
