"""MicroAdder: its studies, headline numbers and figures."""

from interp.papers import Paper

PAPER = Paper(
    "microadder",
    "MicroAdder: Training a Transformer for Perfect 10-Digit Addition",
    0,
    ("studies", "continued", "distillation", "gap", "smallest", "starts"),
)
