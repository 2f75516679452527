"""Scoring sums of 10 numbers of 10 digits: teacher-forced, decoded with remembered keys and values, and without.

All three give the same verdict on whole responses. Decoding without a cache runs the whole prefix for every token; as
its cost grows with the cube of the length, it is timed on a few problems and scaled up.
"""

from __future__ import annotations

import time
from statistics import median

import torch

import models
from interp.probes.heatmaps.cells import CellScorer, cell_problems
from models.families.position_coupling_variants import FIGURES
from models.fast import greedy

OPERANDS = DIGITS = 10
PROBLEMS, ROUNDS = 20, 5
CELLS = ((4, 4), (10, 10), (20, 20), (30, 30))  # (operands, digits)


def cpu_seconds(call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def gigaflops_of_matmul() -> float:
    """What a second of CPU time does of a large float32 matrix product, at best: the ceiling of this machine."""
    a = torch.rand(1024, 1024)
    return 2e-9 * 1024**3 / min(cpu_seconds(lambda: a @ a) for _ in range(20))


def gigaflop(config, length: int, response: int) -> float:
    """Multiply-adds, times two, that one problem needs in a one-layer model: keys and values of every token; queries,
    scores, output, gated MLP and head of the response."""
    d, inner = config.d_model, config.n_heads * config.d_head
    scores = 4 * inner * sum(range(length - response + 1, length + 1))
    per_response = 4 * d * inner + 6 * d * config.d_mlp + 2 * d * config.d_vocab
    return 1e-9 * (length * 4 * d * inner + response * per_response + scores)


def main() -> dict[str, float]:
    variant = FIGURES["grid"].small["1 layer, 4 heads"]
    model = models.build(variant.name)
    task = model.task.at(OPERANDS, DIGITS)
    scorer, problems = CellScorer(model, task), cell_problems(task, PROBLEMS, 0)
    shifts = scorer.shifts(task, PROBLEMS, 0)
    prompts = task.encode_prompt(problems)
    n_tokens = task.sequences(problems).tokens.shape[1] - prompts.shape[1]

    def uncached() -> None:
        greedy(model, prompts, n_tokens, use_cache=False, weights=scorer.weights)

    contenders = {
        "token by token, no cache": uncached,
        "token by token, cached": lambda: greedy(model, prompts, n_tokens, weights=scorer.weights),
        "teacher-forced": lambda: scorer.verdicts(task, problems, shifts),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in list(contenders.values())[1:]:
        call()
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            if name != "token by token, no cache" or len(times[name]) < 2:
                times[name].append(cpu_seconds(call))
    base = median(times["token by token, no cache"])
    print(
        f"Scoring {PROBLEMS} sums of {OPERANDS} numbers of {DIGITS} digits ({n_tokens} tokens each to predict), "
        f"{variant.name}, one CPU thread; CPU seconds"
    )
    for name, values in times.items():
        seconds = median(values)
        spread = f"{min(values):.3f} to {max(values):.3f}"
        print(f"{name:38}{seconds:9.3f}{spread:>20}{base / seconds:10.1f} times faster than without a cache")

    ceiling = gigaflops_of_matmul()
    print(f"Cells of {PROBLEMS} problems (operands x digits), teacher-forced, against large matrix products")
    for shape in CELLS:
        cell = task.at(*shape)
        drawn = cell_problems(cell, PROBLEMS, 0)
        moved = scorer.shifts(cell, PROBLEMS, 0)
        seconds = min(cpu_seconds(lambda c=cell, d=drawn, m=moved: scorer.verdicts(c, d, m)) for _ in range(ROUNDS))
        sequences = cell.sequences(drawn[:1])
        work = PROBLEMS * gigaflop(model.config, sequences.inputs.shape[1], int(sequences.mask.sum()))
        print(
            f"{shape[0]:2} x {shape[1]:<33}{1 / seconds:9.1f} cells a second{seconds * ceiling / work:10.1f} times the "
            f"{work / ceiling:.3f} s that {work:.2f} GFLOP take at {ceiling:.0f} GFLOP/s"
        )
    return {
        f"Sums of {OPERANDS} numbers, {name}: than without a cache": base / median(times[name])
        for name in ("token by token, cached", "teacher-forced")
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
