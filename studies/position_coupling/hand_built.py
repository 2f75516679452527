"""The hand-built Position Coupling transformer on its whole grid and far beyond: ``position-coupling:hand-built``.

    python -m studies reproduce position-coupling:hand-built                # 100 problems of each shape up to 6 x 6
    python -m studies reproduce position-coupling:hand-built --size paper   # up to 30 x 30, and far beyond

The paper's grid is 1 to 30 digits by 2 to 30 operands; single operands, which take one step, are run as well. Runs are
teacher-forced, which for whole answers is the same event as greedy decoding (:mod:`models.evaluation`).
:mod:`interp.proofs.hand_built.shape_problems` says what a shape's problems are. The claim is *sampled*;
:mod:`interp.proofs.hand_built.addition_proof` proves the same shapes right.

Beyond the grid, one all-nines, one carry-heavy and one uniform problem of each size are read in blocks of queries
(:mod:`models.run`): every token of the response or, at sizes whose full pattern has 10^10 entries or more,
a sample of positions, half of them at the numbers' ends. The seconds that one (busy) core took are stored too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

import models
from interp.core.sections import Section
from interp.proofs.hand_built.shape_problems import carry_heavy, grid_problems
from interp.proofs.stored_verdicts import hand_built_sums
from interp.site.facts import certificate_words
from models.errors import unknown_name
from models.evaluation import margins
from models.families.hand_built.position_coupling_addition import NAME
from models.files.checkpoint import read_json
from models.run import logits_at
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.papers import DATA
from studies.position_coupling.grid_cell_store import CellStore
from studies.runs.study import Made, Settings, Study, register_study, shows

TARGET = "position-coupling:hand-built"
TITLE = "The constructed transformer on its whole grid and beyond"
TOKENS_AT_ONCE = 8 * 2013  # a batch of eight at the largest shape
LARGEST = {"small": 6, "paper": 30}
SIZES = (  # operands, digits, precision, and how many positions are read, if not all
    (2, 1000, "float32", None),
    (2, 5000, "float32", None),
    (2, 5000, "float64", None),
    (1, 10000, "float32", None),
    (1000, 1, "float32", None),
    (1000, 1, "float64", None),
    (300, 30, "float32", None),
    (100, 100, "float32", None),
    (100, 100, "float64", None),
    (300, 300, "float32", 1000),
    (1000, 500, "float32", 300),
)


@dataclass(frozen=True)
class GridCell:
    """One shape: ``correct`` of ``problems`` are answered entirely right, with the smallest lead of a right token.

    ``min_margin`` is the right token's logit minus the best other's, over every predicted token of every problem.
    """

    operands: int
    digits: int
    problems: int
    correct: int
    predictions: int
    min_margin: float


@dataclass(frozen=True)
class HandBuiltGrid:
    """The study's data: ``settings`` (largest shape, problems per shape, seed), and one row per shape in order."""

    settings: Mapping[str, Any]
    cells: pd.DataFrame

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> HandBuiltGrid:
        return cls(data["settings"], pd.DataFrame(data["cells"], columns=data["cell"]))

    def sentence(self) -> str:
        s, sums = self.settings, self.cells.sum()
        return (
            f"{sums.correct:,.0f} of {sums.problems:,.0f} problems right on {len(self.cells)} shapes "
            f"(1 to {s['max_operands']} operands of 1 to {s['max_digits']} digits, {s['problems']} a shape, "
            f"{sums.predictions:,.0f} predicted tokens); smallest logit margin {self.cells.min_margin.min():.4f}. "
            f"Sampled, seed {s['seed']}."
        )


def load_grid() -> HandBuiltGrid:
    """The stored result."""
    return HandBuiltGrid.of(read_json(DATA / "position-coupling-hand-built.json"))


def run_cell(
    model: ArithmeticTransformer,
    problems: Int[Tensor, "n operand column"],
    choose: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> GridCell:
    """Teacher-forced answers to problems of one shape, at positions that ``choose`` selects from a batch's response."""
    n, operands, digits = problems.shape
    task: Any = model.task.at(operands, digits)
    length = task.encode(problems[:1]).shape[1]
    correct, predictions, margin = 0, 0, float("inf")
    for part in problems.split(max(1, TOKENS_AT_ONCE // length)):
        sequences = task.sequences(part)
        rows = choose(sequences.mask[0].nonzero().flatten())
        lead = margins(logits_at(model, sequences.inputs, rows), sequences.targets[:, rows])
        correct += int((lead > 0).all(1).sum())
        predictions += len(rows) * len(part)
        margin = min(margin, float(lead.min()))
    return GridCell(operands, digits, n, correct, predictions, round(margin, 6))


def run_size(operands: int, digits: int, dtype: str = "float32", sampled: int | None = None) -> dict[str, Any]:
    """Run one large size; see the module. Cost: 4 x positions x tokens scores per problem."""
    model = models.build(NAME, max_operands=operands, max_digits=digits, dtype=dtype)
    task: Any = model.task.at(operands, digits)
    generator = torch.Generator().manual_seed(0)
    shape = (1, operands, digits)
    kinds = (
        torch.full(shape, 9),
        carry_heavy(operands, digits, 1, generator),
        torch.randint(10, shape, generator=generator),
    )

    def some(rows: Tensor) -> Tensor:
        if sampled is None:
            return rows
        ends = rows[torch.isin(rows % (task.length + 1), torch.tensor([0, 1, task.length]))]
        ends = ends[torch.randperm(len(ends), generator=generator)[: sampled // 2]]
        drawn = rows[torch.randperm(len(rows), generator=generator)[: sampled - len(ends)]]
        return torch.cat((ends, drawn, rows[-1:])).unique()

    start = time.perf_counter()
    cells = [run_cell(model, problem, some) for problem in kinds]
    return {
        "operands": operands,
        "digits": digits,
        "dtype": dtype,
        "tokens": task.encode(kinds[0]).shape[1],
        "positions": cells[-1].predictions,
        "all_positions": sampled is None,
        "problems": len(cells),
        "correct": sum(cell.correct for cell in cells),
        "min_margin": min(cell.min_margin for cell in cells),
        "seconds_a_problem": round((time.perf_counter() - start) / len(cells), 2),
    }


def run_hand_built(settings: Settings) -> Made | None:
    """Run the grid shape by shape and then the large sizes; each is stored at once, and the same call continues.

    Raises:
        UserError: another size, or a folder with another grid.
    """
    if settings.size not in LARGEST:
        raise unknown_name("size", settings.size, LARGEST)
    largest = LARGEST[settings.size]
    asked = {"max_operands": largest, "max_digits": largest, "problems": settings.problems or 100, "seed": 0}
    folder = settings.out / "position-coupling" / "hand-built"
    model = models.build(NAME, max_operands=largest, max_digits=largest)

    def stored(name: str, header: dict[str, Any], work: Mapping[Any, Callable[[], Any]]) -> Iterator[dict[str, Any]]:
        """Yield every cell of the work as far as there is time, from the file if it was done before."""
        folder.mkdir(parents=True, exist_ok=True)
        store: Any = CellStore(folder / f"{name}.jsonl", header)
        for key, run in tqdm(work.items(), disable=not settings.progress, unit=name):
            if key not in store.cells:
                if settings.minutes_left() == 0:
                    return
                store.add(key, run())
            yield store.cells[key]

    def cell(m: int, n: int) -> dict[str, Any]:
        return asdict(run_cell(model, grid_problems(m, n, asked["problems"], 0)))

    shapes = {shape: partial(cell, *shape) for shape in product(range(1, largest + 1), repeat=2)}
    sizes = {(i,): partial(run_size, *size) for i, size in enumerate(SIZES if settings.size == "paper" else ())}
    cells = stored("grid", {"kind": "hand-built-grid", **asked}, shapes)
    data = {
        "settings": asked,
        "cells": [list(cell.values()) for cell in cells],
        "versions": {"torch": str(torch.__version__)},
        "strength": "sampled",
        "cell": [field.name for field in fields(GridCell)],
        "sizes": list(stored("large", {"kind": "hand-built-large"}, sizes)),
    }
    return Made(data, options=f"--size {settings.size}") if data["cells"] else None


@shows(TARGET)
def show_hand_built(data: Any) -> list[Section]:
    proofs = [hand_built_sums(arithmetic) for arithmetic in ("interval", "float32")]
    large = pd.DataFrame(data["sizes"])
    sentences = [certificate_words(proof) for proof in proofs] + [HandBuiltGrid.of(data).sentence()]
    return [
        Section("The proof, shape by shape", "\n\n".join(sentences), (), (proofs[-1].figure(),), 3),
        Section("Far larger problems", "Run, not proved: three problems a size.", (large,), level=3),
    ]


register_study(Study(TARGET, TITLE, run_hand_built, command=f"python -m studies reproduce {TARGET} --size paper"))
