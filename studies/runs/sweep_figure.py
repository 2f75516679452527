"""The picture of a sweep: every seed of every variant."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.probes.curves import Curves


def seeds_by_variant(result: Curves, title: str) -> go.Figure:
    """Every seed's best exact match and last token accuracy in a sweep (:mod:`studies.runs.seed_sweeps`),
    one row per variant; filled markers answer the whole test set."""
    layers, labels = [], []
    for i, model in enumerate(result.models):
        label, best = result.labels[model], result.of(model).max("step")
        seeds = best.seed.values.tolist()
        wobble = np.random.default_rng(0).uniform(-0.11, 0.11, len(seeds))
        groks = [result.on_test[model][seed] for seed in seeds]
        # Add the number of parameters if the label lacks it, and the steps if two variants have one label.
        parameters = str(int(result.table.parameters.sel(model=model)))
        words = [] if parameters in label.split() else [parameters]
        if list(result.labels.values()).count(label) > 1:
            words.append(f"{int(result.of(model).step.values[-1]):,} steps")
        labels.append(f"{label} ({', '.join(words)})" if words else label)
        for values, offset, colour, name in (
            (best.values, 0.16, theme.BLUE, "best exact match"),
            (result.of(model, "token").values[:, -1], -0.16, theme.ORANGE, "last token accuracy"),
        ):
            said = hover(f"{label}, seed {{seed}}: {name} {{x:.4f}}", seed=seeds)
            layers.append(points(values, i + offset + wobble, name, colour, size=8, filled=groks, opacity=0.8, **said))
    shares = "share of validation problems (exact match),<br>of targets (token accuracy)"
    panel = Panel(
        layers,
        x={"title": shares, "range": [-0.02, 1.02]},
        y={"tickvals": list(range(len(labels))), "ticktext": labels, "autorange": "reversed", "zeroline": False},
    )
    note = "Filled: the seed answers all of the test set; vertical jitter only"
    return compose(
        [panel], title, result.provenance, note=note, height=240 + 74 * len(labels), margin={"l": 260, "t": 24},
        legend={"y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
