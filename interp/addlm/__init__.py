"""AddLM: what do ternary weights, L1 scores and a top-k cut compute, and what does doing without products save?"""
