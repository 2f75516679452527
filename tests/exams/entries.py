"""A stored model's entry with made-up learning curves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from models.files.checkpoint import format_weights, sha256
from models.zoo import ZOO, read_entry

ENTRY = "microadder-57"


def ask_curves(question: Callable[[str], Any], made_up: tuple[Sequence[Sequence[float]], Sequence[int | None]]) -> Any:
    """The curves of an entry with this validation accuracy [seed, evaluation], a thousand steps apart, and these right
    answers of the seeds on a test set of 100. What else the entry says of the seeds is that each is perfect."""
    accuracy, on_test = made_up
    exact = torch.as_tensor(accuracy, dtype=torch.float32)
    seeds, steps = torch.arange(len(exact)), 1000 * torch.arange(1, exact.shape[1] + 1)
    rows = [{"seed": seed, "first_perfect_step": 1000, "exact_on_test": right} for seed, right in enumerate(on_test)]
    files = {
        "curves.safetensors": format_weights({"seed": seeds, "step": steps, "exact": exact}, {}),
        "seeds.json": json.dumps(rows).encode(),
    }
    config = read_entry(ENTRY)
    config["sha256"] |= {name: sha256(content) for name, content in files.items()}
    config["score"]["n"], config["training"]["seeds_grokked"] = 100, len(rows)
    with TemporaryDirectory() as folder:
        entry = Path(folder) / ENTRY
        entry.mkdir()
        shutil.copy(ZOO / ENTRY / config["weights"], entry)
        for name, content in files.items():
            (entry / name).write_bytes(content)
        (entry / "config.json").write_text(json.dumps(config))
        return question(str(entry))
