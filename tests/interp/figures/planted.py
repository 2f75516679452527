"""Results with planted numbers, of the types whose own tests draw no figure; no model is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Findings, Provenance, Result
from interp.papers.addlm.weights import TernaryTraining
from interp.papers.toygpt.attention import AttentionMaps
from interp.papers.toygpt.carry import CarryPath
from interp.probes.curves import Curves, curve_table
from interp.probes.score import by_chain
from interp.probes.scored import Scores
from models.evaluation import Rate

PROVENANCE = Provenance(12, 0, "planted numbers")
STREAMS = ("embed", "L0", "L1")


def accuracy_by_chain() -> Scores:
    """20 problems of each chain length 0 to 2; of length 2 five wrong."""
    return Scores("m", by_chain({0: Rate(20, 20), 1: Rate(20, 20), 2: Rate(20, 15)}), PROVENANCE, errors=True)


def grokking_curves() -> Curves:
    """Three seeds: 0 is stored and perfect at step 20, 1 was perfect once, 2 never."""
    exact = np.array([[0.0, 0.5, 1.0], [0.0, 1.0, 0.9], [0.0, 0.1, np.nan]])
    return Curves(curve_table("m", {"exact": exact}, [0, 1, 2], [0, 10, 20]), "exact", PROVENANCE, {"m": 0})


def ternary_training() -> TernaryTraining:
    """Two kinds of matrices at three steps."""
    values = np.arange(6.0).reshape(3, 2) / 10
    flipped = values.copy()
    flipped[0] = np.nan
    columns = {"zeros": values, "flipped": flipped, "from_start": values / 2, "to_end": values[::-1]}
    table = xr.Dataset(
        {k: (("step", "kind"), v) for k, v in columns.items()}, {"step": [0, 10, 100], "kind": ["W_Q", "W_K"]}
    )
    return TernaryTraining(table, PROVENANCE)


def attention_maps() -> AttentionMaps:
    """Two layers of two heads on three tokens; the second view is the first backwards."""
    mean = np.tril(np.arange(1, 37.0).reshape(2, 2, 3, 3) / 36)
    mean[..., np.triu_indices(3, 1)[0], np.triu_indices(3, 1)[1]] = np.nan
    places = {"layer": [0, 1], "head": [0, 1]}
    tokens = {"query": ["1", "+", "2"], "key": ["1", "+", "2"]}
    pattern = xr.DataArray(np.stack((mean, mean[::-1])), {"view": ["mean", "1 + 2"], **places, **tokens})
    names = [f"L{layer}H{head}" for layer in (0, 1) for head in (0, 1)]
    return AttentionMaps(
        "m", pattern, xr.DataArray([[1.0, 1.5], [2.0, 2.5]], places), 2.0,
        xr.DataArray(np.eye(4), {"one": names, "other": names}), xr.DataArray(mean / 10, {**places, **tokens}),
        ((1, 2),), PROVENANCE,
    )  # fmt: skip


def _along_the_stream(
    columns: Callable[[int], dict[str, float]], extra: tuple[tuple[str, str, int], ...]
) -> pd.DataFrame:
    sites = [("stream", site, layer) for layer, site in enumerate(STREAMS)] + list(extra)
    rows = []
    for position in ("a0", "b0", "s0"):
        for kind, site, layer in sites:
            rows.append({"kind": kind, "site": site, "layer": layer, "position": position} | columns(len(rows)))
    return pd.DataFrame(rows)


def carry_path() -> CarryPath:
    """At s0 a tenth, two and nine tenths of 100 follow, along the streams."""

    def columns(row: int) -> dict[str, float]:
        share = (0.1, 0.2, 0.9, 0.3, 0.4)[row % 5]
        counts = {"follows": round(100 * share), "n": 100, "stays": 0, "other": 0, "control_changed": 1}
        ends = {"low": share - 0.05, "high": share + 0.05, "control_low": 0.0, "control_high": 0.02}
        return counts | ends | {"share": share, "control_share": 0.01}

    table = _along_the_stream(columns, (("sublayer", "L0 attention", 0), ("head", "L0H0", 0)))
    return CarryPath("m", table, STREAMS, {}, 120, PROVENANCE)


def findings() -> Findings:
    """Two rows with a control."""
    table = pd.DataFrame(
        {"what": ["a", "b"], "value": [0.5, 0.7], "low": [0.4, 0.6], "high": [0.6, 0.8], "control": [0.1, 0.0]}
    )
    return Findings("b is more than a", table, PROVENANCE)


PLANTED: tuple[Callable[[], Result], ...] = (
    findings,
    accuracy_by_chain, grokking_curves, ternary_training, attention_maps, carry_path,
)  # fmt: skip
