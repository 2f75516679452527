"""Results with planted numbers, of the types whose own tests draw no figure; no model is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance, Result
from interp.core.table_result import Measure, TableResult
from interp.probes.learning_curves import LearningCurves
from interp.probes.score_result import Scores
from interp.probes.stored_curves import curve_table

PROVENANCE = Provenance(12, 0, "planted numbers")


def accuracy_by_chain() -> Scores:
    """20 problems of each chain length 0 to 2; of length 2 five wrong."""
    counts = {"n": ("chain_length", [20, 20, 20]), "correct": ("chain_length", [20, 20, 15])}
    return Scores.of("m", xr.Dataset(counts, {"chain_length": [0, 1, 2]}), PROVENANCE, errors=True)


def grokking_curves() -> LearningCurves:
    """Three seeds: 0 is stored and perfect at step 20, 1 was perfect once, 2 never."""
    exact = np.array([[0.0, 0.5, 1.0], [0.0, 1.0, 0.9], [0.0, 0.1, np.nan]])
    table = curve_table("m", {"exact": exact}, [0, 1, 2], [0, 10, 20])
    return LearningCurves.compared(table, "exact", PROVENANCE, chosen={"m": 0})


def findings() -> TableResult:
    """Two rows with a control."""
    table = pd.DataFrame(
        {
            "what": ["a", "b"],
            "right": [0.5, 0.7],
            "right_low": [0.4, 0.6],
            "right_high": [0.6, 0.8],
            "right_untrained": [0.1, 0.0],
        }
    )
    return TableResult("b is more than a", table, PROVENANCE, ("what",), (Measure("right", "share", ("untrained",)),))


PLANTED: tuple[Callable[[], Result], ...] = (
    findings,
    accuracy_by_chain, grokking_curves,
)  # fmt: skip
