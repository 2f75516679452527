"""Circuits as files of the Mechanistic Interpretability Benchmark (MIB), the JSON of its ``Graph.from_json``.

Nodes are ``input``, ``a0.h1`` (a head), ``m0`` (an MLP) and ``logits``; edges ``input->a0.h1<q>``, ``a0.h1->m0``.
Position embeddings are part of the input there: of the two edges that become one, the larger score is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, part_and_input

if TYPE_CHECKING:
    from interp.compare.bench.cases import Truth


def node_name(part: str) -> str:
    """MIB's name of a part: "L0H1" is ``a0.h1``, "L0.mlp" is ``m0``."""
    if part in (EMBED, POS_EMBED):
        return "input"
    if part == LOGITS:
        return "logits"
    if part.endswith(".mlp"):
        return f"m{part[1:-4]}"
    layer, _, head = part[1:].partition("H")
    return f"a{layer}.h{head}"


def edge_name(sender: str, receiver: str) -> str:
    """MIB's name of an edge."""
    part, letter = part_and_input(receiver)
    return f"{node_name(sender)}->{node_name(part)}" + (f"<{letter}>" if letter else "")


def circuit_json(truth: Truth) -> dict[str, Any]:
    """A subject's smallest circuit, with the exact effects as scores."""
    graph, cfg = truth.experiment.graph, truth.experiment.masked.model.config
    inside = truth.space.mask(truth.found.minimal[0]) if truth.found.minimal else truth.live & False
    edges: dict[str, dict[str, Any]] = {}
    for edge, score, kept in zip(graph.edges, truth.exact, inside.tolist(), strict=True):
        name = edge_name(edge.sender, edge.receiver)
        before = edges.get(name, {"score": -np.inf, "in_graph": False})
        edges[name] = {"score": max(before["score"], round(float(score), 6)), "in_graph": before["in_graph"] or kept}
    ends = {name.partition("<")[0] for name, edge in edges.items() if edge["in_graph"]}
    used = {end for both in ends for end in both.split("->")}
    nodes = dict.fromkeys([node_name(sender) for sender in graph.senders] + ["logits"])
    shape = {"n_layers": cfg.n_layers, "n_heads": cfg.n_heads, "parallel_attn_mlp": cfg.parallel_attn_mlp}
    return {
        "cfg": shape | {"d_model": cfg.d_model},
        "nodes": {name: {"in_graph": name in used} for name in nodes},
        "edges": edges,
    }
