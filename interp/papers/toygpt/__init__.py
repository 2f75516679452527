"""ToyGPT's two-digit sums: kinds of positions and placements of LayerNorm, over seeds and budgets.

All 10,000 problems are tried, so that nothing is sampled within the domain.
"""

from interp.papers import Paper

PAPER = Paper(
    key="toygpt",
    name="ToyGPT",
    title="ToyGPT: A Miniature GPT Model for Arithmetic Addition",
    words="minGPT's two-digit adder in nine variants, tried on all 10,000 pairs (Kapoor).",
    order=3,
    studies=("studies",),
)
