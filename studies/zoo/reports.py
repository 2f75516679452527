"""Which seed is stored of the runs of two papers' models, and how every seed is scored.

* Sequences of many lengths (Position Coupling): what counts is length generalisation, which varies widely between
  seeds. So every seed is scored on the same shapes, from the training bounds upwards, and the card shows them all. The
  stored seed is chosen on other problems than those it is scored on: it has the fewest errors in the training set's
  longest shape and, among equals, is right most often beyond it.
* Two-digit adders (ToyGPT, and AddLM's algebra on the same task): there are only 10,000 problems, so the entry's score
  is exhaustive: all of them, with the 500 held-out pairs counted separately. The entry stores the parameters, after the
  registered recipe's steps (ToyGPT: the paper's 1,000 iterations), of the seed that answers most training pairs (ties:
  the lower seed); the held-out pairs decide nothing. Every seed is on the card, as the best of several is not typical.

``publish(report=report_of(task))`` takes them, as ``python -m studies publish`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.files.checkpoint import load_weights
from models.rates import Rate
from models.registry import recipe_of
from models.run import exact_match, greedy
from models.tasks.named.addition import adds_pairs_below
from models.tasks.task import Task
from models.training.publish.report import Report, Runs, Seed, check_once, finished_seeds, grokked
from models.transformer.arithmetic_transformer import ArithmeticTransformer

WITHIN_SIZE, SELECTION_SIZE, SELECTION_SEED = 5_000, 100, 77
SCORE_SIZE, SCORE_SEED = 1_000, 2025
ROWS = 500  # pairs decoded at a time, so that their activations stay in the processor's cache


def report_of(task: Task) -> Callable[[Runs], Report] | None:
    """The papers' rule for a task; None where the library's own serves."""
    if task.has_other_sizes:
        return report_sequences
    return report_two_digit if adds_pairs_below(task) == 100 and task.selected_by != "loss" else None


def probe_shapes(model: ArithmeticTransformer) -> list[tuple[int, ...]]:
    """Shapes from the training bounds up to what the position tables reach: both sizes grow, then each alone."""
    task: Any = model.task
    trained = task.shape
    grown = [tuple(size + more for size in trained) for more in (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 40, 60, 80)]
    if len(trained) == 2:
        grown += [(trained[0] * 2, trained[1]), (trained[0], trained[1] * 2)]
    return [shape for shape in grown if _reachable(model, shape)]


def _reachable(model: ArithmeticTransformer, shape: tuple[int, ...]) -> bool:
    """Whether the tables have enough ids for a shape, whose sizes (except bits) are at most 30."""
    task: Any = model.task
    if len(shape) == 2 and max(shape) > 30:
        return False
    limits = model.position_limits
    return not limits or all(id <= limit for id, limit in zip(task.at(*shape).highest_ids(), limits, strict=True))


def cell_rates(
    model: ArithmeticTransformer, shapes: list[tuple[int, ...]], n: int, seed: int
) -> dict[tuple[int, ...], Rate]:
    """Exact match of whole responses, teacher-forced, on ``n`` problems of each shape, with ids starting at 1."""
    rates = {}
    for shape in shapes:
        other: Any = model.task.at(*shape)
        problems = other.sample(n, torch.Generator().manual_seed(seed))
        rates[shape] = Rate(n, int(exact_match(model, other, problems).sum()))
    return rates


def report_sequences(runs: Runs) -> Report:
    """The seed with the fewest errors within the training shapes, then beyond; its score on the longest of them.

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    model = runs.model
    task: Any = model.task
    shapes = probe_shapes(model)
    beyond = shapes[1:] or shapes
    seeds, seconds = finished_seeds(runs.folders)
    scores, right = [], []
    for seed in seeds:
        runs.load(seed)
        several = len(seeds) > 1
        within = cell_rates(model, shapes[:1] if several else [], WITHIN_SIZE, SELECTION_SEED)
        selection = cell_rates(model, beyond if several else [], SELECTION_SIZE, SELECTION_SEED)
        right.append(tuple(sum(rate.correct for rate in rates.values()) for rates in (within, selection)))
        scores.append(cell_rates(model, shapes, SCORE_SIZE, SCORE_SEED))
    at = max(range(len(seeds)), key=right.__getitem__)
    chosen = seeds[at]
    perfect = Rate(len(seeds), sum(table[shapes[0]].correct == SCORE_SIZE for table in scores))
    first = scores[at][shapes[0]]
    public = [
        {key: seed.state[key] for key in ("seed", "status", "best_exact", "best_step")}
        | {"chosen": seed is chosen, "shapes": [[list(shape), rate.correct] for shape, rate in table.items()]}
        for seed, table in zip(seeds, scores, strict=True)
    ]
    return Report(
        chosen=chosen,
        result=first,
        counts=grokked(perfect) | {"selection": {"within": WITHIN_SIZE, "n": SELECTION_SIZE, "seed": SELECTION_SEED}},
        seconds=seconds,
        score={
            "n": first.n,
            "correct": first.correct,
            "problems": task.shape_text,
            "method": "teacher_forced",
            "strength": "sampled",
            "seed": SCORE_SEED,
            "shapes": [{"shape": list(s), "n": rate.n, "correct": rate.correct} for s, rate in scores[at].items()],
        },
        seeds=public,
    )


@dataclass(frozen=True)
class TwoDigitRow:
    """One seed: how many held-out pairs, training pairs and digits of all pairs are right."""

    seed: Seed
    test: Rate
    train: Rate
    digits: tuple[int, ...]  # units, tens, hundreds


def report_two_digit(runs: Runs) -> Report:
    """The seed that answers most training pairs, after the registered recipe's steps; its score on the held-out pairs.

    Raises:
        UserError: a run without a snapshot at the budget, seeds tried twice.
    """
    budget = recipe_of(runs.name).steps
    step = min(budget, runs.configs[0]["recipe"]["steps"])
    rows, seconds = [], 0.0
    for run in runs.folders:
        snapshot = run.path / "snapshots" / f"{step:07d}.safetensors"
        loaded = run.load_checkpoint()
        if loaded is None or not snapshot.exists():
            raise UserError(
                f"{run.path} has no snapshot after {step:,} steps; give its training command again to go on."
            )
        seconds += loaded.state["seconds"] * min(1.0, step / max(1, loaded.step))
        tensors, _ = load_weights(snapshot)
        for i, state in enumerate(loaded.state["seeds"]):
            theta = torch.cat([tensors[name][i].reshape(-1) for name in runs.layout.shapes])
            rows.append(_row(runs, Seed(run, i, state, theta.half().float())))
    rows.sort(key=lambda row: row.seed.number)
    check_once(row.seed for row in rows)
    chosen = max(rows, key=lambda row: (row.train.correct, -row.seed.number))
    return Report(
        chosen=chosen.seed,
        result=chosen.test,
        counts=grokked(Rate(len(rows), sum(row.test.correct == row.test.n for row in rows))),
        seconds=seconds,
        score={
            "n": chosen.test.n,
            "correct": chosen.test.correct,
            "problems": "the 500 pairs held out",
            "method": "greedy",
            "strength": "sampled",
            "interval": list(chosen.test.interval),
            "all": {"n": 10_000, "correct": chosen.test.correct + chosen.train.correct, "strength": "exhaustive"},
        },
        seeds=[
            {"seed": row.seed.number, "chosen": row is chosen, "test": asdict(row.test), "train": asdict(row.train)}
            | {"digits": list(row.digits)}
            for row in rows
        ],
        steps=step,
    )


def _row(runs: Runs, seed: Seed) -> TwoDigitRow:
    model = runs.load(seed)
    task = model.task
    problems = task.domain.every()
    prompts, n_targets = task.encode_prompt(problems), len(task.query_positions)
    with torch.inference_mode():
        weights = model.effective_weights()
        decoded = torch.cat([greedy(model, part, n_targets, weights=weights) for part in prompts.split(ROWS)])
    right = decoded == task.targets(problems)
    exact = right.all(1)
    held_out = torch.isin(_key(problems), _key(task.held_out.problems))
    test, train = (Rate(int(rows.sum()), int(exact[rows].sum())) for rows in (held_out, ~held_out))
    return TwoDigitRow(seed, test, train, tuple(right.sum(0).tolist()))


def _key(problems: Tensor) -> Tensor:
    return problems[:, 0] * 100 + problems[:, 1]
