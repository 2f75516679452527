"""A benchmark of methods that find circuits, on models that are proved, exhausted or planted.

    python -m benchmarks.circuits                          a quarter of the subjects, all methods
    python -m benchmarks.circuits --from my_method.py      with a method of your own (docs/add_a_method.md)
    python -m benchmarks.circuits --all                    all of it; what is stored is kept

subjects          which models and questions, each with its family and frozen by hashes
recipes, planted  small models that are trained for it, and models that are built around a circuit
truth             all circuits of a subject: minimal under four ablations, certified, planted
cases             what a method is given
circuit_methods   one function and one registration each
scores            how a ranking of edges is judged
bench_runs        all methods on all subjects, resumable
statistics        intervals over families and models, comparisons stated in advance, rank correlations
fresh             subjects that are made on demand, and judged on the fly
result_tables, page   the tables, the picture and the page with what was found
variable_methods  methods that say where a variable lives, by the same idea
learning_coefficient   the local learning coefficient by sampling, next to what the Hessian says
"""

from benchmarks.circuits.cases import Case
from benchmarks.circuits.circuit_methods import METHODS, method
from benchmarks.circuits.subjects import SUBJECTS, Subject
from benchmarks.circuits.truth import Truth

__all__ = ["METHODS", "SUBJECTS", "Case", "Subject", "Truth", "method"]
