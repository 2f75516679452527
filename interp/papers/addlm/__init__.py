"""AddLM: what ternary weights, L1 scores and a top-k cut compute, and what is saved by leaving out products."""

from interp.papers import Paper

_STUDIES = ("studies", "adder", "choices", "claims", "inside")
PAPER = Paper("addlm", "AddLM: a multiplication-free language model", 4, _STUDIES)
