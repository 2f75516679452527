"""Many runs of the same tokens, each with other replacements: what comes before them is taken from the plain run.

    for rows, logits, run in resumed(model, tokens, hooks, first):
        replaced = run(replacements)

A replacement at a head's output, a neuron or what a sublayer writes leaves all earlier layers as they were. From its
layer on the formulas are those of :mod:`models.fast`, and in the last layer only the positions from ``first`` on are
computed. The logits differ from those of the hooked run by rounding. Replacements elsewhere, or in several layers at
once, and models that :func:`models.fast.stands_for` does not know, are run whole, through the model's hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core.places import Replacement
from interp.core.runs import Activations, passes
from models import ArithmeticTransformer
from models.fast import layers as fast
from models.transformer import HookedModel, in_block

_Z, _ATTENTION, _POST, _MLP = SITES = ("attn.hook_z", "hook_attn_out", "mlp.hook_post", "hook_mlp_out")

#: Numbers in the widest activation of examples that run on together. Twice as many take twice as long each, as they
#: leave the processor's cache and get new memory at every step.
NUMBERS_AT_ONCE = 2**19

#: From replacements to logits [chunk, pos, d_vocab], which are NaN before the first position that is read.
Run = Callable[[Sequence[Replacement]], Tensor]


def resumed(
    model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: Sequence[str], first: int = 0
) -> Iterator[tuple[slice, Float[Tensor, "chunk pos d_vocab"], Run]]:
    """(rows of the sample, the model's own logits, a function that runs these rows with replacements), chunk by chunk.

    Args:
        hooks: where there will be replacements; the activations there are kept.
        first: the first position whose logits are read.

    Raises:
        UserError: a hook point that is to be replaced never fires.
    """
    knows = isinstance(model, ArithmeticTransformer) and fast.stands_for(model)
    layers = {layer for layer in map(_layer_of, hooks) if layer is not None} if knows else set()
    keep = [hook for hook in hooks if _layer_of(hook) in layers]
    keep += [in_block(layer, name) for layer in sorted(layers) for name in ("hook_resid_pre", _ATTENTION)]
    for rows, logits, kept in passes(model, tokens, keep=keep):
        yield rows, logits, partial(_run, model, tokens[rows], kept, layers, first)


def _layer_of(hook: str) -> int | None:
    """The layer of an edit after which a run can be resumed."""
    _, _, inner = hook.partition("blocks.")
    layer, _, site = inner.partition(".")
    return int(layer) if site in SITES else None


def _run(
    model: Any, batch: Tensor, kept: Activations, layers: set[int], first: int, replacements: Sequence[Replacement]
) -> Float[Tensor, "chunk pos d_vocab"]:
    replaced = {_layer_of(hook) for hook, _ in replacements}
    layer = next(iter(replaced)) if len(replaced) == 1 else None
    if layer is None or layer not in layers:
        return next(passes(model, batch, replacements))[1]
    with torch.no_grad():
        return _rest(model, batch.to(model.device), kept, layer, first, replacements)


def _rest(
    model: ArithmeticTransformer,
    batch: Tensor,
    kept: Activations,
    layer: int,
    first: int,
    replacements: Sequence[Replacement],
) -> Float[Tensor, "chunk pos d_vocab"]:
    """Logits with replacements in one layer."""
    weights, blocks, n_pos = model.cached_weights(), fast.blocks_of(model), batch.shape[1]
    block, last = blocks[layer], len(blocks) - 1
    sites = {hook.removeprefix(in_block(layer) + ".") for hook, _ in replacements}
    of_attention, of_mlp = bool(sites & {_Z, _ATTENTION}), bool(sites & {_POST, _MLP})
    # Nothing reads the last layer's earlier positions, but an edit sees all that there are.
    from_here = first if layer == last and not (of_attention and of_mlp) else 0

    def changed(site: str, value: Tensor) -> Tensor:
        for hook, change in replacements:
            if hook == in_block(layer, site):
                value = change(value, slice(0, len(batch)))
        return value

    before = kept[in_block(layer, "hook_resid_pre")][:, from_here:]
    attn_out = kept[in_block(layer, _ATTENTION)]
    if _Z in sites:
        attn_out = fast.heads_output(block.attn, changed(_Z, kept[in_block(layer, _Z)]), weights)
    attn_out = changed(_ATTENTION, attn_out)[:, from_here:]
    stream = fast.add_attention(block, before, attn_out, weights)
    if of_mlp:
        if of_attention:
            post = block.mlp.hidden(fast.mlp_input(block, before, stream, weights), weights)
        else:
            post = kept[in_block(layer, _POST)] if _POST in sites else None
        out = kept[in_block(layer, _MLP)] if post is None else block.mlp.write(changed(_POST, post), weights)
        stream = fast.add_mlp(block, stream, changed(_MLP, out)[:, -stream.shape[1] :], weights)
    fire = fast.fire_bias(model, weights, n_pos) if model.config.positional_embedding_type == "fire" else None
    width = max(model.config.d_mlp, model.config.d_model, model.config.n_heads * n_pos)
    size, found = max(1, NUMBERS_AT_ONCE // (n_pos * width)), []
    for tokens, old, part in zip(batch.split(size), before.split(size), stream.split(size), strict=True):
        part = part if of_mlp else fast.through_mlp(block, old, part, weights)
        bias = model.window_bias(tokens, None) if fire is None else fire
        for index in range(layer + 1, len(blocks)):
            part = fast.block_output(blocks[index], part, weights, bias, first if index == last else 0)
        found.append(fast.unembed(model, part, weights))
    logits = torch.cat(found)
    return F.pad(logits, (0, 0, n_pos - logits.shape[1], 0), value=float("nan"))
