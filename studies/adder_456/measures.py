"""What the claims of the 456-parameter adder's paper measure."""

from __future__ import annotations

import torch

from interp.core.results import Provenance
from interp.probes.learning_curves import LearningCurves
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims.ours import Ours, measure


@measure
def keys_like_values(model: ArithmeticTransformer) -> Ours:
    """Linear CKA (Kornblith et al. 2019) of the keys and the values of all tokens of 256 uniform problems."""
    tokens = model.task.encode(model.task.sample(256, torch.Generator().manual_seed(0)))
    _, cache = model.run_with_cache(tokens, names_filter=["blocks.0.attn.hook_k", "blocks.0.attn.hook_v"])
    keys, values = (cache[f"blocks.0.attn.hook_{name}"].flatten(0, 2).double() for name in "kv")
    keys, values = keys - keys.mean(0), values - values.mean(0)
    alike = float((keys.T @ values).norm() ** 2 / ((keys.T @ keys).norm() * (values.T @ values).norm()))
    source = Provenance(256, 0, "uniform problems; linear CKA of keys and values")
    return Ours(alike, source, model=str(model.name_or_path))


@measure
def halfway(curves: LearningCurves, name: str) -> list[float]:
    """The share right halfway to the first perfect validation, for each seed that has one."""
    return [
        float(curves.of(name).sel(seed=seed).sel(step=step // 2, method="pad"))
        for seed, step in curves.onset(name).items()
    ]
