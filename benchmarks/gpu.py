"""What large trainings take on the GPU at hand, from some steps of each: minutes, and memory at its highest.

Without a GPU nothing is measured: `ON_CPU` are the stacks of seeds alone, as many as a CPU does in seconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from models.registry import recipe_of
from models.training.devices import resolve_device
from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.trainer import Trainer

LARGE = (
    "position-coupling-2l2h",
    "addlm-5m-float",
    "addlm-5m",
    "addlm-25m",
    "addlm-25m-float",
    "position-coupling-6l8h",
)
STACKS, ON_CPU = (64, 256, 1024, 4096), (16, 64)
WARM, STEPS = 10, 30


def measure(name: str, recipe: Recipe, seeds: int, device: torch.device) -> tuple[float, float]:
    """(seconds a step, GiB at the highest)."""
    on_gpu = device.type == "cuda"
    started = 0.0
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(name, recipe, list(range(seeds)), RunFolder(Path(folder)), device, compile=None)
        for step in range(WARM + STEPS):
            if step == WARM:
                _wait(device)
                started = time.perf_counter()
            trainer.step()
        _wait(device)
        spent = (time.perf_counter() - started) / STEPS
    gib = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else float("nan")
    if on_gpu:
        del trainer
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return spent, gib


def _wait(device: torch.device) -> None:
    """Until the GPU has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    device = resolve_device("auto")
    on_gpu = device.type == "cuda"
    print(f"Training steps on {torch.cuda.get_device_name(device) if on_gpu else 'the CPU'}")
    asked = [("microadder-57", get_recipe("microadder"), n) for n in (STACKS if on_gpu else ON_CPU)]
    if on_gpu:
        asked += [(name, recipe_of(name), 1) for name in LARGE]
    for name, recipe, seeds in asked:
        step, gib = measure(name, recipe, seeds, device)
        whole = step * recipe.steps / 60
        print(
            f"{name:28}{seeds:6,} seeds{1e3 * step:10.2f} ms a step{whole:10.1f} min in all{gib:8.1f} GiB", flush=True
        )
