"""The picture of a forecast of grokking."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover, points
from interp.figures.panels import Panel, compose
from interp.probes.forecast import Forecast


@drawing(Forecast)
def forecast(result: Forecast) -> go.Figure:
    """AUROC over the share of training at which one looks: every model in grey, all together with the interval."""
    layers, share = [], 100 * result.table.share.values
    *models, together = result.table.model.values.tolist()
    if len(models) > 1:
        for i, model in enumerate(models):
            row = result.table.sel(model=model)
            said = hover(f"{model}: {{y:.2f}}, {{will}} seeds against {{never}}", will=row.will, never=row.never)
            name = "one model" if not i else None
            layers.append(points(share, row.auroc.values, name, theme.GREY, size=7, opacity=0.6, **said))
    row = result.table.sel(model=together)
    said = hover("{y:.2f} [{low:.2f}, {high:.2f}]", low=row.low.values, high=row.high.values)
    name = together if len(models) > 1 else models[0]
    layers.append(points(share, row.auroc.values, name, theme.BLUE, size=10, ends=(row.low, row.high), **said))
    layers.append(curve([0, share.max()], [0.5, 0.5], "chance", theme.BLACK, "dash"))
    known = np.flatnonzero(~np.isnan(row.auroc.values))
    title = "No seed groks, or all do: there is nothing to tell apart"
    if len(known):
        at = known[int(row.auroc.values[known].argmax())]
        title = (
            f"After {share[at]:.0f}% of the steps {result.measure.replace('_', ' ')} tells the seeds that will grok "
            f"with AUROC {row.auroc.values[at]:.2f} [{row.low.values[at]:.2f}, {row.high.values[at]:.2f}]"
        )
    x = {"title": "share of the training steps", "ticksuffix": "%", "rangemode": "tozero"}
    y = {"title": "AUROC among seeds of one model", "range": [-0.04, 1.04]}
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, height=480)
