"""A training step of decoders of one and four layers on S_A(4, 4): hooked, hook-free, compiled, and its sampling."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional as F

import models
from benchmarks.scoring import cpu_seconds
from models.families.position_coupling import SMALL, CouplingVariant
from models.training.sequence_objective import SequenceObjective, SequenceStream

ROWS, STEPS = 128, 5


def main() -> dict[str, float]:
    ratios: dict[str, float] = {}
    for layers in (1, 4):
        ratios |= compare(SMALL["addition"].replace(size=replace(SMALL["addition"].size, n_layers=layers)))
    return ratios


def compare(variant: CouplingVariant) -> dict[str, float]:
    """Print the milliseconds of one step by each way, and return how many times faster those without hooks are."""
    model = models.build(variant.name)
    objective, compiled = SequenceObjective(model), SequenceObjective(model)
    compiled.compile()
    stream = SequenceStream(model.task, variant.training_set, ROWS, [0], torch.device("cpu"))
    parameters = {name: p.detach()[None].requires_grad_() for name, p in model.weight_map.named_parameters()}

    def hooked(bfloat16: bool) -> None:
        """The obvious way: one padded batch through the model's own forward."""
        (buckets,), _ = stream.batch(0)
        longest = max(bucket.tokens.shape[1] for bucket in buckets)
        rows = [(F.pad(b.targets, (b.first, 0), value=-100), b.tokens) for b in buckets]
        fill = lambda table, value: F.pad(table, (0, longest - table.shape[1]), value=value)  # noqa: E731
        targets = torch.cat([fill(targets, -100) for targets, _ in rows])
        tokens = torch.cat([fill(tokens, model.task.special) for _, tokens in rows])
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(tokens, weights=objective.weights_of(parameters, 0))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)
        torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)

    def fast(bfloat16: bool, objective: SequenceObjective = objective) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = objective.loss(parameters, *stream.batch(0))
        torch.autograd.grad(loss.sum(), list(parameters.values()))

    rows = {
        "hooked forward, one padded batch": lambda: hooked(False),
        "the same in bfloat16": lambda: hooked(True),
        "hook-free, buckets": lambda: fast(False),
        "hook-free, buckets, bfloat16": lambda: fast(True),
        "the same compiled": lambda: fast(True, compiled),
        "sampling alone": lambda: stream.batch(0),
    }
    seconds = {}
    for name, call in rows.items():
        call()
        seconds[name] = min(cpu_seconds(call) for _ in range(STEPS))
    slowest = max(seconds.values())
    print(f"A training step of {variant.name}, {ROWS} problems of S_A(4, 4), one CPU thread; milliseconds of CPU time")
    for name, spent in seconds.items():
        print(f"{name:38}{1e3 * spent:9.1f}{slowest / spent:10.1f} times faster than the slowest")
    hooked_seconds = seconds["hooked forward, one padded batch"]
    return {
        f"A training step of {variant.name}, {name}: than the hooked forward": hooked_seconds / seconds[name]
        for name in ("hook-free, buckets", "hook-free, buckets, bfloat16", "the same compiled")
    }
