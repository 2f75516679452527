"""What the report says: the probes' results on each model, gathered in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

import models
from interp.compare.across import PROBLEMS, compare_models
from interp.compare.compare import compare
from interp.compare.result import Comparison
from interp.compare.table import ModelTable
from interp.core.parameters import parameter_table
from interp.core.problems import DIGIT_TOKENS
from interp.probes.attention import AttentionByRole, attention_by_role
from interp.probes.carry import CarryUnits, carry_units
from interp.probes.curves import Curves, grokking_curves
from interp.probes.embeddings import CircleFit, FourierSpectrum, circle_fit, fourier_spectrum
from interp.probes.helices import HelixFit, helix_fit
from interp.probes.score import accuracy_by_chain
from interp.probes.scored import Scores
from models.tasks.addition import DIGITS
from models.training.publish import load_snapshots


@dataclass(frozen=True)
class ModelFindings:
    """All probes on one model. ``entry`` is None for a model that is not in the zoo."""

    name: str
    n_parameters: int
    entry: dict[str, Any] | None
    accuracy: Scores
    attention: AttentionByRole
    units: CarryUnits
    untrained: tuple[AttentionByRole, CarryUnits]  # the control: the same probes on fresh parameters
    circle: CircleFit
    spectrum: FourierSpectrum
    helix: HelixFit
    positions_learned: bool
    curves: Curves | None
    parameters: pd.DataFrame
    n_snapshots: int


def gather(name: str, n: int = 2048, seed: int = 0) -> ModelFindings:
    """Run every probe on one model (a zoo name or a path)."""
    model = models.load(name)
    entry = models.zoo.read_entry(name) if name in models.zoo_names() else None
    fresh = models.build(str(model.name_or_path), seed=seed)
    return ModelFindings(
        name=name,
        n_parameters=sum(p.numel() for p in model.parameters()),
        entry=entry,
        accuracy=accuracy_by_chain(model, seed=seed),
        attention=attention_by_role(model, n=n, seed=seed),
        units=carry_units(model, n=n, seed=seed),
        untrained=(attention_by_role(fresh, n=n, seed=seed), carry_units(fresh, n=n, seed=seed)),
        circle=circle_fit(model.W_E[:DIGIT_TOKENS]),
        spectrum=fourier_spectrum(model.W_E[:DIGIT_TOKENS]),
        helix=helix_fit(model.W_pos[:DIGITS]),
        positions_learned=_depends_on_parameters(model, model.W_pos[:DIGITS]),
        curves=grokking_curves(name) if entry else None,
        parameters=parameter_table(model),
        n_snapshots=len(load_snapshots(name)) if entry else 0,
    )


@dataclass(frozen=True)
class Beside:
    """The page's models beside each other and beside the ones that were set by hand in the same parametrisation.

    ``pairs``: trained and by hand. ``table``: all models of the page and those twins, asked the same questions.
    """

    pairs: tuple[Comparison, ...]
    table: ModelTable


def gather_beside(names: Sequence[str], n: int = 2048, seed: int = 0) -> Beside:
    """Compare the named models; the twin of NAME is the constructed model NAME-by-hand, where there is one."""
    trained = [models.load(name) for name in names]
    twins = {i: models.build(f"{name}-by-hand") for i, name in enumerate(names) if f"{name}-by-hand" in models.names()}
    beside = [model for i, own in enumerate(trained) for model in (own, twins.get(i)) if model is not None]
    return Beside(
        pairs=tuple(compare(trained[i], twin, seed=seed) for i, twin in twins.items()),
        table=compare_models(beside, n=min(n, PROBLEMS), seed=seed),
    )


def _depends_on_parameters(model: Any, table: torch.Tensor) -> bool:
    """Whether any entry of an effective weight changes with any free parameter (by its gradient)."""
    if not table.requires_grad:
        return False
    weights = torch.rand(table.shape, generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad((table * weights).sum(), list(model.parameters()), allow_unused=True)
    return any(gradient is not None and bool(gradient.any()) for gradient in gradients)


def summary(found: Sequence[ModelFindings]) -> list[dict[str, str]]:
    """The table at the top of the page, one row a model."""
    rows = []
    for model in found:
        test = model.accuracy.rate(problems=model.accuracy.table.problems.values[1])
        low, high = test.interval
        row = {
            "model": model.name,
            "parameters": str(model.n_parameters),
            "right on its test set": f"{test.correct:,} of {test.n:,}",
            "95% interval": f"{100 * low:.3f}-{100 * high:.3f}% (sampled)",
            "runs of seeds": "",
            "of them grokked": "",
            "training time, all seeds": "",
        }
        if model.entry is not None:
            made = model.entry["training"]
            row["runs of seeds"] = str(models.zoo.all_runs(made).n)
            row["of them grokked"] = models.zoo.grokked_seeds(made)
            row["training time, all seeds"] = f"{made['seconds'] / 60:.0f} min"
        rows.append(row)
    return rows
