"""Zoo entries of models of text: the first seed's best parameters, and the losses of every seed."""

from __future__ import annotations

from models.text_scores import text_loss
from models.training.publish.report import Report, Runs, finished_seeds


def report_text(runs: Runs) -> Report:
    """Report the lowest seed and not the best, as there is no text outside the validation part to choose a seed on.

    Its loss is that of the stored parameters: float16, converted back to float32.

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
    )
