"""The hand-built Position Coupling transformer on its whole grid: every number of operands and digits it was built for.

    python -m interp.papers.position_coupling.hand_built_grid         # 100 problems for each of 30 x 30 shapes
    python -m interp.papers.position_coupling.hand_built_grid --problems 2 --output x.json

The paper's grid is 1 to 30 digits by 2 to 30 operands; single operands, which take one step, are run as well.
Teacher-forced, which for whole answers is the same event as greedy decoding (:mod:`models.evaluation`). Of a shape's
problems 40% are uniform, 20% have operands of any length, 30% are carry-heavy (most columns of every running sum add up
to exactly 9, so that carries travel), and the last few are the extremes: all nines, all zeros, nines plus one, and a
one everywhere. The claim is *sampled*; :mod:`interp.proofs.coupled_addition` proves the same shapes right.

The result is stored after every row of the grid, and a run goes on where the file ends.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import tyro
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

import models
from interp.core.operand_problems import grid_problems
from interp.core.stored_data import DATA
from models.checkpoint import write_bytes_atomic
from models.errors import UserError
from models.evaluation import margins
from models.hand_built.coupled_addition import NAME
from models.partial_forward import logits_at
from models.transformer import ArithmeticTransformer

STORED = DATA / "hand_built_grid.json"
TOKENS_AT_ONCE = 8 * 2013  # a batch of eight at the largest shape


@dataclass(frozen=True)
class GridCell:
    """One shape: ``correct`` of ``problems`` answered entirely right, and the smallest lead of a right token.

    ``min_margin`` is the right token's logit minus the best other's, over every predicted token of every problem.
    """

    operands: int
    digits: int
    problems: int
    correct: int
    predictions: int
    min_margin: float


@dataclass(frozen=True)
class GridSettings:
    """What was run. Two runs with equal settings draw the same problems."""

    max_operands: int = 30
    max_digits: int = 30
    problems: int = 100
    seed: int = 0
    eta: float = 16.0
    dtype: str = "float32"


@dataclass(frozen=True)
class GridResult:
    """All cells, in the order of the grid."""

    settings: GridSettings
    cells: tuple[GridCell, ...]
    versions: dict[str, str] = field(default_factory=dict)
    rung: Literal["sampled"] = "sampled"

    @property
    def problems(self) -> int:
        return sum(cell.problems for cell in self.cells)

    @property
    def correct(self) -> int:
        return sum(cell.correct for cell in self.cells)

    @property
    def min_margin(self) -> float:
        return min(cell.min_margin for cell in self.cells)

    def accuracy(self) -> np.ndarray:
        """[operands, digits], NaN where nothing was run."""
        s = self.settings
        table = np.full((s.max_operands, s.max_digits), np.nan)
        for cell in self.cells:
            table[cell.operands - 1, cell.digits - 1] = cell.correct / cell.problems
        return table

    def sentence(self) -> str:
        s, predictions = self.settings, sum(cell.predictions for cell in self.cells)
        return (
            f"{self.correct:,} of {self.problems:,} problems right on {len(self.cells)} shapes "
            f"(1 to {s.max_operands} operands of 1 to {s.max_digits} digits, {s.problems} a shape, "
            f"{predictions:,} predicted tokens); smallest logit margin {self.min_margin:.4f}. Sampled, seed {s.seed}."
        )

    def save(self, path: Path) -> None:
        value = asdict(self) | {"cells": [list(asdict(cell).values()) for cell in self.cells]}
        value["cell"] = list(GridCell.__dataclass_fields__)
        text = json.dumps(value, indent=1).replace(",\n   ", ", ").replace("[\n   ", "[").replace("\n  ]", "]")
        write_bytes_atomic(path, f"{text}\n".encode())


def load_grid(path: Path = STORED) -> GridResult:
    """A stored result. Raises UserError if there is none, or the file is something else."""
    try:
        value = json.loads(path.read_text())
        if value["cell"] != list(GridCell.__dataclass_fields__):
            raise KeyError("cell")
        cells = tuple(GridCell(*cell) for cell in value["cells"])
        return GridResult(GridSettings(**value["settings"]), cells, value["versions"])
    except FileNotFoundError:
        raise UserError(
            f"There is no grid result at {path.name}; "
            "python -m interp.papers.position_coupling.hand_built_grid makes one."
        ) from None
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path.name} is not a stored grid result.") from None


def run_cell(model: ArithmeticTransformer, problems: Int[Tensor, "n operand column"]) -> GridCell:
    """Teacher-forced answers to problems of one shape."""
    n, operands, digits = problems.shape
    task = model.task.at(operands, digits)  # type: ignore[attr-defined]
    layout = task.sequences(problems[:1])
    rows = layout.mask[0].nonzero().flatten()
    batch = max(1, TOKENS_AT_ONCE // layout.tokens.shape[1])
    correct, margin = 0, float("inf")
    for part in problems.split(batch):
        sequences = task.sequences(part)
        lead = margins(logits_at(model, sequences.inputs, rows), sequences.targets[:, rows])
        correct += int((lead > 0).all(1).sum())
        margin = min(margin, float(lead.min()))
    return GridCell(operands, digits, n, correct, n * len(rows), round(margin, 6))


def run_grid(settings: GridSettings, output: Path | None = None, progress: bool = False) -> GridResult:
    """The whole grid; with ``output``, stored after each row of it and taken up again from there.

    Raises:
        UserError: ``output`` holds another run's result.
    """
    model = models.build(
        NAME,
        max_operands=settings.max_operands,
        max_digits=settings.max_digits,
        eta=settings.eta,
        dtype=settings.dtype,
    )
    done: dict[tuple[int, int], GridCell] = {}
    if output is not None and output.exists():
        before = load_grid(output)
        if before.settings != settings:
            raise UserError(f"{output.name} was made with other settings; choose another output or remove it.")
        done = {(cell.operands, cell.digits): cell for cell in before.cells}
    shapes = [(m, n) for m in range(1, settings.max_operands + 1) for n in range(1, settings.max_digits + 1)]
    versions = {"torch": str(torch.__version__)}
    result = GridResult(settings, tuple(done.values()), versions)
    for m, n in tqdm(shapes, disable=not progress, unit="shape"):
        if (m, n) not in done:
            done[m, n] = run_cell(model, grid_problems(m, n, settings.problems, settings.seed))
        result = GridResult(settings, tuple(done.values()), versions)
        if output is not None and n == settings.max_digits:
            result.save(output)
    return result


@dataclass(frozen=True)
class GridCommand:
    """Run the hand-built transformer on every shape it was built for and store the result."""

    settings: Annotated[GridSettings, tyro.conf.arg(name="")] = GridSettings()
    output: Path = STORED

    def run(self) -> int:
        torch.set_num_threads(1)
        result = run_grid(self.settings, self.output, progress=True)
        print(result.sentence())
        return 0 if result.correct == result.problems else 1


def main() -> int:
    return tyro.cli(GridCommand).run()


if __name__ == "__main__":
    raise SystemExit(main())
