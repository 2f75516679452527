"""Exact match over a grid of problem sizes: the heat maps of the Position Coupling paper, as results.

    grid = interp.exact_match_grid(model, largest=(11, 10), n=1000)
    grid.accuracy                  # xarray, [digits, operands]
    grid.figure()
    ExactMatchGrid.load("grid.json").figure()      # no model needed

A cell is n problems of one shape, T_A(digits, operands), T_M or bits; its accuracy is the share whose *whole* response,
scratchpad and EOS included, is right. Sizes whose position ids a model's tables do not have are marked out of reach
and have no accuracy; shape by shape everything else is measured, nothing is inferred from a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from tqdm import tqdm

from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.core.stats import clopper_pearson
from interp.probes.heatmaps.cells import BLOCK, CellScorer, Offsets, cell_problems, generator
from interp.probes.heatmaps.store import CellStore, Counts
from models.checkpoint import content_digest, read_json, write_json_atomic
from models.errors import UserError
from models.evaluation import Rate
from models.registry import get_spec, names
from models.tasks.sequences import SequenceTask
from models.training.recipes import get_recipe
from models.unaltered import require_unaltered

#: Names of a shape's sizes, in the order of ``task.shape``; the first is the figures' x axis.
AXES = {
    "multi-operand-addition": ("operands", "digits"),
    "multiplication": ("first digits", "second digits"),
    "parity": ("bits",),
}
PAPER_GRID = {"multi-operand-addition": (30, 30), "multiplication": (30, 30), "parity": (100,)}
COUNTED = ("correct", "answer", "answer_forced")
FORMAT = 1


@dataclass(frozen=True, eq=False)
class ExactMatchGrid(Result):
    """How often whole responses are right, by problem size.

    Attributes:
        table: int arrays over the sizes (``[digits, operands]`` for sums): ``n`` problems tried (0 out of reach, -1
            not asked for), ``correct`` whole responses; and, if asked for, ``answer``: final answers right by greedy
            decoding, ``answer_forced``: given the true scratchpad (what a teacher-forced script measures).
        offsets: where position ids start at test time.
        early_exit: a cell with none right among its first so many problems was left there; None: never.
        trained: the training range of each size, (least, most), if known.
    """

    table: xr.Dataset
    model: str
    task: str
    format: str
    offsets: str
    requested: int
    seed: int
    early_exit: int | None
    trained: Mapping[str, tuple[int, int]] | None
    method: str = "teacher_forced"

    @property
    def provenance(self) -> Provenance:  # type: ignore[override]
        return Provenance(int(self.table.n.clip(min=0).sum()), self.seed, f"problems, {self.policy}")

    @property
    def policy(self) -> str:
        """Problems a cell, the sequential rule, the offset policy."""
        early = f" ({self.early_exit} where those were all wrong)" if self.early_exit else ""
        return f"{self.requested:,} a size{early}, {self.offsets}"

    @property
    def reached(self) -> xr.DataArray:
        """Whether the model's position tables reach a size."""
        return self.table.n > 0

    @property
    def out_of_reach(self) -> xr.DataArray:
        """Whether a size was asked for and needs position ids that the model's tables do not have."""
        return self.table.n == 0

    @property
    def accuracy(self) -> xr.DataArray:
        """Share of whole responses right; NaN out of reach."""
        return self.share("correct")

    def share(self, what: str = "correct") -> xr.DataArray:
        """The share of one of the counts. Raises UserError if it was not measured."""
        if what not in self.table:
            raise UserError(f"This grid has no {what!r}; evaluate with final_answer=True.")
        return (self.table[what] / self.table.n.where(self.reached)).rename(what)

    def cell(self, **size: int) -> Rate:
        """One cell, e.g. ``grid.cell(digits=10, operands=11)``."""
        try:
            at = self.table.sel({key.replace("_", " "): value for key, value in size.items()})
            n, correct = int(at.n), int(at.correct)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"This grid has no one cell {size}; it has {dict(self.table.sizes)}.") from None
        if n < 0:
            raise UserError(f"{size} was not evaluated.")
        if not n:
            raise UserError(f"The model's position tables do not reach {size}.")
        return Rate(n, correct)

    @property
    def in_training_range(self) -> xr.DataArray:
        inside = xr.ones_like(self.reached)
        for axis, (low, high) in (self.trained or {}).items():
            inside = inside & (self.table[axis] >= low) & (self.table[axis] <= high)
        return inside & bool(self.trained)

    def sentence(self) -> str:
        accuracy, inside = self.accuracy, self.in_training_range & self.reached
        parts = []
        if bool(inside.any()):
            parts.append(f"{float(accuracy.where(inside).mean()):.3f} in the training range")
        if bool((outside := self.reached & ~inside).any()):
            parts.append(f"{float(accuracy.where(outside).mean()):.3f} {'outside it' if parts else 'on average'}")
        if not parts:
            return f"{self.model}: its position tables reach none of these sizes."
        largest = {axis: int(self.table[axis].max()) for axis in reversed(self.table.n.dims)}
        corner = self.table.sel(largest)
        if int(corner.n) > 0:
            share, low, high = _rate(int(corner.correct), int(corner.n))
            parts.append(f"{share:.3f} [{low:.3f}, {high:.3f}] at {_size_text(largest)}")
        beyond = int(self.out_of_reach.sum())
        parts += [f"{beyond} of {self.table.n.size} sizes beyond its position tables"] if beyond else []
        return f"{self.model}: exact match {', '.join(parts)} ({self.offsets})."

    def to_dataframe(self) -> pd.DataFrame:
        """A row per size: n, correct, accuracy, low, high (Clopper-Pearson, 95%); NaN out of reach."""
        frame = self.table.to_dataframe().reset_index()
        for what in COUNTED:
            if what in frame:
                found = [_rate(k, n) for k, n in zip(frame[what], frame.n, strict=True)]
                prefix = "" if what == "correct" else f"{what}_"
                frame[[f"{prefix}accuracy", f"{prefix}low", f"{prefix}high"]] = found
        return frame

    def figure(self) -> Any:
        """A heat map; for parity accuracy by length."""
        from interp.probes.heatmaps.panels import GridPanel, GridPanels

        return GridPanels(self.model, (GridPanel(self.model, (self,)),)).figure()

    # ---- JSON

    def to_dict(self) -> dict[str, Any]:
        axes = {str(axis): self.table[axis].values.tolist() for axis in self.table.dims}
        counts = {str(name): array.values.tolist() for name, array in self.table.data_vars.items()}
        fields = ("model", "task", "format", "offsets", "requested", "seed", "early_exit", "method")
        trained = None if self.trained is None else {axis: list(bounds) for axis, bounds in self.trained.items()}
        stated = {name: getattr(self, name) for name in fields}
        return {"kind": "exact-match-grid", "version": FORMAT, **stated, "trained": trained, "rung": "sampled"} | {
            "axes": axes,
            "counts": counts,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ExactMatchGrid:
        """Raises UserError unless it came from :meth:`to_dict`."""
        if value.get("kind") != "exact-match-grid" or value.get("version") != FORMAT:
            raise UserError(f"This is no exact-match grid of format {FORMAT}.")
        try:
            axes = value["axes"]
            table = xr.Dataset({name: (list(axes), np.array(v)) for name, v in value["counts"].items()}, axes)
            trained = value["trained"]
            fields = ("model", "task", "format", "offsets", "requested", "seed", "early_exit", "method")
            return cls(
                table=table,
                trained=None if trained is None else {axis: (int(a), int(b)) for axis, (a, b) in trained.items()},
                **{name: value[name] for name in fields},
            )
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(f"This exact-match grid is incomplete ({error}).") from None

    def save(self, path: str | Path) -> None:
        write_json_atomic(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> ExactMatchGrid:
        return cls.from_dict(read_json(path))


def _rate(correct: int, n: int) -> tuple[float, float, float]:
    if n <= 0:
        return float("nan"), float("nan"), float("nan")
    return correct / n, *clopper_pearson(correct, n)


def _size_text(shape: Mapping[Any, int]) -> str:
    return " and ".join(f"{size} {axis}" for axis, size in shape.items())


def sequence_task(model: HookedModel, task: SequenceTask | None = None) -> SequenceTask:
    """The task given, else the model's. Raises UserError unless its problems come in many lengths."""
    task = getattr(model, "task", None) if task is None else task
    if not isinstance(task, SequenceTask):
        raise UserError("A grid needs a task with problems of many lengths; give task= if the model carries none.")
    return task


def axes_of(task: SequenceTask) -> tuple[str, ...]:
    return AXES.get(task.name) or tuple(f"size {i + 1}" for i in range(len(task.shape)))


def rectangle(task: SequenceTask, largest: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """All shapes up to the largest, by default the paper's: sums of 2 to 30 numbers of 1 to 30 digits, products of
    numbers of 1 to 30 digits, 1 to 100 bits."""
    largest = PAPER_GRID[task.name] if largest is None else tuple(largest)
    if len(largest) != len(task.shape):
        raise UserError(f"A shape of {task.name} has {len(task.shape)} sizes ({', '.join(axes_of(task))}).")
    lowest = [2 if axis == "operands" and most > 1 else 1 for axis, most in zip(axes_of(task), largest, strict=True)]
    return list(product(*(range(low, most + 1) for low, most in zip(lowest, largest, strict=True))))


def training_range(model: HookedModel) -> dict[str, tuple[int, int]] | None:
    """The sizes that a registered model's recipe draws from; None if it has no recipe."""
    name = str(getattr(model, "name_or_path", None))
    recipe = get_spec(name).recipe if name in names(sweeps=True) else None
    problems = None if recipe is None else get_recipe(recipe).problems
    most = {
        "operands": getattr(problems, "max_operands", None),
        "digits": getattr(problems, "max_digits", None),
        "first digits": getattr(problems, "max_first", None),
        "second digits": getattr(problems, "max_second", None),
        "bits": getattr(problems, "max_bits", None),
    }
    return {axis: (2 if axis == "operands" else 1, int(n)) for axis, n in most.items() if n is not None} or None


def format_text(task: SequenceTask) -> str:
    """How problems are written, in words."""
    form = getattr(task, "format", None)
    scratchpad = getattr(form or task, "scratchpad", True)
    words = ["scratchpad" if scratchpad else "no scratchpad"]
    if form is not None:
        words.append("zero-padded" if form.zero_padding else "no padding")
        words.append(f"{'reversed' if form.reversed_query else 'plain'} query")
        words.append(f"{'reversed' if form.reversed_response else 'plain'} response")
    return ", ".join(words)


@probe("How often is it right, by digits and operands?", needs=[task_of(SequenceTask)])
def exact_match_grid(
    model: HookedModel,
    *,
    task: SequenceTask | None = None,
    shapes: Iterable[Sequence[int]] | None = None,
    largest: Sequence[int] | None = None,
    n: int = 1000,
    seed: int = 0,
    offsets: str | int | tuple[int, ...] | Offsets = "start 1",
    early_exit: bool = True,
    final_answer: bool | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    progress: bool = True,
) -> ExactMatchGrid:
    """Exact match of whole responses for every shape, teacher-forced (the same as by greedy decoding).

    The sequential rule of ``early_exit``: a cell with 0 right among its first 50 problems is left there, as 0 of 50,
    interval [0, 0.071]. A cell of true accuracy p is cut off with probability (1 - p)^50, 8% at p = 0.05 and 0.5% at
    p = 0.1, and the mean of what is reported falls short of p by (1 - 50/n) p (1 - p)^50, at most 0.007. Intervals
    keep 95% up to p = 0.071, which the interval of a cut-off cell covers; above, where at most 2.5% are cut off, they
    keep at least 92.5%. Every cell is looked at: nothing is concluded from smaller sizes.

    Args:
        shapes: shapes as ``task.at`` takes them, (operands, digits) for sums; by default all up to ``largest``, which
            is by default the paper's grid.
        n: problems a cell. They depend on (seed, shape) alone, and a larger n extends a smaller one's.
        offsets: "start 1" (as the paper tests), another start, one a level, or "random".
        final_answer: also decode greedily, to count right *final answers*; by default for parity only.
        store: a file that takes every finished cell; the same call goes on from there.
        name: what the figures call the model.

    Cost: 11 microseconds a token for one layer of width 128; see ``benchmarks/decoding.py``.

    Raises:
        UserError: no sequence task, a model with switches of AddLM, a bad size, n or offset, another grid's file, a
            store for a model with hooks or the like.
    """
    task = sequence_task(model, task)
    if n < 1:
        raise UserError(f"n must be at least 1, not {n}.")
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
        for shape, other in left.items():
            bar.set_postfix_str(" x ".join(map(str, shape)))
            kept.add(shape, _count(scorer, other, n, seed, early_exit, final_answer))
            bar.update(cost[shape])
    return ExactMatchGrid(
        table=_table(task, {shape: kept.cells[shape] for shape in tasks}),
        model=name,
        task=task.name,
        format=format_text(task),
        offsets=str(scorer.offsets),
        requested=n,
        seed=seed,
        early_exit=BLOCK if early_exit and n > BLOCK else None,
        trained=training_range(model),
    )


_BAR = "{desc}: {percentage:3.0f}% of the work, {elapsed} gone, about {remaining} left {postfix}"


def _at(task: SequenceTask, shape: tuple[int, ...]) -> SequenceTask | None:
    """The task in this shape; None if the shape is beyond what the task says that its model can do."""
    if min(shape, default=0) < 1 or len(shape) != len(task.shape):
        raise UserError(f"{shape} is no shape of {task.name}: give {len(task.shape)} sizes from 1 on.")
    try:
        return task.at(*shape)
    except UserError:
        return None


def _cost(task: SequenceTask) -> int:
    """Relative cost of a problem: tokens of the response, and their scores (one layer of width 128)."""
    sequences = task.sequences(task.sample(1, generator(0)))
    length, response = sequences.inputs.shape[1], int(sequences.mask.sum())
    return response * (1_000 + length)


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
            # Where the whole response is right the answer is; elsewhere the model must read its own tokens.
            rest = (~verdicts.exact).nonzero().flatten()
            if len(rest):
                _, answer = scorer.greedy_verdicts(task, part[rest], None if moved is None else moved[rest])
                counts["answer"] += int(answer.sum())
        if not (counts["correct"] or counts.get("answer", 0)):
            break
    return counts


def _table(task: SequenceTask, cells: Mapping[tuple[int, ...], Counts]) -> xr.Dataset:
    """Counts as arrays, y axis first; n = -1 for sizes between the shapes given."""
    axes = axes_of(task)
    sizes = [sorted({shape[i] for shape in cells}) for i in range(len(axes))]
    counts = {}
    for what in next(iter(cells.values())):
        array = np.full([len(s) for s in sizes], -1 if what == "n" else 0, dtype=np.int64)
        for shape, found in cells.items():
            array[tuple(s.index(x) for s, x in zip(sizes, shape, strict=True))] = found[what]
        counts[what] = (tuple(reversed(axes)), array.T)
    return xr.Dataset(counts, dict(zip(axes, sizes, strict=True)))
