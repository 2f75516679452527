"""Attribution patching against real patching, where gradients can mislead: signs of |.| and the step of top-k.

Attribution patching (Nanda, 2023; Syed et al., 2023) estimates the effect of replacing an activation on the loss by its
first-order term, ``(x_corrupted - x_clean) . d loss / d x``, for all components from one backward pass. In AddLM the
gradient of a score is a sign, constant until a coordinate of q crosses one of k, and a key that is not among the best
has no gradient at all, however close it is to being chosen. So the estimate is compared with the effect of real
patching, for q, k, v and z of every head, on AddLM and on a float model of the same shape, at full replacement and at a
small part of the way (``x + step (x_corrupted - x)``), where a first-order term should be right if anything is smooth.
Two kinds of corrupted input are used: another window of text, and the same window with one character changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.core import runs
from interp.core.agreement import agreement
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.papers.addlm.heads import mean_losses, window_losses
from models.errors import UserError, unknown_name
from models.transformer import ArithmeticTransformer

KINDS = ("q", "k", "v", "z")


@dataclass(frozen=True, eq=False)
class PatchingCheck(Result):
    """``effects`` over (step, kind, layer, head, window): ``real``, the rise of the window's loss (nats per character)
    when the activation is moved ``step`` of the way to the corrupted one, and ``estimate``, its first-order term."""

    model: str
    corruption: str
    effects: xr.Dataset
    provenance: Provenance

    def sentence(self) -> str:
        table = self.to_dataframe().set_index(["step", "kind"])
        full = max(self.effects.step.values.tolist())
        parts = [f"{kind} {table.loc[(full, kind), 'spearman']:.2f}" for kind in self.effects.kind.values.tolist()]
        return (
            f"{self.model}, {self.corruption}: over heads and windows, estimated and real effects have rank "
            f"correlations {', '.join(parts)}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per step and kind.

        ``spearman``: the rank correlation over all (head, window) pairs; ``spearman_heads``: that of the heads' means
        over windows, with its permutation ``p``; ``ratio``: the least-squares factor from estimate to real effect
        through the origin; ``same_sign``: a share of pairs; ``mean_real`` and ``mean_estimate``, in nats.
        """
        rows = []
        for step in self.effects.step.values.tolist():
            for kind in self.effects.kind.values.tolist():
                part = self.effects.sel(step=step, kind=kind)
                real, estimate = (part[name].values.reshape(-1, part.window.size) for name in ("real", "estimate"))
                found = agreement(estimate, real)
                rows.append(
                    {
                        "step": step,
                        "kind": kind,
                        "pairs": real.size,
                        "spearman": found.spearman_pairs,
                        "ratio": found.ratio,
                        "same_sign": found.same_sign,
                        "heads": found.cells,
                        "spearman_heads": found.spearman,
                        "p": found.p,
                        "mean_real": float(real.mean()),
                        "mean_estimate": float(estimate.mean()),
                    }
                )
        return pd.DataFrame(rows)


def other_window(tokens: Int[Tensor, "window pos"]) -> Int[Tensor, "window pos"]:
    """The corrupted input of each window: the next window."""
    return tokens.roll(-1, 0)


def one_character(tokens: Int[Tensor, "window pos"]) -> Int[Tensor, "window pos"]:
    """Windows in which only the middle character is changed, to that of the next window in which it differs."""
    middle, corrupted = tokens.shape[1] // 2, tokens.clone()
    for row in range(len(tokens)):
        later = tokens.roll(-row, 0)[:, middle]
        different = later[later != tokens[row, middle]]
        if not len(different):
            raise UserError("All windows have one character in the middle: nothing to change it to.")
        corrupted[row, middle] = different[0]
    return corrupted


CORRUPTIONS = {"another window": other_window, "one character": one_character}


def check_patching(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "window pos"],
    targets: Int[Tensor, "window pos"],
    source: str,
    corruption: str = "another window",
    steps: Sequence[float] = (0.05, 1.0),
) -> PatchingCheck:
    """Move every head's q, k, v and z, window by window, towards their values on the corrupted input.

    All positions of a head are replaced at once. Cost: 4 L H forward passes per step, one backward pass and two more.

    Raises:
        UserError: fewer than two windows, an unknown corruption, or a step outside (0, 1].
    """
    if corruption not in CORRUPTIONS:
        raise unknown_name("corruption", corruption, CORRUPTIONS)
    if len(tokens) < 2 or not all(0 < step <= 1 for step in steps):
        raise UserError("The check needs at least two windows, and steps above 0 and up to 1.")
    cfg = model.config
    names = [f"blocks.{layer}.attn.hook_{kind}" for kind in KINDS for layer in range(cfg.n_layers)]
    clean, gradients, base = _first_order(model, tokens, targets, names)
    held, _ = runs.read(model, CORRUPTIONS[corruption](tokens), [Site(name, None) for name in names])
    towards = dict(zip(names, held, strict=True))
    shape = (len(steps), len(KINDS), cfg.n_layers, cfg.n_heads, len(tokens))
    effects = {name: np.zeros(shape) for name in ("real", "estimate")}
    for at in np.ndindex(*shape[:4]):
        site = Site(f"blocks.{at[2]}.attn.hook_{KINDS[at[1]]}", None, head=at[3])
        change = steps[at[0]] * (site.read(towards[site.hook]) - site.read(clean[site.hook]))
        edit = site.put(lambda own, rows, change=change: own + change[rows])
        effects["real"][at] = (window_losses(model, tokens, targets, [edit]) - base).double()
        effects["estimate"][at] = (change * site.read(gradients[site.hook])).sum((1, 2, 3)).double()
    dims = ("step", "kind", "layer", "head", "window")
    coords = {"step": list(steps), "kind": list(KINDS)}
    dataset = xr.Dataset({name: (dims, values) for name, values in effects.items()}, coords)
    return PatchingCheck(model_name(model), corruption, dataset, Provenance(len(tokens), None, source))


@torch.enable_grad()
def _first_order(
    model: ArithmeticTransformer, tokens: Tensor, targets: Tensor, names: list[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Activations on the clean input, gradients of its losses there, and those losses."""
    parts = []
    for rows, logits, kept in runs.passes(model, tokens, keep=names, gradients=True):
        losses = mean_losses(logits, targets[rows])
        found = torch.autograd.grad(losses.sum(), [kept[name] for name in names])
        parts.append(([kept[name].detach() for name in names], found, losses.detach()))
    clean, gradients, losses = zip(*parts, strict=True)
    join = lambda chunks: dict(zip(names, map(torch.cat, zip(*chunks, strict=True)), strict=True))  # noqa: E731
    return join(clean), join(gradients), torch.cat(losses)
