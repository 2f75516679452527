"""Zoo entries of models of text: the first seed's best parameters, with every seed's losses beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from models.errors import UserError
from models.registry import build
from models.text_scores import TextLoss, text_loss
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder
from models.transformer import ArithmeticTransformer
from models.zoo import ZOO, save_entry


def publish_text(
    folders: list[Path], configs: list[dict[str, Any]], out: Path | None, overwrite: bool
) -> tuple[Path, TextLoss]:
    """Write the entry of the model that ``folders`` trained; the arguments are checked by ``publish``.

    The lowest seed is stored, not the best: there is no text apart from the validation part to choose a seed on.

    Returns:
        the entry's folder and the loss of what is stored (float16 parameters, made float32 again).

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    name = configs[0]["model"]
    model, rows, metrics, seconds = build(name), [], [], 0.0
    for folder in folders:
        run = RunFolder(Path(folder))
        loaded = run.load_checkpoint()
        if loaded is None or any(entry["status"] == "training" for entry in loaded[2]["seeds"]):
            raise UserError(f"{folder} is not finished; give its `interp train` command again to go on with it.")
        _, tensors, state = loaded
        seconds += state["seconds"]
        metrics.append(run.metrics_path.read_bytes())
        rows += [(entry, tensors["best_theta"][i]) for i, entry in enumerate(state["seeds"])]
    rows.sort(key=lambda row: row[0]["seed"])
    if len({entry["seed"] for entry, _ in rows}) < len(rows):
        raise UserError("The runs share seeds; a seed counts once.")
    entry, theta = rows[0]
    ParameterLayout(model).load_into(model, theta.half().float())  # what is stored is what is scored
    result = text_loss(model)
    training = {
        "seed": entry["seed"],
        "step": entry["best_step"],
        "seeds_tried": len(rows),
        "seconds": seconds,
        "commands": [f"interp train {name} --seeds {c['seeds']} --first-seed {c['first_seed']}" for c in configs],
        "recipe": configs[0]["recipe"],
        "torch": torch.__version__.split("+")[0],
    }
    score = result.to_dict() | {
        "problems": "next characters",
        "method": "teacher_forced",
        "rung": "all of the validation part",
    }
    seeds = [
        {"seed": e["seed"], "best_loss": e["best_loss"], "best_step": e["best_step"], "last_loss": e["validation_loss"]}
        for e, _ in rows
    ]
    files = {
        "seeds.json": json.dumps(seeds, indent=1).encode(),
        "metrics.jsonl": b"".join(metrics),
        "card.md": _card(model, training, result, seeds).encode(),
    }
    return save_entry(out or ZOO / name, model, training, score, files, overwrite, half=True), result


def _card(model: ArithmeticTransformer, training: dict[str, Any], result: TextLoss, seeds: list[dict[str, Any]]) -> str:
    n_parameters = sum(p.numel() for p in model.parameters())
    low, high = result.interval
    recipe = training["recipe"]
    products = "bfloat16 (weights, scores and optimiser in float32)" if recipe["autocast"] else "float32"
    ternary = getattr(model.weight_map, "is_ternary", False)
    kind = "latent weights of which W_Q, W_K, W_V, W_O, W_in and W_out are made ternary" if ternary else "weights"
    commands = "\n".join(f"    {command}" for command in training["commands"])
    rows = "\n".join(
        f"| {s['seed']} | {s['best_loss']:.4f} | {s['best_step']:,} | {s['last_loss']:.4f} |" for s in seeds
    )
    return f"""# {model.name_or_path}

{n_parameters:,} free parameters ({kind}), stored in float16; trained by this project on {model.task.name}.

* **Loss** of what is stored: {result.loss:.4f} nats a character over the whole validation part, the last tenth of the
  text ({result.n:,} characters in {result.windows} windows of 128, each without context from before; 95% interval
  over windows {low:.3f}-{high:.3f}). The same part chose the step, as in the paper; there is no third.
* **Stored:** seed {training["seed"]}, the lowest, after {training["step"]:,} of {recipe["steps"]:,} steps.
* **Time:** {training["seconds"] / 60:.0f} minutes for {training["seeds_tried"]} seeds on one thread of a shared
  machine, matrix products in {products}, torch {training["torch"]}.

Validation loss of every seed in training (float32 parameters):

| seed | best | at step | last |
|---|---|---|---|
{rows}

Made by

{commands}

Files: `model.safetensors` (free parameters), `metrics.jsonl` and `seeds.json` (all seeds), `config.json`.
"""
