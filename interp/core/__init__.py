"""Shared by all probes: results, statistics, problems, sites and controls. Nothing here imports a probe."""
