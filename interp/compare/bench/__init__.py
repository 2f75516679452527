"""A benchmark of methods that find circuits, on trained models whose answers are proved and whose circuits are counted.

    interp bench --quick                      a subset in two minutes
    interp bench --out results                all of it; the same command resumes
    interp bench --from my_method.py          with a method of your own (docs/add_a_method.md)

cases             which models and tasks, what is known of each, and what a method is given
circuit_methods   one function and one registration each
scores            how a ranking of edges is judged
variable_methods  methods that say where a variable lives, by the same idea
bench_runs        all methods on all cases, resumable; the table
mib               circuits as files of the Mechanistic Interpretability Benchmark, and as attribution graphs
"""

from interp.compare.bench.bench_runs import Benchmark, run_benchmark
from interp.compare.bench.cases import Case, Subject, Truth, subjects
from interp.compare.bench.circuit_methods import METHODS, method
from interp.compare.bench.scores import score_ranking

__all__ = ["METHODS", "Benchmark", "Case", "Subject", "Truth", "method", "run_benchmark", "score_ranking", "subjects"]
