"""Benchmarks: ratios measured side by side in one run, on one CPU thread. ``make bench`` runs them all."""

import os

os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported: the reference's bars would count as its time
