"""What the claims of AddLM's paper measure. The largest of its three sizes was not trained here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import models
from interp.probes.learning_curves import LearningCurves
from studies.claims.ours import NotStored, measure


@measure
def runs(rows: Iterable[Mapping[str, Any]], model: str, steps: int = 0) -> list[Mapping[str, Any]]:
    """A model's stored finished runs, or those of its runs that were measured at ``steps``."""
    of_model = (row for row in rows if row["model"] == model)
    found = [row for row in of_model if (steps in row["steps"] if steps else row["steps"][-1] == row["budget"])]
    if not found:
        raise NotStored(f"No finished run of {model} is stored.")
    return found


@measure
def best_losses(rows: Iterable[Mapping[str, Any]], model: str, steps: int = 0) -> list[float]:
    """The best validation loss of every seed, in nats per character, over all of its steps or the first ``steps``."""
    return [
        min(loss for step, loss in zip(row["steps"], row["losses"], strict=True) if not steps or step <= steps)
        for row in runs(rows, model, steps)
    ]


@measure
def gaps(curves: LearningCurves, model: str) -> list[float]:
    """Validation loss minus training loss at the last step, of every seed."""
    validation, training = (curves.of(model, what).isel(step=-1) for what in ("validation_loss", "loss"))
    return (validation - training).values.tolist()


@measure
def multiplications(name: str) -> Any:
    """The multiplications of a registered model."""
    from studies.addlm.multiplications import count_multiplications

    return count_multiplications(models.build(name))
