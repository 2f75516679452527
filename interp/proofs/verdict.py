"""The base of all verdicts, however a model was judged.

A verdict has a status, what it is about, a sentence and a file. This module also has the arithmetics that a proof can
be in, and the problem that refutes.
"""

from __future__ import annotations

import gzip
import html
import io
import json
import math
import platform
import time
import zlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.results import Result, Rung
from interp.proofs.one_layer import fingerprint, require_plain
from models.checkpoint import parse_json, write_bytes_atomic, write_json_atomic
from models.errors import UserError
from models.evaluation import predict
from models.hooked import model_name, registered_name
from models.importers.stock import from_transformer_lens
from models.tasks.base import Task
from models.tasks.problem_space import problem_text
from models.tasks.sequences import SequenceTask
from models.transformer import ArithmeticTransformer

Loaded = TypeVar("Loaded")

FORMAT = 1
#: What a proof can be about: margins in float64 (no proof), the real numbers, or the model as float32 runs it.
ArithmeticName = Literal["float", "interval", "float32"]
ARITHMETICS = get_args(ArithmeticName)
#: How strong a claim each arithmetic supports.
RUNGS: dict[str, Rung] = {
    "float": "certified in floats",
    "interval": "certified in intervals",
    "float32": "certified with rounding",
}
IN_WORDS = {
    "float": "in floats",
    "interval": "in interval arithmetic",
    "float32": "in interval arithmetic incl. float32 rounding",
}
#: "sampled": nothing is wrong among the inputs that were looked at, and nothing is proved.
Status = Literal["certified", "refuted", "undecided", "sampled"]
STATUSES = get_args(Status)
EXIT_STATUS: dict[str, int] = {"certified": 0, "refuted": 1, "undecided": 3, "sampled": 4}
LARGEST_FILE = 2**26  # most bytes of a certificate, unpacked; the zoo's have up to 0.7 MB


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Verdict(Result):
    """A verdict on all inputs of a domain. Subclasses are frozen dataclasses that add fields to these.

    Attributes:
        fingerprint: SHA-256 of task, config and effective weights, which the verdict is about.
        method: how the model was judged; it tells the kinds of files apart.
        counterexample: an input that the model gets wrong, or None unless the status is "refuted".
    """

    model: str
    fingerprint: str
    task: str
    method: str
    status: Status
    seconds: float
    versions: dict[str, str]
    counterexample: Any = None

    @abstractmethod
    def finding(self) -> str:
        """The sentence, without the time that it took."""

    def sentence(self) -> str:
        return f"{self.finding()}   ({self.seconds:.1f} s)"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON, with ``format`` and every field. Subclasses replace what JSON cannot hold."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"format": FORMAT} | {k: asdict(x) if is_dataclass(x) else x for k, x in own.items()}  # pyright: ignore

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
        """The exit status of the command line: 0 certified, 1 refuted, 3 undecided, 4 sampled."""
        return EXIT_STATUS[self.status]

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence())}</p>"

    def __repr__(self) -> str:
        return self.sentence()


def about(model: HookedModel, task: Task, identity: str, start: float) -> dict[str, Any]:
    """Fields for a new verdict: what it is about, the seconds since ``start``, and the versions of the software.

    Raises:
        UserError: ``identity``, which was read at the start, is not the model's fingerprint any more.
    """
    if identify(model, task) != identity:
        raise UserError(f"The weights of {model_name(model)} change from one call to the next.")
    seconds = time.perf_counter() - start
    named = {"model": registered_name(model), "fingerprint": identity, "task": task.name}
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
    value = parse_json(data, path)
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


def verdict_of(value: dict[str, Any], path: object, make: Callable[[dict[str, Any]], Loaded]) -> Loaded:
    """The verdict that ``make`` builds from a file's fields.

    Raises:
        UserError: another format or status; a refutation without a counterexample or the reverse; fields that are
            missing, or that ``make`` rejects.
    """
    try:
        if value["format"] != FORMAT or value["status"] not in STATUSES:
            raise ValueError("another format or status")
        if (value["status"] == "refuted") != (value["counterexample"] is not None):
            raise ValueError("a refutation and its counterexample belong together")
        return make(value)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a complete certificate ({error}).") from None


def stored(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """A file's fields that verdicts with a :class:`WrongAnswer` share, and those of ``names``."""
    found = value["counterexample"]
    own = {name: value[name] for name in ("model", "fingerprint", "task", "status", "seconds", "versions", *names)}
    return own | {"counterexample": None if found is None else WrongAnswer.from_dict(found)}


def stored_shape(value: dict[str, Any]) -> tuple[int, ...]:
    """A file's ``shape``. Raises ValueError if it is not a list of counts."""
    if not all(is_count(size) for size in value["shape"]):
        raise ValueError("a shape that is none")
    return tuple(value["shape"])


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: Any, limit: int | None = None) -> bool:
    """Whether a JSON value is a whole number that is at least 0 and below ``limit``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0 and (limit is None or value < limit)


def require_claim(verdict: Verdict, identity: str, model: str, task: Task) -> None:
    """Check that a verdict is about this task of the model of that name, whose fingerprint is ``identity``, and claims
    something.

    Raises:
        UserError: a verdict on another model, or one that is undecided.
    """
    if identity != verdict.fingerprint:
        raise UserError(
            f"This certificate is about other weights (SHA-256 {verdict.fingerprint[:12]}...) than "
            f"{model}'s ({identity[:12]}...)."
        )
    if verdict.model != model:
        raise UserError(f"This certificate does not hold: it names {verdict.model!r}, and this model is {model!r}.")
    if verdict.task != task.name:
        raise UserError(f"This certificate does not hold: it is about {verdict.task!r}, and the task is {task.name!r}.")
    if verdict.status == "undecided":
        raise UserError("This certificate claims nothing: it is undecided.")


def versions() -> dict[str, str]:
    """The versions of what computed a certificate."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("torch", "numpy", "scipy", "python-flint", "carrylens"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout
            found[package] = "not installed"
    return found


# ---- counterexamples


@dataclass(frozen=True)
class WrongAnswer:
    """A problem, the model's answer when it decodes it alone, the right answer, the first target that is wrong, and the
    shape in which the problem was written (leading zeros count), where the task has several."""

    problem: str
    predicted: str
    expected: str
    target: str
    shape: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> WrongAnswer:
        """Rebuild it from what ``asdict`` gave."""
        names = ("problem", "predicted", "expected", "target")
        return cls(*(str(value[name]) for name in names), shape=tuple(value["shape"]))


def wrong_answer(model: HookedModel, task: Task, problem: Tensor) -> WrongAnswer | None:
    """How the model gets one problem wrong when it decodes it alone, or None if it gets it right."""
    predicted, expected = predict(model, problem, "greedy", 1, task).cpu(), task.targets(problem).cpu()
    if torch.equal(predicted, expected):
        return None
    first = int((predicted != expected)[0].long().argmax())
    text = problem_text(task, task.numbers(problem)[0])
    label = task.target_roles[first].label
    return WrongAnswer(text, answer_text(task, predicted[0]), answer_text(task, expected[0]), label, shape_of(task))


def answer_text(task: Task, tokens: Int[Tensor, " target"]) -> str:
    """What the tokens spell: a number or, with a scratchpad, the whole response."""
    said = tokens[: int((tokens < 0).long().argmax())] if (tokens < 0).any() else tokens
    if isinstance(task, SequenceTask):
        return task.token_text(said) + ("" if len(said) == len(tokens) else "...")
    number = task.decode(tokens[None])[0] if len(said) == len(tokens) else -1
    return "no number" if number < 0 else str(number)


def shape_of(task: Task) -> tuple[int, ...]:
    """The shape of a task that has several, else ()."""
    return task.shape if isinstance(task, SequenceTask) else ()


def identify(model: HookedModel, task: Task) -> str:
    """The fingerprint of a model. Raises UserError if the model does not compute what its weights say."""
    if not isinstance(model, ArithmeticTransformer):
        return fingerprint(from_transformer_lens(model, task))
    require_plain(model)
    if model.task.name != task.name:
        raise UserError(f"{model_name(model)} was built for {model.task.name}, and not for {task.name}.")
    return fingerprint(model)
