"""The papers that are studied here. Each has a folder with its studies and, in ``headlines.toml``, its claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"  # what the studies found


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What a paper is called, and its place.

    Attributes:
        key: as in ``python -m studies reproduce KEY:WHAT``.
        name: one of :data:`models.registry.PAPERS`.
        words: what it is about.
        label: its name in figures and on pages.
    """

    key: str
    name: str
    title: str
    words: str
    label: str

    @property
    def folder(self) -> str:
        """The name of its package."""
        return self.key.replace("-", "_")


PAPERS: dict[str, Paper] = {
    paper.key: paper
    for paper in (
        Paper(
            key="microadder",
            name="MicroAdder",
            title="MicroAdder: Training a Transformer for Perfect 10-Digit Addition",
            words="Ten-digit addition with as few numbers as possible (Zarechnev 2026).",
            label="MicroAdder",
        ),
        Paper(
            key="adder-456",
            name="456-Parameter",
            title="A 456-Parameter Transformer Solves 10-Digit Addition",
            words="Low-rank ten-digit adders whose attention may depend on the tokens (2026).",
            label="456 parameters",
        ),
        Paper(
            key="position-coupling",
            name="Position Coupling",
            title="Arithmetic Transformers Can Length-Generalize in Both Operand Length and Count",
            words="Sums of many numbers, products and parity at lengths unseen in training (ICLR 2025).",
            label="Position Coupling",
        ),
        Paper(
            key="toygpt",
            name="ToyGPT",
            title="ToyGPT: A Miniature GPT Model for Arithmetic Addition",
            words="minGPT's two-digit adder in nine variants, tried on all 10,000 pairs (Kapoor).",
            label="ToyGPT",
        ),
        Paper(
            key="addlm",
            name="AddLM",
            title="AddLM: a multiplication-free language model",
            words="Ternary matrices and attention by L1 distance (kader-xai).",
            label="AddLM",
        ),
    )
}
