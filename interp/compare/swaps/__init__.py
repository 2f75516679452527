"""Component swaps: what is kept when parts of one model replace another's."""
