"""One model, certified in this process; ``python -m benchmarks.provability.judge NAME MINUTES`` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch

import interp
import models
from benchmarks.provability.ordinary_models import MODELS
from benchmarks.provability.train import hard_problems
from interp.proofs import Verdict
from interp.proofs.verdict.class_table import MachineEvidence
from models.errors import UserError

SAMPLED = 40_000  # problems, half of them carry-rich


def sampled_margin(model: models.ArithmeticTransformer) -> float:
    """The least lead of a right token, in logits, on sampled problems, in the model's own arithmetic."""
    task, generator, least = model.task, torch.Generator().manual_seed(7), float("inf")
    for draw in (task.sample, hard_problems(task)):  # pyright: ignore[reportArgumentType]
        for problems in draw(SAMPLED // 2, generator).split(2_000):
            with torch.no_grad():
                logits = model(task.encode(problems))[:, list(task.query_positions)]
            right = task.targets(problems)[..., None]
            others = logits.scatter(-1, right, float("-inf")).amax(-1, keepdim=True)
            least = min(least, float((logits.gather(-1, right) - others).min()))
    return least


def proved(verdict: Verdict) -> dict[str, Any]:
    """The least proved margin, in logits, and the share of the proof's classes (or problems) that are proved."""
    evidence = verdict.evidence
    if verdict.method == "search":
        return {}  # it proves nothing
    classes: Any = getattr(evidence, "classes", None)
    if isinstance(evidence, MachineEvidence):
        bounds = classes["bound"].to_numpy()  # NaN where a class is open
        own = {"classes": len(bounds), "share": evidence.proved / len(bounds), "nodes": int(classes["nodes"].sum())}
        return own | {"proved_margin": float(bounds.min()) if np.isfinite(bounds).all() else None}
    if classes is not None and "proved" in classes:
        bounds = np.asarray(classes.proved.values, dtype=float)
        right = bounds > 0
        return {
            "classes": len(bounds),
            "share": float(right.mean()),
            "proved_margin": float(bounds.min()) if right.all() else None,
        }
    if hasattr(evidence, "right") and hasattr(evidence, "n"):
        return {"classes": evidence.n, "share": evidence.right / evidence.n, "proved_margin": evidence.smallest_margin}
    return {"proved_margin": getattr(evidence, "smallest_margin", None)}


def _without_path(name: str, said: str) -> str:
    """A sentence about a model without the folder that it lies in."""
    return said.replace(f", run at {name}", "")


def judged(name: str, minutes: float) -> dict[str, Any]:
    """What ``interp.certify`` says of a model of this folder, and what it cost; a refusal has the status "refused"."""
    torch.set_num_threads(1)
    model = models.load(MODELS / name)
    found: dict[str, Any] = {"margin": sampled_margin(model), "minutes": minutes}
    start, wall = time.process_time(), time.monotonic()
    try:
        verdict = interp.certify(model, minutes=minutes)
        found |= {"status": verdict.status, "method": verdict.method, "said": _without_path(name, verdict.finding())}
        found |= proved(verdict)
        found["strength"] = verdict.provenance.strength
    except UserError as error:
        found |= {"status": "refused", "said": _without_path(name, str(error))}
    found["cpu_seconds"] = round(time.process_time() - start, 2)
    found["seconds"] = round(time.monotonic() - wall, 2)
    return found


if __name__ == "__main__":
    print(json.dumps(judged(sys.argv[1], float(sys.argv[2]))))
