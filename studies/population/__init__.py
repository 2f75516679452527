"""Many models at once: what they share, how far apart they are, and whether they found one solution.

population([models.load(name) for name in ("microadder-57", "microadder-100")]).figure()
align(a, b)                       two models of one architecture, moved onto each other along exact symmetries
sameness(a, b)                    the same, not the same or undecided: readings, aligned parameters, exchanged parts
seed_distances(models)            parameters and answers, next to untrained copies
mode_connectivity(a, b)           the straight line between two, after exact symmetries
solution_classes(models)          one solution or many, up to exact symmetries
"""

from studies.population.alignment import align
from studies.population.mode_connectivity import mode_connectivity
from studies.population.population import population
from studies.population.sameness import sameness
from studies.population.seed_distances import seed_distances
from studies.population.solution_classes import solution_classes

__all__ = ["align", "mode_connectivity", "population", "sameness", "seed_distances", "solution_classes"]
