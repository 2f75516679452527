"""The hooked forward beside a stock model of the same weights: a HookedTransformer (transformer-lens 3.9) or a native
bridge (4.x).

Rounds are interleaved and change their order; times are the medians of all rounds, in CPU time on one thread. With
gradients both build the graph that a loss needs; the weight map's part of ours is made in the backward pass. A
HookedTransformer runs the norm before attention three times (a hook on it may treat queries, keys and values apart), a
native bridge once; ours does what a hook asks for. A bridge and ours add biases inside their products.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

import models
from models.errors import UserError

SUBJECTS = ("microadder-57", "adder-456", "toygpt-learned-pre")
BATCHES = (1, 16, 256)
ROUNDS = 31


def medians(*calls: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds of each call, which every round makes ``repeats`` times."""
    found: list[list[float]] = [[] for _ in calls]
    for round_ in range(ROUNDS):
        for i in range(len(calls)) if round_ % 2 else reversed(range(len(calls))):
            start = time.process_time()
            for _ in range(repeats):
                calls[i]()
            found[i].append(1e3 * (time.process_time() - start) / repeats)
    return [median(times) for times in found]


def stock(model: Any) -> Any:
    try:
        return model.to_hooked_transformer()
    except UserError:
        return model.to_transformer_bridge()


def main() -> dict[str, float]:
    ratios: dict[str, float] = {}
    torch.set_num_threads(1)
    print("Hooked forward in ms: ours, ours with weights= given, the stock model's, and ours / the stock model's")
    for name in SUBJECTS:
        model = models.load(name)
        theirs = stock(model)
        print(f"{name} beside a {type(theirs).__name__}")
        for batch in BATCHES:
            tokens = model.task.encode(model.task.sample(batch, torch.Generator().manual_seed(0)))
            for learns in (False, True):
                with torch.set_grad_enabled(learns):
                    weights = model.effective_weights()
                    calls = (lambda: model(tokens), lambda: model(tokens, weights=weights), lambda: theirs(tokens))  # noqa: B023
                    ours, given, there = medians(*calls, repeats=1 if batch == 256 else 5)
                what = "gradients" if learns else "no gradients"
                ratios[f"Hooked forward of {name}, batch {batch}, {what}: than a stock model"] = there / ours
                print(
                    f"{name:20s} batch {batch:3d} {what:12s} {ours:7.3f} {given:7.3f} {there:7.3f} {ours / there:6.2f}"
                )
    return ratios


if __name__ == "__main__":
    main()
