"""A ten-digit adder's circuit: whether attention follows the problem, what it writes, and how the carry arrives."""

from interp.papers import Paper

PAPER = Paper(
    "adder-456",
    "456-Parameter",
    "A 456-Parameter Transformer Solves 10-Digit Addition",
    "Low-rank ten-digit adders whose attention may depend on the tokens (2026).",
    1,
    ("studies", "circuit", "low_rank"),
    label="456 parameters",
)
