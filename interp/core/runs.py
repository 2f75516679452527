"""Run a model chunk by chunk, reading pieces of its activations or replacing them.

    held, logits = read(model, tokens, [place], queries)            place = Place("blocks.0.attn.hook_z", None, head=1)
    logits = run(model, tokens, [place.put(held[0].mean(0))], queries)

All replacements of one run act together; :meth:`interp.core.places.Place.put` makes them. Chunks are those of
:func:`interp.core.batches.chunks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core.batches import chunks, slices
from interp.core.places import Place, Replacement
from models.errors import UserError
from models.run import Frame, Run, Variants, everywhere, has_run
from models.run.blocks import seen_hooks
from models.run.run import AT_ONCE, JoinedRun, layer_of
from models.transformer import HookedModel, in_block

Activations = dict[str, Tensor]
#: Where a run is looked at for its first number that is not finite, in its order.
_LOOKED_AT = (
    "hook_resid_pre",
    "attn.hook_pattern",
    "attn.hook_z",
    "hook_attn_out",
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
)
#: Numbers of the logits of heads or neurons that are held together.
HELD_AT_ONCE = 2**24


def passes(
    model: HookedModel,
    tokens: Int[Tensor, "n pos"],
    replacements: Sequence[Replacement] = (),
    keep: Iterable[str] = (),
    gradients: bool = False,
) -> Iterator[tuple[slice, Float[Tensor, "chunk pos d_vocab"], Activations]]:
    """(rows of the sample, logits, activations by hook after the replacements), chunk by chunk.

    ``gradients``: record what they need, unless gradients are switched off around the call.

    Raises:
        UserError: a hook point that is to be kept or replaced never fires.
    """
    kept_hooks, start = list(dict.fromkeys(keep)), 0
    for batch in chunks(tokens, model):
        rows, fired = slice(start, start := start + len(batch)), set[str]()
        kept: Activations = {}
        hooks = [
            (name, partial(_replace, name=name, change=change, rows=rows, fired=fired)) for name, change in replacements
        ]
        hooks += [(name, partial(_keep, name=name, kept=kept)) for name in kept_hooks]
        try:
            with torch.set_grad_enabled(gradients and torch.is_grad_enabled()):
                logits = model.run_with_hooks(batch, fwd_hooks=hooks)
        except AssertionError as error:  # a hook on a point that is switched off
            raise UserError(str(error)) from None
        for name in (*kept_hooks, *(name for name, _ in replacements)):
            if name not in kept and name not in fired:
                raise UserError(
                    f"The hook point {name!r} exists and never fires in this model: some need a switch such as "
                    "use_attn_result."
                )
        yield rows, logits, kept


def _replace(activation: Tensor, hook: Any, name: str, change: Any, rows: slice, fired: set[str]) -> Tensor:
    fired.add(name)
    return change(activation, rows)


def _keep(activation: Tensor, hook: Any, name: str, kept: Activations) -> None:
    kept[name] = activation


class BaseRun:
    """The run of one chunk of a sample as it is, beside which it is run with replacements.

    What comes before a replacement is taken from this run, and in the last layer only the positions from ``first`` on
    are computed (:mod:`models.run`); logits differ from the hooked run's by rounding. A model that has no such run, and
    replacements at other hooks, go through the model's own hooks, as a whole.
    """

    def __init__(self, model: HookedModel, tokens: Int[Tensor, "chunk pos"], rows: slice, first: int):
        self.model, self.tokens, self.rows, self.first = model, tokens, rows, first
        self._hooks = {in_block(i, name) for i in range(model.cfg.n_layers) for name in seen_hooks(model.config)} if (
            has_run(model)
        ) else set[str]()  # fmt: skip

    @cached_property
    def _pieces(self) -> list[tuple[slice, Run, Run]]:
        """Examples that stay in the processor's cache together, with their run at all positions, and where logits are
        read."""
        n, model = self.tokens.shape[1], cast(Any, self.model)
        whole, read = Frame(model, range(n)), Frame(model, range(self.first, n))
        found = []
        with torch.no_grad():
            for examples in slices(len(self.tokens), max(1, AT_ONCE // (n * max(whole.width, whole.cfg.n_heads * n)))):
                run = Run(whole, self.tokens[examples])
                run.get("v", whole.n_layers - 1)  # what is known by now, both have
                found.append((examples, run, run.of(read, slice(None))))
        return found

    @cached_property
    def _joined(self) -> Run:
        return JoinedRun([run for _, run, _ in self._pieces])

    @cached_property
    def _kept(self) -> Activations:
        """What was held of a hooked run."""
        return {}

    def held(self, hooks: Iterable[str]) -> Activations:
        """The activations at these hooks."""
        hooks = list(hooks)
        if self._hooks.issuperset(hooks):
            with torch.no_grad():
                return {hook: self._joined.get(hook.rpartition("hook_")[2], layer_of(hook)) for hook in hooks}
        if missing := [hook for hook in hooks if hook not in self._kept]:
            self._kept.update(next(passes(self.model, self.tokens, keep=missing))[2])
        return {hook: self._kept[hook] for hook in hooks}

    def logits(self) -> Float[Tensor, "chunk pos d_vocab"]:
        """The model's own logits, NaN before the first position that is read."""
        if not self._hooks:
            return next(passes(self.model, self.tokens))[1]
        with torch.no_grad():
            return self._padded(torch.cat([run.logits() for _, _, run in self._pieces]))

    @torch.no_grad()
    def replaced(self, replacements: Sequence[Replacement]) -> Float[Tensor, "chunk pos d_vocab"]:
        """Logits with these replacements, which act together; NaN before the first position that is read."""
        if not self._hooks.issuperset(hook for hook, _ in replacements):
            return next(passes(self.model, self.tokens, replacements))[1]
        rows = slice(0, len(self.tokens))
        changes = [(hook, lambda x, change=change: change(x, rows)) for hook, change in replacements]
        return self._padded(self._joined.replaced(changes, frame=self._pieces[0][2].frame))

    def each(
        self, hook: str, parts: Sequence[int], new: Float[Tensor, "#chunk pos ..."]
    ) -> Iterator[tuple[int, Float[Tensor, "chunk pos d_vocab"]]]:
        """(part, logits) with one head's output ("attn.hook_z") or neuron ("mlp.hook_post") at a time taken from
        ``new``, at all positions."""
        site = hook.rpartition("hook_")[2]
        if hook not in self._hooks:
            for part in parts:
                place = Place(hook, None, head=part) if site == "z" else Place(hook, None, neuron=part)
                yield part, self.replaced([Replacement(hook, lambda x, rows, at=place: at.take(x, new.to(x)))])
            return
        layer, frame = layer_of(hook), self._pieces[0][2].frame
        a_part = len(self.tokens) * len(frame.read) * frame.cfg.n_logits
        new = new[:, frame.first :] if frame.is_last(layer) else new
        for some in (parts[at] for at in slices(len(parts), max(1, HELD_AT_ONCE // a_part))):
            found: list[list[Tensor]] = [[] for _ in some]

            def emit(which: slice, _: list[int], logits: Tensor, found: list[list[Tensor]] = found) -> None:
                for kept, one in zip(found[which], logits[:, 0], strict=True):
                    kept.append(one)

            with torch.no_grad():
                for examples, _, run in self._pieces:
                    theirs = new[examples] if len(new) > 1 else new
                    theirs = theirs.to(run.get(site, layer))
                    Variants(run, everywhere(frame.n_pos), emit).patched(site, layer, theirs, list(some))
            for part, kept in zip(some, found, strict=True):
                yield part, self._padded(torch.cat(kept))

    def _padded(self, logits: Tensor) -> Float[Tensor, "chunk pos d_vocab"]:
        return F.pad(logits, (0, 0, self.first, 0), value=float("nan"))


def base_runs(model: HookedModel, tokens: Int[Tensor, "n pos"], first: int = 0) -> Iterator[BaseRun]:
    """The runs of a sample, chunk by chunk; ``first`` is the first position whose logits are read."""
    start = 0
    for batch in chunks(tokens, model):
        yield BaseRun(model, batch, slice(start, start := start + len(batch)), first)


def read(
    model: HookedModel, tokens: Int[Tensor, "n pos"], places: Sequence[Place], queries: Sequence[int] | None = None
) -> tuple[list[Float[Tensor, "n ..."]], Float[Tensor, "n query d_vocab"]]:
    """What each place holds in each example, and the logits at the queries (default: all), from one run.

    Raises:
        UserError: a hook point that never fires, or logits that are NaN.
    """
    held: list[list[Tensor]] = [[] for _ in places]
    found = []
    for rows, logits, kept in passes(model, tokens, keep=[place.hook for place in places]):
        for place, parts in zip(places, held, strict=True):
            parts.append(place.read(kept[place.hook]))
        found.append(logits if queries is None else logits[:, list(queries)])
        require_numbers(model, tokens[rows], found[-1])
    return [torch.cat(parts) for parts in held], torch.cat(found)


def run(
    model: HookedModel,
    tokens: Int[Tensor, "n pos"],
    replacements: Sequence[Replacement] = (),
    queries: Sequence[int] | None = None,
    gradients: bool = False,
) -> Float[Tensor, "n query d_vocab"]:
    """Logits at the queries (default: all) with the replacements.

    Raises:
        UserError: a hook point that never fires, or logits that are NaN.
    """
    found = []
    for rows, logits, _ in passes(model, tokens, replacements, (), gradients):
        found.append(logits if queries is None else logits[:, list(queries)])
        require_numbers(model, tokens[rows], found[-1], replacements, rows)
    return torch.cat(found)


def require_finite(found: Mapping[str, Tensor | np.ndarray]) -> None:
    """Refuse numbers that are not finite.

    Raises:
        UserError: with the first name, in the order of the mapping, of what holds one. Activations that
            :func:`passes` keeps are in the order of the run.
    """
    for name, values in found.items():
        if not bool(torch.as_tensor(values).isfinite().all()):
            raise UserError(f"{name} holds a number that is not finite: the model has diverged.")


def require_numbers(
    model: HookedModel,
    tokens: Int[Tensor, "chunk pos"],
    logits: Float[Tensor, "chunk query d_vocab"],
    replacements: Sequence[Replacement] = (),
    rows: slice | None = None,
) -> None:
    """Refuse logits of one chunk that are NaN, which argmax would read as the digit 0.

    Raises:
        UserError: with the first place of another run that holds a number that is not finite.
    """
    if not bool(logits.isnan().any()):
        return
    kept: Activations = {}
    names = ["hook_embed", *(in_block(layer, name) for layer in range(model.cfg.n_layers) for name in _LOOKED_AT)]
    hooks = [(name, lambda x, hook, change=change: change(x, rows)) for name, change in replacements]
    hooks += [(name, partial(_keep, name=name, kept=kept)) for name in names if name in model.hook_dict]
    with torch.no_grad():
        model.run_with_hooks(tokens.to(logits.device), fwd_hooks=hooks)
    require_finite(kept)
    raise UserError("The model's logits are NaN: the model has diverged.")


def read_patterns(
    model: HookedModel, tokens: Int[Tensor, "n pos"], rows: Sequence[int] | None = None
) -> Iterator[Float[np.ndarray, "chunk layer head query key"]]:
    """The patterns of every layer, chunk by chunk, at all query positions or only at ``rows``.

    Cost: one forward pass per chunk. Raises UserError where the model has diverged.
    """
    names = [in_block(layer, "attn.hook_pattern") for layer in range(model.cfg.n_layers)]
    queries = slice(None) if rows is None else list(rows)
    for _, _, kept in passes(model, tokens, keep=names):
        found = {name: kept[name][:, :, queries].float().cpu() for name in names}
        require_finite(found)
        yield np.stack([pattern.numpy() for pattern in found.values()], 1)
