"""The smallest circuits that are right on every input, proved.

A faithful circuit is faithful on the pairs that were drawn. Here each circuit is a model of its own
(:func:`interp.circuit_as_model`), with constants on cut edges, and the certifier judges it like any other: it is right
on every input, or there is one that it gets wrong. A circuit that errs on a problem that was tried is refuted by it.
The others are certified, the smallest first, and circuits that contain a certified one are not asked: what is found are
the minimal circuits that are right.

The claim is about these constants: others may allow a smaller circuit. An edge that carries its constant in every
problem anyhow (a position embedding has one value at each place, unless it is replaced by zero) is never counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.causal.circuits.circuit_as_model import N_FITTED, constants_of, masked_as_model
from interp.causal.circuits.edge_space import space_of_runs
from interp.causal.edges.masked_model import MaskedModel
from interp.core.probe import probe, sums
from interp.core.results import Provenance, Strength
from interp.core.samples import Sample, draw
from interp.core.stats import proportion
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.wording import listed
from interp.proofs import certify
from models import ArithmeticTransformer
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError
from models.evaluation import teacher_forcing
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, model_name

MOST_CIRCUITS = 2**12
NO_EDGES = "no edges"
_LONGEST = 150  # characters of a circuit in a sentence
COLUMNS = ("circuit", "edges", "status", "right", "right_low", "right_high", "n", "wrong", "proof")


@dataclass(frozen=True, eq=False, kw_only=True)
class CertifiedCircuits(TableResult):
    """``minimal``: the circuits that are proved right and contain no smaller one that is.

    ``table``: one row per circuit that contains none of the others: its edges, whether it is certified, refuted or
    undecided, its share of right answers on the problems that were tried (``right``, with its interval), a
    problem that it gets wrong, and what the certifier says.
    """

    model: str
    minimal: tuple[tuple[str, ...], ...]


@probe("What is the smallest circuit that is right on every input, proved?", needs=[sums])
def certified_circuits(
    model: HookedModel,
    *,
    constants: str | Sequence[int] = "mean",
    task: TaskLike | None = None,
    n: Count = 1024,
    seed: Seed = 0,
    most: Count = MOST_CIRCUITS,
    minutes: float | None = 10.0,
) -> CertifiedCircuits:
    """Find all minimal circuits of edges that are proved right on every input.

    Args:
        constants: what cut edges carry: "mean", "zero", "optimal", or a problem such as ``(0, 0)``, for what is written
            in it; see :func:`interp.circuit_as_model`.
        n: problems, half of them rich in carries, by default 1,024, as every circuit is tried on them.
        most: no more than so many circuits. minutes: for each proof.

    Cost: a run of ``n`` problems for each circuit, and the cost of :func:`interp.certify` for each of the few that are
    right in all of them.

    Raises:
        UserError: norms after the sums; more circuits than ``most``; a model that errs on a problem tried.
    """
    task = resolve_task(model, task)
    masked = MaskedModel(model, None, None, task)
    sample = draw(task, None, n, seed, carry_heavy=0.5)
    problem = not isinstance(constants, str)
    carried = constants_of(masked, torch.zeros(1, len(masked.graph), dtype=torch.bool), constants, N_FITTED, seed)[0]
    shape = masked.shape(len(sample.tokens))
    space = space_of_runs(masked, masked.values(sample.tokens), carried[:, None].expand(shape), problem)
    masks, looked_to = space.circuits(most)
    if looked_to < int(space.everything().sum()):
        raise UserError(f"{model_name(model)} has more circuits of its edges than {most:,}; ask for more with most=.")

    def circuit(mask: Bool[Tensor, " edge"]) -> ArithmeticTransformer:
        own = constants_of(masked, mask[None], constants, N_FITTED, seed)[0] if constants == "optimal" else carried
        return masked_as_model(masked, mask, own)

    def tried(mask: Bool[Tensor, " edge"]) -> dict[str, Any]:
        return _tried(circuit(mask), task, sample)

    said = f"with {_carried(task, constants)} on cut edges"
    if wrong := tried(masks[-1])["wrong"]:
        raise UserError(f"{model_name(model)} answers {wrong} wrongly with all of its edges, {said}.")
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, ...], Tensor] = {}  # by the names of the edges
    strength: Strength = "sampled"
    for mask in masks:
        if any(bool((mask | ~smaller).all()) for smaller in found.values()):
            continue
        names = tuple(name for name, kept in zip(space.labels, mask.tolist(), strict=True) if kept)
        row = {"circuit": ", ".join(names) or NO_EDGES, "edges": len(names), "status": "refuted", "proof": ""} | tried(
            mask
        )
        if not row["wrong"]:
            verdict = certify(circuit(mask), tolerance=None, minutes=minutes)
            row |= {"status": verdict.status, "proof": verdict.finding()}
            if verdict.status == "certified":
                found[names] = mask
                strength = verdict.provenance.strength
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    return CertifiedCircuits(
        _sentence(model_name(model), said, table, len(masks)),
        table,
        Provenance(len(masks), seed, "different circuits of its edges", strength),
        ("circuit",),
        (Measure("right", "share"),),
        model=model_name(model),
        minimal=tuple(found),
    )


def _carried(task: Task, constants: str | Sequence[int]) -> str:
    if isinstance(constants, str):
        return {"mean": "means", "zero": "zeros", "optimal": "optimal constants"}[constants]
    return f"what is written in {task.problem_text(tuple(constants))}"


@torch.no_grad()
def _tried(model: ArithmeticTransformer, task: Task, sample: Sample) -> dict[str, Any]:
    """A circuit's share of right answers, and a problem that it gets wrong."""
    with teacher_forcing(model, task) as answers:
        problems = task.as_problems(sample.problems)
        right = (answers(problems).argmax(-1).cpu() == task.targets(problems)).all(1)
    share = proportion(right.numpy())
    at = int((~right).long().argmax())
    wrong = "" if right.all() else task.problem_text(task.numbers(problems[at : at + 1])[0])
    return {"right": share.value, "right_low": share.low, "right_high": share.high, "n": share.n, "wrong": wrong}


def _sentence(name: str, said: str, table: pd.DataFrame, circuits: int) -> str:
    proved = table[table["status"] == "certified"]
    undecided = int((~table["status"].isin(["certified", "refuted"])).sum())
    text = f"Of {circuits:,} circuits of {name}'s edges, {said}, "
    if proved.empty:
        return f"{text}none was proved right on every input; {undecided} are undecided."
    sizes, shown = sorted(set(proved["edges"])), proved["circuit"].iloc[0]
    text += f"{len(proved)} {'is' if len(proved) == 1 else 'are'} minimal among those proved right on every input: "
    text += f"{listed(sizes)} edges ({shown if len(shown) < _LONGEST else f'{shown[:_LONGEST]} ...'})"
    return f"{text}; {undecided} are undecided." if undecided else f"{text}."
