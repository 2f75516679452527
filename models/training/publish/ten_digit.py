"""Entries of adders whose seeds grok or do not: which seed, how good, and how many seeds it took.

The seed is chosen without looking at the test set: of the seeds whose selected checkpoint answers every validation
problem and every problem of a second, larger validation set, the one that was perfect first. Half of these problems
are harder than the task's natural distribution, and a small model may grok without ever answering all of them; where no
seed does, the one is taken that is right most often on the second set, among those that once answered every problem of
the natural distribution; and where there is none of these either, the one that is best on validation. The test set is
then scored for every seed that passed validation in either sense and for the one chosen, and the entry's score is what
came out, whatever it is.

Seeds that a run's judge accepted (:mod:`models.training.judging`) come before all others, the one accepted first before
the rest; the entry keeps the judge's evidence, and its card the judge's line.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import format_weights
from models.errors import UserError
from models.evaluation import Rate, Score, score
from models.tasks.base import Task
from models.training.load_run import best_row
from models.training.provenance import begun
from models.training.publish.report import TORCH, Report, Runs, Seed, finished_seeds
from models.training.run_folder import RunFolder
from models.zoo import with_bullet

SECOND_VALIDATION = 20_000
SNAPSHOT_BYTES = 2_000_000


def report_ten_digit(runs: Runs) -> Report:
    """The seed that the module's rule chooses, and its score on the task's test set.

    Raises:
        UserError: unfinished runs, seeds tried twice, no seed that was ever measured, a task without a test set.
    """
    model = runs.model
    seeds, seconds = finished_seeds(runs.folders, half=False)
    exact = _exact_on_test(runs, seeds)
    second = second_validation(model.task)

    def right(seed: Seed) -> int:
        return score(runs.load(seed), second).correct

    accepted = [seed for seed in seeds if seed.state.get("accepted") is not None]
    passing = sorted((seed for seed in seeds if _passes(seed)), key=lambda seed: seed.state["first_perfect_step"])
    once = [seed for seed in seeds if _once_perfect(seed)]
    chosen = min(accepted, key=lambda seed: (seed.state["best_step"], seed.number), default=None)
    if chosen is None:
        chosen = next((seed for seed in passing if right(seed) == len(second)), None)
    if chosen is None:
        chosen = max(once, key=right, default=None)
    if chosen is None:
        chosen = seeds[best_row([seed.state for seed in seeds])]
        if chosen.state["best_step"] < 0:
            raise UserError(f"None of the {len(seeds)} seeds was measured before it failed, so none can be published.")
        exact[chosen.number] = score(runs.load(chosen)).correct
    result = score(runs.load(chosen))
    rate = _grok_rate(exact, result.n)
    repeated = [
        _grok_rate(_exact_on_test(runs, finished_seeds([run], half=False)[0]), result.n) for run in runs.repeats
    ]
    counts = {
        "first_perfect_step": chosen.state["first_perfect_step"],
        "once_perfect": _once_perfect(chosen),
        "validation_exact": chosen.state["best_exact"],
        "seeds_tried": rate.n,
        "seeds_grokked": rate.correct,
        "seeds_once_perfect": len(once),
        "grok_interval_95": list(rate.interval),
        "repeats": [{"seeds_tried": again.n, "seeds_grokked": again.correct} for again in repeated],
    }
    above, below = _card(runs, chosen, result, rate, Rate(len(seeds), len(once)), repeated, seconds)
    evidence = {}
    if chosen in accepted:
        above = with_bullet(above + "\n", chosen.state["accepted"]).rstrip("\n")
        evidence = chosen.run.evidence(chosen.number)
    return Report(
        chosen=chosen,
        result=result,
        counts=counts,
        seconds=seconds,
        score=result.to_dict(),
        seeds=[_public(seed, exact[seed.number]) for seed in seeds],
        files=evidence
        | {
            "curves.safetensors": _curves(runs.folders, seeds),
            "metrics.jsonl": _metrics(chosen),
            "snapshots.safetensors": _snapshots(chosen),
        },
        card=(above, below),
        half=False,
    )


def second_validation(task: Task) -> Tensor:
    """Validation problems of another seed than training's: :data:`SECOND_VALIDATION`, or half as many as often as it
    takes until the task has them.

    Raises:
        UserError: a task without validation problems.
    """
    n = SECOND_VALIDATION
    while True:
        try:
            return task.validation_problems(n, seed=1)
        except UserError:
            if n == 1:
                raise
            n //= 2


def _exact_on_test(runs: Runs, seeds: list[Seed]) -> dict[int, int | None]:
    """How many test problems each seed answers, by its number; None where it did not pass validation."""
    return {
        seed.number: score(runs.load(seed)).correct if _passes(seed) or _once_perfect(seed) else None for seed in seeds
    }


def _passes(seed: Seed) -> bool:
    """Whether a seed answered every validation problem."""
    return seed.state["best_exact"] == 1.0


def _once_perfect(seed: Seed) -> bool:
    """Whether a seed once answered every validation problem of the natural distribution: what papers call grokked."""
    return seed.state.get("first_uniform_step") is not None


def _grok_rate(exact: dict[int, int | None], n_test: int) -> Rate:
    """How many seeds answer the whole test set."""
    return Rate(len(exact), sum(correct == n_test for correct in exact.values()))


def _public(seed: Seed, exact: int | None) -> dict[str, Any]:
    keys = ("seed", "status", "best_exact", "best_step", "first_perfect_step", "first_uniform_step", "stopped_at")
    judged = {"turned_down": seed.state["turned_down"]} if seed.state.get("turned_down") else {}
    return {key: seed.state.get(key) for key in keys} | judged | {"exact_on_test": exact}


def _curves(runs: list[RunFolder], seeds: list[Seed]) -> bytes:
    """Exact match, token accuracy and loss of every seed over training, [seed, evaluation]; NaN after a seed ended."""
    tables: dict[str, list[Tensor]] = {"exact": [], "token": [], "uniform": [], "loss": []}
    steps: list[int] = []
    lines_of = [run.metrics() for run in runs]
    for lines in lines_of:
        steps = max(steps, [line["step"] for line in lines], key=len)
    for lines in lines_of:
        # A seed's last evaluation is the one that ended it, so what counts is its status before.
        before = [["training"] * len(lines[0]["status"]), *(line["status"] for line in lines[:-1])]
        training = torch.tensor([[s == "training" for s in status] for status in before])
        for key, table in tables.items():
            nothing = [None] * len(lines[0]["status"])  # runs made before the uniform half was recorded apart
            values = torch.tensor(
                [[float("nan") if x is None else x for x in line.get(key, nothing)] for line in lines]
            )
            values = torch.where(training, values, torch.nan)
            padding = torch.full((len(steps) - len(lines), values.shape[1]), float("nan"))
            table.append(torch.cat((values, padding)).T)
    stacked = {key: torch.cat(table).half() if key == "loss" else torch.cat(table) for key, table in tables.items()}
    return format_weights(
        stacked | {"step": torch.tensor(steps), "seed": torch.tensor([seed.number for seed in seeds])}
    )


def _metrics(seed: Seed) -> bytes:
    lines = []
    for line in seed.run.metrics():
        keys = [key for key in ("exact", "token", "uniform", "loss", "status") if key in line]
        entry = {key: line[key][seed.row] for key in keys}
        lines.append(json.dumps({"step": line["step"], "lr": line["lr"]} | entry))
        if entry["status"] != "training":
            break
    return "".join(line + "\n" for line in lines).encode()


def _snapshots(seed: Seed) -> bytes:
    """The chosen seed's log-spaced snapshots up to its end, stacked: name -> [snapshot, ...], and their steps.

    Of a larger model every second, third, ... one, counted from the last, so that they take at most two megabytes.
    """
    end = seed.state["stopped_at"]
    kept = {step: tensors for step, tensors in seed.run.snapshots().items() if step <= end}
    most = max(1, SNAPSHOT_BYTES // (4 * seed.theta.numel()))
    steps = sorted(kept)
    steps = sorted(steps[:: -max(1, -(-len(steps) // most))])
    stacked = {key: torch.stack([kept[step][key][seed.row] for step in steps]) for key in kept[steps[0]]}
    return format_weights(stacked | {"step": torch.tensor(steps)})


def _card(
    runs: Runs, chosen: Seed, result: Score, grokked: Rate, once: Rate, repeated: list[Rate], seconds: float
) -> tuple[str, str]:
    state, start = chosen.state, {"start": runs.configs[0].get("start")}
    low, high = grokked.interval
    rows = "\n".join(
        f"| {row.chain_length} | {row.n:,} | {row.correct:,} | {row.low:.4f}-{row.high:.4f} |"
        for row in result.to_dataframe().itertuples()
    )
    again = "".join(
        f"\n* **The same seeds again**, on a build that rounds differently: {rate.correct} of {rate.n} answer the whole"
        f"\n  test set (95% interval {100 * rate.interval[0]:.1f}-{100 * rate.interval[1]:.1f}%)."
        for rate in repeated
    )
    reached = f"first perfect on validation at step {state['first_perfect_step'] or 0:,}."
    if state["first_perfect_step"] is None and not _once_perfect(chosen):
        reached = f"at best {100 * state['best_exact']:.1f}% of the validation problems right."
    elif state["first_perfect_step"] is None:
        reached = "never perfect on the carry-rich half of validation, but once on the uniform half."
    there = " from that start, no independent ones," if start["start"] else ""
    once_low, once_high = once.interval
    grokked_once = ""
    if once.correct:
        grokked_once = (
            f" {once.correct} of {once.n}\n  ({100 * once.accuracy:.1f}%, {100 * once_low:.1f}-{100 * once_high:.1f}%)"
            f" once answered every uniform validation problem."
        )
    above = f"""{runs.layout.n} free parameters, {begun(start)}; trained by this project on {runs.model.task.name}.

* **Score:** {result.correct:,} of {result.n:,} ({result.problems}), {result.method.replace("_", " ")}, rung:
  {result.rung}. The error rate is below {result.error_bound:.1e} with 95% confidence on problems of that
  distribution; this is no statement about all inputs.
* **Seed** {chosen.number}, parameters after {state["best_step"]:,} steps; {reached}
  Chosen on validation problems that are disjoint from the test set.
* **Seeds:** {grokked.correct} of {grokked.n} seeds{there} answer the whole test set
  ({100 * grokked.accuracy:.1f}%, 95% interval {100 * low:.1f}-{100 * high:.1f}%).{grokked_once}{again}
* **Time:** {seconds / 60:.0f} minutes for all {grokked.n} seeds, float32, torch {TORCH}.

| longest carry chain | problems | right | 95% interval |
|---|---|---|---|
{rows}"""
    below = """\
Another machine or version rounds differently, and training is chaotic: there another seed, or none, may succeed.

Files: `model.safetensors` (free parameters), `snapshots.safetensors` (log-spaced over training), `metrics.jsonl`
(this seed), `curves.safetensors` and `seeds.json` (all seeds), `config.json` (recipe, hashes, score)."""
    return above, below
