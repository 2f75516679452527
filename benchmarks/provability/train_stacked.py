"""Train many seeds and learning rates of one shape at once, on a GPU if there is one.

    python -m benchmarks.provability.train_stacked OUT [SHAPES ...] [--seconds 20]    OUT gets weights and results
    python -m benchmarks.provability.train_stacked OUT [SHAPES ...] --keep 2          run folders of the right ones

The recipe is that of :mod:`benchmarks.provability.train`, with several learning rates. All seeds of a shape are a stack
of parameters, [seed, parameter], and one step of all is recorded once as a CUDA graph and then replayed, as a model of
14,000 numbers keeps a GPU busy for less time than it takes to tell it what to do. Each seed draws its batches from
2^20 problems, half of which have long carries where the task has them. After every 250 steps each seed answers 10,000
validation problems; its parameters are kept where it has most of them right, and the lowest loss among equals. At the
end, seeds that had all of them right answer 100,000 problems more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.func import functional_call, vmap

from benchmarks.provability.ordinary_models import STACKED, OrdinaryModel
from benchmarks.provability.train import BATCH, DECAY, EVERY, NOT_LEARNED, WARM_UP, hard_problems, initial, store
from models.files.checkpoint import write_json_atomic
from models.tasks.task import Task
from models.training.devices import resolve_device
from models.training.stacked_objective import ParameterLayout, cross_entropies
from models.transformer.arithmetic_transformer import ArithmeticTransformer

RATES = (2e-3, 4e-3, 8e-3)
POOL, VALIDATION, LAST, CHUNK = 2**20, 10_000, 100_000, 2_000
BETAS, EPSILON = (0.9, 0.98), 1e-8
MOST_SEEDS = 8  # of one shape, whose weights are stored
AFTER = f"wrong of {LAST:,}"
DRAWN = "each seed from 2^20 problems"
WEIGHTS, RESULTS = "stacked.safetensors", "stacked.json"


@dataclass
class Stack:
    """Seeds of one shape, each with its learning rate: ``theta`` [seed, parameter], and Adam's two moments of it."""

    model: ArithmeticTransformer
    layout: ParameterLayout
    theta: Tensor
    rates: Tensor
    moments: tuple[Tensor, Tensor]
    step: Tensor
    steps: int

    @classmethod
    def drawn(
        cls, recipe: OrdinaryModel, task: Task, seeds: Sequence[tuple[int, float]], device: torch.device
    ) -> Stack:
        """Fresh seeds, each with its rate."""
        models = [initial(recipe, task, seed) for seed, _ in seeds]
        layout = ParameterLayout(models[0])
        theta = torch.stack([layout.flatten(model) for model in models]).to(device)
        rates = torch.tensor([rate for _, rate in seeds], device=device)
        layout.decays = layout.decays.to(device)
        moments = torch.zeros_like(theta), torch.zeros_like(theta)
        model = models[0].to(device)
        return cls(model, layout, theta, rates, moments, torch.zeros((), device=device), recipe.steps)

    def logits(self, theta: Tensor, tokens: Tensor, queries: Tensor) -> Tensor:
        """Logits [seed, row, target, token] of tokens [seed, row, pos]."""

        def of_one(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
            weights = functional_call(self.model.weight_map, dict(parameters), ())
            stream = self.model.embed_tokens(rows, weights)
            return self.model(stream, start_at_layer=0, weights=weights).index_select(1, queries)

        return vmap(of_one)(self.layout.unflatten(theta), tokens)

    def update(self, gradient: Tensor) -> None:
        """One step of AdamW, with warm-up and cosine by the count of steps on the device."""
        self.step.add_(1)
        first, second = self.moments
        first.lerp_(gradient, 1 - BETAS[0])
        second.lerp_(gradient.square(), 1 - BETAS[1])
        shape = (self.step / WARM_UP).clamp(max=1) * (0.5 + 0.5 * torch.cos(torch.pi * self.step / self.steps))
        rate = (self.rates * shape)[:, None]
        move = first / (1 - BETAS[0] ** self.step) / ((second / (1 - BETAS[1] ** self.step)).sqrt() + EPSILON)
        self.theta.mul_(1 - rate * DECAY * self.layout.decays).sub_(rate * move)


def problems_of(task: Task, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(tokens [n, pos], targets [n, target]), half uniform and half hard."""
    draws = task.sample, hard_problems(task)
    problems = torch.cat([draw(n // 2, generator) for draw in draws])
    return task.encode(problems), task.targets(problems)


def recorded(step: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """The same step as a CUDA graph; itself on a CPU, or where the graph cannot be recorded."""
    if device.type != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        print(f"  no CUDA graph: {error}", flush=True)
        torch.cuda.synchronize()
        return step
    return graph.replay


def trained(
    recipe: OrdinaryModel, seeds: Sequence[tuple[int, float]], seconds: float, device: torch.device
) -> tuple[dict[int, Tensor], list[dict[str, Any]]]:
    """(parameters of the seeds that are right, a row for each seed with its "seed", "rate", "steps", "loss", how many
    validation problems are "wrong", and of 100,000 more how many, None if it was not asked).

    The schedule is shortened so that it ends within ``seconds``, from the time that the first steps take.
    """
    task = recipe.made_task()
    stack = Stack.drawn(recipe, task, seeds, device)
    generator = torch.Generator().manual_seed(1_000 + recipe.seed)
    tokens, targets = (each.to(device) for each in problems_of(task, POOL, generator))
    unseen = [each.to(device) for each in problems_of(task, VALIDATION, torch.Generator().manual_seed(12_345))]
    queries = torch.tensor(list(task.query_positions), device=device)
    losses = torch.zeros(len(seeds), device=device)

    def step() -> None:
        rows = torch.randint(len(tokens), (len(seeds), BATCH), device=device)
        leaf = stack.theta.detach().requires_grad_()
        logits = stack.logits(leaf, tokens[rows], queries)
        loss = cross_entropies(logits.permute(0, 3, 2, 1), targets[rows].transpose(1, 2)).mean((1, 2))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        losses.add_(loss.detach())
        stack.update(gradient)

    def wrong(theta: Tensor, tokens: Tensor, targets: Tensor) -> Tensor:
        found = torch.zeros(len(theta), dtype=torch.int64, device=device)
        with torch.no_grad():
            for rows, right in zip(tokens.split(CHUNK), targets.split(CHUNK), strict=True):
                said = stack.logits(theta, rows.expand(len(theta), -1, -1), queries).argmax(-1)
                found += (said != right).any(2).sum(1)
        return found.cpu()

    start = theta = stack.theta.clone()
    run = recorded(step, device)
    begun = time.perf_counter()
    for _ in range(20):
        run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    each = (time.perf_counter() - begun) / 20
    stack.steps = max(2 * WARM_UP, min(recipe.steps, int(seconds / each)))
    for held in (*stack.moments, stack.step, losses):
        held.zero_()
    stack.theta.copy_(start)
    run = recorded(step, device)  # again, as the number of steps is part of the schedule
    for held in (*stack.moments, stack.step, losses):
        held.zero_()
    stack.theta.copy_(start)
    best = torch.full((len(seeds), 2), float("inf"), dtype=torch.float64)
    for done in range(1, stack.steps + 1):
        run()
        if done % EVERY == 0 or done == stack.steps:
            errors, mean = wrong(stack.theta, *unseen).double(), losses.double().cpu() / (done % EVERY or EVERY)
            losses.zero_()
            better = (errors < best[:, 0]) | ((errors == best[:, 0]) & (mean < best[:, 1]))
            best[better] = torch.stack((errors, mean), 1)[better]
            theta = torch.where(better[:, None].to(device), stack.theta, theta)
    right = best[:, 0] == 0
    more: list[int | None] = [None] * len(seeds)
    if right.any():
        drawn = (each.to(device) for each in problems_of(task, LAST, torch.Generator().manual_seed(54_321)))
        counted = iter(wrong(theta[right.to(device)], *drawn).tolist())
        more = [next(counted) if one else None for one in right.tolist()]
    rows = [
        {"seed": seed, "rate": rate, "steps": stack.steps, "loss": loss, "wrong": int(errors), AFTER: last}
        for (seed, rate), (errors, loss), last in zip(seeds, best.tolist(), more, strict=True)
    ]
    print(f"  {1e3 * each:.2f} ms a step of {len(seeds)} seeds, {stack.steps} steps", flush=True)
    kept = {row["seed"]: theta[i].cpu() for i, row in enumerate(rows) if row[AFTER] == 0}
    return kept, rows


def train_all(out: Path, names: Sequence[str], seconds: float, device: torch.device) -> None:
    """Train all shapes, or those that are named; what is done is in ``out`` after each."""
    out.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Tensor] = {}
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"}
    for recipe, count in STACKED:
        if names and recipe.name not in names:
            continue
        print(recipe.name, flush=True)
        seeds = [(count * i + seed, rate) for i, rate in enumerate(RATES) for seed in range(count)]
        started = time.perf_counter()
        kept, rows = trained(recipe, seeds, seconds, device)
        spent = time.perf_counter() - started
        results[recipe.name] = {"seconds": round(spent, 1), "rows": rows}
        weights |= {f"{recipe.name}-{seed}": kept[seed] for seed in sorted(kept)[:MOST_SEEDS]}
        least = min(row["wrong"] for row in rows)
        print(f"  {len(kept)} of {len(rows)} are right, {spent:.0f} s; least wrong {least}", flush=True)
        save_file(weights, out / WEIGHTS)
        write_json_atomic(out / RESULTS, results)


def keep(out: Path, names: Sequence[str], count: int) -> None:
    """Make run folders of the first ``count`` seeds of each shape that are right, and write which seeds are not into
    ``not_learned.json``."""
    weights, results = load_file(out / WEIGHTS), json.loads((out / RESULTS).read_text())
    failed = json.loads(NOT_LEARNED.read_text())
    for recipe, _ in STACKED:
        if recipe.name not in results or (names and recipe.name not in names):
            continue
        rows = results[recipe.name]["rows"]
        for row in [row for row in rows if f"{recipe.name}-{row['seed']}" in weights][:count]:
            own = replace(recipe, name=f"{recipe.name}-{row['seed']}", seed=row["seed"])
            model = initial(own, own.made_task(), own.seed)
            ParameterLayout(model).load_into(model, weights[own.name])
            came_to = {key: row[key] for key in ("steps", "loss", "wrong")}
            store(replace(own, steps=row["steps"]), own.seed, model, came_to, row["rate"], DRAWN)
        if missed := _not_right(rows):
            failed[recipe.name] = missed
    write_json_atomic(NOT_LEARNED, failed)


def _not_right(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each learning rate, the seeds that answer a problem wrongly, and how many of the validation problems the best
    and the worst of them do."""
    missed = []
    for rate in dict.fromkeys(row["rate"] for row in rows):
        own = [row for row in rows if row["rate"] == rate and row[AFTER] != 0]
        if own:
            wrong = sorted(row["wrong"] for row in own)
            seeds = [row["seed"] for row in own]
            missed.append({"rate": rate, "steps": own[0]["steps"], "seeds": seeds, "wrong": [wrong[0], wrong[-1]]})
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("shapes", nargs="*", help="by default all")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the steps of each shape")
    parser.add_argument("--keep", type=int, help="do not train; make run folders of so many seeds of each shape")
    asked = parser.parse_intermixed_args()
    if asked.keep is not None:
        keep(asked.out, asked.shapes, asked.keep)
    else:
        train_all(asked.out, asked.shapes, asked.seconds, resolve_device("auto"))


if __name__ == "__main__":
    main()
