"""Run a model chunk by chunk, reading pieces of its activations or replacing them.

    held, logits = read(model, tokens, [place], queries)            place = Place("blocks.0.attn.hook_z", None, head=1)
    logits = run(model, tokens, [place.put(held[0].mean(0))], queries)

All replacements of one run act together; :meth:`interp.core.places.Place.put` makes them. Chunks are those of
:func:`interp.core.problems.chunks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.places import Place, Replacement
from interp.core.problems import chunks
from models.errors import UserError
from models.transformer import HookedModel, in_block

Activations = dict[str, Tensor]


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


def read(
    model: HookedModel, tokens: Int[Tensor, "n pos"], places: Sequence[Place], queries: Sequence[int] | None = None
) -> tuple[list[Float[Tensor, "n ..."]], Float[Tensor, "n query d_vocab"]]:
    """What each place holds in each example, and the logits at the queries (default: all), from one run.

    Raises:
        UserError: a hook point that never fires, or logits that are NaN.
    """
    held: list[list[Tensor]] = [[] for _ in places]
    found = []
    for _, logits, kept in passes(model, tokens, keep=[place.hook for place in places]):
        for place, parts in zip(places, held, strict=True):
            parts.append(place.read(kept[place.hook]))
        found.append(_numbers(logits, queries))
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
    return torch.cat([_numbers(logits, queries) for _, logits, _ in passes(model, tokens, replacements, (), gradients)])


def _numbers(
    logits: Float[Tensor, "chunk pos d_vocab"], queries: Sequence[int] | None
) -> Float[Tensor, "chunk query d_vocab"]:
    """The logits there, refused where they are NaN: argmax would read NaNs as the digit 0."""
    found = logits if queries is None else logits[:, list(queries)]
    if found.isnan().any():
        raise UserError("The model's logits are NaN, so that it has no answers; do its weights hold NaN or infinity?")
    return found


def read_patterns(
    model: HookedModel, tokens: Int[Tensor, "n pos"], rows: Sequence[int] | None = None
) -> Iterator[Float[np.ndarray, "chunk layer head query key"]]:
    """The patterns of every layer, chunk by chunk, at all query positions or only at ``rows``.

    Cost: one forward pass per chunk. Raises UserError where the model has diverged.
    """
    names = [in_block(layer, "attn.hook_pattern") for layer in range(model.cfg.n_layers)]
    queries = slice(None) if rows is None else list(rows)
    for _, _, kept in passes(model, tokens, keep=names):
        stacked = np.stack([kept[name][:, :, queries].float().cpu().numpy() for name in names], 1)
        if not np.isfinite(stacked).all():
            raise UserError("The attention pattern holds NaN: the model has diverged.")
        yield stacked
