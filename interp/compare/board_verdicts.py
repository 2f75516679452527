"""Judges a folder of public AdderBoard submissions, one row each: parameters, score, verdict on all 10^20 pairs.

A row's verdict is that of :func:`interp.certify` if one of its methods decides the model. Otherwise the model is run on
problems that uniform tests do not contain, and attacked. A problem that it answers wrong, decoded alone and greedily,
refutes it; without one it stays undecided, and the row says why.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

import models
from interp.core.as_json import decode
from interp.core.model import HookedModel
from interp.probes.stress import suites
from interp.proofs.attacks import attack
from interp.proofs.methods import certify
from interp.proofs.wrong_answers import wrong_answer
from models.checkpoint import sha256
from models.errors import UserError
from models.importers.board import count_in_name, load_submission, submission_of
from models.tasks.addition import DIGITS
from models.tasks.carries import uniform_below

#: Problems per stress suite of one case, and problems with runs of nines but no carry.
STRESS, NINES = 1000, 6000
#: Number of sequences of the attack, and its time limit in seconds.
RUNS, SECONDS = 2000, 20.0
#: How many problems of the score are decoded greedily.
REPLAYED = 256
SEED = 0
_BATCH = 2048


@dataclass(frozen=True)
class BoardRow:
    """What is known about one file.

    Attributes:
        sha256: hash of the text.
        family: its architecture.
        stated: number of parameters as its author counts them (in the text, else in the file's name).
        free, bits: how many numbers its own model holds as parameters, and their size as stored.
        correct, n: score on the board's 10,010 problems, decoded greedily in the file's own number format.
        status: "certified", "refuted", "undecided", or "unreadable".
        verdict: the verdict as a sentence, or why there is none.
        method: method of the verdict; "search" if a search found the counterexample.
        counterexample: (problem, the model's answer).
        wrong: exactly how many of the 10^20 pairs are answered wrongly, as text; None if that is not known.
        margin: the smallest margin that was proved or seen, in logits.
        seconds, scoring: CPU seconds for the verdict and for the score.
    """

    file: str
    sha256: str
    status: str
    verdict: str
    family: str = ""
    stated: int | None = None
    free: int | None = None
    bits: int | None = None
    correct: int | None = None
    n: int | None = None
    method: str = ""
    counterexample: tuple[str, str] | None = None
    wrong: str | None = None
    margin: float | None = None
    seconds: float = 0.0
    scoring: float = 0.0
    remarks: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> BoardRow:
        """The inverse of :meth:`to_dict`, from JSON."""
        return decode(cls, value)


def submissions(folder: Path) -> list[Path]:
    """The submissions in a folder and its subfolders. Raises UserError if there are none."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    found = sorted(
        path for path in folder.rglob("*.py") if path.name != "verify.py" and not path.name.startswith((".", "__"))
    )
    if not found:
        raise UserError(f"There are no submissions (*.py) in {folder}.")
    return found


def judge(path: Path, name: str, checkpoints: Path | None = None, minutes: float | None = None) -> BoardRow:
    """The row of one file, called ``name``, which is run. If that does not give a model, the row says why."""
    digest = sha256(path.read_bytes())
    try:
        model = load_submission(path, checkpoints, trust=True)
    except UserError as error:
        reason = str(error).replace(f"{path} cannot be read as a model: ", "")
        return BoardRow(name, digest, "unreadable", reason, stated=count_in_name(path))
    submission = submission_of(model)
    facts = {key: getattr(submission, key) for key in ("family", "stated", "free", "bits", "remarks")}
    start = time.process_time()
    correct, n = _scored(model)
    facts |= {"correct": correct, "n": n, "scoring": time.process_time() - start}
    start = time.process_time()
    found = _verdict(model, minutes)
    return BoardRow(name, digest, **facts, **found, seconds=time.process_time() - start)


@torch.inference_mode()
def _scored(model: HookedModel) -> tuple[int, int]:
    """(how many problems of the test set have their whole sum right in greedy decoding, how many there are).

    All are scored teacher-forced, which gives the same; the ``REPLAYED`` problems with the smallest margins, where
    another order of summation could matter, are decoded greedily.
    """
    problems = model.task.test_set()[1]
    lead = _leads(model, problems)
    right = lead > 0
    hard = lead.argsort()[:REPLAYED]
    digits = _digits(model)
    answers = models.evaluation.predict(model, problems[hard], "greedy")[:, digits].cpu()
    right[hard] = (answers == model.task.targets(problems[hard])[:, digits]).all(1)
    return int(right.sum()), len(problems)


def _digits(model: HookedModel) -> list[int]:
    """The targets that are digits of the sum, without EOS."""
    return [i for i, role in enumerate(model.task.target_roles) if role.kind == "answer"]


def _leads(model: HookedModel, problems: Int[Tensor, "n 2"]) -> Float[Tensor, " n"]:
    """The smallest margin among each sum's digits, given the right digits before."""
    digits = _digits(model)
    queries, found = [model.task.query_positions[i] for i in digits], []
    for some in problems.split(_BATCH):
        logits, targets = model(model.task.encode(some))[:, queries], model.task.targets(some)[:, digits]
        found.append(models.evaluation.margins(logits, targets).amin(1))
    return torch.cat(found)


def _verdict(model: HookedModel, minutes: float | None) -> dict[str, Any]:
    ended = model.task.target_roles[-1].kind == "eos"
    found: dict[str, Any] = {}
    try:
        verdict = certify(model, targets="digits" if ended else "all", minutes=minutes)
        found = {"status": verdict.status, "verdict": verdict.sentence(), "method": verdict.method}
        found["margin"] = _finite(getattr(verdict, "smallest_margin", None))
        if hasattr(verdict, "wrong"):
            found["wrong"] = str(verdict.wrong)
        if verdict.status == "certified":
            return found | {"wrong": "0"}
        if verdict.status == "refuted":
            return found | {"counterexample": _example(verdict.counterexample)}
    except UserError as error:
        found = {"status": "undecided", "verdict": str(error), "method": ""}
    return found | _searched(model, found["verdict"])


def _example(found: Any) -> tuple[str, str]:
    """(problem, answer) from any verdict's counterexample."""
    if hasattr(found, "problem"):
        return found.problem, found.predicted
    a, b, said = found
    return f"{a} + {b}", "no number" if said is None else str(said)


def near_nines(n: int, seed: int) -> Int[Tensor, "n 2"]:
    """Pairs with a run of columns whose digits add up to nine, at a uniform place, without a planted carry below it.

    There a model that holds a sum in one number may take 0.999999 for 1.
    """
    generator = torch.Generator().manual_seed(seed)
    start = uniform_below(torch.full((n,), DIGITS), generator)
    length = uniform_below(DIGITS - start, generator) + 1
    a, b = torch.randint(10, (2, n, DIGITS), generator=generator)
    column = torch.arange(DIGITS)
    run = (column >= start[:, None]) & (column < (start + length)[:, None])
    b = torch.where(run, 9 - a, b)
    powers = 10**column
    return torch.stack(((a * powers).sum(1), (b * powers).sum(1)), 1)


def _searched(model: HookedModel, reason: str) -> dict[str, Any]:
    """Search for a problem that the model gets wrong, and report it or that none was found."""
    problems = torch.cat((model.task.test_set()[1], near_nines(NINES, SEED), *(p for *_, p in suites(STRESS, SEED))))
    wrong = None
    with torch.inference_mode():
        lead = _leads(model, problems)
    smallest = float(lead.min())
    for row in lead.argsort()[:8].tolist():
        if wrong is None and lead[row] <= 0:
            wrong = wrong_answer(model, model.task, problems[row : row + 1])
    tried = f"{len(problems):,} problems of the stress suites"
    if wrong is None:
        try:
            result = attack(model, runs=RUNS, seed=SEED, seconds=SECONDS)
            smallest = min(smallest, result.smallest_margin())
            tried += f" and {result.provenance.n:,} of an attack"
            for failure in result.wrong:
                wrong = wrong or wrong_answer(model, model.task, torch.tensor([failure.problem]))
        except UserError as error:
            tried += f" (no attack: {error})"
    if wrong is None:
        text = f"undecided: {reason.rstrip('.')}; none of {tried} is answered wrongly"
        return {"status": "undecided", "verdict": text + ".", "margin": _finite(smallest)}
    text = f"refuted: {wrong.problem} -> {wrong.predicted} (decoded greedily, alone), right is {wrong.expected}"
    found = {"status": "refuted", "verdict": text, "method": "search", "margin": _finite(smallest)}
    return found | {"counterexample": (wrong.problem, wrong.predicted)}


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < float("inf") else float(value)
