"""Verdicts on hand-built models: right on every problem of every length up to their limits, or wrong on one.

    position-coupling-hand-built    :mod:`interp.proofs.hand_built.addition_proof`, one proof per size
    multiplication-hand-built       :mod:`interp.proofs.hand_built.multiplication_proof`, one list of classes for all
                                    sizes
    parity-hand-built               :mod:`interp.proofs.hand_built.parity_proof`, one induction for all lengths

Only a model that its options build, to the bit (:mod:`interp.proofs.hand_built.matches_options`), is proved. Equalities
and inequalities between weights and scores are decided exactly (floats are rationals). What is not rational, the
softmax's exponentials, is enclosed: "interval" over the real numbers, "float32" with the rounding of every operation.
No proof tries problems; a problem is run only to refute. A proof that a time limit or Ctrl-C ended is undecided, and
says which parts are left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import torch

from interp.core.results import Provenance
from interp.core.views import Grid, Line, Picture, Points, Series
from interp.proofs.hand_built.addition_proof import prove_shapes
from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.hand_built.multiplication_proof import prove_sizes
from interp.proofs.hand_built.parity_proof import ParityProof
from interp.proofs.hand_built.shape_problems import grid_problems
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, ROUNDINGS
from interp.proofs.verdict.method import CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import judged_again
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import ENDED, EndedBy, ended_by
from interp.proofs.verdict.verdict import STRENGTHS, ArithmeticName, Evidence, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import UserError
from models.evaluation import predict
from models.families import HandBuiltMultiplicationOptions, HandBuiltOptions, HandBuiltParityOptions
from models.number_format import shown
from models.tasks import Task, altered
from models.transformer import HookedModel, model_name

SAME_MARGIN = 1e-6  # how far a bound computed again may lie from the stored one
TRIED = 32  # random problems tried per length or size where a part is not proved
SIZES_TRIED = 12  # sizes of sums and products that are tried
MOST_PAIRS = 2**24  # for products: (query, key) pairs of each
_SIZE = re.compile(r"(\d+) x (\d+) digits")  # the part of a proof that is about one size of sums or products
_OPERANDS, _FACTORS = ("digits of each operand", "operands"), ("digits of one factor", "digits of the other")
_IN_WORDS = {"interval": "over the real numbers", "float32": "with rounding"}


@dataclass(frozen=True)
class ProofStep:
    """One part of a proof: a shape, or a step of an induction.

    ``margin`` is a lower bound of the right token's lead, or None if no bound was found.
    """

    name: str
    margin: float | None
    obstacle: str | None = None

    @property
    def proved(self) -> bool:
        return self.margin is not None and self.margin > 0 and self.obstacle is None


@dataclass(frozen=True, eq=False)
class HandBuiltEvidence(Evidence):
    """What is proved of a hand-built model over ``domain``, part by part.

    ``shape`` is the one shape (addition) or greatest length (parity) that was asked about, or () for all up to the
    model's limits. In ``arithmetic``, "interval" is about the function that the stored weights define, "float32" about
    the model as it runs.
    """

    domain: str
    shape: tuple[int, ...]
    arithmetic: ArithmeticName
    parts: tuple[ProofStep, ...]
    derived: ClassVar[tuple[str, ...]] = ("smallest_margin",)

    def __post_init__(self) -> None:
        if self.arithmetic not in ROUNDINGS or not self.parts:
            raise ValueError("an unknown arithmetic, or no parts")

    @property
    def smallest(self) -> ProofStep:
        """The part with the smallest bound; those without one come first."""
        return min(self.parts, key=lambda part: -np.inf if part.margin is None else part.margin)

    @property
    def smallest_margin(self) -> float:
        """A lower bound of the right token's lead on the whole domain; NaN if there is none."""
        margin = self.smallest.margin
        return float("nan") if margin is None else margin

    @property
    def open(self) -> int:
        """How many parts were not proved."""
        return sum(not part.proved for part in self.parts)

    def picture(self) -> Picture:
        """The proved margin of every size, or of every part in order; those below zero prove nothing."""
        table = self.to_dataframe()
        sizes = [match for part in self.parts if (match := _SIZE.fullmatch(part.name))]
        if len(sizes) == len(table) > 1:
            table["m"], table["n"] = ([int(match[i]) for match in sizes] for i in (1, 2))
            margins = table.pivot(index="m", columns="n", values="margin")
            axes = _FACTORS if self.domain.startswith("all products") else _OPERANDS
            cells = margins.to_numpy(float), list(margins.index), list(margins.columns)
            return Picture([Grid(*axes, "", *cells, "margin (logits)", "range", upwards=True)])
        part = np.arange(1, len(table) + 1)
        series = Series("", part, table.margin.to_numpy(float), said={"part": table.part.to_numpy()})
        y = "lower bound of the margin (logits)"
        return Picture([Points("part of the proof", y, series=[series], lines=(Line(0),))])

    def to_dataframe(self) -> pd.DataFrame:
        """One row per part: its name, its bound, and whether it is proved."""
        return pd.DataFrame(
            [{"part": part.name, "margin": part.margin, "proved": part.proved} for part in self.parts]
        ).astype({"margin": float})

    def finding(self, verdict: Verdict) -> str:
        words = _IN_WORDS[self.arithmetic]
        if verdict.status == "certified":
            where = f"every token by a logit margin of at least {shown(self.smallest_margin, 3)} ({self.smallest.name})"
            return f"certified {words}: {self.domain}, {where}"
        of = f"{self.open:,} of {len(self.parts):,} parts of the proof"
        first = next(part for part in self.parts if not part.proved)
        reason = first.obstacle or "leakage and rounding may cost more than the margin"
        if (one := verdict.counterexample) is not None:
            return (
                f"refuted: {_short(one.problem)} -> {_short(one.predicted)} (run through the model; {one.target} is "
                f"wrong), {of} fail: {reason}"
            )
        return f"undecided {words}: {of} do not close, first {first.name} ({reason})"

    def provenance(self, verdict: Verdict) -> Provenance:
        if verdict.status == "certified":
            return Provenance(len(self.parts), None, f"parts of a proof for {self.domain}", STRENGTHS[self.arithmetic])
        return Provenance(len(self.parts), None, "parts of a proof that does not close")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:28]}...{text[-28:]}"


@dataclass(frozen=True)
class Proof:
    """The domain in words, the parts, and problems that the model may get wrong, by their task, likely ones first."""

    domain: str
    parts: tuple[ProofStep, ...]
    doubtful: Iterator[tuple[Any, torch.Tensor]]


def certify_hand_built(model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None) -> Verdict:
    """Prove a hand-built model right on every problem up to its limits, or find one that it gets wrong.

    Cost: about half a second for the largest sum, 30 operands of 30 digits, and a minute or two for all 900 sizes;
    half a minute for all 900 sizes of products; a few seconds for 100 bits.

    Args:
        arithmetic: "interval" or "float32".
        task: the model's own task in another shape, to ask about that shape alone (for parity: about strings up to it).

    Raises:
        UserError: not a hand-built model, a shape beyond its limits, or float32 for a model in another precision.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, prove(subject, arithmetic))


def prove(subject: Subject, claim: str, options: CertifyOptions | None = None) -> Outcome:
    """Judge all parts of a construction's proof, in the arithmetic ``claim``; see :func:`certify_hand_built`."""
    model, task, arithmetic = subject.model, subject.task, cast(ArithmeticName, claim)
    shape = () if task is model.task else tuple(task.shape)  # type: ignore[attr-defined]
    found = _proof_of(model)(model, shape, arithmetic)
    proved = all(part.proved for part in found.parts)
    # Problems are made one after the other, and none where all is proved.
    tried = (_first_wrong(model, own, problems) for own, problems in ([] if proved else found.doubtful))
    wrong = next((answer for answer in tried if answer is not None), None)
    return Outcome.of(proved, HandBuiltEvidence(found.domain, shape, arithmetic, found.parts), wrong)


def is_hand_built(model: HookedModel) -> bool:
    """Whether a proof is known for this model's weight map."""
    return type(_options(model)) in _PROOFS


def _options(model: HookedModel) -> Any:
    return getattr(getattr(model, "weight_map", None), "options", None)


def _proof_of(model: HookedModel) -> Callable[[Any, tuple[int, ...], ArithmeticName], Proof]:
    if not is_hand_built(model):
        raise UserError(f"{model_name(model)} is none of the hand-built models that there is a proof for.")
    return _PROOFS[type(_options(model))]


def _as_far_as_there_is_time(names: list[str], found: Iterator[tuple[float, str | None]]) -> tuple[ProofStep, ...]:
    """A part for each (margin, obstacle), and for those that a time limit or Ctrl-C left out."""
    parts = []
    try:
        for name, (margin, obstacle) in zip(names, found, strict=True):
            parts.append(ProofStep(name, margin if np.isfinite(margin) else None, obstacle))
    except ENDED as error:
        parts += [ProofStep(name, None, ended_by(error).value) for name in names[len(parts) :]]
    return tuple(parts)


def _failing(items: Sequence[Any], parts: tuple[ProofStep, ...], most: int | None = None) -> list[Any]:
    """The items whose part was tried and not proved, or ``most`` of them from the first to the last."""
    ended = {one.value for one in EndedBy}
    found = [item for item, part in zip(items, parts, strict=True) if not part.proved and part.obstacle not in ended]
    if most is None or len(found) <= most:
        return found
    return [found[i] for i in np.linspace(0, len(found) - 1, most).astype(int)]


def _require_float32(model: HookedModel, arithmetic: ArithmeticName) -> None:
    if arithmetic == "float32" and model.dtype != torch.float32:
        raise UserError(f"Rounding is bounded for float32 models, and this one is in {model.dtype}; try 'interval'.")


# ---- addition


def _addition(model: HookedModel, shape: tuple[int, ...], arithmetic: ArithmeticName) -> Proof:
    options = model.weight_map.options
    most = options.max_operands, options.max_digits
    shapes: list[Any] = [shape] if shape else [(m, n) for m in range(1, most[0] + 1) for n in range(1, most[1] + 1)]
    found = ((proof.margin, proof.obstacle) for proof in prove_shapes(model, shapes, arithmetic))
    parts = _as_far_as_there_is_time([f"{m} x {n} digits" for m, n in shapes], found)
    m, n = shape or most
    many = f"{m}{' operands' if m > 1 else ' operand'} of up to {n}{' digits' if n > 1 else ' digit'}"
    failing = _failing(shapes, parts, SIZES_TRIED)
    doubtful = ((model.task.at(m, n), grid_problems(m, n, TRIED, 0)) for m, n in failing)
    return Proof(f"all problems of {'' if shape else 'up to '}{many}", parts, doubtful)


# ---- multiplication


def _multiplication(model: HookedModel, shape: tuple[int, ...], arithmetic: ArithmeticName) -> Proof:
    _require_float32(model, arithmetic)
    most = model.weight_map.options.max_digits
    sizes: list[Any] = [shape] if shape else [(M, N) for M in range(1, most + 1) for N in range(1, most + 1)]
    found = prove_sizes(model, sizes, arithmetic == "float32")
    parts = _as_far_as_there_is_time([f"{M} x {N} digits" for M, N in sizes], found)
    M, N = shape or (most, most)

    doubtful = (_products(model.task.at(*size)) for size in _failing(sizes, parts, SIZES_TRIED))
    return Proof(f"all products of up to {M} x {N} digits", parts, doubtful)


def _products(task: Any) -> tuple[Any, torch.Tensor]:
    """Products to try: of nines, of zeros, and random ones."""
    drawn = task.sample(TRIED, torch.Generator().manual_seed(0))
    nines = 9 * (torch.arange(task.n_digits) < torch.tensor(task.shape)[:, None]).long()[None]
    cost = len(task.encode(nines)[0]) ** 2
    return task, torch.cat((nines, 0 * nines, drawn[: max(1, min(TRIED, MOST_PAIRS // cost))]))


# ---- parity


def _parity(model: HookedModel, shape: tuple[int, ...], arithmetic: ArithmeticName) -> Proof:
    longest = shape[0] if shape else model.weight_map.options.max_bits
    _require_float32(model, arithmetic)
    domain = f"all strings of up to {longest} bit{'s' * (longest > 1)}"
    try:
        proof = ParityProof(model, longest, FLOAT32 if arithmetic == "float32" else REAL)
        found = ((margin, None) for margin in proof.margins())
        parts = _as_far_as_there_is_time([step.name for step in proof.steps], found)
    except NotSeparated as error:
        parts = (ProofStep("the separation of positions and bits", None, str(error)),)

    doubtful = ((model.task.at(bits), _strings(bits)) for bits in (_lengths(longest) if _failing(parts, parts) else ()))
    return Proof(domain, parts, doubtful)


def _lengths(longest: int) -> Iterator[int]:
    """Lengths to try: 1 to 16, then larger ones in steps, up to the longest."""
    yield from sorted({*range(1, min(longest, 16) + 1), *np.linspace(1, longest, 16).astype(int).tolist()})


def _strings(bits: int) -> torch.Tensor:
    """Strings to try: all zeros, all ones, two alternating ones, and random ones."""
    drawn = torch.randint(2, (TRIED, 1, bits), generator=torch.Generator().manual_seed(bits))
    place = torch.arange(bits)
    return torch.cat((torch.stack((0 * place, 0 * place + 1, place % 2, 1 - place % 2))[:, None], drawn))


def _first_wrong(model: HookedModel, task: Any, problems: torch.Tensor) -> WrongAnswer | None:
    """The first of these problems that the model gets wrong when it decodes it alone."""
    bad = (predict(model, problems, task=task).cpu() != task.targets(problems).cpu()).any(1)
    for row in bad.nonzero().flatten().tolist():
        found = wrong_answer(model, task, problems[row : row + 1])
        if found is not None:
            return found
    return None


_PROOFS: dict[type, Callable[[Any, tuple[int, ...], ArithmeticName], Proof]] = {
    HandBuiltOptions: _addition,
    HandBuiltMultiplicationOptions: _multiplication,
    HandBuiltParityOptions: _parity,
}


# ---- the method


def why_not(subject: Subject) -> str | None:
    """Why a model is no construction that there is a proof for, in words. The task is not laid out for that."""
    model = subject.model
    if not is_hand_built(model):
        return f"{model_name(model)} is not hand-built"
    other = altered(model.task) or (None if subject.given is None else altered(subject.given))
    return None if other is None else f"{other} is another method than the certifier knows"


def _again(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    return certify_hand_built(model, verdict.arithmetic, task if verdict.shape else model.task)


def _falls_short(verdict: Verdict, found: Verdict) -> str | None:
    if found.domain != verdict.domain:
        return f"proved again, {found.sentence()}"
    if [part.name for part in verdict.parts] != [part.name for part in found.parts]:
        return "it has other parts"
    for claimed, computed in zip(verdict.parts, found.parts, strict=True):
        if claimed.proved and not (computed.proved and claimed.margin <= computed.margin + SAME_MARGIN):
            return f"{claimed.name} is not proved with that margin"
        if claimed.proved != computed.proved or claimed.obstacle != computed.obstacle:
            return f"{claimed.name} comes out otherwise"
    return None


METHOD = Method(
    "hand-built",
    HandBuiltEvidence,
    why_not=why_not,
    claims=lambda subject: ("float32", "interval"),
    cost=lambda subject, claim: 0.0,  # nothing else is as strong on a construction
    run=prove,
    check=judged_again(_again, _falls_short),
    any_length=True,
)
