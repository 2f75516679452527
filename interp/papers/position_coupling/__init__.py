"""Position Coupling: which constructed head of Theorem 4.1 a trained head plays, and whether it makes the answer.

The ground truth is the constructed transformer itself, run over its whole grid and far beyond it.
"""

from interp.papers import Paper

PAPER = Paper(
    key="position-coupling",
    name="Position Coupling",
    title="Arithmetic Transformers Can Length-Generalize in Both Operand Length and Count",
    words="Sums of many numbers, products and parity at lengths unseen in training (ICLR 2025).",
    order=2,
    studies=("studies", "hand_built"),
)
