"""The values of a sweep: the metric of every variant and example, by variants of one run or through hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.metrics import Metric
from interp.causal.patching.hooked_patching import PlainPatcher
from interp.causal.patching.patch_sites import (
    Groups,
    SweepSite,
    check_layers,
    get_site,
    parts_of,
    position_groups,
)
from interp.core.batches import slices
from interp.core.places import Place, as_slice
from interp.core.stats import ROUNDING
from models import ArithmeticTransformer
from models.errors import UserError
from models.run import Frame, Run
from models.run.variants import Emit
from models.run.wave import patched_in_layers
from models.tasks import Task
from models.transformer import HookedModel, alterations

#: Numbers in one variant's widest activation over a batch: it must stay in the processor's cache.
ROWS_AT_ONCE = 2**19
#: Numbers in the widest activation of variants that are stacked in one run through hooks.
PLAIN_AT_ONCE = 2**20
CHECKED = 8  # how many cells of a sweep ``check=True`` also runs through the hooks
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


@dataclass(frozen=True, eq=False)
class SweepValues:
    """``patched`` [metric, layer, part, group, (source group,) n], ``base`` and ``source`` [metric, n]: the metric of
    the patched runs, of the unpatched run and of the run that activations are taken from.

    ``changes``: whether a patch changed an activation (None: not known).
    """

    patched: Float[np.ndarray, "metric layer part group *source n"]
    base: Float[np.ndarray, "metric n"]
    source: Float[np.ndarray, "metric n"]
    changes: bool | None = None

    @property
    def unchanged(self) -> bool:
        """Whether no patch changed any activation or, if that is not known, any metric by more than rounding."""
        if self.changes is not None:
            return not self.changes
        base = self.base.reshape(len(self.base), *[1] * (self.patched.ndim - 2), -1)
        return bool(np.abs(self.patched - base).max() <= ROUNDING * max(np.abs(base).max(), 1.0))


@dataclass(frozen=True, eq=False)
class PatchSpec:
    """What a sweep asks: ``base`` is run with one layer's ``site`` at one group of positions taken from ``source``.

    It is made once, where a sweep begins, and everything after that reads it.

    Attributes:
        source: tokens of base's shape.
        task: what the tokens mean, if anybody said so.
        what: what the two runs differ in, for messages.
        allow_equal: whether runs with equal activations are no error.
        check: the seed of the cells that are run through the model's hooks as well; None runs none.
    """

    base: Int[Tensor, "n pos"]
    source: Int[Tensor, "n pos"]
    site: SweepSite
    layers: tuple[int, ...]
    groups: Groups
    metrics: tuple[Metric, ...]
    task: Task | None = None
    what: str = "what was given"
    allow_equal: bool = False
    check: int | None = None

    @classmethod
    def of(
        cls,
        model: HookedModel,
        base: Int[Tensor, "n pos"],
        source: Int[Tensor, "n pos"],
        metrics: Sequence[Metric],
        site: str,
        by: str,
        layers: Sequence[int] | int | None,
        task: Task | None,
        target: int | None,
        **more: Any,
    ) -> PatchSpec:
        """The question that the arguments of a sweep ask of a model, with the tokens where the model is.

        Raises:
            UserError: no such site, layer or grouping; tokens of other shapes; nothing to run.
        """
        if base.ndim != 2:
            raise UserError(f"A sweep runs tokens [n, pos], not of shape {list(base.shape)}.")
        if source.shape != base.shape:
            raise UserError(
                f"Both runs need tokens of one shape [n, pos], not {list(base.shape)} and {list(source.shape)}."
            )
        if not base.numel():
            raise UserError(f"There is nothing to run: the tokens have shape {list(base.shape)}.")
        kind, chosen, base = get_site(site, model.cfg), tuple(check_layers(layers, model)), base.to(model.cfg.device)
        if kind.embedding:
            if layers is not None and chosen != (0,):
                raise UserError(f"{kind.name} enters before layer 0, so that no other layer has one to patch.")
            chosen = (0,)
        task = getattr(model, "task", None) if task is None else task
        groups = position_groups(base.shape[1], by, task, target)
        return cls(base, source.to(base.device), kind, chosen, groups, tuple(metrics), task, **more)

    @property
    def hooks(self) -> list[str]:
        return [self.site.hook_name(layer) for layer in self.layers]

    def shape(self, cfg: Any) -> tuple[int, ...]:
        """The shape of the variants: [layer, part, group, (source group)]."""
        n = len(self.groups)
        return (len(self.layers), parts_of(self.site, cfg), n, *([n] if self.site.by_source else []))

    def axes(self, cfg: Any) -> dict[str, list[Any]]:
        """The labels along the axes of :meth:`shape`, by name: layer, head or neuron, pos or role or dest and src.
        An axis that the question does not have, a part of a stream or a group of all positions, is left out."""
        labels, pattern = list(self.groups.labels), self.site.pattern
        axis = {"position": "pos", "role": "role", "all": "all"}[self.groups.by]
        rows = ["dest", "src"] if self.site.by_source else ["dest" if pattern and axis != "all" else axis]
        part = {self.site.part: list(range(parts_of(self.site, cfg)))} if self.site.part else {}
        return {"layer": list(self.layers)} | part | {row: labels for row in rows if row != "all"}

    @property
    def swapped_direction(self) -> PatchSpec:
        """The same between the runs the other way round."""
        return replace(self, base=self.source, source=self.base)

    def source_cache(self, model: HookedModel) -> Any:
        """The activations to patch in, by hook name."""
        return model.run_with_cache(self.source, names_filter=self.hooks)[1]

    def judged(self, logits: Float[Tensor, "n pos d_vocab"]) -> Float[np.ndarray, "metric n"]:
        """Every metric of a whole run."""
        return np.stack([metric.of(logits).cpu().double().numpy() for metric in self.metrics])


class PatchMismatch(RuntimeError):
    """The fast path and the model's own hooked run disagree. This is a bug: no number of the sweep can be trusted."""


@torch.inference_mode()
def fast_values(model: ArithmeticTransformer, asked: PatchSpec, numbers: int | None = None) -> SweepValues:
    """The sweep's values by :class:`models.run.variants.Variants`, at most ``numbers`` at a time in an activation."""
    base, source, site, groups, metrics = asked.base, asked.source, asked.site, asked.groups, asked.metrics
    n, length = base.shape
    read = read_positions([metric.positions for metric in metrics], length)
    frame = Frame(model, read)
    places = [None if m.positions is None else as_slice([read.index(p % length) for p in m.positions]) for m in metrics]
    shape = asked.shape(model.config)
    out = np.empty((len(metrics), *shape, n))
    flat = out.reshape(len(metrics), len(asked.layers), -1, len(groups), n) if not site.by_source else None
    of_run: dict[str, list[np.ndarray]] = {"base": [], "source": []}
    for rows in _batches(n, length, model):

        def judge(logits: Tensor, rows: slice = rows) -> np.ndarray:
            found = [
                metric(logits if place is None else logits[..., place, :], rows)
                for metric, place in zip(metrics, places, strict=True)
            ]
            return torch.stack(found).double().cpu().numpy()

        run, other = Run(frame, base[rows]), Run(frame, source[rows])
        found = np.zeros((len(asked.layers), len(groups)), dtype=bool)

        def emit_of(
            layer: int, rows: slice = rows, found: Any = found, judge: Callable[[Tensor], np.ndarray] = judge
        ) -> Emit:
            i = asked.layers.index(layer)

            def emit(chosen: slice, which: list[int], logits: Tensor) -> None:
                values, found[i, which] = judge(logits), True
                if flat is not None:
                    flat[:, i][:, chosen, as_slice(which), rows] = values
                else:  # a part is (head, source group)
                    for k, part in enumerate(range(chosen.start, chosen.stop)):
                        head, origin = divmod(part, len(groups))
                        out[:, i, head, which, origin, rows] = values[:, k]

            return emit

        kind = "pattern" if site.by_source else site.of_run
        new = {layer: other.get(kind, layer) for layer in asked.layers}
        patched_in_layers(run, site.of_run, new, groups.places, emit_of, numbers)
        unpatched = judge(run.logits())  # after the sweeps, which may have computed them together with the variants
        of_run["base"].append(unpatched)
        of_run["source"].append(judge(other.logits()))
        of_base = unpatched[:, None, *[None] * (len(shape) - 2)]
        for i, missing in enumerate(~found):  # groups after every position that is read change nothing
            if missing.any():
                out[:, i][:, :, missing, ..., rows] = of_base
    return SweepValues(out, np.concatenate(of_run["base"], 1), np.concatenate(of_run["source"], 1))


@torch.no_grad()
def plain_values(model: HookedModel, asked: PatchSpec) -> SweepValues:
    """The same through the model's own hooks, for models without a fast path.

    Variants of small batches are stacked in one run, with the unpatched one if there is room. They are not stacked if
    the model has hooks of its own, which may depend on the batch.
    """
    of_source, cache = model.run_with_cache(asked.source, names_filter=asked.hooks)
    patcher = PlainPatcher(model, asked.base, cache)
    shape, unpatched = asked.shape(model.cfg), None
    out = np.empty((len(asked.metrics), *shape, len(asked.base)))
    cells = list(np.ndindex(*shape[1:]))
    at_once = PLAIN_AT_ONCE // (asked.base.numel() * _width(model.cfg, asked.base.shape[1]))
    if at_once < 2 or alterations(model):
        at_once = 1
    for layer in range(shape[0]):
        for start in range(0, len(cells), at_once):
            some = cells[start : start + at_once]
            room = unpatched is None and len(some) < at_once
            logits = patcher.patched([*_places(asked, layer, some), *([None] if room else [])])
            if room:
                unpatched = asked.judged(logits[-1])
            for cell, of_cell in zip(some, logits, strict=False):
                out[(slice(None), layer, *cell)] = asked.judged(of_cell)
    if unpatched is None:
        unpatched = asked.judged(patcher.logits())
    return SweepValues(out, unpatched, asked.judged(of_source), patcher.changes)


@torch.no_grad()
def differs(model: HookedModel, asked: PatchSpec) -> bool:
    """Whether the two runs' activations differ at the site by more than rounding."""
    other, own = asked.source_cache(model), model.run_with_cache(asked.base, names_filter=asked.hooks)[1]
    largest = max(float(own[name].abs().max()) for name in asked.hooks)
    return max(float((other[name] - own[name]).abs().max()) for name in asked.hooks) > ROUNDING * largest


@torch.no_grad()
def check_values(model: HookedModel, asked: PatchSpec, found: SweepValues) -> float:
    """The largest relative difference from hooked runs over some cells, including the one with the largest effect.

    Raises:
        PatchMismatch: the difference is more than rounding.
    """
    patcher = PlainPatcher(model, asked.base, asked.source_cache(model))
    shape = found.patched.shape[1:-1]
    effect = np.abs(found.patched - found.base.reshape(len(found.base), *[1] * len(shape), -1)).mean((0, -1))
    rng = np.random.default_rng(asked.check)
    drawn = rng.choice(effect.size, min(CHECKED, effect.size), replace=False).tolist()
    worst = 0.0
    for index in {int(effect.argmax()), *drawn}:
        cell = np.unravel_index(index, shape)
        logits = patcher.patched(_places(asked, int(cell[0]), [cell[1:]]))[0]
        for metric, true, ours in zip(
            asked.metrics, asked.judged(logits), found.patched[(slice(None), *cell)], strict=True
        ):
            error = float(np.abs(true - ours).max() / max(np.abs(true).max(), 1.0))
            worst = max(worst, error)
            allowed = TOLERANCE.get(logits.dtype, 2e-2)
            if not error <= allowed and not _rounds_over(metric, true, ours):
                where = ", ".join(str(int(x)) for x in cell)
                raise PatchMismatch(
                    f"Patching {asked.site.name} at ({where}) gives {metric.name} {ours.mean():.6g} by the fast path "
                    f"and {true.mean():.6g} through the model's hooks."
                )
    return worst


def _rounds_over(metric: Metric, true: np.ndarray, ours: np.ndarray) -> bool:
    """Whether an exact match differs only by rounding: it may flip where two logits tie; above 1% it is a bug."""
    return metric.name == "exact_match" and float((true != ours).mean()) <= 0.01


def _places(asked: PatchSpec, layer: int, cells: Any) -> list[Place | None]:
    """The places of cells (part, group, (source group)) in one of the sweep's layers."""
    site, layer, groups = asked.site, asked.layers[layer], asked.groups.places
    return [
        site.place(layer, int(part), groups[int(group)], groups[int(origin[0])] if origin else None)
        for part, group, *origin in cells
    ]


def _width(cfg: Any, length: int) -> int:
    """Numbers per token in the widest activation."""
    return max(cfg.d_model, cfg.d_mlp or 0, cfg.n_heads * length)


def _batches(n: int, length: int, model: ArithmeticTransformer) -> list[slice]:
    size = max(1, ROWS_AT_ONCE // (length * _width(model.config, length)))
    size = -(-n // -(-n // size))  # batches of about equal size
    return slices(n, size)


def read_positions(positions: Sequence[Sequence[int] | None], n_pos: int) -> list[int]:
    """All positions that some metric reads, in ascending order; None reads all."""
    if any(p is None for p in positions):
        return list(range(n_pos))
    return sorted({p % n_pos for read in positions for p in read or ()})
