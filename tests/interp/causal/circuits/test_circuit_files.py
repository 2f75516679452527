"""A circuit in the form that MIB reads, and as an attribution graph."""

from __future__ import annotations

import pytest

import models
from interp.causal.circuits.circuit_files import attribution_graph, circuit_json, edge_name
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.path_patching import compute_direct
from models.tasks import problem_pairs

CIRCUIT = ("embed->L0H0.v", "L0H0->L0.mlp", "L0H0->logits", "L0.mlp->logits")


@pytest.fixture(scope="module")
def experiment() -> EdgeExperiment:
    model = models.load("microadder-57")
    pairs = problem_pairs(model.task, "made carry", column=5, n=8)
    return EdgeExperiment(model, pairs, "logit_diff", "corrupted", "noise")


def test_edges_have_mib_s_names(experiment: EdgeExperiment):
    assert edge_name("embed", "L0H1.q") == "input->a0.h1<q>" and edge_name("L0H1", "L0.mlp") == "a0.h1->m0"
    effects = (experiment.full - compute_direct(experiment)[0]).double().mean(-1).numpy()
    stored = circuit_json(experiment, CIRCUIT, effects)
    inside = {name for name, edge in stored["edges"].items() if edge["in_graph"]}
    assert inside == {"input->a0.h0<v>", "a0.h0->m0", "a0.h0->logits", "m0->logits"}
    assert all(node["in_graph"] for node in stored["nodes"].values())


def test_an_attribution_graph_has_the_circuit_s_nodes_and_links(experiment: EdgeExperiment):
    effects = (experiment.full - compute_direct(experiment)[0]).double().mean(-1).numpy()
    stored = attribution_graph(experiment, CIRCUIT, effects, "slug", "model")
    label = {node["node_id"]: node["clerp"] for node in stored["nodes"]}
    assert len(label) == len(stored["nodes"]) == 4
    links = {(label[link["source"]], label[link["target"]]): link["weight"] for link in stored["links"]}
    assert set(links) == {("embed", "L0H0"), ("L0H0", "L0.mlp"), ("L0H0", "logits"), ("L0.mlp", "logits")}
    edge = experiment.graph.names.index("L0.mlp->logits")
    assert links["L0.mlp", "logits"] == pytest.approx(effects[edge], abs=1e-5)
    assert len(stored["metadata"]["prompt_tokens"]) == len(experiment.tokens[0])
