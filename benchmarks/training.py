"""Seed-steps a second: a plain PyTorch loop, one seed of ours, and stacks, all with the same recipe."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional as F

import models
from benchmarks.plain_microadder import PlainMicroAdder
from models.training.loop import Trainer
from models.training.recipes import get_recipe
from models.training.run_folder import RunFolder

STEP = 20_000  # where the curriculum and the carry mix are in full use
ROUNDS, SECONDS = 5, 2.0  # each contender runs for SECONDS in each of ROUNDS interleaved rounds


def plain_step() -> Callable[[], None]:
    """One step of the plain loop: sample, forward, backward, clip, AdamW."""
    recipe, task = get_recipe("microadder"), models.get_spec("microadder-57").task()
    model = PlainMicroAdder()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay
    )
    cpu = torch.device("cpu")

    def step() -> None:
        problems = recipe.problems.draw(0, STEP, recipe.batch_size, cpu)
        logits = model(task.encode(problems))[:, list(task.query_positions)]
        loss = F.cross_entropy(logits.flatten(0, 1), task.targets(problems).flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
        optimiser.step()

    return step


def our_step(n_seeds: int, folder: Path, compile: bool | None = None) -> Callable[[], None]:
    """One step of the training loop with ``n_seeds`` stacked seeds."""
    recipe = get_recipe("microadder")
    trainer = Trainer("microadder-57", recipe, list(range(n_seeds)), RunFolder(folder), torch.device("cpu"), compile)
    trainer.step_number = STEP

    def step() -> None:
        trainer.step()
        trainer.step_number = STEP

    return step


def measure(contenders: dict[str, tuple[Callable[[], None], int]]) -> dict[str, list[float]]:
    """Milliseconds a seed-step of every contender, one number a round; rounds interleave the contenders."""
    for step, _ in contenders.values():
        step()  # builds kernels, compiles, fills caches
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (step, n_seeds) in contenders.items():
            n, start = 0, time.perf_counter()
            while time.perf_counter() - start < SECONDS or n < 3:
                step()
                n += 1
            times[name].append((time.perf_counter() - start) / n / n_seeds * 1e3)
    return times


def megaflop_a_seed_step(rows: int = 256) -> float:
    """Multiply-adds, times two, of loss and gradient by the algebra of models/training/position_only.py.

    Per row: mixing three times (forward, gradient to the pattern, gradient to the signal) over the visible positions,
    and the look-up's gradient; per row and query: head, output, two norms, two units (a GELU with slope about 20), ten
    logits three times and their softmax (an exponential about 8). Sampling and optimiser are left out.
    """
    queries, first, d, units, vocab, positions = 12, 21, 5, 2, 10, 33
    mixing = 3 * sum(first + q + 1 for q in range(queries)) + positions * vocab
    per_query = 3 * d + 6 * d * units + 20 * units + 3 * d * vocab + 8 * vocab + 4 * d
    return 2e-6 * rows * (mixing + queries * per_query)


def gigaflops_of_matmul() -> float:
    """What one thread reaches on a large float32 matrix product: the practical ceiling of this machine."""
    a = torch.rand(1024, 1024)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2e-9 * 1024**3 / best


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        contenders = {
            "plain PyTorch, 1 seed": (plain_step(), 1),
            "ours, 1 seed": (our_step(1, folder), 1),
            "ours, 16 stacked": (our_step(16, folder), 16),
            "ours, 64 stacked": (our_step(64, folder), 64),
        }
        times = measure(contenders)
    base = times["plain PyTorch, 1 seed"]
    print("MicroAdder-57 training, batch 256, one CPU thread; ms per seed and step, sampling and optimiser included")
    print(f"{'':26}{'median':>9}{'spread':>18}{'times faster (median of rounds)':>34}")
    for name, values in times.items():
        ratio = median(b / v for b, v in zip(base, values, strict=True))
        print(f"{name:26}{median(values):9.3f}{f'{min(values):.3f} to {max(values):.3f}':>18}{ratio:34.1f}")
    work, ceiling = megaflop_a_seed_step(), gigaflops_of_matmul()
    floor = work / ceiling
    print(
        f"Floor: {work:.1f} MFLOP a seed-step, at the {ceiling:.0f} GFLOP/s of a large matrix product {floor:.3f} ms; "
        f"64 stacked seeds take {median(times['ours, 64 stacked']) / floor:.1f} times that."
    )
