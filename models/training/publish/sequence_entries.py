"""Zoo entries of models on sequences of many lengths.

What counts for them is length generalisation, which varies widely between seeds. So every seed is scored on the same
shapes, from the training bounds upwards, and the card shows them all. The stored seed is chosen on other problems than
those it is scored on: it has the fewest errors in the training set's longest shape and, among equals, is right most
often beyond it.
"""

from __future__ import annotations

import torch

from models.evaluation import Rate
from models.fast import exact_match
from models.tasks.sequences import SequenceTask
from models.training.publish.report import Report, Runs, finished_seeds, grokked
from models.transformer.arithmetic_transformer import ArithmeticTransformer

WITHIN_SIZE, SELECTION_SIZE, SELECTION_SEED = 5_000, 100, 77
SCORE_SIZE, SCORE_SEED = 1_000, 2025


def probe_shapes(model: ArithmeticTransformer) -> list[tuple[int, ...]]:
    """Shapes from the training bounds up to what the position tables reach: both sizes grow, then each alone."""
    task = model.task
    assert isinstance(task, SequenceTask)
    trained = task.shape
    grown = [tuple(size + more for size in trained) for more in (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 40, 60, 80)]
    if len(trained) == 2:
        grown += [(trained[0] * 2, trained[1]), (trained[0], trained[1] * 2)]
    return [shape for shape in grown if _reachable(model, shape)]


def _reachable(model: ArithmeticTransformer, shape: tuple[int, ...]) -> bool:
    """Whether the tables have enough ids for a shape, whose sizes (except bits) are at most 30."""
    task = model.task
    assert isinstance(task, SequenceTask)
    if len(shape) == 2 and max(shape) > 30:
        return False
    limits = model.position_limits
    return not limits or all(id <= limit for id, limit in zip(task.at(*shape).highest_ids(), limits, strict=True))


def cell_rates(
    model: ArithmeticTransformer, shapes: list[tuple[int, ...]], n: int, seed: int
) -> dict[tuple[int, ...], Rate]:
    """Exact match of whole responses, teacher-forced, on ``n`` problems of each shape, with ids starting at 1."""
    task, rates = model.task, {}
    assert isinstance(task, SequenceTask)
    for shape in shapes:
        other = task.at(*shape)
        problems = other.sample(n, torch.Generator().manual_seed(seed))
        rates[shape] = Rate(n, int(exact_match(model, other, problems).sum()))
    return rates


def report_sequences(runs: Runs) -> Report:
    """The seed with the fewest errors within the training shapes, then beyond; its score on the longest of them.

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    model, task = runs.model, runs.model.task
    assert isinstance(task, SequenceTask)
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
            "rung": "sampled",
            "seed": SCORE_SEED,
            "shapes": [{"shape": list(s), "n": rate.n, "correct": rate.correct} for s, rate in scores[at].items()],
        },
        seeds=public,
    )
