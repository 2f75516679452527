"""The 456-parameter adder: its studies and headline numbers."""

from interp.papers import Paper

PAPER = Paper(
    key="adder-456",
    name="456-Parameter",
    title="A 456-Parameter Transformer Solves 10-Digit Addition",
    words="Low-rank ten-digit adders whose attention may depend on the tokens (2026).",
    order=1,
    studies=("studies",),
    label="456 parameters",
)
