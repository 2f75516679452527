"""Two layers of attention on induction."""
