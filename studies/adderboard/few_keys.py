"""Verdicts on one-layer adders whose heads give all but a few keys a weight of exactly zero: all classes are run.

Constructions with sharp scores attend, at each query, to the digits of two columns and to exactly nothing else: the
exponential of a number below -110 is zero in float32 (whose smallest number is 2^-149 = exp(-103.3)), and a zero weight
adds an exact zero, whatever stands at its key. What the model answers at a target then depends only on the digits of
the two columns and on the carry into the lower one: 2 x 10^4 classes per target. All of them are run through the model
itself, in its own arithmetic, so that rounding need not be bounded.

Lemma: let the alive positions of target i be operand digits of the columns i - 1 and i, the answer's digit i - 1,
and delimiters. The problems with digits R, P, Q, R, P, Q, ... by column (R one of 0 + 0 and 9 + 9, which make the carry
out of a column 0 and 1 whatever comes in; P and Q all pairs of digits; all three phases) hold every class of every
target.

What is assumed: products of an exact zero weight with finite values are zero and adding them changes nothing (IEEE); a
score differs from run to run by less than ``SLACK`` times the product of the largest norms of queries and keys, which
is some hundred times what its roundings can do. The order of summation may depend on the batch, as in every verdict by
running. So the smallest margins are run again alone, and every margin must be above ten times what that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.results import Provenance
from interp.proofs.verdict.method import Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import judged_again
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import ENDED, watched
from interp.proofs.verdict.verdict import Evidence, Verdict
from interp.proofs.verdict.verdict_files import LargeCount
from interp.proofs.verdict.wrong_answers import wrong_answer
from models.evaluation import margins
from models.number_format import shown
from models.tasks.altered_tasks import altered
from models.tasks.named.addition import DIGITS, PairAddition
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.hooked import HookedModel
from studies.adderboard.framed_addition import is_framed

#: A key whose score is further than this below the best one gets a weight of zero, by the model's dtype.
FAR = {torch.float32: 110.0, torch.float64: 760.0}
SLACK = 2.0**-14
BATCH, ALONE = 1024, 48
_PAIRS = [(x, y) for x in range(10) for y in range(10)]
ALL = 10**20
#: Classes of the first target (one column), the second (two, no carry in), eight more (two, with one), and the last.
CLASSES = 100 + 100**2 + 8 * 2 * 100**2 + 2 * 100


@dataclass(frozen=True, eq=False)
class FewKeysEvidence(Evidence):
    """What a model answers in every class of ten-digit problems.

    Attributes:
        keys: the largest number of keys that one head weighs with more than zero.
        classes: how many (target, carry, digits of two columns) were run. wrong_classes: how many were answered wrong.
        wrong: how many of the 10^20 pairs are answered wrongly, exactly.
        smallest_margin: the smallest margin in logits. noise: the largest change of one when problems were run alone.
    """

    keys: int
    classes: int
    wrong_classes: int
    wrong: LargeCount
    smallest_margin: float
    noise: float

    def to_dataframe(self) -> pd.DataFrame:
        """One row: how many classes there are, how many are answered wrongly, and how many pairs."""
        return pd.DataFrame([{"classes": self.classes, "wrong_classes": self.wrong_classes, "wrong": self.wrong}])

    def finding(self, verdict: Verdict) -> str:
        complete = self.classes == CLASSES
        ran = f"{'all ' if complete else ''}{self.classes:,} classes of the 10^20 pairs were run through the model"
        changes = f"changes by up to {shown(self.noise, 1, up=True)}" if self.noise else "is the same"
        margin = f"smallest margin {self.smallest_margin:.3g}, which {changes} where a problem is run alone"
        if verdict.status == "certified":
            keys = f"{self.keys} key{'s' if self.keys != 1 else ''}"
            return f"certified: {ran}; each head weighs at most {keys} with more than zero; {margin}"
        if (one := verdict.counterexample) is not None:
            return (
                f"refuted: {one} (run through the model), wrong on "
                f"{'' if complete else 'at least '}{self.wrong:,} of 10^20 pairs; {ran}"
            )
        return f"undecided: {ran}; {margin}"

    def provenance(self, verdict: Verdict) -> Provenance:
        return Provenance(self.classes, None, "classes of all 10^20 pairs", "exhaustive")


def why_not(subject: Subject) -> str | None:
    """Why this method cannot judge a model, in words, or None if it can."""
    model, task = subject.model, subject.task
    if not isinstance(model, ArithmeticTransformer) or not is_framed(task):
        return "its task has no frame"
    if (other := altered(task)) is not None:
        return f"{other} is another method than the certifier knows"
    if model.config.parallel_attn_mlp:
        return "its MLP reads what attention reads"
    if model.config.n_layers != 1 or model.config.attn_softmax != "softmax" or model.config.attn_top_k is not None:
        return "it has several layers, or another attention than the softmax"
    if model.config.attn_scores != "dot" or model.dtype not in FAR or not task.parsed.answer_fields[0].reversed:
        return "its scores are no dot products, or its answer starts with the most significant digit"
    return _alive(model, task)[1]


@torch.no_grad()
def _alive(model: HookedModel, task: PairAddition) -> tuple[int, str | None]:
    """(the largest number of keys that a head looks at, which key contradicts the lemma, or None).

    A score depends only on the tokens at its query and its key. Sequences with one token everywhere and another at the
    query show all scores.
    """
    most = 0
    for target, query in enumerate(task.query_positions):
        fixed = task.encode_prompt([(0, 0)])[0]
        delimiters = [i for i, role in enumerate(task.roles[: len(fixed)]) if role.kind == "delimiter"]
        own = [int(fixed[query])] if query < len(fixed) else list(range(10))
        rows = torch.tensor([[t] * (query + 1) for _ in own for t in range(10)])
        rows[:, delimiters] = fixed[delimiters]
        rows[:, query] = torch.tensor([z for z in own for _ in range(10)])
        _, cache = model.run_with_cache(rows, names_filter=lambda name: "attn.hook_" in name)
        rotary = model.config.positional_embedding_type == "rotary"
        q, k = (cache[f"blocks.0.attn.hook_{'rot_' if rotary else ''}{x}"] for x in "qk")
        scores = cache["blocks.0.attn.hook_attn_scores"][:, :, query].double().unflatten(0, (len(own), 10))
        if not torch.isfinite(scores).all():
            return 0, "its scores are no numbers"
        size = q.double().norm(dim=-1).amax() * k.double().norm(dim=-1).amax() / model.config.score_scale
        if not model.config.use_qk_norm:  # products may be larger before they cancel
            size = size.clamp_min(scores.abs().amax())
        slack = float(size) * SLACK
        reached = scores.amin(1).amax(-1) - slack  # some key has at least this score, whatever stands at it
        alive = scores.amax(1) + slack >= reached[..., None] - FAR[model.dtype]
        most = max(most, int(alive.sum(-1).max()))
        for place in alive.any(0).any(0).nonzero().flatten().tolist():
            role = task.roles[place]
            near = role.column is not None and target - 1 <= role.column <= target
            if role.kind != "delimiter" and not near:
                return most, f"target s{target} attends to {role.label} as well"
    return most, None


def _problems() -> Int[Tensor, "n 2"]:
    """The problems of the lemma."""
    pairs = np.array(_PAIRS)
    p, q = (x.reshape(-1) for x in np.meshgrid(range(100), range(100), indexing="ij"))
    found = []
    for r in (0, 99):
        for phase in range(3):
            kinds = (np.full(len(p), r), p, q)
            digits = np.stack([pairs[kinds[(column - phase) % 3]] for column in range(DIGITS)], 1)  # [n, column, 2]
            found.append((digits * 10 ** np.arange(DIGITS)[:, None]).sum(1))
    return torch.from_numpy(np.unique(np.concatenate(found), axis=0))


def run_classes(subject: Subject) -> Outcome:
    """Run every class of problems through a model, and say whether it is right in all of them.

    Precondition: :func:`why_not` is None. "Certified" says that every class is answered rightly, by more than ten times
    the noise; ``wrong`` counts the pairs with at least one digit that is wrong given the right ones before it. Cost:
    60,000 sequences. A time limit or Ctrl-C end it as refuted if a class was wrong by then, and are raised otherwise.
    """
    model, task = subject.model, cast(PairAddition, subject.task)
    keys, _ = _alive(model, task)
    problems = _problems()
    carry = np.stack([_carries(problems, column) for column in range(DIGITS + 1)], 1)
    digits = np.stack([(problems.numpy()[:, i, None] // 10 ** np.arange(DIGITS + 1)) % 10 for i in (0, 1)], 2)
    pair = digits[..., 0] * 10 + digits[..., 1]  # [n, column]
    right = np.ones((DIGITS + 1, 2, 100, 100), dtype=bool)  # [target, carry into i - 1, pair of i - 1, pair of i]
    ran = np.zeros_like(right)
    leads, ended = [], None
    with torch.inference_mode():
        try:
            for rows in watched(torch.arange(len(problems)).split(BATCH), "running all classes", "batch"):
                leads.append(_leads(model, task, problems[rows]))
        except ENDED as error:
            if not any(bool((lead <= 0).any()) for lead in leads):
                raise
            ended = error
        lead = torch.cat(leads).numpy()
        problems, carry, pair = problems[: len(lead)], carry[: len(lead)], pair[: len(lead)]
        hardest = np.argsort(lead.min(1))[: ALONE // 2]
        others = np.linspace(0, len(problems) - 1, ALONE // 2).astype(int)
        noise = 0.0
        for row in np.unique(np.concatenate((hardest, others))).tolist():
            alone = _leads(model, task, problems[row : row + 1]).numpy()[0]
            noise = max(noise, float(np.nan_to_num(np.abs(alone - lead[row])).max()))
    for target in range(DIGITS + 1):
        below = pair[:, target - 1] if target else np.zeros(len(pair), dtype=int)
        into = carry[:, target - 1] if target else np.zeros(len(pair), dtype=int)
        where: Any = (target, into, below, pair[:, target])
        ran[where] = True
        np.logical_and.at(right, where, lead[:, target] > 0)
    assert ended is not None or int(ran.sum()) == CLASSES  # the lemma
    wrong_classes = int((~right).sum())
    wrong = None
    for row in np.argsort(lead.min(1))[:20].tolist() if wrong_classes else ():
        wrong = wrong or wrong_answer(model, task, problems[row : row + 1])
    if ended is not None and wrong is None:
        raise ended
    smallest = float(lead.min())
    evidence = FewKeysEvidence(
        keys=keys,
        classes=int(ran.sum()),
        wrong_classes=wrong_classes,
        wrong=ALL - right_pairs(right),
        smallest_margin=smallest,
        noise=noise,
    )
    return Outcome.of(not wrong_classes and smallest > 10 * noise, evidence, wrong)


def _leads(model: HookedModel, task: Task, problems: Int[Tensor, "n 2"]) -> Tensor:
    logits = model(task.encode(problems).to(model.device))[:, list(task.query_positions)].cpu()
    return margins(logits, task.targets(problems))


def _carries(problems: Int[Tensor, "n 2"], column: int) -> Int[np.ndarray, " n"]:
    """The carry into a column."""
    low = problems.numpy() % 10**column
    return (low.sum(1) >= 10**column).astype(int) if column else np.zeros(len(low), dtype=int)


def right_pairs(right: Bool[np.ndarray, "target 2 100 100"]) -> int:
    """The exact number of pairs that are answered rightly at every target, counted column by column."""
    # counts[carry into the column, pair of the column], over the columns up to it, as Python integers
    counts = np.zeros((2, 100), dtype=object)
    counts[0] = [int(ok) for ok in right[0, 0, 0]]
    total = np.array([x + y for x, y in _PAIRS])
    for target in range(1, DIGITS):
        out = [(total + c >= 10).astype(int) for c in (0, 1)]
        new = np.zeros((2, 100), dtype=object)
        for c in (0, 1):
            for below in range(100):
                if counts[c, below]:
                    new[out[c][below]] += counts[c, below] * right[target, c, below].astype(int).astype(object)
        counts = new
    return int(sum(counts[c, below] * int(right[DIGITS, c, below, 0]) for c in (0, 1) for below in range(100)))


def _falls_short(verdict: Verdict, found: Verdict) -> str | None:
    if any(getattr(found, name) != getattr(verdict, name) for name in ("keys", "classes", "wrong_classes", "wrong")):
        return "run again, the classes come out differently"
    if verdict.smallest_margin > found.smallest_margin + 10 * found.noise + 1e-6 * abs(found.smallest_margin):
        return "some pair has a smaller margin than the smallest that it names"
    return None


METHOD = Method(
    "few keys",
    FewKeysEvidence,
    why_not=why_not,
    claims=lambda subject: ("float32",),  # all problems, as the model runs
    cost=lambda subject, claim: 0.0,
    run=lambda subject, claim, options: run_classes(subject),
    check=judged_again(
        lambda verdict, model, task: verdict_by(verdict.method, one := Subject(model, task), run_classes(one)),
        _falls_short,
    ),
)
