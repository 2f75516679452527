"""Functions that find the headline numbers of the 456-parameter adder; rows in ``headlines.toml`` name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

import models
from interp.core.results import Provenance
from interp.core.stats import rate_difference
from interp.papers.headlines.rules import Ours, counted, over_seeds, several, share
from interp.papers.headlines.store import NotStored, Store
from models.registry import parameter_count
from models.transformer import ArithmeticTransformer

MODEL = "adder-456"
COLUMNS = ("adder-763", "adder-512", "adder-491", "adder-456")  # of Table 4


def _components(name: str) -> list[int]:
    """The number of parameters of every component, in the order of Table 1; the last is the total."""
    from interp.papers.adder_456.studies import breakdown

    return breakdown(name).parameters.tolist()


def component(store: Store, row: int) -> Ours:
    return counted(_components(MODEL)[row], f"parameters of {MODEL} by component")


def across(store: Store, row: int) -> Ours:
    """The parameters of one component in the four models of Table 4."""
    return several(tuple(float(_components(name)[row]) for name in COLUMNS), "models, counted")


def saved(store: Store, a: str, b: str, rows: Sequence[int] = ()) -> Ours:
    """How many parameters fewer ``b`` has than ``a`` in some components, by default in all."""
    less = parameter_count(a) - parameter_count(b)
    if rows:
        first, second = _components(a), _components(b)
        less = sum(first[row] - second[row] for row in rows)
    return counted(less, f"parameters of {a} less those of {b}")


def errors(store: Store, model: str) -> Ours:
    """Wrong answers on the ten test sets."""
    score = store.score(model)
    assert score.counts is not None
    wrong, n = score.counts[1] - score.counts[0], score.counts[1]
    return Ours(wrong / n, score.provenance, 1 - score.ends[1], 1 - score.ends[0], counts=(wrong, n), model=model)


@cache
def _errors_by_test_seed(folder: str) -> dict[int, int]:
    from interp.papers.adder_456.studies import errors_by_test_seed

    return errors_by_test_seed(models.load(folder))


def errors_on(store: Store, seed: int) -> Ours:
    """Wrong answers on one of the ten test sets."""
    wrong = _errors_by_test_seed(store.folder(MODEL))[seed]
    return share(wrong, 10_000, "problems of the test set", "sampled", seed, MODEL)


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


def best_validation(store: Store, model: str) -> Ours:
    """The highest share of 5,000 uniform validation problems that any seed answered rightly."""
    best = float(store.curves(model, "uniform").of(model).max())
    return share(
        round(5_000 * best), 5_000, "uniform validation problems, the best validation of all seeds", model=model
    )


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


def halfway(store: Store, model: str) -> Ours:
    """The share of uniform validation problems right halfway to the first perfect validation, in the best seed."""
    curves = store.curves(model, "uniform")
    shares = [
        float(curves.of(model).sel(seed=seed).sel(step=step // 2, method="pad"))
        for seed, step in curves.onset(model).items()
    ]
    if not shares:
        raise NotStored(f"No stored seed of {model} was ever perfect.")
    remark = "by seed " + ", ".join(f"{value:.1%}" for value in shares)
    return counted(len(shares), f"seeds of {model} that grok").with_value(max(shares), remark)


def in_thousands(store: Store, model: str) -> Ours:
    """The first perfect step, in thousands, of a model with a seed that groks."""
    steps = _first_steps(store, model)
    return counted(len(steps), f"seeds of {model} that grok").with_value(steps[0] / 1000)


def lowest_rate(store: Store) -> Ours:
    recipe = store.entry(MODEL)["training"]["recipe"]
    return counted(recipe["lr"] * recipe["min_lr_ratio"], f"lowest learning rate of the recipe of {MODEL}")


def order(store: Store) -> Ours:
    """How many steps later, at least, the first seed of the smaller of two neighbouring models groks."""
    first = [_first_steps(store, name)[0] for name in ("adder-582", "adder-512", "adder-456")]
    remark = f"first seeds at {', '.join(f'{step:,}' for step in first)}"
    return counted(3, "models").with_value(min(first[1] - first[0], first[2] - first[1]), remark)


def low_rank_gain(store: Store) -> Ours:
    """How much more often seeds grok with low-rank positions, queries, keys, values and output: 582 minus 763."""
    rows = {row["model"]: row["first_perfect"] for row in store.experiment("adder-456-low-rank")["rows"]}
    (k, n), (k2, n2) = (
        (sum(step is not None for step in rows[name]), len(rows[name])) for name in ("adder-582", "adder-763")
    )
    value, low, high = rate_difference(k, n, k2, n2)
    remark = f"{k} of {n} seeds of 582 parameters grok and {k2} of {n2} of 763"
    return Ours(value, Provenance(n + n2, None, "seeds of 582 and 763 parameters"), low, high, remark=remark)
