"""Models whose numbers are set by hand: constructions from papers and of this project."""
