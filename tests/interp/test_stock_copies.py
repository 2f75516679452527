"""Every probe says of a stock TransformerLens copy what it says of the model whose weights the copy has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import interp
import models
from interp.causal.interchange import interchange
from interp.core.sites import Site
from models.tasks import problem_pairs
from tests.interp.conftest import stock_copy
from tests.sampling import every_third

TASK = models.build("microadder-57").task
PAIRS = problem_pairs(TASK, "made carry", column=4, n=16, seed=0)
OTHER = "microadder-67"  # the model whose parts are swapped


@cache
def model(stock: bool) -> Any:
    return stock_copy(model(False)) if stock else models.load("microadder-57")


#: What is asked, and the numbers of the answer; those of untrained copies are other draws in a stock class.
PROBES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] = {
    "attention_by_role": (
        lambda m: interp.attention_by_role(m, task=TASK, n=32),
        lambda found: [found.pattern, found.mean_gap()],
    ),
    "carry_units": (
        lambda m: interp.carry_units(m, task=TASK, n=64),
        lambda found: [found.table[name] for name in ("auroc", "pre_min", "pre_max", "ablated", "clean")],
    ),
    "linear_probes": (
        lambda m: interp.linear_probes(
            m, task=TASK, n=512, signals=["carry_out", "digit_sum"], sites=["L0 mid", "blocks.0.mlp.hook_post"]
        ),
        lambda found: [found.table.accuracy, found.table.score],
    ),
    "logit_lens": (
        lambda m: interp.logit_lens(m, task=TASK, n=64, resamples=20),
        lambda found: [found.table.probability, found.table.kl, found.table.kl_low],
    ),
    "logit_attribution": (
        lambda m: interp.logit_attribution(m, task=TASK, n=24, resamples=10),
        lambda found: [found.values.sortby("part")],
    ),
    "component_ablation": (
        lambda m: interp.component_ablation(m, task=TASK, replacement=["zero", "resample"], n=16, unchanged="keep"),
        lambda found: [found.values["accuracy"], found.table["drop"], found.table.control],
    ),
    "activation_patching": (
        lambda m: interp.activation_patching(m, PAIRS, site="head_out", check=True),
        lambda found: [found.fast, found.table.recovered],
    ),
    "path_patching": (
        lambda m: interp.path_patching(m, PAIRS, paths="all", direction="noise"),
        lambda found: [found.values],
    ),
    "edge_attribution": (
        lambda m: interp.edge_attribution(m, PAIRS, steps=2, exact=False, direction="noise"),
        lambda found: [found.estimate],
    ),
    "smallest_circuit": (
        lambda m: interp.smallest_circuit(m, PAIRS, method="greedy", n_random=5),
        lambda found: [[str(edge) for edge in found.edges], found.faithfulness],
    ),
    "interchange": (
        lambda m: interchange(m, "total", Site("blocks.0.hook_resid_mid"), 4, n=50, controls=False, task=TASK),
        lambda found: [found.outcomes.right],
    ),
    "which_algorithm": (
        lambda m: interp.which_algorithm(m, n=60, task=TASK),
        lambda found: [found.examples.after],
    ),
    "causal_scrubbing": (
        lambda m: interp.causal_scrubbing(m, interp.chained_claims(), n=40, columns=[3], task=TASK),
        lambda found: [found.outcomes.loss],
    ),
    "swap_components": (
        lambda m: interp.swap_components(
            m, models.load(OTHER), task=TASK, components=["L0H0 output", "L0.mlp"], n=12, n_fit=24, untrained=[]
        ),
        lambda found: [found.table["right"], found.table["margin"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("probe", every_third(PROBES))
def test_a_stock_copy_is_answered_as_the_model(probe: str) -> None:
    ask, numbers = PROBES[probe]
    for ours, theirs in zip(numbers(ask(model(False))), numbers(ask(model(True))), strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if ours.dtype.kind != "f":
            assert (ours == theirs).all()
            continue
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=2e-3 * np.nanmax(np.abs(ours)))
