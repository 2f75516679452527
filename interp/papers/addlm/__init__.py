"""AddLM: what ternary weights, L1 scores and a top-k cut compute, and what is saved by leaving out products."""

from interp.papers import Paper

PAPER = Paper(
    "addlm",
    "AddLM",
    "AddLM: a multiplication-free language model",
    "Ternary matrices and attention by L1 distance (kader-xai).",
    4,
    ("studies", "adder", "choices", "claims", "inside"),
)
