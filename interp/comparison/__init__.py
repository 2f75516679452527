"""Two models of one format beside each other: heads, units and circuits matched, and how far apart they are.

interp.compare(a, b)     :mod:`interp.comparison.compare` says what is compared, and against which nulls
"""
