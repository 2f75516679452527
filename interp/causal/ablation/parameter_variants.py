"""Variants of a small model with each free parameter, or each pair, replaced: parameter rows for one stacked run."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from models import ArithmeticTransformer
from models.errors import UserError, unknown_name
from models.transformer import require_unaltered

#: A block of this many variants and problems keeps its logits in the processor's cache.
VARIANTS_AT_ONCE, ROWS_AT_ONCE = 16, 512
MOST_VARIANTS = 20_000
CONTROLS = 4  # random directions per parameter


@dataclass(frozen=True, eq=False)
class ParameterVariants:
    """Rows of ``theta`` [variant, parameter]: the model itself, one row per single, one per pair, then the controls.

    ``chosen`` are the parameters that are replaced (all or some), and ``pairs`` index into ``chosen``. Each single has
    ``CONTROLS`` draws, which move the whole parameter vector as far as the single does, in a random direction.
    """

    names: list[str]  # names of the chosen parameters
    chosen: list[int]
    trained: Float[Tensor, " parameter"]
    replacement: Float[Tensor, " parameter"]
    pairs: Int[Tensor, "2 pair"]
    theta: Float[Tensor, "variant parameter"]

    @property
    def singles(self) -> slice:
        return slice(1, 1 + len(self.chosen))

    @property
    def pair_rows(self) -> slice:
        return slice(self.singles.stop, self.singles.stop + self.pairs.shape[1])


def parameter_names(model: ArithmeticTransformer) -> list[str]:
    """The names of all free numbers, in the order of the parameters: "arc_A", "W_qk[0,1]"."""
    return [
        f"{name}[{place}]" if place else name
        for name, parameter in model.weight_map.named_parameters()
        for place in places(tuple(parameter.shape))
    ]


def flat_parameters(model: ArithmeticTransformer) -> Float[Tensor, " parameter"]:
    """All free numbers, in the order of :func:`parameter_names`, on the CPU."""
    return torch.cat([p.detach().cpu().reshape(-1) for p in model.weight_map.parameters()])


def initial_values(model: ArithmeticTransformer, seed: int) -> Float[Tensor, " parameter"]:
    """The parameters that :func:`models.build` draws with this seed, from which a training of this seed starts.

    For a seed other than the model's own, the constants of the recipe (an arc's radius, gains of 1) are the same, and
    the rest is another draw from the same distribution.
    """
    fresh = copy.deepcopy(model)
    fresh.weight_map.initialise(torch.Generator().manual_seed(seed))
    return flat_parameters(fresh)


def make_variants(
    model: ArithmeticTransformer,
    replacement: Float[Tensor, " parameter"],
    only: str | Sequence[str] | None,
    pairs: bool,
    seed: int,
) -> ParameterVariants:
    """Rows for every single, every pair and the controls.

    Raises:
        UserError: an unknown parameter name (with the closest), a replacement that equals every chosen parameter, or
            more than ``MOST_VARIANTS`` rows.
    """
    names, trained = parameter_names(model), flat_parameters(model)
    if replacement.shape != trained.shape:
        raise UserError(
            f"The model has {len(trained)} free parameters; {tuple(replacement.shape)} values cannot replace them."
        )
    wanted = [only] if isinstance(only, str) else only
    tensors = {name.split("[")[0] for name in names}
    for name in wanted or ():
        if name not in tensors and name not in names:
            own = [one for one in names if one.startswith(name.split("[")[0] + "[")]
            raise unknown_name("parameter", name, own or tensors)
    chosen = [i for i, name in enumerate(names) if wanted is None or not {name, name.split("[")[0]}.isdisjoint(wanted)]
    if not chosen:
        raise UserError("There is no parameter to replace: the list of names is empty.")
    p = len(chosen)
    rows = 1 + p * (1 + CONTROLS) + (p * (p - 1) // 2 if pairs else 0)
    if rows > MOST_VARIANTS:
        raise UserError(
            f"{p:,} parameters{' and their pairs' if pairs else ''} make {rows:,} variants, more than the "
            f"{MOST_VARIANTS:,} that are run; pass pairs=False, or only= with the names of some parameters."
        )
    if bool((trained[chosen] == replacement[chosen]).all()):
        raise UserError("The replacement changes nothing: every parameter has that value already.")
    first, second = torch.triu_indices(p, p, 1) if pairs else torch.empty(2, 0, dtype=torch.long)
    picked = torch.eye(len(names), dtype=torch.bool)[chosen]
    masks = torch.cat((torch.zeros(1, len(names), dtype=torch.bool), picked, picked[first] | picked[second]))
    theta = torch.where(masks, replacement.to(trained), trained)
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(p, CONTROLS, len(names), generator=generator).to(trained)
    far = (trained - replacement.to(trained)).abs()[chosen][:, None, None]
    theta = torch.cat((theta, (trained + far * F.normalize(direction, dim=-1)).flatten(0, 1)))
    return ParameterVariants(
        [names[i] for i in chosen], chosen, trained, replacement, torch.stack((first, second)), theta
    )


@torch.no_grad()
def run_variants(
    model: ArithmeticTransformer,
    task: Any,
    problems: Any,
    theta: Float[Tensor, "variant parameter"],
    targets: list[int],
) -> tuple[Bool[Tensor, "variant n target"], Float[Tensor, "variant n"], float]:
    """Which answer tokens are right, the mean cross-entropy of each problem (nats per token), and the seconds it took.

    Every variant is a row of parameters of the stacked forward pass that trains stacked seeds
    (:func:`models.training.choose_objective.objective_for`). Cost: 2.5 s for 1,654 variants of 57 parameters and 512
    problems on one thread.

    Raises:
        UserError: the model is altered (by hooks, for example), which the variants would not be.
    """
    from models.training import ParameterLayout, objective_for

    require_unaltered(model, "A stack of variants")
    objective, layout = objective_for(model), ParameterLayout(model)
    tokens, wanted = task.encode(problems).T.to(model.device), task.targets(problems).T[targets].to(model.device)
    right, loss = [], []
    start = time.perf_counter()
    for rows in theta.to(model.device).split(VARIANTS_AT_ONCE):
        parameters, parts = layout.unflatten(rows), []
        for part, truth in zip(tokens.split(ROWS_AT_ONCE, 1), wanted.split(ROWS_AT_ONCE, 1), strict=True):
            logits = objective.logits(parameters, part.expand(len(rows), -1, -1))[:, :, targets]
            index = truth.expand(len(rows), -1, -1)
            picked = logits.gather(1, index[:, None])[:, 0]
            known = logits.isfinite().all(1)  # a diverged variant counts as wrong, whatever argmax makes of its NaNs
            parts.append(((logits.argmax(1) == index) & known, (logits.logsumexp(1) - picked).mean(1)))
        right.append(torch.cat([ok for ok, _ in parts], -1).transpose(1, 2).cpu())
        loss.append(torch.cat([value for _, value in parts], -1).cpu())
    return torch.cat(right), torch.cat(loss), time.perf_counter() - start


def places(shape: tuple[int, ...]) -> list[str]:
    """The index of every entry of a tensor, in the order of its memory: "1,0,2"; and "" for a single number."""
    return [",".join(map(str, place)) for place in np.ndindex(*shape)]
