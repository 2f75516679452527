"""Zoo entries of two-digit adders (ToyGPT, and AddLM's algebra on the same task).

There are only 10,000 problems, so the entry's score is exhaustive: all of them, with the 500 held-out pairs counted
separately. The entry stores the parameters, after the registered recipe's steps (ToyGPT: the paper's 1,000 iterations),
of the seed that answers most *training* pairs (ties: the lower seed); the held-out pairs decide nothing. Every seed is
on the card, as the best of several is not typical.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from models.errors import UserError
from models.evaluation import Rate
from models.fast import greedy
from models.files.checkpoint import load_weights
from models.registry import recipe_of
from models.training.publish.report import Report, Runs, Seed, check_once, grokked

ROWS = 500  # decoded at a time, so that their activations stay in the processor's cache


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
            "rung": "sampled",
            "interval": list(chosen.test.interval),
            "all": {"n": 10_000, "correct": chosen.test.correct + chosen.train.correct, "rung": "exhaustive"},
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
    held_out = torch.isin(_key(problems), _key(task.test_set()[1]))
    test, train = (Rate(int(rows.sum()), int(exact[rows].sum())) for rows in (held_out, ~held_out))
    return TwoDigitRow(seed, test, train, tuple(right.sum(0).tolist()))


def _key(problems: Tensor) -> Tensor:
    return problems[:, 0] * 100 + problems[:, 1]
