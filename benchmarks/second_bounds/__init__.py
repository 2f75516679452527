"""A second implementation of what certificates claim: leads of single problems in ball arithmetic.

:mod:`benchmarks.second_bounds.ball_forward` is one plain forward pass in the balls of a library (python-flint's arb),
from the raw weights; it shares no code with :mod:`interp.proofs`. :mod:`benchmarks.second_bounds.leaves` takes what
proofs claim of their classes, nodes and problems, and each claim is held against it.
"""
