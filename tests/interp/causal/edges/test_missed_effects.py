"""The bound on effects that no estimate found: against all subsets, which give the contributions themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import interp
import models
from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.edges.missed_effects import SHARE, largest_contribution, missed_effects
from models.errors import UserError
from models.tasks import problem_pairs

ADDER = models.load("microadder-57")
PAIRS = problem_pairs(ADDER.task, "made carry", column=4, n=8, seed=0)


def test_no_edge_contributes_more_than_the_bound_whatever_interacts(monkeypatch):
    """With estimates turned round, the edges that count are among the others: all their subsets are patched."""
    monkeypatch.setattr("interp.causal.edges.missed_effects.VERIFIED", 5)
    experiment = EdgeExperiment(ADDER, PAIRS)
    effects = interp.path_patching(ADDER, PAIRS).effects.mean("example").values[0]
    estimate = torch.tensor(-np.abs(effects))[None, :, None] + 1e3  # the weakest come first
    found = missed_effects(experiment, estimate, 200, seed=0)
    names = list(experiment.graph.names)
    others = [i for i, name in enumerate(names) if name not in found.edge.values]
    assert np.abs(effects[others]).max() == np.abs(effects).max() and found.attrs["others"] == len(others) == 8
    assert np.allclose(found.exact.values[0], [effects[names.index(e)] for e in found.edge.values], atol=1e-3)
    cut = np.array(list(itertools.product((False, True), repeat=len(others))))
    kept = torch.ones(len(cut), len(names), dtype=torch.bool)
    kept[:, others] = torch.from_numpy(~cut)
    value = experiment(kept).mean(-1)[0].double().numpy()
    chance = np.prod(np.where(cut, SHARE, 1 - SHARE), 1)
    variance = float(chance @ (value - chance @ value) ** 2)
    contributions = []
    for column in cut.T:
        means = [
            float(chance[column == one] @ value[column == one] / chance[column == one].sum()) for one in (True, False)
        ]
        contributions.append(means[0] - means[1])
    assert SHARE * (1 - SHARE) * np.square(contributions).sum() <= variance + 1e-9
    true = np.sqrt(variance / (SHARE * (1 - SHARE)))
    assert np.abs(contributions).max() <= true <= float(found.bound[0]) < 2 * true


def test_where_effects_add_up_the_bound_is_the_root_of_their_squares():
    rng = np.random.default_rng(0)
    effects = rng.normal(size=40)
    values = (rng.random((4000, 40)) < SHARE) @ effects
    assert largest_contribution(values, 0) == pytest.approx(np.sqrt(np.square(effects).sum()), rel=0.08)


def test_an_attribution_says_its_bound_and_refuses_few_subsets():
    found = interp.edge_attribution(ADDER, PAIRS, method="atp-star", exact=False, subsets=40)
    assert found.missed is not None and found.missed.sizes["edge"] == 10
    assert found.missed.attrs == {"others": 3, "subsets": 40} and float(found.missed.bound[0]) > 0
    assert interp.edge_attribution(ADDER, PAIRS, method="eap", exact=False).missed is None
    with pytest.raises(UserError):
        interp.edge_attribution(ADDER, PAIRS, subsets=3)
