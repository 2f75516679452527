"""Trials with plants: wrong answers are planted into certified models, and none of these may be certified.

    python -m benchmarks.false_certificates

Plant k is made from its number alone (:mod:`.plants`): a wrong answer on one rare problem, or an arithmetic in which
some problems come out wrong. ``NUMBERS`` says beforehand how many each method gets. Whether a plant took is decided by
a forward pass of this benchmark's own, in float64 and float32 (:mod:`.own_forward`), and by the model itself: it took
if the right token's lead is not positive in the model's own arithmetic, by both, or over the reals. A certificate is
wrong if it claims what the model computes and that is wrong, or what the weights define over the reals and that is.
``check_certificate`` is asked about every certificate as well. Finished plants are kept in the file, and the same
command continues after them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.false_certificates.drafts import Draft
from benchmarks.false_certificates.plants import PLANTED
from interp.proofs.attention_only import arrangement_method
from interp.proofs.certify import certify, check_certificate
from interp.proofs.columns import column_method, per_operator
from interp.proofs.machine import machine_method
from interp.proofs.verdict.method import Method, judged_by
from interp.proofs.verdict.time_limit import TimeUp, time_limit
from interp.proofs.verdict.verdict import Verdict
from models import ArithmeticTransformer, UserError
from models.evaluation import margins, predict
from models.tasks.named.arrangements import FREE
from models.tasks.named.induction import Induction

#: Plants by the method that is to be fooled; fixed before the first was run.
NUMBERS: Mapping[str, int] = {
    "branch and bound over columns": 90,
    "finite machine": 90,
    "prefix tree": 70,
    "hand-built": 16,
    "exhaustive": 16,
    "operator by operator": 8,
    "two layers of attention": 10,
}


#: Methods that are asked themselves, as certify may choose another: a run of few problems, a method for heads that
#: write along many directions, as with a plant, or a search, which would find most plants in two layers first.
ASKED: Mapping[str, Method] = {
    each.METHOD.name: each.METHOD for each in (column_method, machine_method, per_operator, arrangement_method)
}
TWO_LAYERS, PARTLY = "two layers of attention", "proved in part"
TOTAL = sum(NUMBERS.values())
MINUTES = 1.0  # of this process's own time for each; what is undecided then counts as such


@dataclass(frozen=True)
class PlantTrial:
    """One plant and its verdict.

    ``method`` is the one that was to be fooled, ``judged_by`` the one that judged. Leads are the right token's least
    one on the planted problem: in this benchmark's float64 and float32, and the model's own; NaN where a logit is none.
    ``wrong`` is "as it runs", "over the reals" or both, and empty where the plant did not take. ``checked`` says
    whether ``check_certificate`` accepted the certificate, if there is one; ``seconds`` are the processor's.
    """

    index: int
    method: str
    plant: str
    model: str
    notes: dict[str, Any]
    problem: str
    float64: float
    float32: float
    own: float
    wrong: tuple[str, ...]
    judged_by: str
    status: str
    arithmetic: str
    sentence: str
    checked: bool
    seconds: float

    @property
    def took(self) -> bool:
        return bool(self.wrong)

    @property
    def falsely(self) -> bool:
        """Whether something is certified that is wrong, or a set of problems is proved of which one is."""
        claim = "over the reals" if self.arithmetic == "interval" else "as it runs"
        return self.status in ("certified", PARTLY) and claim in self.wrong


def plant_trial(index: int, minutes: float | None = MINUTES) -> PlantTrial:
    """Make plant number ``index`` and judge it."""
    method = [name for name, number in NUMBERS.items() for _ in range(number)][index]
    bases, plants = PLANTED[method]
    rng = np.random.default_rng([64, index])
    number = index - list(accumulate(NUMBERS.values(), initial=0))[list(NUMBERS).index(method)]
    plant = plants[number % len(plants)]
    draft = plant(bases[(number + number // len(plants)) % len(bases)].draft(rng))
    model = draft.model()
    problem, found = taken(draft, model)
    start = time.process_time()
    verdict, status, sentence = judged(model, minutes, method if method in ASKED else None)
    if verdict is not None and status != "certified" and verdict.method == TWO_LAYERS and draft.problem is not None:
        string = draft.task.encode(draft.problem)[0].tolist()
        status = PARTLY if is_proved(verdict, draft.task, string) else status
    checked = False
    if verdict is not None and verdict.status == "certified":
        try:
            check_certificate(verdict, model)
            checked = True
        except UserError:
            pass
    return PlantTrial(
        index,
        method,
        plant.__name__,
        draft.name,
        draft.notes,
        problem,
        *found,
        wrong_as(*found),
        "" if verdict is None else verdict.method,
        status,
        "" if verdict is None else str(getattr(verdict.evidence, "arithmetic", "")),
        sentence,
        checked,
        round(time.process_time() - start, 2),
    )


def is_proved(verdict: Verdict, task: Induction, string: Sequence[int]) -> bool:
    """Whether a proof of two layers, which sees all of a short task's strings, closed the set that holds a string."""
    sets = zip(task.arrangements(), verdict.evidence.classes["open"].tolist(), strict=True)
    holds = lambda tokens: all(token in (FREE, own) for token, own in zip(tokens, string, strict=True))  # noqa: E731
    return any(not left for one, left in sets if holds(one.tokens))


def judged(
    model: ArithmeticTransformer, minutes: float | None, method: str | None = None
) -> tuple[Verdict | None, str, str]:
    """(The verdict, its status, its sentence); "refused" with the reason where there is none, and "raised" with an
    error that is not meant for users. ``method`` is the one that is asked, whichever would be chosen. Minutes are the
    processor's, so that no verdict hangs on what else the machine does."""
    try:
        with time_limit(minutes, time.process_time):
            if method is None:  # which proves, also where many random problems are wrong
                verdict = certify(model, tolerance=None, minutes=None, exact_share=True)
            else:
                verdict = judged_by(ASKED[method], model)
    except TimeUp:
        return None, "undecided", "the time was not enough"
    except UserError as error:
        return None, "refused", str(error)
    except Exception as error:
        return None, "raised", f"{type(error).__name__}: {error}"
    return verdict, verdict.status, verdict.sentence()


def taken(draft: Draft, model: ArithmeticTransformer) -> tuple[str, tuple[float, float, float]]:
    """The problem that a plant gets wrong, or of those that were tried the one with the least lead, and its least lead
    in float64, in float32 and by the model itself."""
    task = draft.task if draft.asked is None else draft.asked
    problems = draft.tried() if draft.problem is None else draft.problem
    with torch.no_grad():
        tokens = task.encode(problems)
        logits = model(tokens, position_ids=task.position_ids(tokens))[:, list(task.query_positions)]
        own = margins(logits, task.targets(problems)).double().numpy().min(1)
    own = np.where((predict(model, problems, "greedy", task=task) != task.targets(problems)).any(1), -np.abs(own), own)
    exact, rounded = (draft.leads(problems, dtype, task).min(1) for dtype in (np.float64, np.float32))
    not_right = ~(np.stack((own, rounded, exact)) > 0)
    order = np.nan_to_num(exact, nan=-np.inf)
    row = min(range(len(problems)), key=lambda i: (not (not_right[0, i] and not_right[1, i]), order[i]))
    text = task.problem_text(task.numbers(problems[row : row + 1])[0])
    return text, (float(exact[row]), float(rounded[row]), float(own[row]))


def wrong_as(exact: float, rounded: float, own: float) -> tuple[str, ...]:
    """In which arithmetic a problem is answered wrongly, or not for sure: "as it runs" by both forward passes."""
    runs = not rounded > 0 and not own > 0
    return ("as it runs",) * runs + ("over the reals",) * (not exact > 0)


def summary(trials: Sequence[PlantTrial]) -> str:
    """A table by method of the plants that took, and how many wrong models were certified.

    "else right" are certificates of what such a plant gets right: as it runs, or over the reals.
    """
    columns = ("certified", "else right", "refuted", "undecided", "refused")
    lines = [f"{'method':<30}{'plants':>8}{'took':>8}" + "".join(f"{name:>12}" for name in columns)]
    for method in NUMBERS:
        own = [trial for trial in trials if trial.method == method]
        known = {"certified": "else right", PARTLY: "else right", "conditional": "undecided"}
        counts = Counter("certified" if t.falsely else known.get(t.status, t.status) for t in own if t.took)
        shown = "".join(f"{counts[name]:>12}" for name in columns)
        lines.append(f"{method:<30}{len(own):>8}{sum(t.took for t in own):>8}{shown}")
    wrong, took = [t for t in trials if t.falsely], sum(t.took for t in trials)
    lines += [
        f"plant {t.index} ({t.plant}, {t.model}, {t.method}) is certified, and wrong at {t.problem}" for t in wrong
    ]
    lines += [f"plant {t.index} ({t.plant}) raised {t.sentence}" for t in trials if t.status == "raised"]
    lines.append(
        f"{len(wrong)} of {len(trials)} planted wrong models were certified; {len(trials) - took} plants did not take; "
        f"judging them took {sum(t.seconds for t in trials) / 3600:.2f} hours of a processor"
    )
    return "\n".join(lines)


@dataclass(frozen=True)
class Plants:
    """Plant wrong answers into certified models, and look whether one is certified."""

    n: int = TOTAL
    """Plants: the first so many."""
    out: Path = Path("plants.jsonl")
    """Where finished plants are kept."""
    minutes: float = MINUTES
    """How long each may be judged, in this process's own time."""

    def run(self) -> int:
        """Run what is left; 1 if a wrong model was certified, else 0."""
        done = read(self.out) if self.out.exists() else []
        left = sorted(set(range(self.n)) - {one.index for one in done})
        with self.out.open("a") as file:
            for index in left:
                done.append(plant_trial(index, self.minutes))
                file.write(json.dumps(asdict(done[-1])) + "\n")
                file.flush()
        print(summary(done))
        return int(any(trial.falsely for trial in done))


def read(path: Path) -> list[PlantTrial]:
    """The trials that a file holds."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [PlantTrial(**one | {"wrong": tuple(one["wrong"])}) for one in found]
