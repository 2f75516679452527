"""Training steps: a plain PyTorch loop, one seed of ours, and stacks, all with the same recipe.

MicroAdder-57, whose attention is one matrix a step, and the 456-parameter adder, whose attention depends on the tokens.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

import models
from benchmarks.plain_adders import PlainLowRankAdder, PlainMicroAdder
from models.registry import recipe_of
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.trainer import Trainer

STEP = 20_000  # where the curriculum and the carry mix are in full use
ROUNDS, SECONDS = 5, 2.0  # each contender runs for SECONDS in each of ROUNDS interleaved rounds


@dataclass(frozen=True)
class Subject:
    """A model of the registry, the same as a plain module, and the operations that one seed's step cannot avoid."""

    name: str
    plain: Callable[[], nn.Module]
    stacks: tuple[int, ...]
    megaflop: Callable[[int], float]  # of the batch size

    @property
    def recipe(self) -> Recipe:
        return recipe_of(self.name)


def plain_step(subject: Subject) -> Callable[[], None]:
    """One step of the plain loop: sample, forward, backward, clip, AdamW."""
    recipe, task = subject.recipe, models.get_spec(subject.name).task()
    model = subject.plain()
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


def our_step(subject: Subject, n_seeds: int, folder: Path) -> Callable[[], None]:
    """One step of the training loop with ``n_seeds`` stacked seeds."""
    seeds = list(range(n_seeds))
    trainer = Trainer(subject.name, subject.recipe, seeds, RunFolder(folder), torch.device("cpu"), compile=None)
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


def microadder_megaflop(rows: int) -> float:
    """Multiply-adds, times two, of loss and gradient by the algebra of models/training/position_only.py.

    Per row: mixing three times (forward, gradient to the pattern, gradient to the signal) over the visible positions,
    and the look-up's gradient; per row and query: head, output, two norms, two units (a GELU with slope about 20), ten
    logits three times and their softmax (an exponential about 8). Sampling and optimiser are left out.
    """
    queries, first, d, units, vocab, positions = 12, 21, 5, 2, 10, 33
    mixing = 3 * sum(first + q + 1 for q in range(queries)) + positions * vocab
    per_query = 3 * d + 6 * d * units + 20 * units + 3 * d * vocab + 8 * vocab + 4 * d
    return 2e-6 * rows * (mixing + queries * per_query)


def low_rank_adder_megaflop(rows: int) -> float:
    """The same for the 456-parameter adder by the algebra of models/training/one_layer.py.

    Per row: keys of 3 and values of 2 numbers at 33 positions; per visible pair the score (3), an exponential (about
    8), mixing (2), each product twice more backward; per query 7 to 14 to 7 and 14 logits three times, a GELU (20) a
    unit, a softmax (8) a logit, three norms. Looking up embeddings and adding up their gradients are left out.
    """
    queries, first, d, units, vocab, positions, key, value = 12, 21, 7, 14, 14, 33, 3, 2
    pairs = sum(first + q + 1 for q in range(queries))
    per_position = 3 * d * (key + value) + 6 * d
    per_query = 3 * d * (key + value) + 6 * d * units + 20 * units + 3 * d * vocab + 8 * vocab + 12 * d
    return 2e-6 * rows * (positions * per_position + pairs * (3 * (key + value) + 8) + queries * per_query)


SUBJECTS = (
    Subject("microadder-57", PlainMicroAdder, (1, 16, 64), microadder_megaflop),
    Subject("adder-456", PlainLowRankAdder, (1, 16), low_rank_adder_megaflop),
)


def gigaflops_of_matmul() -> float:
    """What one thread reaches on a large float32 matrix product: the practical ceiling of this machine."""
    a = torch.rand(1024, 1024)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2e-9 * 1024**3 / best


def compare(subject: Subject, folder: Path) -> dict[str, float]:
    """Time all contenders in turns, print the table, and return how many times faster ours are."""
    plain, rows = "plain PyTorch, 1 seed", subject.recipe.batch_size
    contenders = {plain: (plain_step(subject), 1)}
    for n in subject.stacks:
        name = "ours, 1 seed" if n == 1 else f"ours, {n} stacked"
        contenders[name] = (our_step(subject, n, folder), n)
    times = measure(contenders)
    print(
        f"{subject.name} training, batch {rows}, one CPU thread; ms per seed and step, sampling and optimiser included"
    )
    print(f"{'':26}{'median':>9}{'spread':>18}{'times faster (median of rounds)':>34}")
    ratios: dict[str, float] = {}
    for name, values in times.items():
        ratio = median(b / v for b, v in zip(times[plain], values, strict=True))
        if name != plain:
            ratios[f"Training {subject.name}, {name}: than plain PyTorch"] = ratio
        print(f"{name:26}{median(values):9.3f}{f'{min(values):.3f} to {max(values):.3f}':>18}{ratio:34.1f}")
    work, ceiling = subject.megaflop(rows), gigaflops_of_matmul()
    floor, (last, values) = work / ceiling, list(times.items())[-1]
    print(
        f"Floor: {work:.1f} MFLOP a seed-step, at the {ceiling:.0f} GFLOP/s of a large matrix product {floor:.3f} ms; "
        f"{last} takes {median(values) / floor:.1f} times that."
    )
    return ratios


def main() -> dict[str, float]:
    ratios: dict[str, float] = {}
    for i, subject in enumerate(SUBJECTS):
        with tempfile.TemporaryDirectory() as scratch:
            print(end="\n" if i else "")
            ratios |= compare(subject, Path(scratch))
    return ratios
