"""All circuits of models in which it is known how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
import models
from interp.causal.circuits import CircuitSpace
from interp.causal.circuits.circuit_space import jaccard
from interp.causal.circuits.circuit_stability import compute_stability, how_stable, minimal_rows
from interp.causal.circuits.part_exchange import exchange_parts
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.optimal_ablation import fit_constants
from models.errors import UserError
from models.tasks import formatted, problem_pairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights

BASE = 40
HEADS = ({"embed->L0H0.v", "L0H0->logits"}, {"embed->L0H1.v", "L0H1->logits"})


def copies(strengths: tuple[float, float]) -> ArithmeticTransformer:
    """A model that copies a digit by two heads, each as strong as said; the norm before the logits makes one enough."""
    task = formatted("{a}=", "a", base=BASE)
    d = 2 * task.d_vocab
    cfg = models.TransformerConfig(
        n_layers=1, d_model=d, n_heads=2, d_head=task.d_vocab, d_mlp=0, d_vocab=task.d_vocab, n_ctx=task.input_length,
        normalization_type="RMS", positional_embedding_type="standard",
    )  # fmt: skip
    weights = DenseWeights(cfg, biases=False)
    weights.initialise(torch.Generator().manual_seed(0))
    model = ArithmeticTransformer(weights, task, name="copies").eval()
    one_hot = torch.eye(task.d_vocab)
    nothing = torch.zeros_like(one_hot)
    digits = one_hot * (torch.arange(task.d_vocab) < BASE)  # only digits are copied
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("W_E"):
                parameter.copy_(torch.cat((0.1 * one_hot, nothing), 1))
            elif name.endswith("W_V"):
                parameter.copy_(torch.cat((one_hot, nothing)).expand_as(parameter))
            elif name.endswith("W_O"):
                parameter.copy_(torch.stack([s * torch.cat((nothing, digits), 1) for s in strengths]))
            elif name.endswith("W_U"):
                parameter.copy_(torch.cat((nothing, 10 * one_hot)))
            elif not name.endswith("/w"):
                parameter.zero_()
    return model


def copied(model: ArithmeticTransformer) -> Any:
    """Pairs of neighbours, so that no problem is in two of them."""
    return models.tasks.pairs(model.task, [(a,) for a in range(0, BASE, 2)], [(a,) for a in range(1, BASE, 2)])


def found_in(strengths: tuple[float, float], **options: Any) -> Any:
    model, options = copies(strengths), {"replacement": "zero"} | options
    return interp.all_circuits(model, copied(model), **options)


def circuits(strengths: tuple[float, float], **options: Any) -> set[frozenset[str]]:
    return {frozenset(names) for names in found_in(strengths, **options).minimal}


def test_two_redundant_circuits_without_a_common_part_are_both_found_and_the_draw_decides_nothing():
    found = found_in((1.0, 1.0))
    assert {frozenset(names) for names in found.minimal} == set(map(frozenset, HEADS))
    assert not found.unique and found.complete and found.overlap == 0 and found.exchange.dropna().empty
    assert found.stability.groupby("over").same.mean()[["resampled pairs", "the other half of the pairs"]].eq(1.0).all()


@pytest.mark.parametrize("alone", [0, 1])
def test_a_model_with_one_circuit_has_one(alone: int):
    assert circuits((1.0 - alone, float(alone))) == {frozenset(HEADS[alone])}


@pytest.mark.parametrize("alone", [0, 1])
def test_a_head_that_writes_the_opposite_of_nothing_is_in_no_minimal_circuit(alone: int):
    """A weak head that works against a strong one changes no answer and hardly a logit."""
    strengths = (1.0, -1e-3) if alone == 0 else (-1e-3, 1.0)
    assert circuits(strengths) == {frozenset(HEADS[alone])}


def test_where_the_other_copy_carries_the_other_answer_neither_is_enough():
    """Redundancy is seen under zero ablation: a copy that carries the corrupted digit outweighs as much as it helps."""
    assert circuits((1.0, 1.0), replacement="corrupted") == {frozenset(HEADS[0] | HEADS[1])}


def test_nodes_are_counted_instead_of_edges():
    assert circuits((1.0, 1.0), by="node") == {frozenset({"L0H0"}), frozenset({"L0H1"})}


def test_up_to_a_size_no_claim_is_made_beyond_it():
    found = found_in((1.0, 1.0), most=1)
    assert not found.complete and found.size is None and not found.unique
    assert found.at_most == 2 and found.looked_to < 2


@pytest.fixture(scope="module")
def adder() -> Any:
    return models.load("microadder-57")


def test_a_part_that_carries_something_else_cannot_be_exchanged(adder: Any):
    """The head of the whole model, and one that reads the corrupted digits: each in the other's place."""
    pairs = problem_pairs(adder.task, "made carry", column=5, n=16)
    experiment = EdgeExperiment(adder, pairs, "logit_diff", "corrupted", "noise")
    whole = torch.ones(len(experiment.graph), dtype=torch.bool)
    table = exchange_parts(experiment, torch.stack((whole, ~experiment.graph.mask(["embed->L0H0.v"]))))
    into = table[table["part"] == "L0H0"].set_index(["from", "into"])["answers_stay"]
    assert into[1, 0] < 0.5 and into[0, 1] < 0.5
    assert table[table["part"] == "L0.mlp"]["answers_stay"].between(0, 1).all()


def test_a_part_exchanged_with_itself_changes_nothing(adder: Any):
    pairs = problem_pairs(adder.task, "made carry", column=5, n=8)
    experiment = EdgeExperiment(adder, pairs, "logit_diff", "corrupted", "noise")
    whole = torch.ones(2, len(experiment.graph), dtype=torch.bool)
    table = exchange_parts(experiment, whole)
    assert (table["answers_stay"] == 1).all() and np.allclose(table["logit_diff"], table["logit_diff_own"])


def test_optimal_constants_start_at_the_means_and_are_never_worse_on_their_own_problems(adder: Any):
    pairs = problem_pairs(adder.task, "made carry", column=5, n=12)
    experiment = EdgeExperiment(adder, pairs, "logit_diff", "mean", "noise")
    masks = torch.rand(6, len(experiment.graph), generator=torch.Generator().manual_seed(0)) < 0.6
    masked, tokens = experiment.masked, pairs.clean_tokens

    def kl(steps: int) -> torch.Tensor:
        constants = fit_constants(masked, masks, tokens, steps)
        embeddings = masked.embeddings(tokens).expand(len(masks), -1, -1, -1, -1)
        right = masked.run_from_stage([embeddings[:1]], 0)[1].log_softmax(-1)
        found = masked.run_from_stage([embeddings], 0, masked.table(masks), constants)[1].log_softmax(-1)
        return (right.exp() * (right - found)).sum(-1).mean((1, 2))

    start = fit_constants(masked, masks, tokens, 0)[0]
    assert torch.allclose(start, masked.replacement("mean", tokens)[:, :1], atol=1e-5)
    assert (kl(10) <= kl(0) + 1e-6).all() and (kl(10) < kl(0) - 1e-6).any()


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_minimal_circuits_are_those_without_a_faithful_part(seed: int):
    rng = np.random.default_rng(seed)
    sets = np.unique(rng.random((20, 6)) < 0.5, axis=0)
    faithful = rng.random(len(sets)) < 0.5
    found = set(minimal_rows(sets, faithful))
    for row in np.flatnonzero(faithful):
        parts = [other for other in np.flatnonzero(faithful) if other != row and (sets[other] <= sets[row]).all()]
        assert (row in found) == (not parts)


def test_another_draw_with_another_circuit_is_not_the_same():
    sets = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    first, second = np.array([True, False, True]), np.array([False, True, True])
    rows = compute_stability(sets, [("draw", "a", first), ("draw", "b", second), ("draw", "c", first & second)], first)
    assert rows["same"].tolist() == [True, False, False] and rows["jaccard"].tolist() == [1.0, 0.0, 0.5]
    nothing, both = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
    assert (jaccard(nothing, nothing), jaccard(nothing, both)) == (1.0, 0.0)


def test_bad_input(adder: Any):
    pairs = problem_pairs(adder.task, "made carry", column=5, n=8)
    with pytest.raises(UserError, match="'mean'"):
        interp.all_circuits(adder, pairs, replacement="meen")
    with pytest.raises(UserError, match="whole heads"):
        interp.all_circuits(adder, pairs, by="node", groups="roles")
    with pytest.raises(UserError, match="from 1 to"):
        interp.all_circuits(adder, pairs, most=0)
    with pytest.raises(UserError, match="more than 50%"):
        interp.all_circuits(models.build("microadder-57", seed=1), pairs)
    with pytest.raises(UserError, match="at least 4"):
        interp.all_circuits(adder, pairs.select(slice(0, 3)))
    assert CircuitSpace(("a",), ("x",), ("logits",)).circuits(1)[1] == 0


def test_what_does_not_come_out_on_the_other_half_is_told_apart_from_what_does():
    """Two draws of each kind: the resamples agree, and the other half does or does not."""
    kinds = ["the other half of the pairs", *["resampled pairs"] * 2]
    said = [how_stable(pd.DataFrame({"over": kinds, "same": [half, True, True]})) for half in (True, False)]
    assert said[0] != said[1] and all("2 of 2" in text for text in said)
