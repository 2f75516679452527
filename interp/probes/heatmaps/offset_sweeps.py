"""Where position ids start at test time, swept; and teacher forcing checked against true greedy decoding.

Training moves the ids of every problem by random amounts, so that all rows of the tables are trained; the paper tests
with ids that start at 1 and nowhere else. A model can be right almost always under one policy and never under another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.results import Provenance, Result
from interp.core.stats import clopper_pearson
from interp.probes.heatmaps.cells import CellScorer, Offsets, cell_problems
from interp.probes.heatmaps.grid import axes_of, sequence_task
from models.errors import UserError
from models.evaluation import Rate
from models.tasks.sequences import SequenceTask


@dataclass(frozen=True, eq=False)
class OffsetSweep(Result):
    """Exact match of one problem size by the ids that its tokens start at; the problems are the same throughout.

    Attributes:
        table: rows (moved, start, n, correct): ``moved`` is "all levels" or "level 1", ...; the others start at 1.
        random: the same problems with offsets drawn as in training.
    """

    table: pd.DataFrame
    random: Rate
    model: str
    size: Mapping[str, int]
    provenance: Provenance

    @property
    def size_text(self) -> str:
        return " and ".join(f"{n} {axis}" for axis, n in self.size.items())

    def sentence(self) -> str:
        together = self.table[self.table.moved == "all levels"]
        shares = together.correct / together.n
        best, worst = shares.idxmax(), shares.idxmin()
        one = float(shares[together.start == 1].iloc[0])
        return (
            f"{self.model} at {self.size_text}: {one:.3f} of the responses are right with ids from 1, "
            f"{self.random.accuracy:.3f} with random offsets; between {shares[worst]:.3f} (start "
            f"{together.start[worst]}) and {shares[best]:.3f} (start {together.start[best]}) over fixed starts."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row per start: accuracy, low, high (Clopper-Pearson, 95%); the last row has random offsets."""
        last = {"moved": "random", "start": None, "n": self.random.n, "correct": self.random.correct}
        frame = pd.DataFrame([*self.table.to_dict("records"), last])
        bounds = [clopper_pearson(k, n) for k, n in zip(frame.correct, frame.n, strict=True)]
        return frame.assign(accuracy=frame.correct / frame.n, low=[b[0] for b in bounds], high=[b[1] for b in bounds])


@probe("Is it right wherever position ids start?", needs=[task_of(SequenceTask)])
def offset_sweep(
    model: HookedModel,
    shape: Sequence[int],
    *,
    task: SequenceTask | None = None,
    n: int = 200,
    seed: int = 0,
    starts: Iterable[int] | None = None,
) -> OffsetSweep:
    """Exact match of one shape for every start that the tables leave room for, all levels together and each alone.

    Args:
        shape: as ``task.at`` takes it, (operands, digits) for sums.
        starts: only these.

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
    rows = []
    for moved, which in kinds.items():
        for start in range(1, min(room[level] for level in which) + 1):
            if wanted is not None and start not in wanted:
                continue
            scorer.offsets = Offsets(tuple(start if level in which else 1 for level in range(levels)))
            exact = scorer.exact(at, problems, scorer.shifts(at, n, seed))
            rows.append({"moved": moved, "start": start, "n": n, "correct": int(exact.sum())})
    if not rows or rows[0]["start"] != 1:
        raise UserError(f"Starts lie in 1..{min(room)} for this size and must include 1.")
    scorer.offsets = Offsets(None)
    exact = scorer.exact(at, problems, scorer.shifts(at, n, seed))
    size = dict(zip(axes_of(at), at.shape, strict=True))
    return OffsetSweep(
        table=pd.DataFrame(rows),
        random=Rate(n, int(exact.sum())),
        model=str(model.name_or_path),
        size=size,
        provenance=Provenance(n, seed, "problems, the same for every start"),
    )


@dataclass(frozen=True, eq=False)
class GreedyAgreement(Result):
    """On how many problems teacher forcing and greedy decoding give the same verdict on the whole response.

    ``table``: a row per shape with n, agree, correct (by greedy decoding), answer (final number right, greedy) and
    answer_forced (final number right, given the true scratchpad), of which only the first two must be equal.
    """

    table: pd.DataFrame
    model: str
    offsets: str
    provenance: Provenance

    @property
    def disagreements(self) -> int:
        return int((self.table.n - self.table.agree).sum())

    def sentence(self) -> str:
        n, right = int(self.table.n.sum()), int(self.table.correct.sum())
        return (
            f"Teacher forcing and greedy decoding disagree on {self.disagreements} of {n:,} problems of {self.model}, "
            f"of which it answers {right:,} right; final numbers are right in {int(self.table.answer.sum()):,} by "
            f"greedy decoding and in {int(self.table.answer_forced.sum()):,} behind the true scratchpad."
        )

    def to_dataframe(self) -> pd.DataFrame:
        return self.table

    def figure(self) -> Any:
        raise UserError("There is no picture of this agreement; see to_dataframe().")


@probe("Does greedy decoding agree with teacher forcing?", needs=[task_of(SequenceTask)])
def greedy_agreement(
    model: HookedModel,
    shapes: Iterable[Sequence[int]],
    *,
    task: SequenceTask | None = None,
    n: int = 20,
    seed: int = 0,
    offsets: str | int | tuple[int, ...] | Offsets = "start 1",
) -> GreedyAgreement:
    """Decode greedily what :func:`interp.probes.heatmaps.grid.exact_match_grid` scores by teacher forcing, and compare.

    Cost: ``n`` cached decodings of every shape, for one layer about as much as ten teacher-forced passes.
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
        rows.append(
            dict(zip(axes_of(at), at.shape, strict=True))
            | {
                "n": n,
                "agree": int((forced.exact == exact).sum()),
                "correct": int(exact.sum()),
                "answer": int(answer.sum()),
                "answer_forced": int(forced.answer_forced.sum()),
            }
        )
    if not rows:
        raise UserError("There is no shape to decode: the list is empty.")
    table = pd.DataFrame(rows)
    source = Provenance(int(table.n.sum()), seed, f"problems, {n} a size, {scorer.offsets}")
    return GreedyAgreement(table, str(model.name_or_path), str(scorer.offsets), source)
