"""Entries of models of text: the first seed's best parameters, with every seed's losses beside them."""

from __future__ import annotations

from typing import Any

from models.text_scores import TextLoss, text_loss
from models.training.publish.report import TORCH, Report, Runs, finished_seeds


def report_text(runs: Runs) -> Report:
    """The lowest seed is stored, not the best: there is no text apart from the validation part to choose a seed on.

    Its loss is that of what is stored: float16 parameters, made float32 again.

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    seeds, seconds = finished_seeds(runs.folders)
    seeds.sort(key=lambda seed: seed.number)
    chosen = seeds[0]
    result = text_loss(runs.load(chosen))
    losses = [
        {
            "seed": seed.number,
            "best_loss": seed.state["best_loss"],
            "best_step": seed.state["best_step"],
            "last_loss": seed.state["validation_loss"],
        }
        for seed in seeds
    ]
    return Report(
        chosen=chosen,
        result=result,
        counts={"seeds_tried": len(seeds)},
        seconds=seconds,
        score=result.to_dict()
        | {"problems": "next characters", "method": "teacher_forced", "rung": "all of the validation part"},
        seeds=losses,
        files={"metrics.jsonl": runs.metrics()},
        card=_card(runs, result, losses, seconds),
    )


def _card(runs: Runs, result: TextLoss, losses: list[dict[str, Any]], seconds: float) -> tuple[str, str]:
    recipe, stored = runs.configs[0]["recipe"], losses[0]
    low, high = result.interval
    products = "bfloat16 (weights, scores and optimiser in float32)" if recipe["autocast"] else "float32"
    ternary = getattr(runs.model.weight_map, "is_ternary", False)
    kind = "latent weights of which W_Q, W_K, W_V, W_O, W_in and W_out are made ternary" if ternary else "weights"
    rows = "\n".join(
        f"| {s['seed']} | {s['best_loss']:.4f} | {s['best_step']:,} | {s['last_loss']:.4f} |" for s in losses
    )
    task = runs.model.task.name
    above = f"""{runs.layout.n:,} free parameters ({kind}), stored in float16; trained by this project on {task}.

* **Loss** of what is stored: {result.loss:.4f} nats a character over the whole validation part, the last tenth of the
  text ({result.n:,} characters in {result.windows} windows of 128, each without context from before; 95% interval
  over windows {low:.3f}-{high:.3f}). The same part chose the step, as in the paper; there is no third.
* **Stored:** seed {stored["seed"]}, the lowest, after {stored["best_step"]:,} of {recipe["steps"]:,} steps.
* **Time:** {seconds / 60:.0f} minutes for {len(losses)} seeds on one thread of a shared
  machine, matrix products in {products}, torch {TORCH}.

Validation loss of every seed in training (float32 parameters):

| seed | best | at step | last |
|---|---|---|---|
{rows}"""
    return (
        above,
        "Files: `model.safetensors` (free parameters), `metrics.jsonl` and `seeds.json` (all seeds), `config.json`.",
    )
