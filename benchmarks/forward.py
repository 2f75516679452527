"""The hooked forward beside a stock model of the same weights: a HookedTransformer (transformer-lens 3.9) or a native
bridge (4.x).

Rounds are interleaved; times are the least of all rounds, in CPU time on one thread. With gradients both build the
graph that a loss needs; the weight map's part of ours is made in the backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import models
from models.errors import UserError

SUBJECTS = ("microadder-57", "adder-456", "toygpt-learned-pre")
BATCHES = (1, 16, 256)
ROUNDS, CALLS = 15, 10


def least(*calls: Callable[[], Any]) -> list[float]:
    """Milliseconds of each call."""
    found = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = time.process_time()
            for _ in range(CALLS):
                call()
            found[i] = min(found[i], 1e3 * (time.process_time() - start) / CALLS)
    return found


def stock(model: Any) -> Any:
    try:
        return model.to_hooked_transformer()
    except UserError:
        return model.to_transformer_bridge()


def main() -> None:
    torch.set_num_threads(1)
    print("Hooked forward in ms: ours, ours with weights= given, the stock model's, and ours / the stock model's")
    for name in SUBJECTS:
        model = models.load(name)
        theirs = stock(model)
        for batch in BATCHES:
            tokens = model.task.encode(model.task.sample(batch, torch.Generator().manual_seed(0)))
            for learns in (False, True):
                with torch.set_grad_enabled(learns):
                    weights = model.effective_weights()
                    calls = (lambda: model(tokens), lambda: model(tokens, weights=weights), lambda: theirs(tokens))  # noqa: B023
                    ours, given, there = least(*calls)
                what = "gradients" if learns else "no gradients"
                print(
                    f"{name:20s} batch {batch:3d} {what:12s} {ours:7.3f} {given:7.3f} {there:7.3f} {ours / there:6.2f}"
                )


if __name__ == "__main__":
    main()
