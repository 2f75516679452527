"""Attribution patching against real patching, where gradients can mislead: signs of |.| and the step of top-k.

Attribution patching (Nanda, 2023; Syed et al., 2023) estimates what replacing an activation would do to the loss by its
first-order term, ``(x_corrupted - x_clean) . d loss / d x``, all components from one backward pass. In AddLM the
gradient of a score is a sign, constant until a coordinate of q crosses one of k, and a key that is not among the best
has no gradient at all, however close it is to being chosen. So the estimate is compared with what patching really does,
for q, k, v and z of every head, on AddLM and on a float model of the same shape, at full replacement and at a small
part of the way (``x + step (x_corrupted - x)``), where a first-order term should be right if anything is smooth. Two
kinds of corrupted input are used: another window of text, and the same with one character changed.
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
from torch.nn import functional as F

from interp.core.agreement import agreement
from interp.core.results import Provenance, Result
from models.errors import UserError, unknown_name
from models.transformer import ArithmeticTransformer

KINDS = ("q", "k", "v", "z")


@dataclass(frozen=True, eq=False)
class PatchingCheck(Result):
    """``effects`` over (step, kind, layer, head, window): ``real``, the rise of the window's loss (nats a character)
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
        """One row a step and kind.

        ``spearman``: rank correlation over all (head, window) pairs, ``spearman_heads``: of the heads' means over
        windows, with its permutation ``p``; ``ratio``, the least-squares factor from estimate to real effect through
        the origin; ``same_sign``, share of pairs; ``mean_real`` and ``mean_estimate``, nats.
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
    """Each window's corrupted input is the next window."""
    return tokens.roll(-1, 0)


def one_character(tokens: Int[Tensor, "window pos"]) -> Int[Tensor, "window pos"]:
    """The character in the middle becomes that of the next window in which it differs; all others stay."""
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
    """Every head's q, k, v and z, window by window, moved towards what they are on the corrupted input.

    All positions of a head are replaced at once. Cost: 4 L H forward passes a step, one backward pass and two more.

    Raises:
        UserError: fewer than two windows, an unknown corruption, or a step outside (0, 1].
    """
    if corruption not in CORRUPTIONS:
        raise unknown_name("corruption", corruption, CORRUPTIONS)
    if len(tokens) < 2 or not all(0 < step <= 1 for step in steps):
        raise UserError("The check needs at least two windows, and steps above 0 and up to 1.")
    cfg = model.config
    names = [f"blocks.{layer}.attn.hook_{kind}" for kind in KINDS for layer in range(cfg.n_layers)]
    clean, towards, gradients, base = _first_order(model, tokens, CORRUPTIONS[corruption](tokens), targets, names)
    shape = (len(steps), len(KINDS), cfg.n_layers, cfg.n_heads, len(tokens))
    effects = {name: np.zeros(shape) for name in ("real", "estimate")}
    for at in np.ndindex(*shape[:4]):
        step, kind, layer, head = steps[at[0]], KINDS[at[1]], at[2], at[3]
        name = f"blocks.{layer}.attn.hook_{kind}"
        mine = (torch.arange(cfg.n_heads) == head)[:, None]
        change = torch.where(mine, step * (towards[name] - clean[name]), 0.0)
        with torch.no_grad():
            patched = _losses(model, tokens, targets, [(name, lambda x, hook, c=change: x + c)])
        effects["real"][at] = (patched - base).double()
        effects["estimate"][at] = (change * gradients[name]).sum((1, 2, 3)).double()
    dims = ("step", "kind", "layer", "head", "window")
    coords = {"step": list(steps), "kind": list(KINDS)}
    dataset = xr.Dataset({name: (dims, values) for name, values in effects.items()}, coords)
    return PatchingCheck(model.name_or_path or "a model", corruption, dataset, Provenance(len(tokens), None, source))


def _first_order(
    model: ArithmeticTransformer, tokens: Tensor, corrupted: Tensor, targets: Tensor, names: list[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Activations on the clean and the corrupted input, gradients of the clean losses, and those losses."""
    clean: dict[str, Tensor] = {}
    towards: dict[str, Tensor] = {}
    with torch.enable_grad():
        losses = _losses(model, tokens, targets, _keep(names, clean))
        found = torch.autograd.grad(losses.sum(), [clean[name] for name in names])
    with torch.no_grad():
        _losses(model, corrupted, targets, _keep(names, towards))
    gradients = dict(zip(names, found, strict=True))
    return {name: x.detach() for name, x in clean.items()}, towards, gradients, losses.detach()


def _keep(names: list[str], into: dict[str, Tensor]) -> list:
    return [(name, lambda x, hook: into.__setitem__(hook.name, x)) for name in names]


def _losses(model: ArithmeticTransformer, tokens: Tensor, targets: Tensor, hooks: list) -> Tensor:
    logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)
