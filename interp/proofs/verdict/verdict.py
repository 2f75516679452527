"""A verdict on all inputs, and the registry of methods that give one.

A verdict has a status, what it is about, the evidence of its method, a sentence and a file. What differs from method to
method stands in one row of :data:`METHODS`. This module also has the arithmetics that a proof can be in.
"""

from __future__ import annotations

import gzip
import html
import io
import json
import platform
import sys
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from interp.core.as_json import replied
from interp.core.drawings import drawing
from interp.core.loading import load
from interp.core.results import Provenance, Result, Strength
from interp.core.views import Grid, Picture
from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models import UserError
from models.files import parse_json, write_bytes_atomic, write_json_atomic
from models.tasks import ColumnRule, Task
from models.transformer import HookedModel, model_name, own_name

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
LARGEST_FILE = 2**26  # most bytes of a certificate, unpacked; the zoo's have up to 0.7 MB


class Evidence(ABC):
    """What a method found. Subclasses are frozen dataclasses of the numbers that a verdict rests on."""

    @abstractmethod
    def to_dataframe(self) -> pd.DataFrame:
        """What was judged, piece by piece."""

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
        """Every field as JSON. Subclasses replace what JSON cannot hold."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        return {name: asdict(x) if is_dataclass(x) else x for name, x in own.items()}  # pyright: ignore


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Verdict(Result):
    """A verdict on all inputs of a domain.

    Attributes:
        model: the registered name. task: the task's name.
        fingerprint: SHA-256 of task, config and effective weights, which the verdict is about.
        method: how the model was judged, a name in :data:`METHODS`; it tells the kinds of files apart.
        status: certified, refuted, undecided, or sampled (nothing is wrong on what was tried, and nothing is proved).
        counterexample: an input that the model gets wrong, or None unless the status is "refuted": a
            :class:`WrongAnswer`, or of ten-digit adders (a, b, the model's answer, None if that spells no number).
        evidence: what the method found. Its attributes can be read from the verdict itself, as in
            ``verdict.smallest_margin``.
        doubt: of a refuted model, that the task may not be its own (:func:`models.task_mismatch.doubt`); files do
            not keep it.
    """

    model: str
    fingerprint: str
    task: str
    method: str
    status: Status
    seconds: float
    versions: dict[str, str]
    counterexample: Any = None
    evidence: Any
    doubt: str = ""

    def __getattr__(self, name: str) -> Any:
        if name == "evidence" or name.startswith("__"):  # while a copy is made
            raise AttributeError(name)
        return getattr(self.evidence, name)

    @property
    def provenance(self) -> Provenance:  # pyright: ignore[reportIncompatibleVariableOverride]
        return method_named(self.method).provenance(self)

    def finding(self) -> str:
        """The sentence, without the doubt."""
        return method_named(self.method).finding(self)

    def sentence(self) -> str:
        return " ".join(filter(None, (self.doubt, self.finding())))

    def to_dataframe(self) -> pd.DataFrame:
        """What was judged, piece by piece: classes, parts of a proof, or targets and right tokens."""
        return self.evidence.to_dataframe()

    def replace(self, **changes: Any) -> Verdict:
        """A copy with other values of some fields, its own or its evidence's."""
        own = {name: changes.pop(name) for name in list(changes) if name in self.__dataclass_fields__}
        return replace(self, **{"evidence": replace(self.evidence, **changes)} | own)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON, with ``format``, its own fields and those of its evidence."""
        kept = [field.name for field in fields(self) if field.name not in ("evidence", "doubt")]
        own = {name: getattr(self, name) for name in kept}
        plain = {name: asdict(x) if is_dataclass(x) else x for name, x in own.items()}  # pyright: ignore
        return {"format": FORMAT} | plain | self.evidence.to_dict()

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Verdict:
        """The inverse of :meth:`to_dict`. Raises UserError for anything else."""
        return verdict_of(dict(value), "This")

    def to_bytes(self) -> bytes:
        """The verdict as compact gzipped JSON, a sixth of what :meth:`save` writes; equal contents give equal bytes."""
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        return gzip.compress(text.encode(), mtime=0)

    def save(self, path: str | Path) -> None:
        """Write JSON, gzipped if the name ends in .gz."""
        if Path(path).suffix == ".gz":
            write_bytes_atomic(path, self.to_bytes())
        else:
            write_json_atomic(path, self.to_dict())

    @property
    def exit_status(self) -> int:
        """The exit status of the command line: 0 certified, 1 refuted, 3 undecided, 4 sampled, 5 conditional."""
        return EXIT_STATUS[self.status]

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence())}</p>"

    def __repr__(self) -> str:
        return self.sentence()


# ---- the registry of methods


@dataclass(frozen=True)
class CertifyOptions:
    """What ``interp.certify`` was asked for, apart from the model and the task.

    ``tolerance`` and ``targets`` are for ten-digit adders: see
    :func:`interp.proofs.columns.column_method.certify_one_layer`. ``reason`` is for methods that prove nothing: why
    none that does could judge the model.
    """

    arithmetic: ArithmeticName | None = None
    tolerance: float | None = None
    targets: Targets = "all"
    reason: str = ""


class CannotJudge(UserError):
    """Raised by a method that finds on the way why it cannot judge a model; ``reason`` says it in words."""

    def __init__(self, model: HookedModel, reason: str):
        super().__init__(f"The certifier cannot judge {model_name(model)}: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Method:
    """One method of judging: a row of the registry.

    Attributes:
        name: the text of ``method`` in a verdict and in its file.
        why_not: (model, task) -> why the method cannot judge such models and tasks, in words, or None if it can.
        certify: (model, task, what was asked) -> a verdict. It may be that of another method. Raises CannotJudge where
            it finds on the way that it cannot judge the model, so that others are asked.
        finding: a verdict of this method -> its sentence.
        provenance: a verdict of this method -> what it rests on.
        read: a file's fields -> the evidence; raises KeyError, TypeError or ValueError if they do not make one.
        meant_for: task -> whether the method is made for such tasks, so that its reason is what a user should know.
        check: (verdict, model, task) -> the verdict as derived again; raises UserError unless it holds. That of most
            methods is :func:`interp.proofs.verdict.recheck.judged_again`.
        counterexample: a counterexample in a file -> the one in a verdict; raises as ``read`` does.
        proves: whether it can prove a model right. The others are asked where no method that does judges the model.
    """

    name: str
    why_not: Callable[[Any, Task], str | None]
    certify: Callable[[Any, Task, CertifyOptions], Verdict]
    finding: Callable[[Verdict], str]
    provenance: Callable[[Verdict], Provenance]
    read: Callable[[dict[str, Any]], Evidence]
    check: Callable[[Verdict, Any, Task], Verdict]
    counterexample: Callable[[Any], Any] = lambda value: WrongAnswer.from_dict(value)
    meant_for: Callable[[Task], bool] = lambda task: False
    proves: bool = True


#: The methods by name, in the order in which they are tried: the first that can judges a model.
METHODS: dict[str, Method] = {}
#: The method that reads files of methods that are unknown (earlier versions had others), and whose check refuses them.
TEN_DIGIT_ADDERS = "branch and bound over columns"


def register(*methods: Method, first: bool = False) -> None:
    """Add methods to the registry. They are tried after those that are there, or ``first``."""
    new, there = {method.name: method for method in methods}, dict(METHODS)
    METHODS.clear()
    METHODS.update(new | there if first else there | new)


def method_named(name: Any) -> Method:
    """The method of that name; for an unknown one, that for ten-digit adders."""
    load("methods")
    return METHODS.get(name, METHODS[TEN_DIGIT_ADDERS])


# ---- verdicts and their files


def over_all_pairs(rule: ColumnRule, arithmetic: ArithmeticName) -> Provenance:
    """What a proof about a rule on all pairs rests on: no more than the problems on which the rule was tried, where it
    is not known to be the task's."""
    if rule.tried is not None:
        return Provenance(rule.tried, None, f"problems on which the task's answer is a {rule.operator} b")
    return Provenance(rule.size, None, rule.pairs, STRENGTHS[arithmetic])


def about(model: HookedModel, task: Task, identity: str, start: float) -> dict[str, Any]:
    """Fields for a new verdict: what it is about, the seconds since ``start``, and the versions of the software.

    Raises:
        UserError: ``identity``, which was read at the start, is not the model's fingerprint any more.
    """
    if identify(model, task) != identity:
        raise UserError(f"The weights of {model_name(model)} change from one call to the next.")
    seconds = time.perf_counter() - start
    named = {"model": own_name(model), "fingerprint": identity, "task": task.name}
    return named | {"seconds": seconds, "versions": versions()}


def parse_verdict(data: bytes, path: object) -> dict[str, Any]:
    """The result of :meth:`Verdict.to_dict`, from a file's bytes, JSON or gzipped JSON.

    Raises:
        UserError: a damaged file, not a JSON object, or one that unpacks to more than a certificate can have.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(LARGEST_FILE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is damaged ({error}); restore it from where it came from.") from None
    if len(data) > LARGEST_FILE:
        raise UserError(f"{path} is larger than a certificate can be ({LARGEST_FILE >> 20} MB).")
    value = replied(parse_json(data, path))
    texts = ("model", "fingerprint", "task", "method", "status")
    versions, seconds = value.get("versions", {}), value.get("seconds", 0.0)
    if (
        not all(isinstance(value.get(name, ""), str) for name in texts)
        or not isinstance(versions, dict)
        or not all(isinstance(version, str) for version in versions.values())
        or not is_number(seconds)
    ):
        raise UserError(f"{path} is not a complete certificate: a field has another type than a certificate's.")
    return value


def verdict_of(value: dict[str, Any], path: object) -> Verdict:
    """The verdict in a file's fields.

    Raises:
        UserError: another format or status; a refutation without a counterexample or the reverse; fields that are
            missing, or that the method does not know.
    """
    try:
        if value["format"] != FORMAT or value["status"] not in STATUSES:
            raise ValueError("another format or status")
        found, method = value["counterexample"], method_named(value["method"])
        if (value["status"] == "refuted") != (found is not None):
            raise ValueError("a refutation and its counterexample belong together")
        return Verdict(
            **{name: str(value[name]) for name in ("model", "fingerprint", "task", "method")},
            status=value["status"],
            seconds=float(value["seconds"]),
            versions=value["versions"],
            counterexample=None if found is None else method.counterexample(found),
            evidence=method.read(value),
        )
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a complete certificate ({error}).") from None


def stored_shape(value: dict[str, Any]) -> tuple[int, ...]:
    """A file's ``shape``. Raises ValueError if it is not a list of counts."""
    if not all(is_count(size) for size in value["shape"]):
        raise ValueError("a shape that is none")
    return tuple(value["shape"])


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number, as a float holds it."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any, limit: int | None = None) -> bool:
    """Whether a JSON value is a whole number that is at least 0 and below ``limit``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0 and (limit is None or value < limit)


def versions() -> dict[str, str]:
    """The versions of what computed a certificate."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("torch", "numpy", "scipy", "python-flint", "carrylens"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout
            found[package] = "not installed"
    return found


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
