"""Zoo entries of two-digit adders (ToyGPT, and AddLM's algebra on the same task).

There are only 10,000 problems, so the entry's score is exhaustive: all of them, with the 500 held-out pairs apart. What
is stored is the parameters after the registered recipe's steps (ToyGPT: the paper's 1,000 iterations) of the seed that
answers most *training* pairs (ties: the lower seed); the held-out pairs decide nothing. Every seed is on the card, as
the best of several is no typical one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import load_weights
from models.decoding import greedy
from models.errors import UserError
from models.evaluation import Rate
from models.registry import build, get_spec
from models.tasks.two_digit import all_problems, held_out_problems
from models.training.provenance import check_once, how_made, made_by
from models.training.recipes import get_recipe
from models.training.run_folder import RunFolder
from models.transformer import ArithmeticTransformer
from models.zoo import ZOO, save_entry

ROWS = 500  # decoded at a time; their activations stay in the processor's cache


@dataclass(frozen=True)
class TwoDigitRow:
    """One seed: its parameters as stored (float16), right pairs held out and of the others, and right digits of all."""

    seed: int
    parameters: dict[str, Tensor]
    test: Rate
    train: Rate
    digits: tuple[int, ...]  # units, tens, hundreds


def publish_two_digit(
    folders: list[Path], configs: list[dict[str, Any]], out: Path | None, overwrite: bool
) -> tuple[Path, Rate]:
    """Write the entry of the model that ``folders`` trained; the arguments are checked by ``publish``.

    Returns:
        the entry's folder and the chosen seed's score on the 500 held-out pairs.

    Raises:
        UserError: a run without a snapshot at the budget, seeds tried twice.
    """
    name = configs[0]["model"]
    model = build(name)
    budget = get_recipe(get_spec(name).recipe or "").steps
    step = min(budget, configs[0]["recipe"]["steps"])
    rows, seconds = [], 0.0
    for folder, config in zip(folders, configs, strict=True):
        run = RunFolder(Path(folder))
        snapshot = run.path / "snapshots" / f"{step:07d}.safetensors"
        loaded = run.load_checkpoint()
        if loaded is None or not snapshot.exists():
            raise UserError(f"{folder} has no snapshot after {step:,} steps; give its training command again to go on.")
        seconds += loaded[2]["seconds"] * min(1.0, step / max(1, loaded[0]))
        tensors, _ = load_weights(snapshot)
        rows += [
            _row(model, config["first_seed"] + i, {key: value[i] for key, value in tensors.items()})
            for i in range(config["seeds"])
        ]
    rows.sort(key=lambda row: row.seed)
    check_once(row.seed for row in rows)
    chosen = max(rows, key=lambda row: (row.train.correct, -row.seed))
    _load(model, chosen.parameters)
    perfect = Rate(len(rows), sum(row.test.correct == row.test.n for row in rows))
    training = {
        "seed": chosen.seed,
        "step": step,
        "seeds_tried": perfect.n,
        "seeds_grokked": perfect.correct,
        "grok_interval_95": list(perfect.interval),
    } | how_made([config | {"recipe": config["recipe"] | {"steps": step}} for config in configs], seconds)
    score = {
        "n": chosen.test.n,
        "correct": chosen.test.correct,
        "problems": "the 500 pairs held out",
        "method": "greedy",
        "rung": "sampled",
        "interval": list(chosen.test.interval),
        "all": {"n": 10_000, "correct": chosen.test.correct + chosen.train.correct, "rung": "exhaustive"},
    }
    public = [
        {"seed": row.seed, "chosen": row is chosen, "test": asdict(row.test), "train": asdict(row.train)}
        | {"digits": list(row.digits)}
        for row in rows
    ]
    files = {
        "seeds.json": json.dumps(public, indent=1).encode(),
        "card.md": _card(model, training, rows, chosen).encode(),
    }
    folder = save_entry(out or ZOO / name, model, training, score, files, overwrite, half=True)
    return folder, chosen.test


def _row(model: ArithmeticTransformer, seed: int, parameters: dict[str, Tensor]) -> TwoDigitRow:
    """The scores of the parameters as they will be stored."""
    stored = {key: value.half().float() for key, value in parameters.items()}
    _load(model, stored)
    problems, task = all_problems(), model.task
    prompts, n_targets = task.encode_prompt(problems), len(task.query_positions)
    with torch.inference_mode():
        weights = model.effective_weights()
        decoded = torch.cat([greedy(model, part, n_targets, weights=weights) for part in prompts.split(ROWS)])
    right = decoded == task.targets(problems)
    exact = right.all(1)
    held_out = torch.isin(_key(problems), _key(held_out_problems()))
    test, train = (Rate(int(rows.sum()), int(exact[rows].sum())) for rows in (held_out, ~held_out))
    return TwoDigitRow(seed, stored, test, train, tuple(right.sum(0).tolist()))


def _key(problems: Tensor) -> Tensor:
    return problems[:, 0] * 100 + problems[:, 1]


def _load(model: ArithmeticTransformer, parameters: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            parameter.copy_(parameters[name])


def _card(model: ArithmeticTransformer, training: dict[str, Any], rows: list[TwoDigitRow], chosen: TwoDigitRow) -> str:
    n_parameters = sum(p.numel() for p in model.parameters())
    lines = "\n".join(
        f"| {row.seed}{' (stored)' if row is chosen else ''} | {row.train.correct:,} | {row.test.correct} "
        f"({100 * row.test.interval[0]:.1f}-{100 * row.test.interval[1]:.1f}%) | "
        + " | ".join(f"{count:,}" for count in row.digits)
        + " |"
        for row in rows
    )
    total = chosen.test.correct + chosen.train.correct
    choice = "the only one trained: how others do is not known."
    if len(rows) > 1:
        choice = (
            f"of {len(rows)} the one that answers most training pairs. The held-out pairs decide nothing,\n"
            "  but the best of several is no typical one: the table has all."
        )
    return f"""# {model.name_or_path}

{n_parameters:,} free parameters, stored in float16; trained by this project on {model.task.name} for
{training["step"]:,} iterations.

* **Score:** {total:,} of all 10,000 pairs, greedy decoding, rung: exhaustive; of the 500 pairs held out
  {chosen.test.correct} (95% interval {100 * chosen.test.interval[0]:.1f}-{100 * chosen.test.interval[1]:.1f}%), of the
  9,500 trained on {chosen.train.correct:,}. Scored as stored, in float16 precision.
* **Seed** {chosen.seed}, {choice}
* **Time:** {training["seconds"] / 60:.0f} minutes for all seeds on one thread of a shared machine, float32,
  torch {training["torch"]}.

| seed | right of 9,500 | right of 500 (95% interval) | units right | tens right | hundreds right |
|---|---|---|---|---|---|
{lines}

Digits: of all 10,000 sums, as decoded greedily.

{made_by(str(model.name_or_path), training)}

Another machine or version rounds differently and gets other seeds.

Files: `model.safetensors` (free parameters), `seeds.json` (all seeds), `config.json` (recipe, hashes, score).
"""
