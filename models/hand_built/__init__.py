"""Models whose numbers are set by hand: constructions from papers and this project's own."""
