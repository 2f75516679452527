"""A sweep of where position ids start at test time, and a check of teacher forcing against greedy decoding.

Training shifts the ids of every problem by random amounts, so that all rows of the tables are trained. The paper tests
only with ids that start at 1. A model can be right almost always under one policy and never under another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
import xarray as xr

from interp.core.probe import probe, task_of
from interp.core.results import Provenance
from interp.core.sites import model_name
from interp.probes.heatmaps.cells import CellScorer, Offsets, cell_problems
from interp.probes.heatmaps.grid import axes_of, sequence_task
from interp.probes.score_result import Scores
from models.errors import UserError
from models.tasks.sequences import SequenceTask
from models.transformer.hooked import HookedModel


@probe("Is it right wherever position ids start?", needs=[task_of(SequenceTask)], least=1)
def offset_sweep(
    model: HookedModel,
    shape: Sequence[int],
    *,
    task: SequenceTask | None = None,
    n: int = 200,
    seed: int = 0,
    starts: Iterable[int] | None = None,
) -> Scores:
    """Exact match of one shape for every start that the tables have room for, moving all levels together or only one
    (the others start at 1). Start 0 stands for offsets drawn as in training. The problems are always the same.

    Args:
        shape: as ``task.at`` takes it, (operands, digits) for sums.
        n: problems, by default 200, as all of them are answered once for every start.
        starts: the starts to measure, default all.

    Raises:
        UserError: a model without coupled ids, a shape that its tables do not reach.
    """
    task = sequence_task(model, task)
    scorer = CellScorer(model, task)
    if not scorer.coupled:
        raise UserError(f"{model.name_or_path} has no position ids, so there are no offsets to sweep.")
    at = task.at_shape(shape)
    if not scorer.reaches(at):
        raise UserError(f"The model's position tables do not reach {tuple(shape)}.")
    problems, levels = cell_problems(at, n, seed), len(scorer.limits)
    room = [limit - high + 1 for limit, high in zip(scorer.limits, at.highest_ids(), strict=True)]
    kinds = {"all levels": range(levels)}
    if levels > 1:
        kinds |= {f"level {level + 1}": range(level, level + 1) for level in range(levels)}
    wanted = None if starts is None else set(starts)
    cells: dict[tuple[str, int], int] = {}
    for moved, which in kinds.items():
        for start in range(1, min(room[level] for level in which) + 1):
            if wanted is None or start in wanted:
                scorer.offsets = Offsets(tuple(start if level in which else 1 for level in range(levels)))
                cells[moved, start] = int(scorer.exact(at, problems, scorer.shifts(at, n, seed)).sum())
    if ("all levels", 1) not in cells:
        raise UserError(f"Starts lie in 1..{min(room)} for this size and must include 1.")
    scorer.offsets = Offsets(None)
    cells["random offsets", 0] = int(scorer.exact(at, problems, scorer.shifts(at, n, seed)).sum())
    counts = pd.Series(cells).rename_axis(["moved", "start"]).to_xarray().sel(moved=[*kinds, "random offsets"])
    table = xr.Dataset({"n": xr.where(counts.isnull(), -1, n), "correct": counts.fillna(0).astype(int)})
    size = " and ".join(f"{size} {axis}" for axis, size in zip(axes_of(at), at.shape, strict=True))
    provenance = Provenance(n, seed, f"problems of {size}, the same for every start")
    return Scores(model_name(model), table, provenance, series="moved")


@probe("Does greedy decoding agree with teacher forcing?", needs=[task_of(SequenceTask)], least=1)
def greedy_agreement(
    model: HookedModel,
    shapes: Iterable[Sequence[int]],
    *,
    task: SequenceTask | None = None,
    n: int = 20,
    seed: int = 0,
    offsets: str | int | tuple[int, ...] | Offsets = "start 1",
) -> Scores:
    """Decode greedily what :func:`interp.probes.heatmaps.grid.exact_match_grid` scores by teacher forcing, and compare.

    ``table`` counts for each shape the problems on whose whole response both give the same verdict (``correct``), the
    responses right by greedy decoding (``greedy``), the final numbers right (``answer``), and those right after the
    true scratchpad (``answer_forced``). Only the verdicts on whole responses must agree.

    Cost: ``n`` cached decodings of every shape (20 by default), for one layer as much as ten teacher-forced passes.
    """
    task = sequence_task(model, task)
    scorer, rows = CellScorer(model, task, offsets), []
    for shape in shapes:
        at = task.at_shape(shape)
        if not scorer.reaches(at):
            raise UserError(f"The model's position tables do not reach {tuple(shape)}.")
        problems, shifts = cell_problems(at, n, seed), scorer.shifts(at, n, seed)
        forced = scorer.verdicts(at, problems, shifts)
        exact, answer = scorer.greedy_verdicts(at, problems, shifts)
        counts = {
            "n": n,
            "correct": int((forced.exact == exact).sum()),
            "greedy": int(exact.sum()),
            "answer": int(answer.sum()),
            "answer_forced": int(forced.answer_forced.sum()),
        }
        rows.append({"shape": " x ".join(map(str, at.shape))} | counts)
    if not rows:
        raise UserError("There is no shape to decode: the list is empty.")
    table = pd.DataFrame(rows).set_index("shape").to_xarray()
    source = Provenance(int(table.n.sum()), seed, f"problems, {n} a size, {scorer.offsets}")
    return Scores(model_name(model), table, source, counted="judged alike by teacher forcing and greedy decoding")
