"""Zoo entries of models of text: the first seed's best parameters, with every seed's losses beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from models.registry import build
from models.text_scores import TextLoss, text_loss
from models.training.objective import ParameterLayout
from models.training.provenance import finished_seeds, how_made, made_by
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
    model = build(name)
    rows, seconds, metrics = finished_seeds(folders)
    rows.sort(key=lambda row: row[0]["seed"])
    entry, theta = rows[0]
    ParameterLayout(model).load_into(model, theta.half().float())  # what is stored is what is scored
    result = text_loss(model)
    training = {
        "seed": entry["seed"],
        "step": entry["best_step"],
        "seeds_tried": len(rows),
    } | how_made(configs, seconds)
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
        "metrics.jsonl": metrics,
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

{made_by(str(model.name_or_path), training)}

Files: `model.safetensors` (free parameters), `metrics.jsonl` and `seeds.json` (all seeds), `config.json`.
"""
