"""Pictures of :class:`interp.probes.seed_sweeps.SeedSweep`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme
from interp.probes.seed_sweeps import SeedSweep


def seeds_by_variant(sweeps: Sequence[SeedSweep], title: str) -> go.Figure:
    """Every seed's best exact match and last token accuracy, one row a variant; filled: all of the test set."""
    figure = go.Figure()
    labels = [f"{sweep.label} ({sweep.parameters})" for sweep in sweeps]
    for i, sweep in enumerate(sweeps):
        wobble = np.random.default_rng(0).uniform(-0.11, 0.11, sweep.n)
        groks = [right == sweep.n_test for right in sweep.on_test]
        for values, offset, colour, name in (
            (sweep.best_exact, 0.16, theme.BLUE, "best exact match"),
            (sweep.token, -0.16, theme.ORANGE, "last token accuracy"),
        ):
            figure.add_scatter(
                x=values,
                y=i + offset + wobble,
                mode="markers",
                name=name,
                legendgroup=name,
                showlegend=i == 0,
                marker={
                    "color": [colour if grokked else "rgba(255,255,255,0.6)" for grokked in groks],
                    "line": {"color": colour, "width": 1.5},
                    "size": 8,
                },
                customdata=list(sweep.seeds),
                hovertemplate=f"{sweep.label}, seed %{{customdata}}: {name} %{{x:.4f}}<extra></extra>",
            )
    figure.update_yaxes(tickvals=list(range(len(sweeps))), ticktext=labels, autorange="reversed", zeroline=False)
    figure.update_xaxes(
        title="share of validation problems (exact match), of targets (token accuracy)", range=[-0.02, 1.02]
    )
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"})
    seeds = sum(sweep.n for sweep in sweeps)
    provenance = Provenance(seeds, None, "seeds, each on 2,048 validation problems")
    note = "Filled: the seed answers all of the test set; heights within a row mean nothing"
    figure = theme.finish(figure, title, provenance, height=240 + 74 * len(sweeps), note=note)
    return figure.update_layout(margin_l=260)
