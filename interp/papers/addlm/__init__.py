"""AddLM: what ternary weights, L1 scores and a top-k cut compute, and what is saved by leaving out products."""

from interp.papers import Paper

PAPER = Paper(
    key="addlm",
    name="AddLM",
    title="AddLM: a multiplication-free language model",
    words="Ternary matrices and attention by L1 distance (kader-xai).",
    order=4,
    studies=("studies", "claims"),
)
