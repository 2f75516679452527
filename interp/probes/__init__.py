"""Probes that only observe a model: attention, neurons, embeddings, lenses, scores, curves."""

from interp.core.callable_package import call as _call

_call(__name__, "interp.core.probe", "probes")
