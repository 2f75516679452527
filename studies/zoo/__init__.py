"""How the zoo's own models of two papers are published: which seed is stored, and how every seed is scored."""
