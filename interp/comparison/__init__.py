"""Two models of one format beside each other: heads, units and circuits matched, and how far apart they are.

interp.compare(a, b)            :mod:`interp.comparison.compare` says what is compared, and against which nulls
interp.align(a, b)              two models of one architecture in one gauge: :mod:`interp.comparison.alignment`
interp.mode_connectivity(a, b)  the straight line between them: :mod:`interp.comparison.connectivity`
interp.seed_distances(models)   how far apart seeds are: :mod:`interp.comparison.seeds`
"""
