"""What a run and its variants must give: the same by the hooked forward, all variants of a site in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.run.groups import Groups, everywhere
from models.run.run import Frame, Run
from models.run.variants import Variants
from models.transformer.arithmetic_transformer import ArithmeticTransformer

#: Each site of a layer: its hook, and the axis of its heads or neurons, if it has any.
SITES: dict[str, tuple[str, int | None]] = {
    "resid_pre": ("hook_resid_pre", None),
    "q": ("attn.hook_q", 2),
    "k": ("attn.hook_k", 2),
    "v": ("attn.hook_v", 2),
    "pattern": ("attn.hook_pattern", 1),
    "pattern_dest_src": ("attn.hook_pattern", 1),
    "z": ("attn.hook_z", 2),
    "attn_out": ("hook_attn_out", None),
    "resid_mid": ("hook_resid_mid", None),
    "post": ("mlp.hook_post", 2),
    "mlp_out": ("hook_mlp_out", None),
    "resid_post": ("hook_resid_post", None),
}
OF_MLP = ("resid_mid", "post", "mlp_out")


def sites_of(model: ArithmeticTransformer) -> list[str]:
    return [site for site in SITES if model.config.d_mlp or site not in OF_MLP]


def two_batches(model: ArithmeticTransformer, n: int = 2) -> tuple[Tensor, Tensor]:
    first, second = (model.task.encode(model.task.sample(n, torch.Generator().manual_seed(s))) for s in (1, 2))
    return first, second


def patched(
    model: ArithmeticTransformer, tokens: Tensor, cache: Any, site: str, layer: int, groups: Groups, read: Sequence[int]
) -> Tensor:
    """Logits [part, group, batch, read, d_vocab] with each part at each group taken from the cache, through hooks."""
    name, axis = SITES[site]
    hook = f"blocks.{layer}.{name}"
    other, n_groups, length = cache[hook], len(groups), tokens.shape[1]
    by_source = site == "pattern_dest_src"
    n_parts = (1 if axis is None else other.shape[axis]) * (n_groups if by_source else 1)

    def patch(x: Tensor, hook: Any) -> Tensor:
        every = x.unflatten(0, (n_parts, n_groups, -1)).clone()
        for part in range(n_parts):
            head, source = divmod(part, n_groups) if by_source else (part, 0)
            for g, group in enumerate(groups):
                take = torch.zeros(other.shape[1:], dtype=torch.bool)
                positions = take.movedim(1 if name == "attn.hook_pattern" else 0, 0)
                own = positions[list(group)].clone()
                chosen = own if axis is None else own.select(axis - 1 if axis == 2 else 1, head)
                if by_source:
                    chosen[:, list(groups[source])] = True
                else:
                    chosen[:] = True
                positions[list(group)] = own
                every[part, g] = torch.where(take, other, every[part, g])
        return every.flatten(0, 2)

    logits = model.run_with_hooks(tokens.repeat(n_parts * n_groups, 1), fwd_hooks=[(hook, patch)])
    assert length == logits.shape[1]
    return logits.unflatten(0, (n_parts, n_groups, -1))[:, :, :, list(read)]


def by_variants(
    model: ArithmeticTransformer,
    tokens: Tensor,
    other: Tensor,
    site: str,
    layer: int,
    groups: Groups,
    read: Sequence[int],
    numbers: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The same by :class:`Variants`, and the run's own logits; what is not emitted is the run's."""
    frame = Frame(model, read)
    run, source = Run(frame, tokens), Run(frame, other)
    found: dict[tuple[int, int], Tensor] = {}

    def emit(parts: slice, which: list[int], logits: Tensor) -> None:
        for i, part in enumerate(range(parts.start, parts.stop)):
            found.update({(part, group): logits[i, j] for j, group in enumerate(which)})

    new = source.get("pattern" if site == "pattern_dest_src" else site, layer)
    Variants(run, groups, emit, numbers).patched(site, layer, new)
    axis, cfg = SITES[site][1], model.config
    n_parts = 1 if axis is None else cfg.d_mlp if site == "post" else cfg.n_heads
    n_parts *= len(groups) if site == "pattern_dest_src" else 1
    own = run.logits()
    table = [[found.get((part, group), own) for group in range(len(groups))] for part in range(n_parts)]
    return torch.stack([torch.stack(row) for row in table]), own


def groupings(length: int) -> dict[str, Groups]:
    """Each position, all positions, and groups of several, of which one holds positions apart."""
    return {
        "position": tuple((p,) for p in range(length)),
        "all": everywhere(length),
        "several": ((0, length - 1), (1, 2), (length - 2,)),
    }
