"""ToyGPT's two-digit sums: kinds of positions and placements of LayerNorm, over seeds and budgets.

All 10,000 problems are tried, so that nothing is sampled within the domain.
"""
