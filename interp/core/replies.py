"""JSON schema of all answers: finding, provenance, strength of evidence.

    {"schema_version": 1, "made_by": "carrylens", "version": ..., "command": the line that asks for it again,
     "result": {"kind", "sentence", "rows", "rows_in_all", "data"},
     "provenance": {"n", "seed", "source"}, or null where nothing was measured,
     "strength_of_evidence": "sampled", "exhaustive", "certified ...", or null with it,
     "warnings": what was said to a user besides, such as that a task may not be the model's}

``rows`` are the first rows of the result's table, at most :data:`MOST_ROWS`; ``data`` is the whole result, which
``from_dict`` of the class named by ``kind`` reads. What is not finite is null among the rows, and "nan", "inf" or
"-inf" in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import pandas as pd

from interp.core.as_json import PACKAGE, encode
from interp.core.results import Provenance, Result, Strength
from interp.core.sections import records

SCHEMA = 1
MOST_ROWS = 1_000


@dataclass(frozen=True)
class Finding:
    """A finding: the type of the result, its sentence, the first rows of its table, and all of it."""

    kind: str
    sentence: str
    rows: list[dict[str, Any]]
    rows_in_all: int
    data: dict[str, Any]


@dataclass(frozen=True)
class RestsOn:
    """The inputs of a measurement: how many, the seed they were drawn with (None: not drawn), and what they are."""

    n: int
    seed: int | None
    source: str


@dataclass(frozen=True)
class Reply:
    """A finding, what it rests on, and the warnings that were given on the way to it."""

    result: Finding
    provenance: RestsOn | None = None
    strength_of_evidence: Strength | None = None
    command: str = ""
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA
    made_by: str = PACKAGE
    version: str = field(default_factory=lambda: version(PACKAGE))

    def to_dict(self) -> dict[str, Any]:
        """The reply as JSON can hold it."""
        return asdict(self)


def reply(
    kind: str,
    sentence: str,
    table: Any = (),
    data: Mapping[str, Any] | None = None,
    provenance: Provenance | None = None,
    most: int = MOST_ROWS,
) -> Reply:
    """The reply of what is not a :class:`Result`; of its table (a DataFrame, or a sequence of rows), the first
    ``most`` rows. ``data`` is JSON already."""
    first = records(table.head(most)) if isinstance(table, pd.DataFrame) else table[:most]
    found = Finding(kind, sentence, [encode(row) for row in first], len(table), dict(data or {}))
    if provenance is None:
        return Reply(found)
    return Reply(found, RestsOn(provenance.n, provenance.seed, provenance.source), provenance.strength)


def reply_of(result: Result, most: int = MOST_ROWS, whole: bool = True) -> Reply:
    """The reply of a result; without ``whole``, without its data."""
    data = result.to_dict() if whole else None
    return reply(type(result).__name__, result.sentence(), result.to_dataframe(), data, result.provenance, most)
