"""What TransformerLens' tools expect of a model: names, tokens, weights, cache, copies."""
