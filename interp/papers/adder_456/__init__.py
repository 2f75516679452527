"""A ten-digit adder's circuit: does attention follow the problem, what does it write, and how does the carry come?"""

from interp.papers import Paper

PAPER = Paper(
    "adder-456", "A 456-Parameter Transformer Solves 10-Digit Addition", 1, ("studies", "circuit", "low_rank")
)
