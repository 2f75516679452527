"""Tasks that are written as a format of numbers or as a function of a string."""
