"""Position Coupling: which constructed head of Theorem 4.1 does a trained head play, and does the role make the answer?

The constructed transformer itself, run over its whole grid and far beyond it, is the ground truth.
"""

from interp.papers import Paper

PAPER = Paper(
    "position-coupling",
    "Arithmetic Transformers Can Length-Generalize in Both Operand Length and Count",
    2,
    ("studies", "hand_built", "repairs", "near_ids", "from_construction"),
)
