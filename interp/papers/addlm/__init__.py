"""AddLM: what do ternary weights, L1 scores and a top-k cut compute, and what does doing without products save?"""

from interp.papers import Paper

PAPER = Paper("addlm", "AddLM: a multiplication-free language model", 4, ("studies", "adder", "claims", "inside"))
