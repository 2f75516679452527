"""Grids of exact match over problem sizes and position ids, stored cell by cell."""
