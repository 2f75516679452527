"""Small models of families that are trained nowhere else here: ``python -m benchmarks.circuits.recipes [NAMES]``.

They are trained as the ordinary models are (:mod:`benchmarks.provability.train`), in seconds to minutes each on one
thread, and one is kept only if it answers every problem of its task. A recipe with another seed is a fresh subject.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.provability.ordinary_models import NO_NORM, TWO_LAYERS, OrdinaryModel
from benchmarks.provability.train import store, trained
from models import ArithmeticTransformer

MODELS = Path(__file__).parent / "models"
TRIES = 4  # seeds, each a hundred after the last
DIGITS = "0123456789abcdef"

ONE_HEAD: dict[str, Any] = {"n_heads": 1, "d_head": 32, "d_mlp": 64}
FOUR_HEADS: dict[str, Any] = {**NO_NORM, "n_heads": 4, "d_head": 8}


def _two_tokens(answer: str, base: int) -> dict[str, Any]:
    return {"format": "{a}{b}=", "answer": answer, "base": base}


def _string(length: int, answer: str, vocabulary: str = "01") -> dict[str, Any]:
    return {"function": {"vocabulary": vocabulary, "length": length, "answer": answer}}


def _three(answer: str) -> dict[str, Any]:
    return {"format": "{a}{b}{c}=", "answer": answer, "base": 16}


_COMPARE = {"format": "{a:2}?{b:2}=", "answer": "(a > b) + (a >= b)", "variables": "comparison"}
_ADD = {"format": "{a:2}+{b:2}={s:3r}", "answer": "a + b", "variables": "addition"}
_SUBTRACT = {"format": "{a:2}-{b:2}={s:2r}", "answer": "a - b", "where": "a >= b", "variables": "subtraction"}

#: Kind of model -> (family, task, config, how many seeds are kept).
KINDS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "add-mod-23": ("modular", _two_tokens("(a + b) % 23", 23), FOUR_HEADS, 2),
    "add-mod-29-norm": ("modular", _two_tokens("(a + b) % 29", 29), {}, 1),
    "subtract-mod-23": ("modular", _two_tokens("(a - b) % 23", 23), {}, 2),
    "multiply-mod-23": ("modular", _two_tokens("(a * b) % 23", 23), FOUR_HEADS, 1),
    "add-2-two-layers": ("two-layer adders", _ADD, {**TWO_LAYERS, **ONE_HEAD}, 3),
    "subtract-2-two-layers": ("two-layer adders", _SUBTRACT, {**TWO_LAYERS, **ONE_HEAD}, 2),
    "max-3-of-16": ("order", _three("max(a, max(b, c))"), {}, 2),
    "median-3-of-16": ("order", _three("max(min(a, b), min(max(a, b), c))"), {}, 1),
    "sorted-3-of-10": ("order", _string(3, "sorted", DIGITS[:10]), {}, 1),
    "copy-4": ("order", _string(4, "copy", DIGITS[:10]), {}, 1),
    "less-of-32": ("comparison", _two_tokens("a < b", 32), {}, 3),
    "compare-2": ("comparison", _COMPARE, {}, 3),
    "compare-2-two-layers": ("comparison", _COMPARE, {**TWO_LAYERS, **ONE_HEAD}, 1),
    "brackets-8": ("strings", _string(8, "balanced"), {}, 2),
    "brackets-10-two-layers": ("strings", _string(10, "balanced"), {**TWO_LAYERS, **ONE_HEAD}, 2),
    "parity-5": ("strings", _string(5, "parity"), {}, 2),
    "majority-9": ("strings", _string(9, "majority"), {}, 1),
}


def recipe(kind: str, seed: int) -> OrdinaryModel:
    """The recipe of a kind of model with a seed."""
    _, task, config, _ = KINDS[kind]
    return OrdinaryModel(f"{kind}-{seed}", task, config, seed)


def train(kind: str, seed: int) -> tuple[ArithmeticTransformer, dict[str, Any]] | None:
    """A model that is right on every problem, with what its training came to; None if the training did not lead there.
    These tasks have at most 20,000 problems, all of which are run."""
    model, came_to = trained(recipe(kind, seed), seed, lambda said: None)
    return None if came_to["wrong"] else (model, came_to)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for kind, (_, _, _, seeds) in KINDS.items():
        for first in range(seeds):
            wanted = recipe(kind, first)
            if (MODELS / wanted.name).exists() or (names and wanted.name not in names):
                continue
            for seed in range(first, first + 100 * TRIES, 100):
                found = train(kind, seed)
                print(f"{wanted.name}, seed {seed}: {found and found[1]}", flush=True)
                if found is not None:
                    store(wanted, seed, *found, models=MODELS)
                    break


if __name__ == "__main__":
    main(sys.argv[1:])
