"""The record of a verdict on all inputs: a status, what it is about, and the evidence of its method, which knows the
sentence and the file form. This module also has the arithmetics that a proof can be in."""

from __future__ import annotations

import gzip
import html
import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd

from interp.core.drawings import drawing
from interp.core.loading import load
from interp.core.results import Provenance, Result, Strength
from interp.core.views import Grid, Picture
from interp.proofs.verdict.verdict_files import read_fields, reader, written, written_fields
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models import UserError
from models.tasks import Task

FORMAT = 1
#: What a proof can be about: margins in float64 (no proof), the real numbers, or the model as float32 runs it.
ArithmeticName = Literal["float", "interval", "float32"]
ARITHMETICS = get_args(ArithmeticName)
#: What is asked of an answer: all of its tokens, or its digits without the EOS after them.
Targets = Literal["all", "digits"]
#: How strong a claim each arithmetic supports.
STRENGTHS: dict[str, Strength] = {
    "float": "certified in floats",
    "interval": "certified in intervals",
    "float32": "certified with rounding",
}
IN_WORDS = {
    "float": "in floats",
    "interval": "in interval arithmetic",
    "float32": "in interval arithmetic incl. float32 rounding",
}
#: "sampled": nothing is wrong among the inputs that were looked at, and nothing is proved. "conditional": a rule such
#: as a + b was proved of all inputs, and that it gives the task's answers was only tried (``ColumnRule.tried``).
Status = Literal["certified", "refuted", "undecided", "sampled", "conditional"]
STATUSES = get_args(Status)
EXIT_STATUS: dict[str, int] = {"certified": 0, "refuted": 1, "undecided": 3, "sampled": 4, "conditional": 5}


class Evidence(ABC):
    """What a method found. Subclasses are frozen dataclasses of the numbers that a verdict rests on.

    Files hold the fields by their types (:mod:`interp.proofs.verdict.verdict_files`) and the properties that
    ``derived`` names. They leave out a field that ``optional`` names where it is at its default.
    """

    derived: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def finding(self, verdict: Verdict) -> str:
        """The sentence of a verdict with this evidence."""

    @abstractmethod
    def provenance(self, verdict: Verdict) -> Provenance:
        """What a verdict with this evidence rests on."""

    @abstractmethod
    def to_dataframe(self) -> pd.DataFrame:
        """What was judged, piece by piece."""

    def allows(self, status: Status) -> bool:
        """Whether a verdict with this status can rest on this evidence."""
        return True

    def misnamed(self, task: Task) -> str | None:
        """What the evidence names that is not so of the task's problems, in words; None if there is nothing."""
        return None

    def problems_left(self) -> list[Any]:
        """Problems, as the task's ``as_problems`` takes them, that are wrong or stand for what could not be proved, the
        least margins first. A method that names none has none."""
        return []

    def picture(self) -> Picture:
        """The least margins that were met or proved.

        Raises:
            UserError: a method that keeps no table of margins.
        """
        raise UserError(f"{type(self).__name__} has no figure.")

    def to_dict(self) -> dict[str, Any]:
        """Every field as JSON, and what files say of it besides."""
        kept = {name: x for name, x in written_fields(self).items() if not self._left_out(name)}
        return kept | {name: written(getattr(self, name)) for name in self.derived}

    def _left_out(self, name: str) -> bool:
        return name in self.optional and getattr(self, name) == getattr(type(self), name)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The evidence in a file's fields.

        Raises:
            KeyError, TypeError, ValueError: they do not make one, or what else they say does not follow from them.
        """
        found = read_fields(cls, value, cls.optional)
        for name in cls.derived:
            if value[name] != written(getattr(found, name)):
                raise ValueError(f"another {name} than that of its other fields")
        return found


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Verdict(Result):
    """A verdict on all inputs of a domain.

    Attributes:
        model: the registered name. task: the task's name.
        fingerprint: SHA-256 of task, config and effective weights, which the verdict is about.
        method: how the model was judged, a name in :data:`METHODS`; it tells the kinds of files apart.
        status: certified, refuted, undecided, or sampled (nothing is wrong on what was tried, and nothing is proved).
        counterexample: an input that the model gets wrong, or None unless the status is "refuted": a
            :class:`WrongAnswer`.
        evidence: what the method found. Its attributes can be read from the verdict itself, as in
            ``verdict.smallest_margin``.
        task_mismatch: of a refuted model, that the task may not be its own (:mod:`models.task_mismatch`); files do
            not keep it.
    """

    model: str
    fingerprint: str
    task: str
    method: str
    status: Status
    seconds: float
    versions: dict[str, str]
    counterexample: WrongAnswer | None = None
    evidence: Any
    task_mismatch: str = ""

    def __getattr__(self, name: str) -> Any:
        if name == "evidence" or name.startswith("__"):  # while a copy is made
            raise AttributeError(name)
        return getattr(self.evidence, name)

    @property
    def provenance(self) -> Provenance:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.evidence.provenance(self)

    def finding(self) -> str:
        """The sentence, without what :attr:`task_mismatch` says."""
        return self.evidence.finding(self)

    def sentence(self) -> str:
        return " ".join(filter(None, (self.task_mismatch, self.finding())))

    def to_dataframe(self) -> pd.DataFrame:
        """What was judged, piece by piece: classes, parts of a proof, or targets and right tokens."""
        return self.evidence.to_dataframe()

    def replace(self, **changes: Any) -> Verdict:
        """A copy with other values of some fields, its own or its evidence's."""
        own = {name: changes.pop(name) for name in list(changes) if name in self.__dataclass_fields__}
        return replace(self, **{"evidence": replace(self.evidence, **changes)} | own)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON, with ``format``, its own fields and those of its evidence."""
        kept = [field.name for field in fields(self) if field.name not in ("evidence", "task_mismatch")]
        own = {name: getattr(self, name) for name in kept}
        return {"format": FORMAT} | written(own) | self.evidence.to_dict()

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], path: object = "This") -> Verdict:
        """The inverse of :meth:`to_dict`; ``path`` is where the fields come from, for what an error says.

        Raises:
            UserError: another format or status; a refutation without a counterexample or the reverse; an unknown
                method; or fields that are missing.
        """
        try:
            if value["format"] != FORMAT or value["status"] not in STATUSES:
                raise ValueError("another format or status")
            wrong, evidence = value["counterexample"], evidence_of(value["method"]).from_dict(value)
            if (value["status"] == "refuted") != (wrong is not None):
                raise ValueError("a refutation and its counterexample belong together")
            if not evidence.allows(value["status"]):
                raise ValueError(f"it is {value['status']}, which its evidence does not say")
            return cls(
                **{name: str(value[name]) for name in ("model", "fingerprint", "task", "method")},
                status=value["status"],
                seconds=float(value["seconds"]),
                versions=value["versions"],
                counterexample=reader(WrongAnswer | None)(wrong),
                evidence=evidence,
            )
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"{path} is not a complete certificate ({error}).") from None

    def to_bytes(self) -> bytes:
        """The verdict as compact gzipped JSON, a sixth of plain JSON; equal contents give equal bytes."""
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        return gzip.compress(text.encode(), mtime=0)

    @property
    def exit_status(self) -> int:
        """The exit status of the command line: 0 certified, 1 refuted, 3 undecided, 4 sampled, 5 conditional."""
        return EXIT_STATUS[self.status]

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence())}</p>"

    def __repr__(self) -> str:
        return self.sentence()


def versions() -> dict[str, str]:
    """The versions of what computed a certificate."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("torch", "numpy", "scipy", "python-flint", "carrylens"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout
            found[package] = "not installed"
    return found


def strength_of(verdict: Verdict) -> Strength:
    """How strong a claim a proof supports."""
    return STRENGTHS[verdict.arithmetic] if verdict.status == "certified" else "sampled"


#: The evidence of each method by its name, for reading files; methods fill it when they are registered.
EVIDENCE: dict[str, type[Evidence]] = {}


def evidence_of(method: Any) -> type[Evidence]:
    """The evidence of a method's files. Raises ValueError for a method that is not known here."""
    load("methods")
    if method not in EVIDENCE:
        raise ValueError(f"the method {method!r} is not known here")
    return EVIDENCE[method]


@drawing(Verdict)
def verdict_view(result: Verdict) -> Picture:
    """The least margins that were met or proved, by what the method judged: classes, problems or parts of a proof."""
    return replace(result.evidence.picture(), title=f"{result.model}: {result.finding()}")


def margin_grid(margins: pd.DataFrame, x: str, y: str, columns: Sequence[Any], rows: Sequence[Any]) -> tuple[Grid, str]:
    """The least ``margin`` at each ``target`` for each right ``token``, with its ``problem``; and the lowest five, in
    words. Colours are its logarithm; a wrong answer (zero or less) is red on white."""
    frame = margins.assign(least=margins["margin"].fillna(-np.inf)).sort_values("least", kind="stable")
    first = frame.drop_duplicates(["target", "token"])
    shown = first.pivot(index="token", columns="target", values="margin").reindex(index=rows, columns=columns)
    problem = first.pivot(index="token", columns="target", values="problem").reindex(index=rows, columns=columns)
    lowest = [
        f"{row.problem} ({'open' if np.isnan(row.margin) else f'{row.margin:.3g}'}, at {row.target})"  # pyright: ignore
        for row in frame.head(5).itertuples()
    ]
    said = {"at": problem.fillna("").to_numpy()}
    grid = Grid(
        x, y, "", shown.to_numpy(float), list(rows), list(columns), "margin (logits)", "log", said=said, upwards=True
    )
    return grid, "; ".join(lowest)
