"""Functions that find AddLM's headline numbers. The largest of its three sizes was not trained here.

Rows in ``headlines.toml`` name these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import models
from interp.core.results import Provenance
from interp.core.stats import mean_difference
from models.families.addlm import model_name
from studies.claims.rules import Ours, counted
from studies.claims.store import NotStored, Store

FLOAT, OURS = (model_name("0.8m", suffix) for suffix in ("-float", ""))


def _rows(store: Store, model: str, steps: int | None = None) -> list[dict[str, Any]]:
    """A model's stored finished runs, or those of its runs that were measured at ``steps``."""
    found = [
        row
        for row in store.experiment("addlm-runs")["rows"]
        if row["model"] == model and (row["steps"][-1] == row["budget"] if steps is None else steps in row["steps"])
    ]
    if not found:
        raise NotStored(f"No finished run of {model} is stored.")
    return found


def _best(store: Store, model: str, steps: int | None = None) -> list[float]:
    """The best validation loss of every seed, in nats per character, over all of its steps or the first ``steps``."""
    return [
        min(loss for step, loss in zip(row["steps"], row["losses"], strict=True) if steps is None or step <= steps)
        for row in _rows(store, model, steps)
    ]


def loss(store: Store, model: str, steps: int | None = None) -> Ours:
    """The best validation loss (up to ``steps``), mean over seeds, in nats per character."""
    best = _best(store, model, steps)
    shown = ", ".join(f"{value:.3f}" for value in best)
    of_each = "the best loss of each" if steps is None else f"the best loss of each in {steps:,} steps"
    source = f"seeds of {model}, {of_each} on the validation part"
    return counted(len(best), source, model=model).with_value(sum(best) / len(best), f"by seed {shown}")


def cost(store: Store, model: str, reference: str = FLOAT, steps: int | None = None) -> Ours:
    """A model's best loss minus that of the float baseline, in nats, at the end or after some steps, with its interval
    over seeds, which is infinite where one of them has a single seed."""
    ours, other = (np.array(_best(store, name, steps)) for name in (model, reference))
    value, low, high = mean_difference(ours, other)
    source = Provenance(min(len(ours), len(other)), None, f"seeds of {model} and of {reference}")
    return Ours(value, source, low, high, model=model, remark=_of_seeds(ours, other))


def _of_seeds(ours: np.ndarray, other: np.ndarray) -> str:
    """The two means that a difference is of, and from how many seeds."""
    said = [f"{x.mean():.3f} ({len(x)} seed{'s' if len(x) > 1 else ''})" for x in (ours, other)]
    return " against ".join(said)


def after_best(store: Store, model: str) -> Ours:
    """How far the last validation loss is above the best one, as overfitting would cause; the largest of its seeds."""
    rises = [row["losses"][-1] - min(row["losses"]) for row in _rows(store, model)]
    return counted(len(rises), f"seeds of {model}", model=model).with_value(max(rises))


def _generalisation(store: Store, model: str) -> dict[int, float]:
    """Validation loss minus training loss at the last step, by seed."""
    curves = store.curves(model)
    validation, training = (curves.of(model, what).isel(step=-1) for what in ("validation_loss", "loss"))
    return dict(zip(validation.seed.values.tolist(), (validation - training).values.tolist(), strict=True))


def closer(store: Store) -> Ours:
    """How much smaller AddLM's gap of validation to training loss is than the float model's, with its interval over
    seeds."""
    ours, twin = (np.array(list(_generalisation(store, name).values())) for name in (OURS, FLOAT))
    value, low, high = mean_difference(twin, ours)
    source = Provenance(min(len(ours), len(twin)), None, f"seeds of {OURS} and of {FLOAT}")
    return Ours(value, source, low, high, remark=f"gaps {_of_seeds(ours, twin)}")


def speed_up(store: Store) -> Ours:
    """The time to train the float baseline divided by that for AddLM, on one CPU thread of a shared machine."""
    ours, twin = (store.entry(name)["training"] for name in (OURS, FLOAT))
    if ours["seeds_tried"] != twin["seeds_tried"]:
        raise NotStored(f"{OURS} and {FLOAT} were not trained with as many seeds.")
    remark = f"{twin['seconds']:,.0f} seconds against {ours['seconds']:,.0f}, {ours['seeds_tried']} seeds each"
    source = counted(1, "training of each on one CPU thread of a shared machine")
    return source.with_value(twin["seconds"] / ours["seconds"], remark)


def _multiplications_of_both() -> tuple[Any, Any, Provenance]:
    """The multiplications of AddLM and of its float twin."""
    from studies.addlm.multiplications import count_multiplications

    ours, twin = (count_multiplications(models.build(name)) for name in (OURS, FLOAT))
    return ours, twin, Provenance(twin.total, None, f"multiplications of {FLOAT} for 128 characters", "exhaustive")


def products_left(store: Store) -> Ours:
    """The multiplications that AddLM still needs, as a share of its float twin's."""
    ours, twin, source = _multiplications_of_both()
    largest = max(ours.products, key=lambda part: ours.products[part])
    return Ours(ours.total / twin.total, source, model=OURS, remark=f"{ours.total:,} are left, most of the {largest}")


def in_products(store: Store) -> Ours:
    """The share of the float model's multiplications that are in scores, projections and MLP."""
    _, twin, source = _multiplications_of_both()
    parts = [twin.products[part] for part in ("projections (Q, K, V, O)", "scores", "MLP")]
    return Ours(sum(parts) / twin.total, source, model=FLOAT)


def smaller(store: Store, packing: str) -> Ours:
    """How many times smaller the ternary matrices are than in float32."""
    table = store.experiment("addlm-inside")["packing"]
    row = next((row for row in table["rows"] if row[0] == packing), None)
    if row is None:
        raise NotStored(f"No packing {packing!r} is stored.")
    source = Provenance(int(row[2]), None, "bytes of the packed matrices", "exhaustive")
    return Ours(float(row[3]), source, model=OURS, remark=f"the whole model with its float parts {row[5]:.1f} times")


def long_attention(store: Store, tokens: int, keys: int) -> Ours:
    """Additions and multiplications for scores and mixed values, as a share of dense attention's.

    Both take 2 d_head per pair, with dot products and with L1 distances; top-k attention scores every pair and mixes
    few.
    """
    pairs, kept = tokens * (tokens + 1) // 2, sum(min(n + 1, keys) for n in range(tokens))
    source = Provenance(pairs, None, f"pairs of {tokens:,} tokens", "exhaustive")
    remark = f"of multiplications alone, which L1 scores do without, {kept / (2 * pairs):.2%}"
    return Ours((pairs + kept) / (2 * pairs), source, remark=remark)


def max_plus(store: Store) -> Ours:
    """The last loss with the true tropical score, minus that of a table of letter pairs."""
    found = _rows(store, model_name("0.8m", "-max-plus"), 500)[0]
    pairs = store.experiment("addlm-runs")["letter_pairs"]
    remark = f"{found['losses'][-1]:.3f} after {found['steps'][-1]:,} steps, letter pairs {pairs:.3f}"
    return counted(1, "seed").with_value(found["losses"][-1] - pairs, remark)
