"""``interp.attack``: find a problem that a model answers wrong, or comes closest to answering wrong.

This is for models that no proof reaches (two layers, other formats, a user's own). The search follows the gradients of
margins; its control is a random search with as many runs. What it finds is replayed with greedy decoding. Finding
nothing proves nothing.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from tqdm import tqdm

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.model_checks import require_hook
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.task_checks import resolve_task
from interp.core.views import Curves, Line, Picture, Points, Series
from interp.proofs.attacks.attack_search import Report, SearchRecord, Wrong, gradient_search, random_search
from interp.proofs.attacks.counted_runs import EMBED, Runner
from interp.proofs.attacks.problem_digits import DigitSpace, digit_space
from models.calls import Count, Seconds, Seed
from models.evaluation import score
from models.problem_score import Failure
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, model_name

RUNS = 20_000
SEARCHES = ("attack", "random")


@dataclass(frozen=True)
class FoundFailure(Failure):
    """A problem that the model, greedily decoding, answered wrong.

    Attributes:
        margin: the smallest of its margins, in logits. runs: how many runs the search had spent when it found it.
    """

    margin: float
    runs: int


@dataclass(frozen=True, eq=False)
class Attack(Result):
    """What the attack found, and what a random search with as many runs found.

    Attributes:
        task: the task's name and shape.
        runs: sequences that each search ran through the model (a gradient counts as three). budget: how many it could.
        margins: ``by_target`` [search, target] and ``by_chain`` [search, chain_length], the smallest margins met, NaN
            where no problem was tried; ``tried`` [search, chain_length], how many problems.
        texts: (problem, how the task writes it), of the problems named below.
        history: per search, (runs, smallest margin so far) at every point where that margin fell.
        worst: per search, the problem with the smallest margin. worst_target: the target of the attack's.
        n_wrong: per search, how many distinct problems had a margin of zero (a tie) or below (teacher-forced).
        wrong: the first wrong problem of the attack and those with the smallest margins, replayed with greedy decoding.
        first_wrong: per search, the number of runs until its first wrong problem.
    """

    model: str
    task: str
    texts: tuple[tuple[tuple[int, ...], str], ...]
    runs: int
    budget: int
    seconds: float
    margins: xr.Dataset
    history: dict[str, tuple[tuple[int, float], ...]]
    worst: dict[str, tuple[int, ...]]
    worst_target: str
    n_wrong: dict[str, int]
    wrong: tuple[FoundFailure, ...]
    first_wrong: dict[str, int | None]
    provenance: Provenance

    def smallest_margin(self, search: str = "attack") -> float:
        """The smallest margin that a search ("attack" or "random") found; -inf where logits are not numbers."""
        return self.history[search][-1][1]

    def text(self, problem: tuple[int, ...]) -> str:
        """One of the problems in ``worst`` and ``wrong`` as its task writes it, e.g. ``12 + 34``."""
        return dict(self.texts)[problem]

    def sentence(self) -> str:
        control = f"{self.smallest_margin('random'):.4g}"
        if self.wrong:
            found = min(self.wrong, key=lambda wrong: wrong.runs)
            answer = "no number" if found.predicted is None else found.predicted
            others = f", one of {self.n_wrong['attack']:,}" if self.n_wrong["attack"] > 1 else ""
            met = self.n_wrong["random"]
            random = f"found {met:,}" if met else f"found none, its smallest margin {control}"
            return (
                f"wrong: {self.text(found.problem)} -> {answer} (replayed, greedy){others}, found after "
                f"{found.runs:,} of {self.runs:,} runs; random search of as many {random}."
            )
        if self.n_wrong["attack"]:
            return (
                f"undecided: at {self.text(self.worst['attack'])} ({self.worst_target}) another token has as large a "
                f"logit as the right one, which is one of {self.n_wrong['attack']:,} ties; greedy decoding takes the "
                f"right one by its place in the vocabulary. Random search of as many runs: {control}."
            )
        return (
            f"no failure among {self.provenance.n:,} problems tried: smallest margin {self.smallest_margin():.4g} at "
            f"{self.text(self.worst['attack'])} ({self.worst_target}); random search of as many runs: {control}. "
            "This proves nothing."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per target and one per chain length: smallest margins of both searches, and problems tried."""
        rows = []
        for kind, name in (("target", "by_target"), ("chain_length", "by_chain")):
            values = self.margins[name]
            for i, label in enumerate(values[kind].values.tolist()):  # two targets may have one label
                row: dict[str, Any] = {"by": kind, "where": str(label)}
                for search in SEARCHES:
                    row[search] = float(values.sel(search=search).isel({kind: i}))
                for search in SEARCHES:
                    counts = self.margins["tried"].sel(search=search)
                    row[f"tried_{search}"] = int(counts.sum() if kind == "target" else counts.isel(chain_length=i))
                rows.append(row)
        return pd.DataFrame(rows)


def _smallest_margin(found: Attack) -> Estimate:
    random = found.smallest_margin("random")
    wrong = f"{found.n_wrong['attack']:,} wrong"
    return Estimate(found.smallest_margin(), control=random, control_note="a random search", note=wrong)


@probe(
    "Where no proof reaches: can a search find a wrong answer?",
    scalar=Scalar("smallest margin that a search finds", "logits", _smallest_margin, 0.1, asked_by=()),
)
def attack(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    runs: Count = RUNS,
    seed: Seed = 0,
    seconds: Seconds | None = None,
    progress: bool = False,
) -> Attack:
    """Search for a problem that a model answers wrong, and for the smallest margin.

    The search starts from a seeded sample (half of it rich in carries, where the task has carries) and follows
    gradients. Every change of an operand's digit, every move of digits within a column and every run of nines gets a
    first-order estimate, in which the tokens of the true answer change too; the most promising are run. The task says
    what the answer is, where it is predicted and what carries. Where two ten-digit numbers are added, the dynamic
    programme over columns proposes problems too.

    Cost: up to ``2 runs`` sequences through the model (a random search gets what the attack spent), and as much again
    for proposals in small models: about half a minute for a one-layer adder at the default.

    Args:
        model: any model with TransformerLens hooks, with any number of layers.
        task: the task, if the model does not carry it, or in another shape: ``model.task.at(10, 10)``.
        runs: sequences that each search may run; a gradient counts as three. Problems are never run twice.
        seed: the seed of both searches; the same seed finds the same problems.
        seconds: stop the attack after this time, and give the random search as many runs as it made; the result then
            depends on the machine.
        progress: show a bar on stderr.

    Raises:
        UserError: a model without hooks or an embedding, a task without operands or fixed places, runs below 1.
    """
    start = time.perf_counter()
    task = resolve_task(model, task)
    require_hook(model, EMBED)
    space = digit_space(task)
    found: dict[str, SearchRecord] = {}
    spent = runs
    for name, search in zip(SEARCHES, (gradient_search, random_search), strict=True):
        with tqdm(total=spent, desc=name, disable=not progress, unit="run") as bar:
            limit = seconds if name == "attack" else None
            begun = time.perf_counter()
            runner = Runner(model, task)
            stop = lambda: limit is not None and time.perf_counter() - begun > limit  # noqa: B023, E731
            found[name] = search(runner, space, spent, seed, _reporter(bar), stop)
            if name == "attack":
                spent = runner.runs
    tally = found["attack"]
    assert tally.worst is not None
    labels = [role.label for role in task.target_roles]
    numbers = {name: task.numbers(space.problems(t.worst[2][None]))[0] for name, t in found.items() if t.worst}
    wrong = replay(model, space, tally.kept())
    first = {name: None if t.first_wrong is None else t.first_wrong.runs for name, t in found.items()}
    named = dict.fromkeys([*numbers.values(), *(each.problem for each in wrong)])
    return Attack(
        model=model_name(model),
        task=task_text(task),
        texts=tuple((each, task.problem_text(each)) for each in named),
        runs=spent,
        budget=runs,
        seconds=time.perf_counter() - start,
        margins=_table(found, labels),
        history={name: tuple(t.history) for name, t in found.items()},
        worst=numbers,
        worst_target=labels[tally.worst[1]],
        n_wrong={name: t.n_wrong for name, t in found.items()},
        wrong=wrong,
        first_wrong=first,
        provenance=Provenance(tally.tried, seed, "problems along gradients"),
    )


def task_text(task: Task) -> str:
    """A task's name and shape, as results say them."""
    return ", ".join(filter(None, (task.name, getattr(task, "shape_text", ""))))


def replay(model: HookedModel, space: DigitSpace, kept: list[Wrong]) -> tuple[FoundFailure, ...]:
    """The kept problems that the model also answers wrong when it reads its own tokens."""
    if not kept:
        return ()
    task = space.task
    problems = space.problems(torch.stack([wrong.digits for wrong in kept]))
    margins = {task.numbers(problems[i : i + 1])[0]: wrong for i, wrong in enumerate(kept)}
    failures = score(model, problems, method="greedy", task=task).failures
    replayed = []
    for failure in failures:
        wrong = margins[failure.problem]
        replayed.append(FoundFailure(**asdict(failure), margin=wrong.margin, runs=wrong.runs))
    return tuple(replayed)


def _reporter(bar: Any) -> Report:
    def report(runs: int, tally: SearchRecord) -> None:
        bar.set_postfix_str(f"margin {tally.smallest:.4g}, wrong {tally.n_wrong:,}", refresh=False)
        bar.update(runs - bar.n)

    return report


def _table(found: dict[str, SearchRecord], labels: list[str]) -> xr.Dataset:
    lengths = sorted({length for tally in found.values() for length in tally.by_chain})
    chains = [[tally.by_chain.get(length, (0, np.nan)) for length in lengths] for tally in found.values()]
    by_chain = np.array([[smallest for _, smallest in row] for row in chains])
    counts = np.array([[n for n, _ in row] for row in chains])
    by_target = np.stack([tally.by_target for tally in found.values()])
    return xr.Dataset(
        {
            "by_target": (("search", "target"), by_target),
            "by_chain": (("search", "chain_length"), by_chain),
            "tried": (("search", "chain_length"), counts),
        },
        coords={"search": list(found), "target": labels, "chain_length": lengths},
    )


@drawing(Attack)
def attack_view(result: Attack) -> Picture:
    """Smallest margin so far over runs (left) and by target (right); below zero the model answers wrong."""
    runs_of, by_target = [], []
    targets = result.margins["target"].values.tolist()
    for search in SEARCHES:
        runs, margins = (np.array(x, dtype=float) for x in zip(*result.history[search], strict=True))
        x, y = np.append(runs, result.runs), _finite(np.append(margins, margins[-1]))
        runs_of.append(Series(search, x, y, control=search != "attack"))
        smallest = _finite(result.margins["by_target"].sel(search=search).values)
        by_target.append(Series(search, targets, smallest, control=search != "attack"))
    title, x = f"{result.model}: {result.sentence()}", "runs (a gradient counts as three)"
    lines = (Line(0),)
    left = Curves(x, "smallest margin so far (logits)", "", runs_of, "", lines, log_x=True, steps=True)
    right = Points("target", "smallest margin (logits)", "", by_target, "", lines)
    note = f"{result.task}. Below zero the model answers wrong. Both searches spent {result.runs:,} runs"
    return Picture([left, right], title=title, note=note)


def _finite(margins: np.ndarray) -> np.ndarray:
    """Margins, and NaN, which is not drawn, for infinities."""
    return np.where(np.isfinite(margins), margins, np.nan)
