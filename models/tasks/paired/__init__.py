"""Pairs of problems that differ in one thing: a carry, a digit, a variable."""
