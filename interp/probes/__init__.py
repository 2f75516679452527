"""Look, do not touch: attention, units, embeddings, lenses, scores, curves."""
