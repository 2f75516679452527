"""Pictures of :class:`interp.probes.dynamics.GrokkingCurves`, :class:`interp.probes.dynamics.RunCurves`,
:class:`interp.probes.dynamics.TrainingDynamics` and :class:`interp.probes.grokking.GrokkingComparison`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.dynamics.curves import GrokkingCurves
from interp.probes.dynamics.measures import find_measure
from interp.probes.dynamics.run_curves import RunCurves
from interp.probes.dynamics.training import TrainingDynamics
from interp.probes.grokking import GrokkingComparison

_DRAWN = 200  # evaluations drawn a seed; more only make the page heavy


@drawing(GrokkingCurves)
def grokking_curves(result: GrokkingCurves) -> go.Figure:
    """Exact match over steps: the stored seed, the others that were ever perfect, and the rest in grey."""
    figure = go.Figure()
    steps = result.table.step.values
    every = max(1, len(steps) // _DRAWN)
    seeds = result.table.seed.values.tolist()
    groups = (
        ("never perfect on validation", [s for s in seeds if s not in result.first_perfect], theme.GREY, 1, 0.25),
        (
            "perfect at some point",
            [s for s in seeds if s in result.first_perfect and s != result.chosen],
            theme.SKY,
            1.5,
            0.8,
        ),
        (f"seed {result.chosen}, in the zoo", [result.chosen], theme.VERMILION, 2.5, 1.0),
    )
    for name, members, colour, width, opacity in groups:
        if not members:
            continue
        # One trace a group, seeds separated by gaps: a hundred traces would be slow to draw.
        x, y, label = [], [], []
        for seed in members:
            exact = result.table.exact.sel(seed=seed).values
            keep = np.flatnonzero(~np.isnan(exact))
            keep = keep[(np.arange(len(keep)) % every == 0) | (keep == keep[-1])] if len(keep) else keep
            x += [*steps[keep].tolist(), None]
            y += [*exact[keep].astype(float).round(4).tolist(), None]
            label += [seed] * (len(keep) + 1)
        figure.add_scatter(
            x=x, y=y, mode="lines", name=name if result.chosen in members else f"{name} ({len(members)})",
            line={"color": colour, "width": width}, opacity=opacity, text=label,
            hovertemplate="seed %{text}, step %{x:,}: %{y:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="training step", rangemode="tozero")
    figure.update_yaxes(title="exact match on validation problems", range=[-0.02, 1.03])
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520)


@drawing(RunCurves)
def run_curves(result: RunCurves) -> go.Figure:
    """Exact match (full) and token accuracy (dotted), or validation loss, over steps; the stored seed in red."""
    figure = go.Figure()
    shown = (
        [("validation_loss", "solid", "validation loss")]
        if result.by_loss
        else [("exact", "solid", "exact match"), ("token", "dot", "token accuracy")]
    )
    for seed in sorted(result.table.seed.values.tolist(), key=lambda seed: seed == result.chosen):
        chosen = seed == result.chosen
        here = result.table.sel(seed=seed)
        for name, dash, words in shown:
            figure.add_scatter(
                x=here.step.values, y=here[name].values.round(4), mode="lines", showlegend=chosen,
                line={"color": theme.VERMILION if chosen else theme.GREY, "width": 2.5 if chosen else 1, "dash": dash},
                name=f"{words}, seed {seed}, in the zoo", opacity=1 if chosen else 0.6,
                hovertemplate=f"seed {seed}, step %{{x:,}}: {words} %{{y:.4f}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="training step", rangemode="tozero")
    if result.by_loss:
        figure.update_yaxes(title="validation loss (nats a character)")
    else:
        figure.update_yaxes(title="share of validation problems", range=[-0.02, 1.03])
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    note = "Grey: the other seeds" if result.table.sizes["seed"] > 1 else ""
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520, note=note)


@drawing(GrokkingComparison)
def grokking_comparison(result: GrokkingComparison) -> go.Figure:
    """A panel a model: exact match on uniform validation problems over steps; seeds that grok bold, the rest grey."""
    names = list(result.curves)
    titles = [f"{name}: {result.rate(name).correct} of {result.rate(name).n} seeds" for name in names]
    figure = make_subplots(cols=len(names), shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=titles)
    for column, name in enumerate(names, 1):
        curve, first = result.curves[name], result.first_steps(name)
        seeds = curve.seed.values.tolist()
        for seed in sorted(seeds, key=lambda seed: seed in first):
            grokked = seed in first
            values = curve.sel(seed=seed).values
            keep = ~np.isnan(values)
            figure.add_scatter(
                x=curve.step.values[keep], y=values[keep].round(4), mode="lines", showlegend=False,
                line={"color": theme.VERMILION if grokked else theme.GREY, "width": 2 if grokked else 0.8},
                opacity=0.9 if grokked else 0.35,
                hovertemplate=f"seed {seed}, step %{{x:,}}: %{{y:.4f}}<extra></extra>", row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(title="training step", rangemode="tozero", row=1, col=column)
    figure.update_yaxes(range=[-0.02, 1.03])
    figure.update_yaxes(title="exact match, uniform validation", row=1, col=1)
    note = "Red: seeds that were once perfect. Grey: the others"
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=520, note=note)


@drawing(TrainingDynamics)
def training_dynamics(result: TrainingDynamics) -> go.Figure:
    """A panel a measure over one logarithmic axis of steps; a diamond where a reading has made half of its change, and
    a dotted line through all panels where exact match has."""
    half = result.half_way().set_index("reading")
    names = list(dict.fromkeys(result.table.measure.values.tolist()))
    figure = make_subplots(
        rows=len(names), shared_xaxes=True, vertical_spacing=0.25 / max(4, len(names)),
        subplot_titles=[find_measure(name).title for name in names],
    )  # fmt: skip
    steps = result.table.step.values.astype(float)
    start = steps[steps > 0][0] / 2  # where step 0 is drawn
    drawn = np.where(steps > 0, steps, start)
    for row, name in enumerate(names, 1):
        readings = result.table.reading.values[result.table.measure.values == name].tolist()
        shades = sample_colorscale("Viridis", np.linspace(0, 0.9, max(2, len(readings))))
        plain = (theme.VERMILION, theme.BLUE, theme.GREEN, theme.PURPLE)
        for i, reading in enumerate(readings):
            here = result.table.sel(reading=reading)
            part = str(here.part.values)
            colour = shades[i] if len(readings) > len(plain) else plain[i]
            value = here.value.values
            figure.add_scatter(
                x=drawn, y=value, mode="lines", line={"color": colour, "width": 2}, showlegend=False,
                customdata=np.stack((steps, here.low.values, here.high.values), -1), name=part or name,
                hovertemplate="step %{customdata[0]:,}: %{y:.4g} [%{customdata[1]:.4g}, %{customdata[2]:.4g}]",
                row=row, col=1,
            )  # fmt: skip
            _name_ends(figure, readings, i, part, drawn, value, colour, row)
            by = half.loc[reading, "by"]
            if np.isfinite(by):
                at = steps == by
                figure.add_scatter(
                    x=drawn[at], y=value[at], mode="markers", showlegend=False, hoverinfo="skip",
                    marker={"symbol": "diamond", "size": 9, "color": colour, "line": {"color": "white", "width": 1}},
                    row=row, col=1,
                )  # fmt: skip
        if "exact" in half.index and np.isfinite(half.loc["exact", "by"]):
            figure.add_vline(x=half.loc["exact", "by"], line={"color": theme.GREY, "dash": "dot", "width": 1}, row=row)
        if find_measure(name).log:
            figure.update_yaxes(type="log", row=row)
        else:
            _at_least(figure, result.table.value.sel(reading=readings).values, find_measure(name).least, row)
        if name in ("exact", "chain"):
            figure.update_yaxes(range=[-0.05, 1.08], row=row)
    powers = 10.0 ** np.arange(np.ceil(np.log10(start * 2)), np.floor(np.log10(steps[-1])) + 1)
    ticks = np.concatenate(([start], powers)) if steps[0] == 0 else powers
    figure.update_xaxes(
        type="log", tickvals=ticks, ticktext=[f"{0 if t == start else t:,.0f}" for t in ticks],
        range=[np.log10(start) - 0.05, np.log10(steps[-1]) + 0.28],
    )  # fmt: skip
    figure.update_xaxes(title="training step (logarithmic)", row=len(names))
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    note = "Diamonds: half of the change is made, for good. Dotted: that step for exact match"
    return theme.finish(
        figure, result.headline(), result.provenance, width=900, height=230 + 145 * len(names), note=note
    )


def _at_least(figure: go.Figure, values: np.ndarray, least: float, row: int) -> None:
    """No panel is stretched until changes that count as none fill it."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if high - low < least:
        figure.update_yaxes(range=[low - 5 * least, high + 5 * least], row=row)


def _name_ends(
    figure: go.Figure, readings: list[str], i: int, part: str, x: np.ndarray, y: np.ndarray, colour: str, row: int
) -> None:
    """The name of a reading at the end of its line: all of a few, the first and last of many."""
    known = np.flatnonzero(np.isfinite(y))
    if not part or not len(known) or (len(readings) > 4 and i not in (0, len(readings) - 1)):
        return
    last = (i > 0) == (len(readings) > 4)
    figure.add_scatter(
        x=[x[known[-1]]], y=[y[known[-1]]], mode="text", text=[f" {part}"], showlegend=False, hoverinfo="skip",
        textposition="bottom right" if last else "top right", textfont={"color": colour, "size": 12}, cliponaxis=False,
        row=row, col=1,
    )  # fmt: skip
