"""Shared by all probes: results, statistics, problems, places and controls. Nothing here imports a probe."""
