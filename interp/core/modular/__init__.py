"""Measures over a cyclic group that probes and interventions share."""
