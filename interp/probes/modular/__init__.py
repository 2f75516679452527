"""Probes of models that compute in a cyclic group."""
