"""A benchmark of methods that find circuits, on models that are proved, exhausted or planted.

README.md in this folder has the commands and says what each module has; docs/add_a_method.md is about your own methods.
"""

from benchmarks.circuits.cases import Case
from benchmarks.circuits.circuit_methods import METHODS, method
from benchmarks.circuits.subjects import SUBJECTS, Subject
from benchmarks.circuits.truth import Truth

__all__ = ["METHODS", "SUBJECTS", "Case", "Subject", "Truth", "method"]
