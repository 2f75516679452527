"""The subjects: models that are proved, exhausted or planted, each with a question, frozen by hashes.

A subject is a model and pairs of problems that differ in one thing. Its family is what a blind prior leaves out, and
what intervals resample first. ``truth.json`` holds, for each, the hash of its weights and of its pairs, and a model
whose weights differ is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import models
from benchmarks.circuits import planted, recipes
from benchmarks.provability.ordinary_models import MODELS as ORDINARY
from models.errors import UserError
from models.tasks import ProblemPairs, Task, problem_pairs
from models.tasks.check_task import domain_of

N_TRUTH, N_METHOD, TRUTH_SEED = 64, 64, 10_000
DRAWN = 64  # candidates for each pair
ADDERS, TWO_LAYERS, MODULAR, INDUCTION, ORDER = "one-layer adders", "two-layer adders", "modular", "induction", "order"
COMPARISON, STRINGS, PLANTED = "comparison", "strings", "planted"
#: The families of the first run, and those that were added for the second one.
SEEN = (ADDERS, TWO_LAYERS, MODULAR, INDUCTION, ORDER, COMPARISON, STRINGS, PLANTED)
NEW = tuple(dict.fromkeys(family for family, *_ in recipes.KINDS.values() if family not in SEEN))
FAMILIES = SEEN + NEW
QUICK = 4

MADE, PASSED, DIGIT, OTHER = "made carry", "passed carry", "one digit", "other problem"


@dataclass(frozen=True)
class Subject:
    """A model ``name`` that is read from ``source`` (a name of the zoo, or a folder), and a question: what the problems
    of a pair differ in, and at which of the task's targets (counted from its end if negative)."""

    name: str
    family: str
    source: str
    question: str = OTHER
    target: int = 0

    @cached_property
    def plan(self) -> planted.Planted | None:
        """What was planted; None in a trained model."""
        if self.family != PLANTED:
            return None
        kind, _, seed = self.source.rpartition(" ")
        return planted.planted(kind, int(seed))

    @cached_property
    def model(self) -> Any:
        if self.plan is not None:
            return self.plan.model
        folder = Path(self.source)
        return models.load(folder if folder.is_absolute() else self.source)

    def pairs(self, n: int, seed: int) -> ProblemPairs:
        """Pairs that differ as the question says. Raises UserError where the task has none."""
        task = self.model.task
        if self.question in (MADE, PASSED):
            digits = domain_of(task).width()
            return problem_pairs(task, self.question, column=max(1, (digits + 1) // 2), n=n, seed=seed, side="mixed")
        return changed(task, self.target % len(task.query_positions), self.question == DIGIT, n, seed)


def changed(task: Task, target: int, one: bool, n: int, seed: int) -> ProblemPairs:
    """Pairs of problems with different answers at a target: two that are drawn by themselves, or one and the same with
    one other digit, the same in as much of the answer as was written before."""
    generator = torch.Generator().manual_seed(seed)
    domain = domain_of(task)
    clean = task.sample(DRAWN * n, generator)
    corrupted = task.sample(DRAWN * n, generator)
    if one:
        digits, other = domain.digits_of(clean), domain.digits_of(corrupted)
        cell = torch.randint(digits.shape[1], (len(digits), 1), generator=generator)
        corrupted = domain.problems(torch.where(torch.arange(digits.shape[1]) == cell, other, digits))
        allowed = domain.holds(corrupted)
        clean, corrupted = clean[allowed], corrupted[allowed]
    right, wrong = task.targets(clean), task.targets(corrupted)
    fits = right[:, target] != wrong[:, target]
    if one and target:
        fits &= (right[:, :target] == wrong[:, :target]).all(1)
    rows = fits.nonzero()[:n, 0]
    if len(rows) < n:
        raise UserError(
            f"Only {len(rows)} of {DRAWN * n} drawn pairs of {task.name} have the answers that are asked for."
        )
    what = "one digit" if one else "all of the problem"
    return ProblemPairs(task, clean[rows], corrupted[rows], target, what, seed)


def _zoo(family: str, question: str, *names: str, target: int = 0) -> list[Subject]:
    return [Subject(name, family, name, question, target) for name in names]


def _ordinary(family: str, question: str, *names: str, target: int = 0) -> list[Subject]:
    return [Subject(name, family, str(ORDINARY / name), question, target) for name in names]


#: Kind of own model -> (question, target).
_ASKED: Mapping[str, tuple[str, int]] = {
    "add-2-two-layers": (MADE, 0),
    "subtract-2-two-layers": (MADE, 0),
    "copy-4": (OTHER, 2),
    "sorted-3-of-10": (DIGIT, 0),
    "median-3-of-16": (DIGIT, 0),
    "compare-2": (DIGIT, 0),
    "compare-2-two-layers": (DIGIT, 0),
    "brackets-8": (DIGIT, 0),
    "parity-5": (DIGIT, 0),
    "times-1-2": (OTHER, 1),
    "double-3": (OTHER, 1),
    "successor-3": (OTHER, 1),
}


def own_subject(kind: str, seed: int, folder: Path = recipes.MODELS) -> Subject:
    """A model of :mod:`benchmarks.circuits.recipes`, in a folder of them."""
    question, target = _ASKED.get(kind, (OTHER, 0))
    name = recipes.recipe(kind, seed).name
    return Subject(name, recipes.KINDS[kind][0], str((folder / name).absolute()), question, target)


def planted_subject(kind: str, seed: int) -> Subject:
    return Subject(f"planted-{kind}-{seed}", PLANTED, f"{kind} {seed}", OTHER, 1 if kind == "places" else 0)


SUBJECTS: tuple[Subject, ...] = (
    *_zoo(ADDERS, MADE, "microadder-57", "microadder-242", "adder-3-by-hand"),
    *_zoo(ADDERS, PASSED, "microadder-22", "adder-456", "adder-763"),
    *_zoo(ADDERS, MADE, "subtractor-2480"),
    *_ordinary(ADDERS, MADE, "add-3-d64-0", "add-3-rotary-0", "add-3-one-head-0", "add-3-alibi-0"),
    *_ordinary(ADDERS, PASSED, "add-3-no-norm-relu-0", "add-5-rms-gated-silu-0"),
    *_ordinary(ADDERS, OTHER, "add-three-3-13", target=1),
    *_ordinary(TWO_LAYERS, MADE, "add-3-two-layers-no-norm-relu-1"),
    *_zoo(MODULAR, OTHER, "modular-addition-59", "modular-addition-113", "modular-multiplication-113"),
    *_ordinary(INDUCTION, OTHER, *(f"induction-6-one-head-{seed}" for seed in range(1, 7))),
    *_ordinary(INDUCTION, OTHER, "induction-6-two-heads-0", "induction-6-two-heads-1"),
    *_ordinary(ORDER, DIGIT, "max-4-of-64-0", "sorted-4-of-16-0", "sorted-4-of-16-1"),
    *_ordinary(ORDER, OTHER, "copy-8-0", "reverse-8-0", target=3),
    *(own_subject(kind, seed) for kind, (_, _, _, seeds) in recipes.KINDS.items() for seed in range(seeds)),
    *(planted_subject(kind, 0) for kind in planted.KINDS),
    *(planted_subject(kind, 1) for kind in ("irrelevant", "or", "cancel", "suppress")),
)


def quick() -> list[Subject]:
    """Of each family's subjects every fourth."""
    return [each for family in FAMILIES for each in [one for one in SUBJECTS if one.family == family][::QUICK]]


def weights_hash(model: Any) -> str:
    """SHA-256 of the names, shapes and float32 numbers of the effective weights."""
    found = hashlib.sha256()
    with torch.no_grad():
        for name, value in sorted(model.effective_weights().items()):
            found.update(f"{name}{list(value.shape)}".encode())
            found.update(value.detach().float().contiguous().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def pairs_hash(pairs: ProblemPairs) -> str:
    tokens: Tensor = torch.cat((pairs.clean_tokens, pairs.corrupted_tokens)).contiguous()
    return hashlib.sha256(tokens.numpy().tobytes()).hexdigest()[:16]


TRUTH = Path(__file__).with_name("truth.json")


def stored_truths() -> dict[str, dict[str, Any]]:
    """What is stored of each subject, by its name."""
    return json.loads(TRUTH.read_text(encoding="utf-8")) if TRUTH.is_file() else {}


def write_release(folder: Path) -> None:
    """Every subject as ``NAME.safetensors``, with ``truth.json``: effective float32 weights as "blocks.0.attn.W_Q",
    the tokens of the pairs that judge ("clean", "corrupted") and their answers ("right", "wrong"); as metadata the
    config, the position at which logits are read, and the hash."""
    folder.mkdir(parents=True, exist_ok=True)
    for subject in SUBJECTS:
        pairs, model = subject.pairs(N_TRUTH, TRUTH_SEED), subject.model
        tensors = {name: value.detach().float().contiguous() for name, value in model.effective_weights().items()}
        tensors |= {"clean": pairs.clean_tokens, "corrupted": pairs.corrupted_tokens}
        tensors |= {"right": pairs.clean_targets[:, pairs.target], "wrong": pairs.corrupted_targets[:, pairs.target]}
        read = str(pairs.task.query_positions[pairs.target])
        metadata = {"config": json.dumps(model.config.to_dict()), "position": read, "hash": weights_hash(model)}
        save_file(
            {name: value.clone().contiguous() for name, value in tensors.items()},
            folder / f"{subject.name}.safetensors",
            metadata,
        )
    (folder / TRUTH.name).write_text(TRUTH.read_text(encoding="utf-8"), encoding="utf-8")
