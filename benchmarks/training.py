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
    """A model of the registry, and the same as a plain module."""

    name: str
    plain: Callable[[], nn.Module]
    stacks: tuple[int, ...]

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


SUBJECTS = (
    Subject("microadder-57", PlainMicroAdder, (1, 16, 64)),
    Subject("adder-456", PlainLowRankAdder, (1, 16)),
)


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
    return ratios


def main() -> dict[str, float]:
    ratios: dict[str, float] = {}
    for i, subject in enumerate(SUBJECTS):
        with tempfile.TemporaryDirectory() as scratch:
            print(end="\n" if i else "")
            ratios |= compare(subject, Path(scratch))
    return ratios
