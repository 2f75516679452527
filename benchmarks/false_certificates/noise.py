"""Trials with noise: judge many models near certified ones, and check each verdict against the model.

    python -m benchmarks.false_certificates noise --n 2000 --out trials.jsonl

Trial k is a model of ``MODELS`` whose free parameters got relative noise (0.01% to 1%, log-uniform) and, in four of
five trials, were then rounded to bfloat16, float16, three or four significant digits. A certified model must be right
on all extreme pairs of all classes and on 10^5 random pairs (half uniform, half rich in carries); a refuted one must
get its counterexample wrong. Where the domain is small, the prefix tree judges and all problems are run: at least as
many must be right, and wrong, as were proved so. Finished trials are kept in the file, and the same command continues
after them. With ``--cluster`` trials are tasks of Ray, and are written in the order in which they finish.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.listed.prefix_method import PrefixEvidence, certify_prefixes
from interp.proofs.verdict.verdict import ArithmeticName, Verdict
from models import ArithmeticTransformer, UserError
from models.evaluation import predict
from models.run import logits_from
from models.tasks import DIGITS, LIMIT
from models.tasks.columns.long_carries import carry_rich
from models.tasks.named.addition import adds_pairs_below
from models.training import connected, each
from models.transformer import HookedModel

MODELS = ("microadder-57", "microadder-67", "microadder-74")
ROUNDINGS = ("none", "bfloat16", "float16", "3 digits", "4 digits")
NOISE = (1e-4, 1e-2)
PAIRS = 100_000
_AT_ONCE = 512
_CLOSE = 100.0  # leads above this times the difference of the two forward passes are the same in both


@dataclass(frozen=True)
class Trial:
    """One verdict and the model's own answers: ``wrong`` of the ``pairs`` tried, and whether both agree."""

    index: int
    model: str
    noise: float
    rounding: str
    status: str
    smallest_margin: float | None
    seconds: float
    pairs: int
    wrong: int
    agrees: bool


def significant(values: torch.Tensor, digits: int) -> torch.Tensor:
    """Numbers rounded to this many significant decimal digits, in their dtype."""
    text = np.vectorize(lambda x: float(f"{x:.{digits - 1}e}"), otypes=[float])
    return torch.from_numpy(text(values.detach().double().numpy())).to(values.dtype).reshape(values.shape)


def rounded(values: torch.Tensor, how: str) -> torch.Tensor:
    """Numbers rounded to fewer bits or digits, in their own dtype. Raises UserError for another name."""
    if how in ("bfloat16", "float16"):
        return values.to(getattr(torch, how)).to(values.dtype)
    if how in ("3 digits", "4 digits"):
        return significant(values, int(how[0]))
    if how != "none":
        raise UserError(f"There is no rounding {how!r}; there is {', '.join(ROUNDINGS)}.")
    return values


def perturb(model: HookedModel, noise: float, rounding: str, seed: int) -> None:
    """Change a model's free parameters in place: multiply each by 1 + N(0, noise^2), then round it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            factor = 1 + noise * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(rounded(parameter.detach() * factor, rounding))


def random_pairs(n: int, seed: int) -> torch.Tensor:
    """n random pairs, half uniform and half rich in carry chains."""
    rng = np.random.default_rng(seed)
    uniform = rng.integers(10**DIGITS, size=(n - n // 2, 2))
    return torch.from_numpy(np.concatenate((uniform, carry_rich(DIGITS, n // 2, rng))))


@torch.inference_mode()
def wrong_answers(model: ArithmeticTransformer, pairs: Int[Tensor, "n ..."]) -> Bool[Tensor, " n"]:
    """Which pairs the model answers wrongly (teacher-forced), at a quarter of the cost of running it on all of them.

    All pairs go through the forward pass without hooks (:mod:`models.run`), which may differ from the
    model's own in the last bits. Pairs that it does not get right by a lead of ``_CLOSE`` times the largest difference
    between the two on the first 512 are then run through the model itself.
    """
    task, weights = model.task, model.effective_weights()
    first, queries = task.query_positions[0], list(task.query_positions)
    doubtful, slack = [], 0.0
    for at, batch in enumerate(pairs.split(_AT_ONCE)):
        tokens, targets = task.encode(batch), task.targets(batch)[..., None]
        logits = logits_from(model, tokens, first, weights)[:, [query - first for query in queries]]
        if at == 0:
            slack = _CLOSE * float((logits - model(tokens, weights=weights)[:, queries]).abs().max())
        right = logits.gather(-1, targets)
        others = logits.scatter(-1, targets, float("-inf")).amax(-1, keepdim=True)
        doubtful.append(~(right - others > slack).squeeze(-1).all(1))
    wrong = torch.cat(doubtful)
    rows = wrong.nonzero().flatten()
    if len(rows):
        wrong[rows] = (predict(model, pairs[rows]) != task.targets(pairs[rows])).any(1)
    return wrong


def trial(
    index: int, arithmetic: ArithmeticName = "float32", pairs: int = PAIRS, names: Sequence[str] = MODELS
) -> Trial:
    """Judge model number ``index``, and check the verdict against the model. A model may also be refused."""
    import models

    rng = np.random.default_rng(index)
    name, rounding = names[index % len(names)], ROUNDINGS[index // len(names) % len(ROUNDINGS)]
    noise = float(np.exp(rng.uniform(*np.log(NOISE))))
    model = models.load(name)
    perturb(model, noise, rounding, seed=index)
    try:
        if adds_pairs_below(model.task) == LIMIT:
            verdict = certify_one_layer(model, arithmetic, tolerance=None)
        else:
            verdict = certify_prefixes(model, arithmetic)
    except UserError:
        return Trial(index, name, noise, rounding, "refused", None, 0.0, 0, 0, True)
    tried = _tried(verdict, model, pairs, index)
    wrong = int(wrong_answers(model, tried).sum())
    if isinstance(verdict.evidence, PrefixEvidence):
        agrees = max(verdict.wrong, int(verdict.status == "refuted")) <= wrong <= verdict.n - verdict.right
    else:
        agrees = {"certified": wrong == 0, "refuted": wrong == 1}.get(verdict.status, True)
    smallest = verdict.smallest_margin if np.isfinite(verdict.smallest_margin) else None
    return Trial(
        index, name, noise, rounding, verdict.status, smallest, verdict.seconds, len(tried), wrong, agrees
    )  # fmt: skip


def _tried(verdict: Verdict, model: ArithmeticTransformer, pairs: int, seed: int) -> Int[Tensor, "n ..."]:
    """The problems that a verdict is held against the model on."""
    if isinstance(verdict.evidence, PrefixEvidence):
        return model.task.domain.at(torch.arange(verdict.n))
    if verdict.status == "refuted":
        assert verdict.counterexample is not None
        return model.task.as_problems([verdict.counterexample.problem])
    extreme = np.stack((verdict.classes.a.values, verdict.classes.b.values), -1).reshape(-1, 2)
    return torch.cat((torch.from_numpy(extreme), random_pairs(pairs, seed)))


def summary(trials: Sequence[Trial]) -> str:
    counts = Counter(t.status for t in trials)
    shown = ", ".join(f"{counts[status]:,} {status}" for status in ("certified", "refuted", "undecided", "refused"))
    pairs = sum(t.pairs for t in trials if t.status == "certified")
    contradicted = sum(not t.agrees for t in trials)
    return (
        f"{len(trials):,} models: {shown}; the certified ones were right on all of {pairs:,} tried pairs, the refuted "
        f"ones wrong on their counterexamples, with {contradicted} exceptions"
    )


@dataclass(frozen=True)
class Trials:
    """Judge many models near certified ones, and hold each verdict against the model."""

    n: int = 2000
    """Models."""
    out: Path = Path("trials.jsonl")
    """Where finished trials are kept."""
    arithmetic: ArithmeticName = "float32"
    pairs: int = PAIRS
    """Random pairs a certified model is tried on."""
    models: tuple[str, ...] = MODELS
    """The certified models (names or files) that others are made from, in turn."""
    cluster: str | None = None
    """Run them as tasks of Ray: auto, local or HOST:PORT."""

    def run(self) -> None:
        assert self.arithmetic in get_args(ArithmeticName)
        done: list[Trial] = []
        if self.out.exists():
            done = [Trial(**json.loads(line)) for line in self.out.read_text().splitlines()]
        if self.cluster is not None:
            torch.set_num_threads(1)  # in each task
        left = sorted(set(range(self.n)) - {one.index for one in done})
        with connected(self.cluster, "cpu") as cluster, self.out.open("a") as file:

            def received(_: int, found: Trial) -> None:
                done.append(found)
                file.write(json.dumps(asdict(found)) + "\n")
                file.flush()

            how = (self.arithmetic, self.pairs, self.models)
            each(_one_trial, len(left), lambda i: (left[i], *how), received, cluster)
        print(summary(done))


def _one_trial(_: Any, *how: Any) -> Trial:
    return trial(*how)
