"""A registry of measures of a training's snapshots; each measure is one question asked of a model.

    name             what it is                                                                         interval
    loss             cross-entropy of the right token, nats per target, on uniform problems             t, by problem
    exact            share of uniform problems answered right as a whole                                Clopper-Pearson
    chain            the same by the length of the longest carry chain                                  Clopper-Pearson
    attention_gap    ln(weight of one own operand digit / of one key of the previous column), nats, of  t, by target
                     the head that looks most at both (:mod:`interp.probes.attention`)
    arc_residual     distance of the digits' embeddings from the best circle, in radii                  none: exact
    arc_radius       radius of that circle                                                              none: exact
    unit_separation  AUROC of the best MLP neuron for carry in and carry out, each rival signal held    none: a maximum
                     fixed (``auroc_apart``, :mod:`interp.probes.carry`)
    weight_norm      square root of the sum of the squared parameters                                   none: exact

The control is the first snapshot, before any step. It shows what chance, the choice of the best unit or head, and the
form of the parameters give without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core import probe
from interp.core import signal_measures as carry_measures
from interp.core.answers import Answer
from interp.core.model import HookedModel
from interp.core.problems import Sample, digit_rows, draw, right_tokens
from interp.core.stats import mean_interval, proportion
from interp.probes.attention import attention_by_role
from interp.probes.embeddings import circle_fit
from interp.probes.lens.reading import digit_targets, read, variable_of
from models.errors import UserError, known_name
from models.part_names import in_block
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.base import Task, base_of
from models.tasks.carries import problems_of_chain_length
from models.tasks.places import OWN

_LEAST_OF_A_LENGTH = 20  # problems that a chain length needs where lengths are found and not planted


@dataclass(frozen=True)
class Measure:
    """``compute(model, questions)`` gives one reading ("") or several by name, such as one per chain length.

    ``least``: a smaller change from the first snapshot to the last counts as no change. A measure that does not apply
    to a model raises :class:`UserError`."""

    name: str
    title: str  # title of its panel, with the unit
    compute: Callable[[Any, Questions], Mapping[str, Answer]]
    least: float
    log: bool = False  # drawn on a logarithmic axis


@dataclass(frozen=True, eq=False)
class Questions:
    """The problems that every snapshot is asked, drawn once: ``n`` uniform ones, and ``n_per_length`` of every chain
    length (for ten-digit addition; other tasks sort the uniform ones by their chain lengths)."""

    task: Task
    n: int = 512
    n_per_length: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_per_length < 1:
            raise UserError(f"n_per_length must be at least 1, not {self.n_per_length}.")

    @cached_property
    def uniform(self) -> Sample:
        return draw(self.task, None, self.n, self.seed)

    @property
    def plants_chains(self) -> bool:
        """Whether problems of every chain length are made; otherwise the uniform ones are sorted by chain length."""
        return isinstance(self.task, FixedWidthAddition)

    @cached_property
    def by_chain(self) -> dict[int, Tensor]:
        """Chain length -> problems."""
        if self.plants_chains:
            generator = torch.Generator().manual_seed(self.seed)
            return {k: problems_of_chain_length(k, self.n_per_length, generator) for k in range(DIGITS + 1)}
        problems = torch.as_tensor(self.task.as_problems(self.uniform.problems))
        length = self.task.chain_length(problems)
        found = {int(k): problems[length == k][: self.n_per_length] for k in length.unique()}
        return {k: each for k, each in found.items() if len(each) >= _LEAST_OF_A_LENGTH}


_MEASURES: dict[str, Measure] = {}


def register_measure(measure: Measure) -> Measure:
    """Add a measure for :func:`measure_snapshot` and :func:`interp.probes.dynamics.training_dynamics`."""
    if measure.name in _MEASURES:
        raise UserError(f"A measure named {measure.name!r} is registered already.")
    _MEASURES[measure.name] = measure
    return measure


def measure_names() -> list[str]:
    """Names of the registered measures, in order; probes that give a number come last."""
    return list(_measures())


def _measures() -> dict[str, Measure]:
    found = {each.name: _from_probe(each) for each in probe.registered().values() if each.scalar is not None}
    return _MEASURES | found


def _from_probe(each: probe.Probe) -> Measure:
    assert each.scalar is not None
    asked = lambda model, q: {"": each.number(model, task=q.task, n=q.n, seed=q.seed)}  # noqa: E731
    return Measure(each.name, f"{each.scalar.heading} ({each.scalar.unit})", asked, each.scalar.least)


def find_measure(name: str) -> Measure:
    """A measure by name. Raises UserError with the closest match."""
    known = _measures()
    return known[known_name("measure", name, known)]


def measure_snapshot(
    model: HookedModel, questions: Questions, measures: Iterable[str] | None = None
) -> dict[tuple[str, str], Answer]:
    """The readings of one model: (measure, which of its readings) -> reading.

    Raises:
        UserError: an unknown measure, or one that does not apply to this model.
    """
    found = {}
    for name in measure_names() if measures is None else measures:
        measure = find_measure(name)
        found |= {(name, part): reading for part, reading in measure.compute(model, questions).items()}
    return found


# ---- the measures


def _scored(
    model: HookedModel, task: Task, problems: Any
) -> tuple[Float[np.ndarray, "n target"], Bool[np.ndarray, " n"]]:
    """(loss of every target, whether the whole answer is right), teacher forced. A whole answer is right then exactly
    if greedy decoding gives it."""
    right = task.targets(problems)
    logits = torch.cat([part.cpu() for part, _ in read(model, task.encode(problems), (), task.query_positions)])
    loss = -logits.log_softmax(-1).gather(-1, right[..., None])[..., 0]
    return loss.numpy(), right_tokens(logits, right).all(-1).numpy()


def _loss(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    loss, _ = _scored(model, questions.task, questions.uniform.problems)
    return {"": Answer(*mean_interval(loss.mean(1)))}


def _rate(hits: Bool[np.ndarray, " n"]) -> Answer:
    found = proportion(hits)
    return Answer(found.value, found.low, found.high)


def _exact(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    return {"": _rate(_scored(model, questions.task, questions.uniform.problems)[1])}


def _chain(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    lengths = questions.by_chain
    if not lengths:
        raise UserError("There are too few problems of any chain length; draw more.")
    _, hits = _scored(model, questions.task, torch.cat(list(lengths.values())))
    ends = np.cumsum([len(each) for each in lengths.values()])[:-1]
    return {str(k): _rate(part) for k, part in zip(lengths, np.split(hits, ends), strict=True)}


def _attention_gap(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    sample = questions.uniform
    found = attention_by_role(model, task=questions.task, problems=sample.problems[:256])
    value, low, high = found.mean_gap()
    if math.isnan(value):
        raise UserError("No target of this task has both own operands and a previous column.")
    return {"": Answer(value, low, high)}


def _circle(model: HookedModel, questions: Questions) -> Any:
    return circle_fit(model.W_E[digit_rows(questions.task)], resamples=0)


def _arc_residual(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    fit = _circle(model, questions)
    return {"": Answer(math.hypot(fit.residual, fit.off_plane) / fit.radius)}


def _arc_radius(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    return {"": Answer(_circle(model, questions).radius)}


def _unit_separation(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    if not model.cfg.d_mlp:
        raise UserError("This model has no MLP, so it has no neurons to ask about.")
    task, sample = questions.task, questions.uniform
    roles = {t: task.target_roles[t] for t in digit_targets(task, columns=True)}
    roles = {t: role for t, role in roles.items() if task.relative_roles(t).get(OWN)}
    if not roles:
        raise UserError(f"Task {task.name!r} has no columns of two operands to tell carries of.")
    variables = task.variables(sample.problems)
    columns = {
        name: torch.stack([variable_of(variables, name, role) for role in roles.values()], 1).numpy()
        for name in ("carry_in", "carry_out", "digit_sum", "s")
    }
    signals = {
        name: values
        for name, values in carry_measures.column_signals(
            columns, sample.provenance.resampling_seed, base_of(task)
        ).items()
        if name in carry_measures.RIVALS
    }
    hooks = [in_block(layer, "mlp.hook_pre") for layer in range(model.cfg.n_layers)]
    queries = [task.query_positions[target] for target in roles]
    units = [torch.cat([kept[hook] for hook in hooks], -1) for _, kept in read(model, sample.tokens, hooks, queries)]
    x = torch.cat(units).flatten(0, 1).double().cpu().numpy()
    return {
        carry_measures.signal_name(signal): Answer(_best_apart(x, signals, signal))
        for signal in ("carry_in", "carry_out")
    }


def _best_apart(
    x: Float[np.ndarray, "row unit"], signals: Mapping[str, Bool[np.ndarray, "n column"]], signal: str
) -> float:
    labels = np.stack([values.ravel() for values in signals.values()], 1)
    apart = carry_measures.separation(x, labels, list(signals))["auroc_apart"]
    return float(np.nanmax(apart[:, list(signals).index(signal)]))


def _weight_norm(model: HookedModel, questions: Questions) -> dict[str, Answer]:
    with torch.no_grad():
        return {"": Answer(float(sum(p.cpu().double().square().sum() for p in model.parameters())) ** 0.5)}


for _measure in (
    Measure("loss", "loss (nats a token)", _loss, 1e-3),
    Measure("exact", "exact match, uniform problems", _exact, 0.01),
    Measure("chain", "exact match by carry-chain length", _chain, 0.01),
    Measure("attention_gap", "attention gap (nats)", _attention_gap, 0.05),
    Measure("arc_residual", "distance from an arc (radii)", _arc_residual, 1e-3),
    Measure("arc_radius", "radius of the digits' arc", _arc_radius, 1e-3, log=True),
    Measure("unit_separation", "best neuron's AUROC, rivals fixed", _unit_separation, 0.1),
    Measure("weight_norm", "norm of the parameters", _weight_norm, 1e-3),
):
    register_measure(_measure)
