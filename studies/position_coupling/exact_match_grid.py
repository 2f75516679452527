"""Exact match over a grid of problem sizes: the heat maps of the Position Coupling paper.

    grid = exact_match_grid(model, largest=(11, 10), n=1000)
    grid.accuracy                  # xarray, [digits, operands]
    grid.figure()
    ExactMatchGrid.load("grid.json").figure()      # no model needed

A cell is n problems of one shape, T_A(digits, operands), T_M or bits. Its accuracy is the share whose *whole* response,
scratchpad and EOS included, is right. Sizes whose position ids a model's tables do not have are marked out of reach
and have no accuracy. Every other shape is measured; nothing is inferred from a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from models.calls import Count, Seed, checked
from models.errors import UserError
from models.files import content_digest
from models.registry import get_spec, names
from models.tasks import SequenceTask
from models.training import Cluster, each
from models.transformer import HookedModel, model_name, require_unaltered
from studies.position_coupling.grid_cell_store import CellStore, Counts
from studies.position_coupling.grid_cells import BLOCK, CellScorer, Offsets, cell_problems, generator
from studies.position_coupling.grid_panels import ExactMatchGrid

#: Names of a shape's sizes, in the order of ``task.shape``; the first is the figures' x axis.
AXES = {
    "multi-operand-addition": ("operands", "digits"),
    "multiplication": ("first digits", "second digits"),
    "parity": ("bits",),
}
PAPER_GRID = {"multi-operand-addition": (30, 30), "multiplication": (30, 30), "parity": (100,)}


def sequence_task(model: HookedModel, task: SequenceTask | None = None) -> SequenceTask:
    """The given task, else the model's. Raises UserError unless its problems come in many lengths."""
    task = getattr(model, "task", None) if task is None else task
    if task is None or not task.has_other_sizes:
        raise UserError("A grid needs a task with problems of many lengths; give task= if the model carries none.")
    return task


def axes_of(task: SequenceTask) -> tuple[str, ...]:
    return AXES.get(task.name) or tuple(f"size {i + 1}" for i in range(len(task.shape)))


def rectangle(task: SequenceTask, largest: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """All shapes up to the largest. The default is the paper's grid: sums of 2 to 30 numbers of 1 to 30 digits,
    products of numbers of 1 to 30 digits, 1 to 100 bits."""
    largest = PAPER_GRID[task.name] if largest is None else tuple(largest)
    if len(largest) != len(task.shape):
        raise UserError(f"A shape of {task.name} has {len(task.shape)} sizes ({', '.join(axes_of(task))}).")
    lowest = [2 if axis == "operands" and most > 1 else 1 for axis, most in zip(axes_of(task), largest, strict=True)]
    return list(product(*(range(low, most + 1) for low, most in zip(lowest, largest, strict=True))))


def training_range(model: HookedModel) -> dict[str, tuple[int, int]] | None:
    """The sizes that a registered model's recipe draws from; None if it has no recipe."""
    name = str(getattr(model, "registered", None))
    recipe = get_spec(name).recipe if name in names(sweeps=True) else None
    problems = None if recipe is None else recipe.problems
    most = {
        "operands": getattr(problems, "max_operands", None),
        "digits": getattr(problems, "max_digits", None),
        "first digits": getattr(problems, "max_first", None),
        "second digits": getattr(problems, "max_second", None),
        "bits": getattr(problems, "max_bits", None),
    }
    return {axis: (2 if axis == "operands" else 1, int(n)) for axis, n in most.items() if n is not None} or None


def format_text(task: SequenceTask) -> str:
    """The format of problems, in words."""
    form = getattr(task, "format", None)
    scratchpad = getattr(form or task, "scratchpad", True)
    words = ["scratchpad" if scratchpad else "no scratchpad"]
    if form is not None:
        words.append("zero-padded" if form.zero_padding else "no padding")
        words.append(f"{'reversed' if form.reversed_query else 'plain'} query")
        words.append(f"{'reversed' if form.reversed_response else 'plain'} response")
    return ", ".join(words)


@partial(checked, ready=True, least=1)
def exact_match_grid(
    model: HookedModel,
    *,
    task: SequenceTask | None = None,
    shapes: Iterable[Sequence[int]] | None = None,
    largest: Sequence[int] | None = None,
    n: Count = 1000,
    seed: Seed = 0,
    offsets: str | int | tuple[int, ...] | Offsets = "start 1",
    early_exit: bool = True,
    final_answer: bool | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    progress: bool = False,
    cluster: Cluster | None = None,
) -> ExactMatchGrid:
    """Exact match of whole responses for every shape, teacher-forced (greedy decoding gives the same).

    With ``early_exit``, a cell with 0 right among its first 50 problems stops there and counts as 0 of 50, interval
    [0, 0.071]. A cell of true accuracy p is cut off with probability (1 - p)^50, 8% at p = 0.05 and 0.5% at p = 0.1,
    and the mean of what is reported falls short of p by (1 - 50/n) p (1 - p)^50, at most 0.007. Intervals keep 95%
    coverage up to p = 0.071, which the interval of a cut-off cell covers; above, where at most 2.5% are cut off, they
    keep at least 92.5%. Every cell is measured: nothing is concluded from smaller sizes.

    Args:
        shapes: shapes as ``task.at`` takes them, (operands, digits) for sums; by default all up to ``largest``, which
            is by default the paper's grid.
        n: problems per cell, by default 1,000 as in the paper: there are a hundred cells or more. They depend on (seed,
            shape) only, and a larger n extends the problems of a smaller one.
        offsets: "start 1" (as the paper tests), another start, one per level, or "random".
        final_answer: also decode greedily, to count right *final answers*; by default for parity only.
        store: a file to which every finished cell is written; the same call resumes from there.
        name: the model's name in figures.
        cluster: where cells are scored, one per job, by the model as it is here, on the cluster's device.

    Cost: 11 microseconds per token for one layer of width 128; see ``benchmarks/decoding.py``.

    Raises:
        UserError: no sequence task, a model with switches of AddLM, a bad size, n or offset, a file of another grid,
            or a store for an altered model (with hooks, for example).
    """
    task = sequence_task(model, task)
    if store is not None:
        require_unaltered(model, "A stored grid")
    scorer = CellScorer(model, task, offsets)
    wanted = rectangle(task, largest) if shapes is None else [tuple(shape) for shape in shapes]
    if not wanted:
        raise UserError("There is no shape to evaluate.")
    tasks = {shape: _at(task, shape) for shape in wanted}
    final_answer = task.name == "parity" if final_answer is None else final_answer
    name = name or model_name(model)
    question = {
        "kind": "exact-match-cells",
        "model": name,
        "weights": content_digest(scorer.weights, {}),
        "format": format_text(task),
        "offsets": str(scorer.offsets),
        "n": n,
        "seed": seed,
        "early_exit": early_exit,
        "final_answer": final_answer,
    }
    kept = CellStore(None if store is None else Path(store), question)
    left = {shape: other for shape, other in tasks.items() if shape not in kept.cells}
    cost = {shape: 0 if other is None else _cost(other) for shape, other in left.items()}
    with tqdm(total=sum(cost.values()), disable=not progress, desc=name, bar_format=_BAR, mininterval=0.5) as bar:
        todo = list(left.items())

        def arguments(i: int) -> tuple:
            bar.set_postfix_str(" x ".join(map(str, todo[i][0])))
            return todo[i][1], n, seed, early_exit, final_answer

        def received(i: int, counts: Counts) -> None:
            kept.add(todo[i][0], counts)
            bar.update(cost[todo[i][0]])

        elsewhere = partial(_count_there, model, task, scorer.offsets, "cpu" if cluster is None else cluster.device)
        each(partial(_count_here, scorer) if cluster is None else elsewhere, len(todo), arguments, received, cluster)
    about = {
        "task": task.name,
        "format": format_text(task),
        "offsets": str(scorer.offsets),
        "requested": n,
        "seed": seed,
        "early_exit": BLOCK if early_exit and n > BLOCK else None,
        "method": "teacher_forced",
        "trained": training_range(model),
    }
    return ExactMatchGrid.made(name, _table(task, {shape: kept.cells[shape] for shape in tasks}), about)


_BAR = "{desc}: {percentage:3.0f}% of the work, {elapsed} gone, about {remaining} left {postfix}"


def _at(task: SequenceTask, shape: tuple[int, ...]) -> SequenceTask | None:
    """The task in this shape; None if the task refuses the shape as beyond what its model can do."""
    if min(shape, default=0) < 1 or len(shape) != len(task.shape):
        raise UserError(f"{shape} is not a shape of {task.name}: give {len(task.shape)} sizes from 1 on.")
    try:
        return task.at(*shape)
    except UserError:
        return None


def _cost(task: SequenceTask) -> int:
    """Relative cost of a problem: the tokens of its response and their attention scores (one layer of width 128)."""
    sequences = task.sequences(task.sample(1, generator(0)))
    length, response = sequences.inputs.shape[1], int(sequences.mask.sum())
    return response * (1_000 + length)


def _count_here(scorer: CellScorer, _: Any, *cell: Any) -> Counts:
    return _count(scorer, *cell)


def _count_there(model: HookedModel, task: SequenceTask, offsets: Offsets, device: str, _: Any, *cell: Any) -> Counts:
    """Count a cell on a cluster: its machines get the model once, and make a scorer on a device of their own."""
    return _count(CellScorer(model.to(device), task, offsets), *cell)


def _count(
    scorer: CellScorer, task: SequenceTask | None, n: int, seed: int, early_exit: bool, final_answer: bool
) -> Counts:
    counts = {"n": 0, "correct": 0} | ({"answer": 0, "answer_forced": 0} if final_answer else {})
    if task is None or not scorer.reaches(task):
        return counts
    problems, shifts = cell_problems(task, n, seed), scorer.shifts(task, n, seed)
    looks = [slice(0, BLOCK), slice(BLOCK, n)] if early_exit and n > BLOCK else [slice(0, n)]
    for look in looks:
        part, moved = problems[look], None if shifts is None else shifts[look]
        counts["n"] += len(part)
        if not final_answer:
            counts["correct"] += int(scorer.exact(task, part, moved).sum())
        else:
            verdicts = scorer.verdicts(task, part, moved)
            counts["correct"] += int(verdicts.exact.sum())
            counts["answer_forced"] += int(verdicts.answer_forced.sum())
            counts["answer"] += int(verdicts.exact.sum())
            # Where the whole response is right, so is the answer; elsewhere the model must read its own tokens.
            rest = (~verdicts.exact).nonzero().flatten()
            if len(rest):
                _, answer = scorer.greedy_verdicts(task, part[rest], None if moved is None else moved[rest])
                counts["answer"] += int(answer.sum())
        if not (counts["correct"] or counts.get("answer", 0)):
            break
    return counts


def _table(task: SequenceTask, cells: Mapping[tuple[int, ...], Counts]) -> xr.Dataset:
    """Counts as arrays, y axis first; n = -1 for sizes of the grid that are not among the shapes."""
    axes = axes_of(task)
    sizes = [sorted({shape[i] for shape in cells}) for i in range(len(axes))]
    counts = {}
    for what in next(iter(cells.values())):
        array = np.full([len(s) for s in sizes], -1 if what == "n" else 0, dtype=np.int64)
        for shape, found in cells.items():
            array[tuple(s.index(x) for s, x in zip(sizes, shape, strict=True))] = found[what]
        counts[what] = (tuple(reversed(axes)), array.T)
    return xr.Dataset(counts, dict(zip(axes, sizes, strict=True)))
