"""Causal tools, which intervene on a model: patching, edges, circuits, ablation, interchange."""
