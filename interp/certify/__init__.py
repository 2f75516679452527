"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried."""
