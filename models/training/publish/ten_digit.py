"""Zoo entries of models whose seeds either grok or do not.

The seed is chosen without the test set. The first choice, among the seeds whose selected checkpoint answers every
validation problem and every problem of a second, larger validation set (if the task has one), is the one that was
perfect first. Half of these problems are harder than the task's natural distribution, and a small model may grok
without ever answering all of them. So the second choice, among the seeds that once answered every problem of the
natural distribution, is the one that is right most often on the second set. The last choice is the seed that is best on
validation. The test set is then scored for every seed that passed validation in either sense and for the chosen one,
and the entry reports that score, whatever it is.

Seeds that a run's judge accepted (:mod:`models.training.acceptance`) come before all others, in the order in which they
were accepted; the entry keeps the judge's evidence, and what it proves. A judge may also be asked when runs are
published: then the first of the seeds that passed validation which it accepts is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.evaluation import score
from models.files.checkpoint import format_weights
from models.problem_score import Score
from models.rates import Rate
from models.tasks.task import Task
from models.training.acceptance import Acceptance, AcceptanceTest
from models.training.publish.report import Report, Runs, Seed, finished_seeds, grokked
from models.training.run_reader import best_row

SECOND_VALIDATION = 20_000
SNAPSHOT_BYTES = 2_000_000
HALVED = 100_000  # from so many parameters on they are stored in float16, and what is scored is that model


def report_ten_digit(runs: Runs, judge: AcceptanceTest | None = None) -> Report:
    """The seed that the module's rule chooses, and its score on the task's test set.

    Raises:
        UserError: unfinished runs, seeds tried twice, no seed that was ever measured, a task without a test set.
    """
    model = runs.model
    half = runs.layout.n > HALVED
    seeds, seconds = finished_seeds(runs.folders, half)
    scores = _scores_on_test(runs, seeds)
    second = second_validation(model.task)

    def right(seed: Seed) -> int:
        return 0 if second is None else score(runs.load(seed), second).correct

    accepted = [seed for seed in seeds if seed.state.get("accepted") is not None]
    passing = sorted((seed for seed in seeds if _passes(seed)), key=lambda seed: seed.state["first_perfect_step"])
    once = [seed for seed in seeds if _once_perfect(seed)]
    chosen = min(accepted, key=lambda seed: (seed.state["best_step"], seed.number), default=None)
    verdict: Acceptance | None = None
    if chosen is None and judge is not None:
        chosen, verdict = next(_accepted_by(judge, runs, passing), (None, None))
    if chosen is None:
        chosen = next((seed for seed in passing if second is None or right(seed) == len(second)), None)
    if chosen is None:
        chosen = max(once, key=right, default=None)
    if chosen is None:
        chosen = seeds[best_row([seed.state for seed in seeds])]
        if chosen.state["best_step"] < 0:
            raise UserError(f"None of the {len(seeds)} seeds was measured before it failed, so none can be published.")
    result = scores[chosen.number] = scores[chosen.number] or score(runs.load(chosen))
    repeated = [_grok_rate(_scores_on_test(runs, finished_seeds([run], half)[0])) for run in runs.repeats]
    counts = grokked(_grok_rate(scores)) | {
        "first_perfect_step": chosen.state["first_perfect_step"],
        "once_perfect": _once_perfect(chosen),
        "validation_exact": chosen.state["best_exact"],
        "seeds_once_perfect": len(once),
        "repeats": [{"seeds_tried": again.n, "seeds_grokked": again.correct} for again in repeated],
    }
    if verdict is not None and judge is not None:
        counts["chosen_by"] = judge.option
    evidence = dict(verdict.files) if verdict else chosen.run.evidence(chosen.number) if chosen in accepted else {}
    return Report(
        chosen=chosen,
        result=result,
        counts=counts,
        seconds=seconds,
        score=result.to_dict(),
        seeds=[_public(seed, None if (found := scores[seed.number]) is None else found.correct) for seed in seeds],
        files=evidence | _snapshots(chosen),
        certificate=dict(verdict.certificate) if verdict else chosen.state.get("accepted"),
        half=half,
    )


def _accepted_by(judge: AcceptanceTest, runs: Runs, seeds: list[Seed]) -> Iterator[tuple[Seed, Acceptance]]:
    """Yield the seeds whose checkpoint a judge accepts, with its verdict, in order."""
    for seed in seeds:
        verdict = judge(runs.load(seed), seed.state["best_step"], seed.number)
        if verdict.accepted:
            yield seed, verdict


def second_validation(task: Task) -> Tensor | None:
    """Validation problems with another seed than training's: :data:`SECOND_VALIDATION` of them, or half as many,
    repeatedly, until the task has that many; None if it has none, as one of sequences whose recipe draws them."""
    n = SECOND_VALIDATION
    while True:
        try:
            return task.held_out.validation(n, seed=1)
        except UserError:
            if n == 1:
                return None
            n //= 2


def _scores_on_test(runs: Runs, seeds: list[Seed]) -> dict[int, Score | None]:
    """Each seed's score on the test set, by its number; None if it did not pass validation."""
    return {seed.number: score(runs.load(seed)) if _passes(seed) or _once_perfect(seed) else None for seed in seeds}


def _passes(seed: Seed) -> bool:
    """Whether a seed answered every validation problem."""
    return seed.state["best_exact"] == 1.0


def _once_perfect(seed: Seed) -> bool:
    """Whether a seed once answered every validation problem of the natural distribution: what papers call grokked."""
    return seed.state.get("first_uniform_step") is not None


def _grok_rate(scores: dict[int, Score | None]) -> Rate:
    """How many seeds answer the whole test set."""
    return Rate(len(scores), sum(found is not None and found.correct == found.n for found in scores.values()))


def _public(seed: Seed, exact: int | None) -> dict[str, Any]:
    keys = ("seed", "status", "best_exact", "best_step", "first_perfect_step", "first_uniform_step", "stopped_at")
    judged = {"turned_down": seed.state["turned_down"]} if seed.state.get("turned_down") else {}
    return {key: seed.state.get(key) for key in keys} | judged | {"exact_on_test": exact}


def _snapshots(seed: Seed) -> dict[str, bytes]:
    """The file with the chosen seed's log-spaced snapshots up to its end, stacked: name -> [snapshot, ...], with steps.

    For a larger model only every second, third, ... snapshot is kept, counted from the last, so that they take at most
    two megabytes. A run in parts has none, and one alone is the model itself.
    """
    end = seed.state["stopped_at"]
    kept = {step: tensors for step, tensors in seed.run.snapshots().items() if step <= end}
    if len(kept) < 2:
        return {}
    most = max(1, SNAPSHOT_BYTES // (4 * seed.theta.numel()))
    steps = sorted(kept)
    steps = sorted(steps[:: -max(1, -(-len(steps) // most))])
    stacked = {key: torch.stack([kept[step][key][seed.row] for step in steps]) for key in kept[steps[0]]}
    return {"snapshots.safetensors": format_weights(stacked | {"step": torch.tensor(steps)})}
