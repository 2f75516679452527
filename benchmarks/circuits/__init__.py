"""A benchmark of methods that find circuits, on trained models whose answers are proved and whose circuits are counted.

    python -m benchmarks.circuits --quick                  a subset in two minutes
    python -m benchmarks.circuits --runs results           all of it; the same command resumes
    python -m benchmarks.circuits --from my_method.py      with a method of your own (docs/add_a_method.md)

cases             which models and tasks, what is known of each, and what a method is given
circuit_methods   one function and one registration each
scores            how a ranking of edges is judged
variable_methods  methods that say where a variable lives, by the same idea
bench_runs        all methods on all cases, resumable; the table
learning_coefficient   the local learning coefficient by sampling, next to what the Hessian says
"""

from benchmarks.circuits.bench_runs import Benchmark, run_benchmark
from benchmarks.circuits.cases import Case, Subject, Truth, subjects
from benchmarks.circuits.circuit_methods import METHODS, method
from benchmarks.circuits.scores import score_ranking

__all__ = ["METHODS", "Benchmark", "Case", "Subject", "Truth", "method", "run_benchmark", "score_ranking", "subjects"]
