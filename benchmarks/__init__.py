"""Benchmarks: ratios measured side by side in one run, on one CPU thread. ``make bench`` runs them all."""
