"""Which reader makes a model of a path: one table, and what lies there is read once.

    rank 0   the zoo: entries' folders, and weight files of this project
    rank 1   training runs
    rank 2   what plug-ins (:mod:`models.plugins`) and scripts register
    rank 3   files that other programs write
    rank 4   tensors that no other reader takes

A module adds its rows with :func:`register` when it is imported.
"""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.files.stored_names import CONFIG, MODEL_FILES, TENSOR_FILES

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

FOLDER = "/"


@dataclass(frozen=True)
class File:
    """A path that may hold a model. What lies there is read when a reader first looks at it, and kept for the others.

    Attributes:
        path: a file or a folder.
    """

    path: Path

    @cached_property
    def kind(self) -> str:
        """What its name says: its suffix, or :data:`FOLDER`."""
        return FOLDER if os.path.isdir(self.path) else self.path.suffix  # not of a name that is too long either

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What a folder's ``config.json`` says; empty without one. Raises UserError if it is no JSON object."""
        from models.files.checkpoint import read_json

        path = self.path / CONFIG
        return read_json(path) if self.kind == FOLDER and path.is_file() else {}

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The tensors of a file by name, with whatever else stands among them, or the object in a ``.json``; empty for
        anything else.

        Raises:
            UserError: the file is missing, damaged, or has code in it.
        """
        return self._read[0]

    @property
    def metadata(self) -> Mapping[str, str]:
        """What a ``.safetensors`` of this project says beside its tensors, whose digest was checked; else empty."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        if self.kind not in (*TENSOR_FILES, ".json"):
            return {}, {}
        from models.importers.contents import read_content  # which needs torch, as a table of readers does not

        return read_content(self.path)


@dataclass(frozen=True)
class LoadOptions:
    """What :func:`models.load` was given beside the path; each reader takes what it knows."""

    seed: int | None = None
    task: Any = None
    config: Any = None
    names: Mapping[str, str] | None = None
    trust: bool | str = False


class Format(NamedTuple):
    """What documentation says of files that a reader takes: what they are, how they are read, what is checked, and what
    is refused (:func:`formats_table`)."""

    file: str
    how: str
    checked: str
    refused: str


@dataclass(frozen=True)
class Reader:
    """A row of the table.

    Attributes:
        name: what it reads, in words.
        kinds: of what kind such files are: suffixes, or :data:`FOLDER`.
        reads: whether a file of this kind is one.
        load: the model in such a file; raises UserError for one that is damaged or cannot be expressed.
        rank: readers are asked in its order, and those of one rank in the order in which they came.
        seeds: whether such a file has models of several seeds.
        weights: (file, its task or None, what else was asked) -> the config and the effective weights of a file that
            does not say its task; None for readers of files that do.
        formats: what documentation says of it.
    """

    name: str
    kinds: tuple[str, ...]
    reads: Callable[[File], bool]
    load: Callable[[File, LoadOptions], ArithmeticTransformer]
    rank: int = 2
    seeds: bool = False
    weights: Callable[[File, Any, LoadOptions], tuple[Any, Any]] | None = None
    formats: tuple[Format, ...] = ()


#: The table.
READERS: list[Reader] = []


def register(*readers: Reader) -> None:
    """Add readers to the table; one whose name is there already takes the other's place. From then on, a name with a
    suffix that one looks at is a path."""
    for reader in readers:
        MODEL_FILES.update(kind for kind in reader.kinds if kind != FOLDER)
        READERS[:] = [other for other in READERS if other.name != reader.name]
        insort(READERS, reader, key=lambda row: row.rank)


def formats_table(readers: Sequence[Reader] = READERS, more: Sequence[Format] = ()) -> str:
    """The formats of readers as a table in Markdown, what other programs write first."""
    rows = [row for reader in sorted(readers, key=lambda each: -min(each.rank, 3)) for row in reader.formats]
    lines = ["| file | how it is read | what is checked | what is refused |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in (*rows, *more))])


def reader_of(file: File, readers: Sequence[Reader] = READERS) -> Reader | None:
    """The first reader that takes a file; None if there is none."""
    return next((reader for reader in readers if file.kind in reader.kinds and reader.reads(file)), None)
