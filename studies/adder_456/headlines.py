"""Functions that find the headline numbers of the 456-parameter adder; rows in ``headlines.toml`` name them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

import models
from interp.core.results import Provenance
from interp.core.stats import mean_difference, rate_difference
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims.rules import Ours, counted, over_seeds
from studies.claims.store import NotStored, Store

MODEL = "adder-456"


def errors(store: Store, model: str) -> Ours:
    """Wrong answers on the ten test sets."""
    score = store.score(model)
    assert score.counts is not None
    wrong, n = score.counts[1] - score.counts[0], score.counts[1]
    return Ours(wrong / n, score.provenance, 1 - score.ends[1], 1 - score.ends[0], counts=(wrong, n), model=model)


# ---- keys and values


def _alike(model: ArithmeticTransformer) -> float:
    """Linear CKA (Kornblith et al. 2019) of the keys and the values of all tokens of 256 uniform problems."""
    tokens = model.task.encode(model.task.sample(256, torch.Generator().manual_seed(0)))
    _, cache = model.run_with_cache(tokens, names_filter=["blocks.0.attn.hook_k", "blocks.0.attn.hook_v"])
    keys, values = (cache[f"blocks.0.attn.hook_{name}"].flatten(0, 2).double() for name in "kv")
    keys, values = keys - keys.mean(0), values - values.mean(0)
    return float((keys.T @ values).norm() ** 2 / ((keys.T @ keys).norm() * (values.T @ values).norm()))


def keys_like_values(store: Store, model: str) -> Ours:
    source = Provenance(256, 0, "uniform problems; linear CKA of keys and values")
    return Ours(_alike(store.model(model)), source, model=model)


def untrained(store: Store, model: str) -> list[Ours]:
    """The same for twenty freshly drawn models; if none of them passes, p < 0.05."""
    source = Provenance(20, 0, f"untrained {model}")
    return [Ours(_alike(models.build(model, seed=seed)), source, model=model) for seed in range(20)]


# ---- training


def _first_steps(store: Store, model: str, reached: float = 1.0) -> list[int]:
    """For each seed that is ever perfect, the step at which it first has this share right; earliest first."""
    curves = store.curves(model, "uniform")
    perfect = curves.onset(model)
    if not perfect:
        raise NotStored(f"No stored seed of {model} was ever perfect.")
    return sorted(step for seed, step in curves.onset(model, reached).items() if seed in perfect)


def _over(steps: list[int], what: str) -> Ours:
    found = over_seeds([float(step) for step in steps], what, lowest=0.0)
    return replace(found, remark=f"seeds at {', '.join(f'{step:,}' for step in steps)}")


def first_perfect(store: Store, model: str) -> Ours:
    """The step at which seeds first answer every uniform validation problem."""
    return _over(_first_steps(store, model), f"seeds of {model} that grok")


def onset(store: Store) -> Ours:
    """The step of the first uniform validation with 1% right, for seeds that grok."""
    return _over(_first_steps(store, MODEL, 0.01), f"seeds of {MODEL} that grok: first validation with 1% right")


def halfway(store: Store, models: list[str]) -> Ours:
    """The share of uniform validation problems right halfway to the first perfect validation, in the best seed."""
    shares, said = [], []
    for model in models:
        curves = store.curves(model, "uniform")
        of_model = [
            float(curves.of(model).sel(seed=seed).sel(step=step // 2, method="pad"))
            for seed, step in curves.onset(model).items()
        ]
        shares += of_model
        said.append(f"{model} {', '.join(f'{value:.1%}' for value in of_model) or 'no seed groks'}")
    if not shares:
        raise NotStored("No stored seed was ever perfect.")
    return counted(len(shares), "seeds that grok").with_value(max(shares), "; ".join(said))


def in_thousands(store: Store, model: str) -> Ours:
    """The first perfect step, in thousands, of the seeds that grok."""
    steps = [step / 1000 for step in _first_steps(store, model)]
    return over_seeds(steps, f"seeds of {model} that grok", lowest=0.0)


def order(store: Store) -> Ours:
    """How many steps later, at least, seeds of the smaller of two neighbouring models grok, in the mean."""
    steps = [np.array(_first_steps(store, name), float) for name in ("adder-582", "adder-512", "adder-456")]
    value, low, high = np.array([mean_difference(b, a) for a, b in pairwise(steps)]).min(0).tolist()
    remark = "first perfect at " + "; ".join(", ".join(f"{step:,.0f}" for step in each) for each in steps)
    return Ours(value, Provenance(sum(map(len, steps)), None, "seeds of three models"), low, high, remark=remark)


def low_rank_gain(store: Store) -> Ours:
    """How much more often seeds grok with low-rank positions, queries, keys, values and output: 582 minus 763."""
    rows = {name: row["first_perfect"] for name, row in store.experiment("adder-456-low-rank")["seeds"].items()}
    (k, n), (k2, n2) = (
        (sum(step is not None for step in rows[name]), len(rows[name])) for name in ("adder-582", "adder-763")
    )
    value, low, high = rate_difference(k, n, k2, n2)
    remark = f"{k} of {n} seeds of 582 parameters grok and {k2} of {n2} of 763"
    return Ours(value, Provenance(n + n2, None, "seeds of 582 and 763 parameters"), low, high, remark=remark)
