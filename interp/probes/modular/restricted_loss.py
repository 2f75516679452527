"""Restricted and excluded loss of modular adders: with only the key frequencies of a + b in the logits, and without.

Nanda et al. 2023, section 5. It works over the group in which the task computes
(:mod:`models.tasks.named.cyclic_groups`), addition or multiplication. It describes; which program a model runs is asked
by intervention (:func:`interp.group_program`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from interp.core.estimate import Estimate
from interp.core.modular.group_spectra import frequencies_text, only_frequencies, pair_spectrum, right_logs
from interp.core.probe import Scalar, group, probe
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from models.calls import Seed
from models.tasks import CyclicGroup, TaskLike, group_of
from models.transformer import HookedModel, model_name

RELABELLINGS = 99
KINDS = ("all logits", "restricted", "excluded")
ALL = "all pairs"
MEASURES = (Measure("loss", "nats", ("uniform_guess",)),)


def _restricted(found: TableResult) -> Estimate:
    parts = tuple(replace(found.cell("loss", logits=kind, pairs=ALL), name=kind) for kind in KINDS)
    return replace(parts[1], parts=parts)


@probe(
    "Do its answers need a few frequencies, and nothing else?",
    needs=[group],
    scalar=Scalar("restricted loss", "nats", _restricted, 1e-3, asked_by=("training_dynamics",)),
)
def restricted_loss(model: HookedModel, *, task: TaskLike | None = None, seed: Seed = 0) -> TableResult:
    """Loss of the right answer with all logits, with the kept frequencies' part of them alone, and without that part.

    As functions of the pair, the logits are split into the components cos and sin of ``w_k (a + b)`` for the kept
    frequencies k of the logits (:func:`interp.fourier_spectrum`), and the rest. *Restricted* logits are their mean over
    all pairs and these components; *excluded* ones are without them. Where the task holds pairs out, those and the
    others are rows of their own. The softmax is over the group's answers. Nothing is sampled but the control.

    Args:
        seed: of the 99 relabellings that say which frequencies are kept.

    Raises:
        UserError: a task that does not add or multiply modulo a number.
    """
    task = resolve_task(model, task)
    of = group_of(task)
    spectrum, values, _ = pair_spectrum(model, task, "logits", RELABELLINGS, seed)
    kept = _along_sums(values, of, spectrum.kept)
    logits = {"all logits": values, "restricted": values.mean((0, 1)) + kept, "excluded": values - kept}
    right = right_logs(of)
    rows = []
    for kind, each in logits.items():
        nats = -torch.from_numpy(each).log_softmax(-1).numpy()
        nats = np.take_along_axis(nats, right[..., None], -1)[..., 0].flatten()
        for pairs, where in _pairs(task, of).items():
            rows.append((kind, pairs, nats[where].mean(), int(where.sum())))
    table = pd.DataFrame(rows, columns=["logits", "pairs", "loss", "pairs counted"])
    table["loss_uniform_guess"] = math.log(of.order)
    found = table[table["pairs"] == ALL].set_index("logits")["loss"]
    said = f"{model_name(model)}: the right answer costs {found['all logits']:.3g} nats"
    if spectrum.kept:
        said += (
            f", with {frequencies_text(len(spectrum.kept))} of the logits alone {found['restricted']:.3g}, and without "
            f"{found['excluded']:.3g} (a uniform guess {math.log(of.order):.3g})."
        )
    else:
        said += f" (a uniform guess {math.log(of.order):.3g}). No frequency of the logits stands out."
    source = f"pairs, {RELABELLINGS} relabellings for the frequencies"
    provenance = Provenance(of.order**2, seed, source, "exhaustive")
    return TableResult(said, table, provenance, ("pairs", "logits"), MEASURES)


def _along_sums(
    values: Float[np.ndarray, "m m c"], of: CyclicGroup, frequencies: tuple[int, ...]
) -> Float[np.ndarray, "m m c"]:
    """The part of values over pairs that depends on the sum alone, in these frequencies."""
    right = right_logs(of)
    by_sum = np.stack([values[right == total].mean(0) for total in range(of.order)])
    return only_frequencies(by_sum, frequencies)[right]


def _pairs(task: Any, of: CyclicGroup) -> dict[str, np.ndarray]:
    """Masks [pair] of all pairs, and of those held out and the others, if the task lists them."""
    found = {ALL: np.ones(of.order**2, dtype=bool)}
    split = task.held_out
    if split.listed:
        held = {tuple(row) for row in split.problems.tolist()}
        mask = np.array([tuple(row) in held for row in of.pairs().tolist()])
        found |= {"held out": mask, "others": ~mask}
    return {name: mask for name, mask in found.items() if mask.any()}
