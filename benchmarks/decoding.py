"""Scoring sums of 10 numbers of 10 digits: teacher-forced, decoded with remembered keys and values, and without.

All three give the same verdict on whole responses. Decoding without a cache runs the whole prefix for every token; as
its cost grows with the cube of the length, it is timed on a few problems and scaled up.
"""

from __future__ import annotations

from statistics import median

import torch
from jaxtyping import Bool
from torch import Tensor

import models
from benchmarks.scoring import cpu_seconds
from models.families.position_coupling_variants import FIGURES
from models.run import greedy, logits_from
from models.tasks import SequenceTask

OPERANDS = DIGITS = 10
PROBLEMS, ROUNDS = 20, 5


def main() -> dict[str, float]:
    variant = FIGURES["grid"].small["1 layer, 4 heads"]
    model = models.build(variant.name)
    task = model.task.at(OPERANDS, DIGITS)
    assert isinstance(task, SequenceTask)
    problems = task.sample(PROBLEMS, torch.Generator().manual_seed(0))
    weights = {name: weight.detach() for name, weight in model.effective_weights().items()}
    sequences, prompts = task.sequences(problems), task.encode_prompt(problems)
    n_tokens = sequences.tokens.shape[1] - prompts.shape[1]

    def uncached() -> None:
        greedy(model, prompts, n_tokens, use_cache=False, weights=weights)

    @torch.inference_mode()
    def forced() -> Bool[Tensor, " n"]:
        first, ids = prompts.shape[1] - 1, task.position_ids(sequences.inputs[:1])
        found = logits_from(model, sequences.inputs, first, weights, ids).argmax(-1)
        return ((found == sequences.targets[:, first:]) | ~sequences.mask[:, first:]).all(1)

    contenders = {
        "token by token, no cache": uncached,
        "token by token, cached": lambda: greedy(model, prompts, n_tokens, weights=weights),
        "teacher-forced": forced,
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in list(contenders.values())[1:]:
        call()
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            if name != "token by token, no cache" or len(times[name]) < 2:
                times[name].append(cpu_seconds(call))
    base = median(times["token by token, no cache"])
    print(
        f"Scoring {PROBLEMS} sums of {OPERANDS} numbers of {DIGITS} digits ({n_tokens} tokens each to predict), "
        f"{variant.name}, one CPU thread; CPU seconds"
    )
    for name, values in times.items():
        seconds = median(values)
        spread = f"{min(values):.3f} to {max(values):.3f}"
        print(f"{name:38}{seconds:9.3f}{spread:>20}{base / seconds:10.1f} times faster than without a cache")

    return {
        f"Sums of {OPERANDS} numbers, {name}: than without a cache": base / median(times[name])
        for name in ("token by token, cached", "teacher-forced")
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
