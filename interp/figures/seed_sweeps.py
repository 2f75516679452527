"""Pictures of :class:`interp.probes.seed_sweeps.SeedSweep`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.probes.seed_sweeps import SeedSweep


def seeds_by_variant(sweeps: Sequence[SeedSweep], title: str) -> go.Figure:
    """Every seed's best exact match and last token accuracy, one row per variant; filled: all of the test set."""
    layers = []
    for i, sweep in enumerate(sweeps):
        wobble = np.random.default_rng(0).uniform(-0.11, 0.11, sweep.n)
        groks = [right == sweep.n_test for right in sweep.on_test]
        for values, offset, colour, name in (
            (sweep.best_exact, 0.16, theme.BLUE, "best exact match"),
            (sweep.token, -0.16, theme.ORANGE, "last token accuracy"),
        ):
            said = hover(f"{sweep.label}, seed {{seed}}: {name} {{x:.4f}}", seed=list(sweep.seeds))
            layers.append(points(values, i + offset + wobble, name, colour, size=8, filled=groks, opacity=0.8, **said))
    labels = _labels(sweeps)
    shares = "share of validation problems (exact match), of targets (token accuracy)"
    panel = Panel(
        layers,
        x={"title": shares, "range": [-0.02, 1.02]},
        y={"tickvals": list(range(len(sweeps))), "ticktext": labels, "autorange": "reversed", "zeroline": False},
    )
    provenance = Provenance(sum(sweep.n for sweep in sweeps), None, "seeds, each on 2,048 validation problems")
    note = "Filled: the seed answers all of the test set; heights within a row mean nothing"
    return compose(
        [panel], title, provenance, note=note, height=240 + 74 * len(sweeps), margin={"l": 260, "t": 24},
        legend={"y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip


def _labels(sweeps: Sequence[SeedSweep]) -> list[str]:
    """Of each row: with its number of parameters where the label lacks it, and its steps where two have one label."""
    named = [sweep.label for sweep in sweeps]
    labels = []
    for sweep in sweeps:
        words = [] if str(sweep.parameters) in sweep.label.split() else [f"{sweep.parameters}"]
        words += [f"{sweep.steps:,} steps"] if named.count(sweep.label) > 1 else []
        labels.append(f"{sweep.label} ({', '.join(words)})" if words else sweep.label)
    return labels
