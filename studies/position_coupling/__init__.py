"""Position Coupling: which constructed head of Theorem 4.1 a trained head plays, and whether it makes the answer.

The ground truth is the constructed transformer itself, run over its whole grid and far beyond it.
"""
