"""Train the ordinary models that are missing, one after the other, with the plain recipe that a researcher would write.

AdamW with a rate of 4e-3, warm-up and cosine, decay 0.02 of the matrices; 192 new problems a step, of which half have
long carries where the task has them; initial weights N(0, 0.08). After every 250 steps with a mean loss below 2e-3,
10,000 validation problems (half of them carry-rich) are answered, and training ends when all are right. What does not
get there with two seeds is written into ``not_learned.json`` and skipped from then on.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.provability.ordinary_models import MODELS, ORDINARY, OrdinaryModel
from models import ArithmeticTransformer
from models.files.checkpoint import write_json_atomic
from models.tasks import FormattedTask, Task, TokenFunction, machine_of
from models.training.run_folder import RunFolder
from models.weight_maps import DenseWeights

RATE, WARM_UP, DECAY, BATCH, DEVIATION = 4e-3, 200, 0.02, 192, 0.08
EVERY, LOW, VALIDATION, TRIES = 250, 2e-3, 10_000, 2
NOT_LEARNED = MODELS.parent / "not_learned.json"

Draw = Callable[[int, torch.Generator], Tensor]


def _near_carry(task: FormattedTask) -> Draw:
    """Sums of three or more numbers whose columns are mostly one below, at, or one above a multiple of the base."""
    width, base, n = task.parsed.operand_fields[0].width, task.base, len(task.parsed.operand_fields)

    def draw(rows: int, generator: torch.Generator) -> Tensor:
        digits = torch.randint(base, (rows, n, width), generator=generator)
        wanted = torch.randint(-2, 1, (rows, width), generator=generator) - digits[:, :-1].sum(1)
        near = torch.rand(rows, width, generator=generator) < torch.rand(rows, 1, generator=generator)
        last = torch.where(near, wanted % base, digits[:, -1])
        digits = torch.cat((digits[:, :-1], last[:, None]), 1)
        return (digits * base ** torch.arange(width)).sum(2)

    return draw


def _near_ties(task: FormattedTask) -> Draw:
    """Numbers of one token that differ by at most three from each other."""

    def draw(rows: int, generator: torch.Generator) -> Tensor:
        centre = torch.randint(task.base, (rows, 1), generator=generator)
        apart = torch.randint(-3, 4, (rows, len(task.parsed.fields)), generator=generator)
        return (centre + apart).clamp(0, task.base - 1)

    return draw


def _rare_states(task: TokenFunction) -> Draw:
    """Strings in which each state that can follow is as likely as another."""
    machine = machine_of(task)
    return lambda rows, generator: machine.problems(machine.sample(rows, generator, rare=True))


def hard_problems(task: Task) -> Draw:
    """How problems of the task are drawn that uniform ones have too few of."""
    if isinstance(task, TokenFunction):
        return _rare_states(task) if task.automaton is not None else task.sample
    assert isinstance(task, FormattedTask)
    if task.has_long_carries:
        return lambda rows, generator: task.sample(rows, generator, long_carries=True)
    if "addition" in task.families:
        return _near_carry(task)
    one_token_each = all(field.width == 1 for field in task.parsed.operand_fields)
    return _near_ties(task) if one_token_each and task.base > 2 else task.sample


def initial(recipe: OrdinaryModel, task: Task, seed: int) -> ArithmeticTransformer:
    """The untrained model."""
    config, generator = recipe.made_config(task), torch.Generator().manual_seed(seed)
    weights = DenseWeights(config)
    with torch.no_grad():
        for name, parameter in weights.own().items():
            kind = name.rsplit(".", 1)[1]
            if kind == "bias":
                distance = torch.arange(config.n_ctx)[:, None] - torch.arange(config.n_ctx)
                slopes = 2.0 ** (-8 * torch.arange(1, config.n_heads + 1) / config.n_heads)
                parameter.copy_(-slopes[:, None, None] * distance.clamp_min(0)).requires_grad_(not recipe.alibi)
            elif kind.startswith("W_"):
                parameter.copy_(DEVIATION * torch.randn(parameter.shape, generator=generator))
            else:
                parameter.fill_(1.0 if kind == "w" else 0.0)
    return ArithmeticTransformer(weights, task, name=recipe.name)


def wrong(model: ArithmeticTransformer, task: Task) -> int:
    """How many of the validation problems the model answers wrongly, by teacher forcing; of all, where they are few."""
    generator = torch.Generator().manual_seed(12_345)
    if task.domain is not None and task.domain.combinations <= 2 * VALIDATION:
        problems = task.domain.every()
    else:
        problems = torch.cat([draw(VALIDATION // 2, generator) for draw in (task.sample, hard_problems(task))])
    with torch.no_grad():
        found = model(task.encode(problems))[:, list(task.query_positions)].argmax(-1)
    return int((found != task.targets(problems)).any(1).sum())


def trained(
    recipe: OrdinaryModel, seed: int, say: Callable[[str], Any] = print
) -> tuple[ArithmeticTransformer, dict[str, Any]]:
    """(the model, what its training came to): "steps", the mean "loss" of the last ones, and how many of the validation
    problems are "wrong"."""
    task = recipe.made_task()
    model, generator = initial(recipe, task, seed), torch.Generator().manual_seed(1_000 + seed)
    queries, hard = list(task.query_positions), hard_problems(task)
    decayed = model.weight_map.decay_mask()
    free = [(name, p) for name, p in model.weight_map.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in free if decayed[name] == on], "weight_decay": DECAY if on else 0.0}
        for on in (True, False)
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    total, mean, errors = 0.0, math.inf, -1
    for step in range(recipe.steps):
        if step % EVERY == 0:
            drawn = [draw(EVERY * BATCH // 2, generator) for draw in (task.sample, hard)]
            problems = torch.cat(drawn)[torch.randperm(EVERY * BATCH, generator=generator)]
            tokens, targets = task.encode(problems).split(BATCH), task.targets(problems).split(BATCH)
        rate = RATE * min(1, (step + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * step / recipe.steps))
        for group in optimiser.param_groups:
            group["lr"] = rate
        logits = model(tokens[step % EVERY], weights=model.effective_weights())[:, queries]
        loss = cross_entropy(logits.flatten(0, 1), targets[step % EVERY].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item()
        if step % EVERY == EVERY - 1:
            mean, total = total / EVERY, 0.0
            errors = wrong(model, task) if mean < LOW or step + 1 == recipe.steps else -1
            if (step + 1) % 1_000 == 0 or errors >= 0:
                say(f"  step {step + 1}: loss {mean:.5f}, wrong {errors}")
            if errors == 0:
                break
    return model, {"steps": step + 1, "loss": mean, "wrong": errors}


def store(
    recipe: OrdinaryModel,
    seed: int,
    model: ArithmeticTransformer,
    came_to: dict[str, Any],
    rate: float = RATE,
    drawn: str = "",
    models: Path | None = None,
) -> None:
    """Keep a model as a run folder, which ``models.load`` reads together with its task; ``drawn`` says how its batches
    were drawn, if they were not new in each step."""
    folder = RunFolder((models or MODELS) / recipe.name)
    definition = {"task": recipe.task, "config": model.config.to_dict(), "biases": True}
    settings = {"steps": recipe.steps, "lr": rate, "batch_size": BATCH, "weight_decay": DECAY, "alibi": recipe.alibi}
    settings |= {"command": recipe.command, "problems": drawn} if recipe.command else {}
    run = {"model": recipe.name, "recipe": settings, "seeds": 1, "first_seed": seed, "definition": definition}
    tensors = {name: p.detach()[None] for name, p in model.weight_map.named_parameters()}
    with folder.open(run):
        folder.save_checkpoint(
            came_to["steps"], tensors, {"seeds": [{"seed": seed, "best_loss": came_to["loss"]} | came_to]}
        )
    (folder.path / ".lock").unlink(missing_ok=True)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    failed = json.loads(NOT_LEARNED.read_text()) if NOT_LEARNED.exists() else {}
    for recipe in ORDINARY:
        if (
            recipe.command
            or (names and recipe.name not in names)
            or (MODELS / recipe.name / "checkpoint.json").exists()
        ):
            continue
        while len(failed.get(recipe.name, [])) < TRIES:
            seed, start = recipe.seed + 100 * len(failed.get(recipe.name, [])), time.process_time()
            print(f"{recipe.name}, seed {seed}", flush=True)
            model, came_to = trained(recipe, seed, lambda said: print(said, flush=True))
            came_to["cpu_seconds"] = round(time.process_time() - start)
            print(f"{recipe.name}: {came_to}", flush=True)
            if came_to["wrong"] == 0:
                store(recipe, seed, model, came_to)
                break
            failed[recipe.name] = [*failed.get(recipe.name, []), {"seed": seed} | came_to]
            write_json_atomic(NOT_LEARNED, failed)


if __name__ == "__main__":
    main(sys.argv[1:])
