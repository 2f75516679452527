"""Functions that find ToyGPT's headline numbers. The paper has one run per variant; ours are five seeds of its budget.

Rows in ``headlines.toml`` name these functions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from interp.core.results import Provenance
from interp.core.stats import mean_interval
from studies.claims.rules import Ours, counted, over_seeds, share
from studies.claims.store import NotStored, Store
from studies.toygpt.seeds import BUDGET, N_TEST, N_TRAIN

BEST = "toygpt-learned-pre"
SIZES = {"test": N_TEST, "train": N_TRAIN}
ALL_SUMS = Provenance(10_000, None, "sums, all of them", "exhaustive")


def _rows(store: Store, question: str, model: str) -> list[dict[str, Any]]:
    rows = store.experiment(f"toygpt-table-{question}")["rows"]
    found = [row for row in rows if row["model"] == model and row["step"] == BUDGET]
    if not found:
        raise NotStored(f"No seed of {model} is stored at {BUDGET:,} iterations.")
    return found


def accuracy(store: Store, question: str, model: str, split: str) -> Ours:
    """The share of whole sums right after the paper's 1,000 iterations, over seeds."""
    values = [row[split] / SIZES[split] for row in _rows(store, question, model)]
    ours = over_seeds(values, f"seeds of {model}, {SIZES[split]:,} {split} pairs each", 0.0, 1.0)
    return replace(ours, remark=f"seeds from {min(values):.1%} to {max(values):.1%}")


def above(store: Store, question: str, better: str, worse: str) -> Ours:
    """How much better one variant is than another, over seeds; the same seed draws the same problems for both."""
    first, second = (
        {row["seed"]: row["test"] / N_TEST for row in _rows(store, question, name)} for name in (better, worse)
    )
    ours, values = _within_seeds(first, second, f"{N_TEST:,} test pairs each")
    return replace(ours, remark=f"holds in {sum(value > 0 for value in values)} of {len(values)} seeds")


def _within_seeds(first: dict[Any, float], second: dict[Any, float], what: str) -> tuple[Ours, list[float]]:
    """The mean difference over the seeds that both have, with its interval, and all differences."""
    values = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    mean, low, high = mean_interval(np.array(values))
    return Ours(mean, Provenance(len(values), None, f"seeds that both have, {what}"), low, high), values


def _losses(store: Store, question: str, model: str, share: float = 1.0) -> dict[str, float]:
    """The loss of the training batch after a share of the paper's iterations, by seed."""
    curves = store.experiment(f"toygpt-table-{question}")["losses"].get(model)
    if not curves:
        raise NotStored(f"No losses of {model} are stored.")
    return {seed: curve["loss"][curve["step"].index(round(share * BUDGET))] for seed, curve in curves.items()}


def final_loss(store: Store) -> Ours:
    """The loss of the training batch at the last step, over seeds."""
    values = list(_losses(store, "positions", BEST).values())
    return over_seeds(values, f"seeds of {BEST}, the batch of step {BUDGET:,}", 0.0)


def loss_above(store: Store, worse: str, better: str, share: float = 1.0) -> Ours:
    """How much higher the training loss of one placement of LayerNorm is than that of another, over seeds, after a
    share of the paper's iterations."""
    first, second = (_losses(store, "layernorm", name, share) for name in (worse, better))
    ours, values = _within_seeds(first, second, f"the batch of step {round(share * BUDGET):,}")
    return replace(ours, remark="by seed " + ", ".join(f"{value:+.3f}" for value in values))


def errors_in_tens(store: Store) -> Ours:
    """The share of all seeds' wrong sums whose first wrong digit is the tens digit."""
    by_seed = [row["errors"]["first_wrong"] for row in _rows(store, "positions", BEST)]
    wrong, total = sum(row["tens"] for row in by_seed), sum(sum(row.values()) for row in by_seed)
    ours = share(wrong, total, f"wrong sums of all 10,000 pairs, {len(by_seed)} seeds", "exhaustive")
    each = ", ".join(f"{row['tens']:,} of {sum(row.values()):,}" for row in by_seed)
    return replace(ours, remark=f"by seed {each}")


def rest_right(store: Store) -> Ours:
    """The share of all seeds' wrong sums that must have exactly one wrong digit: each further one is in some sum."""
    rows = [row["errors"] for row in _rows(store, "positions", BEST)]
    wrong = sum(sum(row["first_wrong"].values()) for row in rows)
    digits = sum(10_000 - right for row in rows for right in row["digits"].values())
    return share(2 * wrong - digits, wrong, f"wrong sums of all 10,000 pairs, {len(rows)} seeds", "exhaustive")


def _answers(store: Store, sums: list[str]) -> tuple[Any, Any]:
    """The stored model's answers, and the right ones."""
    from models.evaluation import predict

    model = store.model(BEST)
    problems = model.task.as_problems(sums)
    predicted = model.task.decode(predict(model, problems, method="greedy", task=model.task))
    return predicted, model.task.decode(model.task.targets(problems))


def examples(store: Store) -> Ours:
    """How many of the paper's three wrong sums the stored model gets wrong too."""
    wrong = sum(a != b for a, b in zip(*_answers(store, ["42+47", "77+99", "17+3"]), strict=True))
    return counted(3, "the paper's three sums", model=BEST).with_value(wrong)


def less_sparse(store: Store, first: int, last: int) -> Ours:
    """How many more keys a layer attends to than another: exp(entropy), mean over heads, queries and all sums."""
    keys = [float(np.mean(heads)) for heads in store.experiment("toygpt-fig3")["keys"]]
    shown = ", ".join(f"{value:.2f}" for value in keys)
    return Ours(keys[last] - keys[first], ALL_SUMS, model=BEST, remark=f"keys by layer: {shown}")


def alike(store: Store) -> Ours:
    """The mean overlap of two heads in the paper's layer 2 minus that of heads in different layers."""
    overlaps = store.experiment("toygpt-fig3")["overlaps"]
    inside, across = overlaps["layer 1"], overlaps["other layers"]
    remark = f"overlap {inside:.2f} in the layer, {across:.2f} across layers"
    return Ours(inside - across, ALL_SUMS, model=BEST, remark=remark)
