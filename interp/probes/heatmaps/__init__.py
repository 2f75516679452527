"""At which problem sizes, and with which position ids, is a model right? Grids of exact match, stored cell by cell."""
