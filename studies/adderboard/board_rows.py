"""Judges public adders, a row each: how many numbers they have, score, and verdict on all 10^20 pairs.

A submission is a program (*.py), whose model is one row. A file of published numbers (*.json) has a row per model.

A row's verdict is that of :func:`interp.certify` if one of its methods decides the model. Otherwise the model is run on
problems that uniform tests do not contain, and attacked. A problem that it answers wrong, decoded alone and greedily,
refutes it; without one it stays undecided, and the row says why.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import models
from interp.core.as_json import decode
from interp.probes.stress_suites import suites
from interp.proofs.attacks import attack
from interp.proofs.certify import certify
from interp.proofs.columns.accuracy_bounds import accuracy_bounds
from interp.proofs.verdict.time_limit import TimeUp, time_limit
from interp.proofs.verdict.wrong_answers import wrong_answer
from models.errors import UserError
from models.files.checkpoint import sha256
from models.registry import BY_HAND, TRAINED
from models.tasks.columns.long_carries import uniform_below
from models.tasks.named.addition import DIGITS
from models.transformer.hooked import HookedModel
from studies.adderboard.numbers import PublishedNumbers, load_numbers
from studies.adderboard.submissions import count_in_name, how_it_ran, load_submission, submission_of

#: Problems per stress suite of one case, and problems with runs of nines but no carry.
STRESS, NINES = 1000, 6000
#: Number of sequences of the attack, and its time limit in seconds.
RUNS, SECONDS = 2000, 20.0
#: How many problems of the score are decoded greedily.
REPLAYED = 256
SEED = 0
NOT_KNOWN, NOT_STATED = "not known", "not stated"
WITH_ROUNDING, OVER_THE_REALS = "with rounding", "over the reals"
_BATCH = 2048


@dataclass(frozen=True)
class BoardRow:
    """What is known about one model.

    Attributes:
        file: where it is, or "zoo". sha256: hash of the text.
        name, author: as the file says.
        family: its architecture.
        made: "trained", "by hand" or "not known", by the name of the file's folder, else by its text.
        start: "random", "placed" (some numbers begin at chosen values), "warm" (from another model), or "not stated".
        on_test: whether its numbers were selected on problems of the test set; None if that is not stated.
        stated: number of parameters as its author counts them (in the text, else in the file's name).
        free, bits: how many numbers its own model holds as parameters, and their size as stored.
        constants: how many constants in code act like further ones; None if nobody has listed them.
        distinct: how many different magnitudes other than 0 and 1 its effective weights have.
        correct, n: score on the board's 10,010 problems, decoded greedily in the file's own number format.
        status: "certified", "refuted", "undecided", or "unreadable".
        proved: what the proof is about: "with rounding", "over the reals", or "" without a proof.
        verdict: the verdict as a sentence, or why there is none.
        method: method of the verdict; "search" if a search found the counterexample.
        counterexample: (problem, the model's answer).
        wrong: exactly how many of the 10^20 pairs are answered wrongly, as text; None if that is not known.
        share: what is known of the share of wrong pairs, in words.
        margin: the smallest margin that was proved or seen, in logits.
        seconds, scoring: CPU seconds for the verdict and for the score.
    """

    file: str
    sha256: str
    status: str
    verdict: str
    name: str = ""
    author: str = ""
    family: str = ""
    made: str = NOT_KNOWN
    start: str = NOT_STATED
    on_test: bool | None = None
    stated: int | None = None
    free: int | None = None
    bits: int | None = None
    constants: int | None = None
    distinct: int | None = None
    proved: str = ""
    correct: int | None = None
    n: int | None = None
    method: str = ""
    counterexample: tuple[str, str] | None = None
    wrong: str | None = None
    share: str = ""
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
    """The submissions and files of numbers in a folder and its subfolders. Raises UserError if there are none."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".py", ".json") and path.is_file() and path.name != "verify.py"
        if not any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
    )
    if not found:
        raise UserError(f"There are no submissions (*.py) and no numbers (*.json) in {folder}.")
    return found


def digest_of_file(path: Path) -> str:
    """The hash of a file's bytes; empty if it cannot be read."""
    try:
        return sha256(path.read_bytes())
    except OSError:
        return ""


def judge(
    path: Path,
    file: str,
    checkpoints: Path | None = None,
    minutes: float | None = None,
    trust: bool | str = True,
) -> list[BoardRow]:
    """The rows of one file, called ``file``; a program is run, as ``trust`` says. If that gives no model, or one that
    cannot be judged, one row says why, and the other files of a board are judged all the same."""
    digest = digest_of_file(path)
    try:
        if path.suffix == ".json":
            return [_judged(one.model, file, digest, _of_numbers(one), minutes) for one in load_numbers(path)]
        model = load_submission(path, checkpoints, trust=trust)
        return [_judged(model, file, digest, _of_submission(model, path), minutes)]
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
    except UserError as error:
        reason = str(error).replace(f"{path} cannot be read as a model: ", "")
    except Exception as error:  # a stranger's file; the row has the exception's name, so that it can be looked into
        reason = f"judging it failed with {type(error).__name__}: {_short(error)}"
    made = _made(path, "")
    about = {"made": made, "start": made if made == BY_HAND else NOT_STATED, "stated": count_in_name(path)}
    remarks = how_it_ran(trust) if path.suffix == ".py" else ()
    return [BoardRow(file, digest, "unreadable", reason, name=path.stem, remarks=remarks, **about)]


def verdict_row(model: HookedModel, name: str, minutes: float | None = None) -> BoardRow:
    """The row of a model at hand, judged now."""
    return _judged(model, name, "", {"name": name}, minutes)


def _judged(model: HookedModel, file: str, digest: str, facts: dict[str, Any], minutes: float | None) -> BoardRow:
    start = time.process_time()
    facts |= dict(zip(("correct", "n"), _scored(model), strict=True)) | {"scoring": time.process_time() - start}
    start = time.process_time()
    found = _verdict(model, minutes)
    found |= {"distinct": distinct_numbers(model), "seconds": time.process_time() - start}
    return BoardRow(file, digest, **facts, **found)


def _of_submission(model: HookedModel, path: Path) -> dict[str, Any]:
    """What is known of a submission apart from its score and its verdict."""
    submission = submission_of(model)  # pyright: ignore[reportArgumentType]
    assert submission is not None
    facts: dict[str, Any] = {key: getattr(submission, key) for key in ("family", "stated", "free", "bits", "remarks")}
    text = path.read_text(encoding="utf-8")
    facts["name"] = _short(submission.metadata.get("name") or path.stem)
    facts["author"] = _short(submission.metadata.get("author") or path.stem.rpartition("_")[0])
    facts["made"] = _made(path, text)
    if facts["made"] == BY_HAND:
        return facts | {"start": BY_HAND, "on_test": False}
    return facts | {"start": "warm" if _WARM.search(text) else NOT_STATED}


def _of_numbers(one: PublishedNumbers) -> dict[str, Any]:
    """What is known of published numbers; how they were found, if they are those of a registered model."""
    weights = one.model.weight_map
    free = sum(p.numel() for p in weights.parameters())
    facts: dict[str, Any] = {"name": _short(one.name), "author": _short(one.source.partition(",")[0]), "made": TRAINED}
    facts |= {"family": "arc decoder", "stated": count_in_name(Path(f"{one.name}p")), "free": free, "bits": 32 * free}
    facts["constants"] = len(weights.constants or {})
    known = models.get_spec(one.name).published if one.name in models.names() else None
    if known is not None and _same(weights, models.build(one.name).weight_map):
        facts |= {"start": known.start, "on_test": known.on_test}
    return facts


def _same(a: nn.Module, b: nn.Module) -> bool:
    """Whether two weight maps have the same numbers."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(x.shape == y.shape and torch.equal(x, y) for x, y in pairs)


_HAND = re.compile(r"hand[- _]?(coded|crafted|set|built|made)|handcrafted|analytic|no[- ]training", re.IGNORECASE)
_LEARNT = re.compile(r"(?<!un)(?<!not )\btrained\b|\btraining\b|\bcheckpoint", re.IGNORECASE)
_WARM = re.compile(r"warm[- ]?start|initiali[sz]ed from|fine-?tuned from|continued from", re.IGNORECASE)


def _made(path: Path, text: str) -> str:
    """Whether a submission was trained or set by hand, by its folder, else by what its text says."""
    for folder in reversed(path.parent.parts):
        if folder.lower().startswith("trained"):
            return TRAINED
        if folder.lower().startswith("hand"):
            return BY_HAND
    if _HAND.search(text):
        return BY_HAND
    return TRAINED if _LEARNT.search(text) else NOT_KNOWN


def _short(text: Any) -> str:
    """A text of a stranger as one short line."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(str(text).split()))
    return line if len(line) <= 60 else f"{line[:57]}..."


@torch.no_grad()
def distinct_numbers(model: HookedModel) -> int:
    """How many different magnitudes other than 0 and 1 the effective weights have, each counted once."""
    values = torch.cat([w.detach().double().flatten() for w in model.effective_weights().values()]).abs()
    values = values[values.isfinite() & (values != 0) & (values != 1)]
    return len(values.unique())


@torch.inference_mode()
def _scored(model: HookedModel) -> tuple[int, int]:
    """(how many problems of the test set have their whole sum right in greedy decoding, how many there are).

    All are scored teacher-forced, which gives the same; the ``REPLAYED`` problems with the smallest margins, where
    another order of summation could matter, are decoded greedily.
    """
    problems = model.task.held_out.problems
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
        verdict = certify(model, targets="digits" if ended else "all", minutes=minutes, tolerance=None)
        found = {"status": verdict.status, "verdict": verdict.sentence(), "method": verdict.method}
        found["margin"] = _finite(getattr(verdict, "smallest_margin", None))
        if hasattr(verdict, "wrong"):
            found |= {"wrong": str(verdict.wrong), "share": f"wrong on exactly {verdict.wrong:,} of 10^20 pairs"}
        if (reals := getattr(verdict, "reals", None)) is not None and not reals.open:
            found["proved"] = OVER_THE_REALS
        if verdict.status == "certified":
            over = verdict.provenance.strength == "certified in intervals"
            return found | {"wrong": "0", "share": "", "proved": OVER_THE_REALS if over else WITH_ROUNDING}
        if (wrong := verdict.counterexample) is not None:
            return found | {"counterexample": (wrong.problem, wrong.predicted)} | _share(model, minutes)
    except UserError as error:
        found = {"status": "undecided", "verdict": str(error), "method": ""}
    return found | _searched(model, found["verdict"], bool(found.get("proved")))


def _share(model: HookedModel, minutes: float | None) -> dict[str, Any]:
    """What is known of the share of wrong pairs of a model that a method for one layer refuted, over the reals."""
    try:
        with time_limit(minutes):
            bounds = accuracy_bounds(model)
    except (UserError, TimeUp):
        return {}
    return {} if bounds.says_little else {"share": f"{bounds.wrong()}, over the reals"}


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


def _searched(model: HookedModel, reason: str, proved: bool) -> dict[str, Any]:
    """Search for a problem that the model gets wrong, and report it or that none was found.

    There is nothing to attack in a model that is ``proved`` over the reals: only rounding can make it wrong.
    """
    problems = torch.cat(
        (model.task.held_out.problems, near_nines(NINES, SEED), *(p for *_, p in suites(STRESS, SEED)))
    )
    wrong = None
    with torch.inference_mode():
        lead = _leads(model, problems)
    smallest = float(lead.min())
    for row in lead.argsort()[:8].tolist():
        if wrong is None and lead[row] <= 0:
            wrong = wrong_answer(model, model.task, problems[row : row + 1])
    tried = f"{len(problems):,} problems of the stress suites"
    if wrong is None and not proved:
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
    found = {"status": "refuted", "verdict": text, "method": "search", "margin": _finite(smallest), "proved": ""}
    return found | {"counterexample": (wrong.problem, wrong.predicted)}


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < float("inf") else float(value)
