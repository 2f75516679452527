"""ToyGPT's two-digit sums: where does a model that adds nearly right get the carry from, and where does it lose it?

All 10,000 problems are tried, so that within the domain nothing is sampled.
"""

from interp.papers import Paper

PAPER = Paper("toygpt", "ToyGPT: A Miniature GPT Model for Arithmetic Addition", 3, ("studies",))
