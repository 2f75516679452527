"""MicroAdder: its studies, headline numbers and figures."""

from interp.papers import Paper

PAPER = Paper(
    "microadder",
    "MicroAdder",
    "MicroAdder: Training a Transformer for Perfect 10-Digit Addition",
    "Ten-digit addition with as few numbers as possible (Zarechnev 2026).",
    0,
    ("studies", "continued", "distillation", "gap", "smallest", "starts"),
)
