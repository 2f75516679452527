"""The hand-built Position Coupling transformer far beyond its grid: thousands of digits, hundreds of operands.

    python -m interp.papers.position_coupling.hand_built_large

One all-nines, one carry-heavy and one uniform problem of each size, teacher-forced, in blocks of queries
(:mod:`models.partial_forward`): every token of the response, or at the sizes whose full pattern has 10^10 entries and
more a sample of positions, half of them at the numbers' ends. Stored with the seconds that one (busy) core took.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import models
from interp.core.operand_problems import carry_heavy
from interp.core.stored_data import DATA
from models.checkpoint import write_json_atomic
from models.evaluation import margins
from models.hand_built.coupled_addition import NAME
from models.partial_forward import logits_at

STORED = DATA / "hand_built_large.json"


@dataclass(frozen=True)
class LargeSize:
    """A size to try; ``sampled`` response positions, or all of them with None."""

    operands: int
    digits: int
    dtype: str = "float32"
    sampled: int | None = None


@dataclass(frozen=True)
class LargeResult:
    """What came out: problems entirely right (of the positions read), and the smallest lead of a right token."""

    operands: int
    digits: int
    dtype: str
    tokens: int
    positions: int
    all_positions: bool
    problems: int
    correct: int
    min_margin: float
    seconds_a_problem: float


SIZES = (
    LargeSize(2, 1000),
    LargeSize(2, 5000),
    LargeSize(2, 5000, "float64"),
    LargeSize(1, 10000),
    LargeSize(1000, 1),
    LargeSize(1000, 1, "float64"),
    LargeSize(300, 30),
    LargeSize(100, 100),
    LargeSize(100, 100, "float64"),
    LargeSize(300, 300, sampled=1000),
    LargeSize(1000, 500, sampled=300),
)


def run_size(size: LargeSize, seed: int = 0, kinds: int = 3) -> LargeResult:
    """One size; see the module. Cost: 4 x positions x tokens scores a problem."""
    model = models.build(NAME, max_operands=size.operands, max_digits=size.digits, dtype=size.dtype)
    task = model.task.at(size.operands, size.digits)  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(seed)
    shape = (1, size.operands, size.digits)
    problems = (
        torch.full(shape, 9),
        carry_heavy(size.operands, size.digits, 1, generator),
        torch.randint(10, shape, generator=generator),
    )[:kinds]
    correct, least, rows = 0, float("inf"), torch.zeros(0)
    start = time.perf_counter()
    for problem in problems:
        sequences = task.sequences(problem)
        rows = sequences.mask[0].nonzero().flatten()
        every = len(rows)
        if size.sampled is not None:
            ends = rows[torch.isin(rows % (task.length + 1), torch.tensor([0, 1, task.length]))]
            ends = ends[torch.randperm(len(ends), generator=generator)[: size.sampled // 2]]
            drawn = rows[torch.randperm(every, generator=generator)[: size.sampled - len(ends)]]
            rows = torch.cat((ends, drawn, rows[-1:])).unique()
        lead = margins(logits_at(model, sequences.inputs, rows), sequences.targets[:, rows])
        correct += int((lead > 0).all())
        least = min(least, float(lead.min()))
    seconds = (time.perf_counter() - start) / len(problems)
    return LargeResult(
        size.operands,
        size.digits,
        size.dtype,
        sequences.inputs.shape[1],
        len(rows),
        size.sampled is None,
        len(problems),
        correct,
        round(least, 6),
        round(seconds, 2),
    )


def load_large(path: Path = STORED) -> list[LargeResult]:
    """Stored results, in the order in which they were run; none without a file."""
    return [LargeResult(**size) for size in json.loads(path.read_text())["sizes"]] if path.exists() else []


def main() -> int:
    """Run the sizes that are not stored yet."""
    torch.set_num_threads(1)
    results = load_large()
    done = {(result.operands, result.digits, result.dtype) for result in results}
    for size in SIZES:
        if (size.operands, size.digits, size.dtype) in done:
            continue
        results.append(run_size(size))
        print(results[-1], flush=True)
        value = {"torch": str(torch.__version__), "seed": 0, "sizes": [asdict(result) for result in results]}
        write_json_atomic(STORED, value)
    return 0 if all(result.correct == result.problems for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
