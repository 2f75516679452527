"""AddLM: what ternary weights, L1 scores and a top-k cut compute, and what is saved by leaving out products."""
