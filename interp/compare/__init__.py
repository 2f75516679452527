"""Comparisons of models: two models of one format part by part, models of any formats question by question.

interp.compare(a, b)              :mod:`interp.compare.compare` says what is compared, and with which nulls
interp.compare_models([a, b, c])  :mod:`interp.compare.compare_models`; its questions are the probes that give a number
interp.swap_components(a, b)      one component replaced by the other model's: :mod:`interp.compare.swap_components`
"""

from interp.core.callable_package import call as _call

_call(__name__, "interp.compare.compare", "compare")
