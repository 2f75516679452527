"""Circuits as files that other tools read: :func:`circuit_json` and :func:`attribution_graph`.

The first is for the Mechanistic Interpretability Benchmark (MIB), the JSON of its ``Graph.from_json``. Nodes are
``input``, ``a0.h1`` (a head), ``m0`` (an MLP) and ``logits``; edges ``input->a0.h1<q>``, ``a0.h1->m0``. Position
embeddings are part of the input there: of the two edges that become one, the larger score is kept.

The second is for the pages that show attribution graphs (circuit-tracer's, Neuronpedia's). They know features of
transcoders at tokens; here a head or an MLP stands in a feature's place, at the position that is read, its name is its
label, and the weight of a link is what the logit difference loses without the edge (the sum over a head's inputs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.causal.circuits.edge_space import space_of
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.edge_graph import EMBED, LOGITS, POS_EMBED, part_and_input
from models.transformer import read_part


def mib_name(part: str) -> str:
    """MIB's name of a part: "L0H1" is ``a0.h1``, "L0.mlp" is ``m0``."""
    if part in (EMBED, POS_EMBED):
        return "input"
    if part == LOGITS:
        return "logits"
    layer, _, head = read_part(part)
    return f"m{layer}" if head is None else f"a{layer}.h{head}"


def edge_name(sender: str, receiver: str) -> str:
    """MIB's name of an edge."""
    part, letter = part_and_input(receiver)
    return f"{mib_name(sender)}->{mib_name(part)}" + (f"<{letter}>" if letter else "")


def circuit_json(
    experiment: EdgeExperiment, circuit: Sequence[str], scores: Float[np.ndarray, " edge"]
) -> dict[str, Any]:
    """A circuit for MIB.

    Args:
        experiment: the masked runs that the circuit was found in.
        circuit: its edges, as one of ``interp.all_circuits(...).minimal`` names them.
        scores: one of each edge of ``experiment.graph``, such as what the logit difference loses without it.
    """
    graph, cfg = experiment.graph, experiment.masked.model.config
    inside = space_of(experiment).mask(circuit)
    edges: dict[str, dict[str, Any]] = {}
    for edge, score, kept in zip(graph.edges, scores, inside.tolist(), strict=True):
        name = edge_name(edge.sender, edge.receiver)
        before = edges.get(name, {"score": -np.inf, "in_graph": False})
        edges[name] = {"score": max(before["score"], round(float(score), 6)), "in_graph": before["in_graph"] or kept}
    ends = {name.partition("<")[0] for name, edge in edges.items() if edge["in_graph"]}
    used = {end for both in ends for end in both.split("->")}
    nodes = dict.fromkeys([mib_name(sender) for sender in graph.senders] + ["logits"])
    shape = {"n_layers": cfg.n_layers, "n_heads": cfg.n_heads, "parallel_attn_mlp": cfg.parallel_attn_mlp}
    return {
        "cfg": shape | {"d_model": cfg.d_model},
        "nodes": {name: {"in_graph": name in used} for name in nodes},
        "edges": edges,
    }


def attribution_graph(
    experiment: EdgeExperiment, circuit: Sequence[str], scores: Float[np.ndarray, " edge"], slug: str, model: str
) -> dict[str, Any]:
    """A circuit as an attribution graph of its first pair's clean problem.

    Args:
        experiment, circuit, scores: as for :func:`circuit_json`.
        slug, model: the graph's name and the model's.
    """
    graph, task = experiment.graph, experiment.pairs.task
    tokens, at = experiment.tokens[0], graph.read[-1]
    names = dict.fromkeys(graph.senders) | {LOGITS: None}
    nodes = {name: _graph_node(name, graph.n_layers, graph.n_heads, at, int(tokens[at])) for name in names}
    weights: dict[tuple[str, str], float] = {}
    inside = space_of(experiment).mask(circuit)
    for edge, score, kept in zip(graph.edges, scores.tolist(), inside.tolist(), strict=True):
        if kept:
            ends = edge.sender, part_and_input(edge.receiver)[0]
            weights[ends] = weights.get(ends, 0.0) + score
    used = {name for ends in weights for name in ends}
    problem = task.problem_text(task.numbers(experiment.pairs.clean[:1])[0])
    return {
        "metadata": {
            "slug": slug,
            "scan": model,
            "transcoder_list": [],
            "prompt_tokens": [role.label for role in task.roles[: len(tokens)]],
            "prompt": f"{problem} ({experiment.pairs.what})",
            "node_threshold": None,
            "schema_version": 1,
        },
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
        "nodes": [node for name, node in nodes.items() if name in used],
        "links": [
            {"source": nodes[one]["node_id"], "target": nodes[other]["node_id"], "weight": round(weight, 6)}
            for (one, other), weight in weights.items()
        ],
    }


def _graph_node(name: str, n_layers: int, n_heads: int, at: int, token: int) -> dict[str, Any]:
    kind: str = "cross layer transcoder"
    layer: int | str = "E"
    feature: int = 0
    if name in (EMBED, POS_EMBED):
        kind, feature = "embedding", token if name == EMBED else -1
    elif name == LOGITS:
        kind, layer = "logit", n_layers + 1
    else:
        layer, _, head = read_part(name)
        feature = n_heads if head is None else head
    return {
        "node_id": f"{layer}_{feature}_{at}",
        "feature": feature,
        "layer": str(layer),
        "ctx_idx": at,
        "feature_type": kind,
        "token_prob": 0.0,
        "is_target_logit": name == LOGITS,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": f"{layer}_{feature}-{at}",
        "clerp": name,
    }
