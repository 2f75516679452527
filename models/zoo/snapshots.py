"""The models of an entry's training, as they were at its stored steps."""

from __future__ import annotations

from pathlib import Path

from models.files.checkpoint import assign_parameters, parse_weights
from models.registry import build
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.zoo import entry_file, read_entry


def load_snapshots(entry: str | Path) -> list[tuple[int, ArithmeticTransformer]]:
    """(step, model) for every log-spaced snapshot of an entry's seed, in order of steps."""
    name = read_entry(entry)["model"]
    tensors, _ = parse_weights(entry_file(entry, "snapshots.safetensors"), f"snapshots of {entry}")
    steps = tensors.pop("step").tolist()
    found = []
    for i, step in enumerate(steps):
        model = build(name)
        assign_parameters(model.weight_map, {key: values[i] for key, values in tensors.items()}, entry)
        found.append((step, model))
    return found
