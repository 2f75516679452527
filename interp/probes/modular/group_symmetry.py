"""Gradient symmetricity and distance irrelevance of modular adders: two marks of clock and pizza.

Zhong et al. 2023, section 4. They work over the group in which the task computes
(:mod:`models.tasks.named.cyclic_groups`), addition or multiplication. They describe; which program a model runs is
asked by intervention (:func:`interp.group_program`).
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from interp.core.estimate import Estimate
from interp.core.modular.gradient_symmetricity import group_marks
from interp.core.probe import Scalar, group, probe
from interp.core.results import Provenance
from interp.core.samples import N_PROBLEMS
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from models.calls.argument_kinds import Count, Seed
from models.tasks import TaskLike, group_of
from models.transformer import HookedModel, model_name


def _symmetry(found: TableResult) -> Estimate:
    note = f"distance irrelevance {found.cell('value', mark='distance irrelevance')}"
    marks = found.cell("value", mark="gradient symmetricity")
    return replace(marks, control=0.0, control_note="unrelated gradients", note=note)


@probe(
    "Does it treat both operands alike, and their distance as irrelevant?",
    needs=[group],
    scalar=Scalar("gradient symmetricity", "cosine", _symmetry, 0.01, asked_by=("training_dynamics",)),
)
def group_symmetry(
    model: HookedModel, *, task: TaskLike | None = None, n: Count = N_PROBLEMS, seed: Seed = 0
) -> TableResult:
    """Gradient symmetricity and distance irrelevance.

    *Gradient symmetricity*: mean cosine between the gradients of a logit with respect to the embeddings of the first
    and of the second operand, over ``n`` random pairs and answers, none of them twice. It is 1 for a model that reads
    the sum of the embeddings (a pizza), and lower for one that multiplies them (a clock).

    *Distance irrelevance*: the standard deviation of the right answer's logit among pairs of one distance log(a) -
    log(b), averaged over distances, divided by that over all pairs; logits are centred over the answers. It is low for
    a pizza, whose logits depend on the distance, and near 1 where they do not; NaN where all are alike.

    Both describe how a model answers, not what it needs: :func:`interp.group_program` asks that, and reads both.

    Raises:
        UserError: a task that does not add or multiply modulo a number, or logits that do not depend on the operands.
    """
    task = resolve_task(model, task)
    found = group_marks(model, task, group_of(task), n, seed)
    rows = [
        ("gradient symmetricity", *found.symmetricity),
        ("distance irrelevance", *[found.irrelevance] * 3),
    ]
    table = pd.DataFrame(rows, columns=["mark", "value", "value_low", "value_high"])
    strength = "exhaustive" if found.all_pairs else "sampled"
    provenance = Provenance(found.n, seed, "pairs and answers; the distances, of all pairs", strength)
    said = f"{model_name(model)}: {found.clause()}."
    return TableResult(said, table, provenance, ("mark",), (Measure("value"),))
