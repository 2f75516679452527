"""A ten-digit adder's circuit: whether attention follows the problem, what it writes, and how the carry arrives."""

from interp.papers import Paper

PAPER = Paper(
    "adder-456", "A 456-Parameter Transformer Solves 10-Digit Addition", 1, ("studies", "circuit", "low_rank")
)
