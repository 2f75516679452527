"""Touch: patching, edges, circuits, ablation, interchange."""
