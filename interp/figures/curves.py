"""Figures of training: curves over steps, every seed's value at one step, and all measures of one seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import Number, curve, hover, points, words
from interp.figures.panels import Panel, compose, vline
from interp.probes.curves import Curves
from interp.probes.dynamics.training import TrainingDynamics, number_of
from models.numerals import in_percent

_AXES = {
    "exact": "exact match",
    "uniform": "right of uniform problems",
    "test": "right of the pairs held out",
    "loss": "training loss",
}
_DRAWN = 200  # about how many evaluations are drawn per seed; more only make the page large


@drawing(Curves)
def curves(result: Curves, what: str = "") -> go.Figure:
    """One panel per model: the stored seed, other seeds that were ever perfect, and the rest in grey; without a stored
    seed, perhaps the mean over seeds."""
    what = what or result.what
    panels = []
    for model in result.models:
        table, stored = result.of(model, what), result.chosen.get(model)
        perfect = {} if what.endswith("loss") else result.onset(model)
        seeds = [seed for seed in table.seed.values.tolist() if seed != stored]
        once = [seed for seed in seeds if seed in perfect]
        never = [seed for seed in seeds if seed not in perfect]
        lines = []
        for name, members, colour, width, opacity in (
            ("seeds" if what.endswith("loss") else f"never perfect ({len(never)})", never, theme.GREY, 1, 0.4),
            (f"perfect at some point ({len(once)})", once, theme.SKY, 1.5, 0.8),
            (f"seed {stored}, in the zoo", [stored] if stored is not None else [], theme.VERMILION, 2.5, 1.0),
        ):
            lines += [_together(table.sel(seed=members), name, colour, width, opacity)] if members else []
        if stored is None and what != result.what:
            mean = table.mean("seed")
            lines.append(curve(mean.step.values, mean.values, "mean over seeds", theme.BLACK, "dash"))
        y: dict[str, Any] = {"title": "" if panels else _AXES.get(what, what.replace("_", " "))}
        y |= {} if what.endswith("loss") else {"range": [-0.02, 1.04]}
        late = result.budget is not None and float(table.step.max()) > result.budget
        marks = [vline(result.budget, "the paper stops", place="bottom right")] if late else []
        title = result.labels.get(model, model) if len(result.models) > 1 else ""
        panels.append(Panel(lines, title, {"title": "training step", "rangemode": "tozero"}, y, marks))
    title = result.sentence() if what == result.what else _ends(result, what)
    return compose(
        panels, title, result.provenance, columns=len(panels), shared="y", width=900 + 100 * len(panels),
        height=540, gaps=(36, 0),
    )  # fmt: skip


def _ends(result: Curves, what: str) -> str:
    """The last values of each model's seeds, in words."""
    said = []
    for model in result.models:
        table = result.of(model, what)
        ends = [row[~np.isnan(row)][-1] for row in table.values if not np.isnan(row).all()]
        span = f"{min(ends):.3f}" if len(ends) == 1 else f"{min(ends):.3f} to {max(ends):.3f}"
        said.append(f"{result.labels.get(model, model)} {span} after {int(table.step.max()):,} steps")
    name = _AXES.get(what, what.replace("_", " "))
    return f"{name[:1].upper()}{name[1:]}: {'; '.join(said)}"


def _together(table: Any, name: str, colour: str, width: Number, opacity: float) -> go.Scatter:
    """Several seeds as one trace with gaps between them, since a hundred traces would be slow to draw."""
    x, y, label, every = [], [], [], max(1, table.sizes["step"] // _DRAWN)
    for seed in table.seed.values.tolist():
        here = table.sel(seed=seed).dropna("step")
        keep = np.arange(here.sizes["step"])
        keep = keep[(keep % every == 0) | (keep == len(keep) - 1)]
        x += [*here.step.values[keep].tolist(), None]
        y += [*here.values[keep].astype(float).round(4).tolist(), None]
        label += [seed] * (len(keep) + 1)
    style: dict[str, Any] = {"opacity": opacity, "text": label} | hover("seed {text}, step {x:,}: {y:.4f}")
    return curve(x, y, name, colour, width=width, **style)


@drawing(Curves, "seeds")
def seeds(result: Curves, step: int | None = None, printed: Mapping[str, float] | None = None) -> go.Figure:
    """Every seed's value at the last step that all models have; each model is a row, a cross marks the paper's run."""
    step = min(int(result.of(model).step.max()) for model in result.models) if step is None else step
    layers, names, spans = [], [result.labels.get(model, model) for model in result.models], []
    for row, (model, label) in enumerate(zip(result.models, names, strict=True)):
        values = result.of(model).sel(step=step).dropna("seed").to_series()
        spans.append(
            f"{label} {in_percent(values.min())} to {in_percent(values.max())}"
            if len(values) > 1
            else f"{label} {in_percent(values.iloc[0])}"
        )
        ties = values.groupby(values.round(2)).cumcount().to_numpy()  # nearly equal seeds are stacked
        said = hover(f"{label}, seed {{seed}}: {{x:.1%}}", seed=np.array(values.index))
        layers.append(points(values.to_numpy(), row + 0.12 * ties, label, theme.SEVEN[row % 7], size=11, **said))
        if printed:
            said = hover(f"{label}, the paper's run: {{x:.1%}}")
            layers.append(points([printed[model]], [row - 0.2], "the paper's run", theme.BLACK, "x-thin", 10, **said))
    rows = {"tickvals": list(range(len(names))), "ticktext": names, "range": [len(names) - 0.4, -0.6]}
    x = {"title": f"right after {step:,} steps", "range": [-0.03, 1.04], "tickformat": ".0%"}
    panel = Panel(layers, x=x, y=rows | {"zeroline": False})
    return compose([panel], f"Right after {step:,} steps: {'; '.join(spans)}", result.provenance, height=420)


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


_FEW = (theme.VERMILION, theme.BLUE, theme.GREEN, theme.PURPLE)  # colours of up to four readings; more get shades


@drawing(TrainingDynamics)
def training_dynamics(result: TrainingDynamics) -> go.Figure:
    """One panel per measure, over a logarithmic axis of steps. A diamond shows where a reading has made half of its
    change, a dotted line through all panels where exact match has."""
    half = result.half_way().set_index("reading")["by"]
    names = list(dict.fromkeys(result.table.measure.values.tolist()))
    steps = result.table.step.values.astype(float)
    start = steps[steps > 0][0] / 2  # where step 0 is drawn
    powers = 10.0 ** np.arange(np.ceil(np.log10(start * 2)), np.floor(np.log10(steps[-1])) + 1)
    ticks = np.concatenate(([start], powers)) if steps[0] == 0 else powers
    x = {
        "type": "log", "tickvals": ticks, "ticktext": [f"{0 if t == start else t:,.0f}" for t in ticks],
        "range": [np.log10(start) - 0.05, np.log10(steps[-1]) + 0.28],
    }  # fmt: skip
    exact = half.get("score", np.nan)
    marks = [vline(exact, dash="dot")] if np.isfinite(exact) else []
    panels = []
    for name in names:
        readings = result.table.reading.values[result.table.measure.values == name].tolist()
        layers = [layer for i in range(len(readings)) for layer in _reading(result, readings, i, half, start)]
        y = _value_axis(name, result.table.value.sel(reading=readings).values)
        below = {"title": "training step (logarithmic)"} if name == names[-1] else {}
        scalar = number_of(name)
        panels.append(Panel(layers, f"{scalar.heading} ({scalar.unit})", x | below, y, marks))
    note = "Diamonds: half of the change is made, for good. Dotted: that step for exact match"
    figure = compose(
        panels, result.headline(), result.provenance, note=note, width=900, height=230 + 145 * len(names), shared="x",
        gaps=(0, 36),
    )  # fmt: skip
    return figure.update_annotations(x=0, xanchor="left")


def _value_axis(name: str, values: np.ndarray) -> dict[str, Any]:
    """The axis of values; it is widened so that a negligible change does not fill the panel."""
    scalar, low, high = number_of(name), float(np.nanmin(values)), float(np.nanmax(values))
    if scalar.unit == "share":
        return {"range": [-0.05, 1.08]}
    return {"range": [low - 5 * scalar.least, high + 5 * scalar.least]} if high - low < scalar.least else {}


def _reading(result: TrainingDynamics, readings: list[str], i: int, half: Any, start: float) -> list[go.Scatter]:
    """A reading's line, the point where half of its change is made, and its name at the end (with many readings only
    the first and the last are named)."""
    here, many = result.table.sel(reading=readings[i]), len(readings) > len(_FEW)
    shades = sample_colorscale("Viridis", np.linspace(0, 0.75, max(2, len(readings))))
    part, colour = str(here.part.values), shades[i] if many else _FEW[i]
    steps, y = here.step.values.astype(float), here.value.values
    x = np.where(steps > 0, steps, start)
    name = part or str(here.measure.values)
    fields = {"step": steps, "low": here.low.values, "high": here.high.values}
    said = hover("step {step:,}: {y:.4g} [{low:.4g}, {high:.4g}]", extra=name, **fields)
    layers = [curve(x, y, name, colour, showlegend=False, **said)]
    if np.isfinite(half[readings[i]]):
        at = steps == half[readings[i]]
        layers.append(points(x[at], y[at], None, colour, "diamond", rim="white", hoverinfo="skip"))
    known = np.flatnonzero(np.isfinite(y))
    if part and len(known) and (not many or i in (0, len(readings) - 1)):
        place = "bottom right" if (i > 0) == many else "top right"
        end = [x[known[-1]]], [y[known[-1]]]
        layers.append(words(*end, [f" {part}"], theme.BLACK if many else colour, textposition=place, cliponaxis=False))
    return layers
