"""MicroAdder: its studies, headline numbers and figures."""

from interp.papers import Paper

PAPER = Paper(
    key="microadder",
    name="MicroAdder",
    title="MicroAdder: Training a Transformer for Perfect 10-Digit Addition",
    words="Ten-digit addition with as few numbers as possible (Zarechnev 2026).",
    order=0,
    studies=("studies",),
)
