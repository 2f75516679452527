"""Pictures of :mod:`interp.causal.interchange`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.causal.interchange.accuracy import HYPOTHESIS, InterchangeAccuracy, counted
from interp.causal.interchange.scrubbing import CausalScrubbing
from interp.causal.interchange.sweep import InterchangeSweep
from interp.causal.interchange.which import CHANGED_BY, CORRUPTIONS, WhichAlgorithm
from interp.figures import theme
from interp.figures.drawing import drawing

_CORRUPTION_NAMES = {"plausible": "the digit of the other carry", "any": "any wrong digit"}
_CARRY_COLOURS = {"-1": theme.SKY, "0": theme.BLUE, "1": theme.VERMILION, "2": theme.ORANGE, "other": theme.LIGHT}


@drawing(InterchangeAccuracy)
def interchange_accuracy(result: InterchangeAccuracy) -> go.Figure:
    """Interchange accuracy of the hypothesis beside its controls, with 95% intervals."""
    table = result.to_dataframe().iloc[::-1]
    colours = [theme.BLUE if run == HYPOTHESIS else theme.GREY for run in table["run"]]
    figure = go.Figure()
    figure.add_bar(
        x=table["accuracy"],
        y=table["run"],
        orientation="h",
        marker={"color": colours},
        error_x=theme.error_bars(table["accuracy"], table["low"], table["high"], width=5, color=theme.BLACK),
        customdata=np.stack((table["right"], table["n_changed"], table["stayed"]), -1),
        hovertemplate="%{y}: %{x:.3f} (%{customdata[0]:,} of %{customdata[1]:,}; the base's answer kept in "
        "%{customdata[2]:.3f})<extra></extra>",
        width=0.6,
    )
    for value, high, run in zip(table["accuracy"], table["high"], table["run"], strict=True):
        figure.add_annotation(x=high, y=run, text=f"{value:.3f}", showarrow=False, xanchor="left", xshift=8)
    figure.update_xaxes(
        title="share of pairs with the causal model's answer, where it changes", range=[0, 1.12], tickvals=_QUARTERS
    )
    found = result.accuracy()
    figure.update_yaxes(ticksuffix="  ")
    title = (
        f"{result.model}: {found.value:.3f} of {found.n:,} answers change as {result.algorithm} says when "
        f"{result.variable} is interchanged"
    )
    note = (
        f"Column {result.column}, {result.site}, {result.subspace}. Bars: 95% Clopper-Pearson. Without intervention "
        f"{result.clean.value:.3f} right"
    )
    figure = theme.finish(figure, title, result.provenance, width=900, height=320 + 34 * len(table), note=note)
    return figure.update_layout(margin={"l": 130, "r": 80})


_QUARTERS = [0, 0.25, 0.5, 0.75, 1]


@drawing(InterchangeSweep)
def interchange_sweep(result: InterchangeSweep) -> go.Figure:
    """Interchange accuracy of every site; grey where source and base never differ."""
    values = np.where(result.live.values, result.accuracy.values, np.nan)
    hooks = [str(name).replace("blocks.", "L").replace(".hook_", " ") for name in result.right.hook.values]
    positions = [str(place) for place in result.right.position.values]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=positions,
            y=hooks,
            zmin=0,
            zmax=1,
            colorscale=theme.SEQUENTIAL,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "accuracy", "side": "right"}, "tickvals": _QUARTERS, "len": 0.9},
            hovertemplate="%{y} at %{x}: %{z:.3f}<extra></extra>",
        )
    )
    figure.update_xaxes(title="position", type="category", tickangle=0 if len(positions) < 40 else -90, showgrid=False)
    figure.update_yaxes(title="layer and stream", type="category", autorange="reversed", showgrid=False, ticksuffix=" ")
    figure.update_layout(plot_bgcolor=theme.LIGHT)
    site = result.best()
    best = float(result.accuracy.sel(hook=site.hook, position=str(site.at)))
    title = (
        f"{result.model}: the {result.variable} of column {result.column} ({result.algorithm}) is moved best at {site} "
        f"({best:.3f})"
    )
    note = "Whole sites, one at a time; grey: nothing differs there"
    return theme.finish(figure, title, result.provenance, height=250 + 42 * len(hooks), note=note)


@drawing(WhichAlgorithm)
def which_algorithm(result: WhichAlgorithm) -> go.Figure:
    """Left: how often the model gives each algorithm's digit where they disagree. Right: the carry that its predictions
    imply, by the difference x' + y' - z'."""
    figure = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.42, 0.58],
        horizontal_spacing=0.12,
        subplot_titles=["where the algorithms disagree", "any wrong digit: the carry a prediction implies"],
    )
    for corruption, colour in zip(CORRUPTIONS, (theme.GREEN, theme.PURPLE), strict=True):
        names = [name for group in result.ranking() for name in group]
        found = [result.accuracy(name, corruption) for name in names]
        figure.add_bar(
            x=names,
            y=[p.value for p in found],
            error_y=theme.error_bars(
                [p.value for p in found], [p.low for p in found], [p.high for p in found], color=theme.BLACK
            ),
            customdata=[[p.successes, p.n] for p in found],
            hovertemplate="%{x}: %{y:.3f} (%{customdata[0]:,} of %{customdata[1]:,})<extra></extra>",
            name=f"{_CORRUPTION_NAMES[corruption]} (n = {found[0].n:,})",
            marker={"color": colour},
            legend="legend",
            row=1,
            col=1,
        )
    table = result.implied_carries("any")
    for carry, colour in _CARRY_COLOURS.items():
        figure.add_bar(
            x=table["difference"],
            y=table[carry],
            name=f"carry {carry}".replace("-", "−") if carry != "other" else "no such carry",
            marker={"color": colour},
            customdata=table["n"],
            hovertemplate=f"difference %{{x}}: {carry} in %{{y:.3f}} of %{{customdata:,}}<extra></extra>",
            legend="legend2",
            offsetgroup="carries",
            row=1,
            col=2,
        )
    bases = np.cumsum(table[list(_CARRY_COLOURS)].values, 1) - table[list(_CARRY_COLOURS)].values
    for trace, base in zip(list(figure.data)[-len(_CARRY_COLOURS) :], bases.T, strict=True):
        trace.update(base=base)
    figure.update_yaxes(title="share with the algorithm's digit", range=[0, 1.08], tickvals=_QUARTERS, col=1)
    figure.update_yaxes(title="share of predictions", range=[0, 1.08], tickvals=_QUARTERS, col=2)
    figure.update_xaxes(title="algorithm", col=1)
    figure.update_xaxes(title="difference x' + y' − z' (−1, 0, 9, 10 occur uncorrupted)", dtick=3, col=2)
    below = {"yanchor": "top", "y": -0.2}
    legends = {"legend": below | {"x": 0}, "legend2": below | {"x": 0.49, "orientation": "h"}}
    figure.update_layout(barmode="group", bargap=0.12, **legends)
    best = result.ranking(result.deciding)[0][0]
    title = f"{result.model} follows {result.verdict}"
    note = "The output before one query is replaced. "
    for corruption, change in zip(CORRUPTIONS, ("a plausible wrong digit changes", "any changes"), strict=True):
        shares = [result.followed(best, corruption, changed_by=by) for by in CHANGED_BY]
        if shares[0].n:
            note += f"Of the {shares[0].n:,} predictions that {change}, {shares[0]} become {best}'s digit"
            note += (
                f", and {shares[2]} of the {shares[2].n:,} where {best} changes too. "
                if 0 < shares[2].n < shares[0].n
                else ". "
            )
    twins = [result.accuracy(best, corruption, of="untrained") for corruption in CORRUPTIONS]
    twin = " and ".join(f"{share.value:.3f}" for share in twins if share.n)
    note += f"An untrained twin gives {best}'s digit in {twin}. Bars: 95% Clopper-Pearson"
    return theme.finish(figure, title, result.provenance, width=1100, height=600, note=note)


@drawing(CausalScrubbing)
def causal_scrubbing(result: CausalScrubbing) -> go.Figure:
    """Share of the loss recovered by column: the hypothesis beside the same sites scrubbed as irrelevant."""
    table: Any = result.to_dataframe()
    figure = go.Figure()
    runs = (("scrubbed", "as the hypothesis allows", theme.BLUE), ("all irrelevant", "as if irrelevant", theme.GREY))
    for run, name, colour in runs:
        rows = table[(table["run"] == run) & (table["column"] != "all")]
        figure.add_scatter(
            x=rows["column"],
            y=rows["recovered"],
            mode="lines+markers",
            name=f"resampled {name}",
            marker={"color": colour, "size": 9},
            line={"color": colour, "width": 1.5},
            error_y=theme.error_bars(rows["recovered"], rows["low"], rows["high"], color=colour),
            customdata=np.stack((rows["loss"], rows["right"], rows["n"]), -1),
            hovertemplate="column %{x}: %{y:.4f} (loss %{customdata[0]:.4f} nats, %{customdata[1]:.3f} of digits "
            "right, n = %{customdata[2]:,})<extra></extra>",
        )
    for level in (0, 1):
        figure.add_hline(y=level, line={"color": theme.GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="column predicted (0 is the units)", dtick=1)
    figure.update_yaxes(title="share of the loss recovered")
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    share, low, high = result.recovered()
    title = (
        f"{result.model}: {counted(len(result.claims), 'claim')} in terms of {result.algorithm} "
        f"recover{'s' * (len(result.claims) == 1)} {share:.3f} "
        f"[{low:.3f}, {high:.3f}] of the loss"
    )
    note = (
        f"0 is another problem's logits ({result.loss('scrambled'):.2f} nats), 1 the clean run "
        f"({result.loss('clean'):.4f}). Bars: 95% bootstrap"
    )
    return theme.finish(figure, title, result.provenance, note=note)
