"""Pictures of what is inside AddLM: circuits, heads, scores, training, and attribution against patching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.addlm.heads import HeadTable
from interp.papers.addlm.patching import PatchingCheck
from interp.papers.addlm.scores import ScoreReading
from interp.papers.addlm.weights import IntegerCircuits, TernaryTraining, ValueComposition

if TYPE_CHECKING:
    from interp.papers.addlm.heads import HeadTable
    from interp.papers.addlm.patching import PatchingCheck
    from interp.papers.addlm.scores import ScoreReading
    from interp.papers.addlm.weights import IntegerCircuits, TernaryTraining, ValueComposition

_COLOURS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.VERMILION, theme.PURPLE, theme.SKY)
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


@drawing(IntegerCircuits)
def integer_circuit(result: IntegerCircuits, layer: int = 0, head: int = 0) -> go.Figure:
    """The integers of one OV circuit, rows by what is read and columns by what is written."""
    matrix = result.values[layer, head].numpy()
    bound = int(np.abs(matrix).max())
    figure = go.Figure(
        go.Heatmap(
            z=matrix, zmin=-bound, zmax=bound, colorscale=theme.DIVERGING, reversescale=True,
            colorbar={"title": "entry"},
            hovertemplate="reads %{y}, writes %{x}: %{z}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title="residual dimension written", constrain="domain")
    figure.update_yaxes(title="residual dimension read", autorange="reversed", scaleanchor="x", constrain="domain")
    title = (
        f"The OV circuit of L{layer}H{head} is {result.scale[layer]:.3g} times integers in "
        f"[{matrix.min()}, {matrix.max()}], rank {result.ranks[layer][head]}"
    )
    return theme.finish(figure, title, result.provenance, width=760, height=760)


@drawing(ValueComposition)
def value_composition(result: ValueComposition) -> go.Figure:
    """Deviations of every pair's score from shuffled weights."""
    table = result.table
    deviations = ((table["score"] - table["chance"]) / table["spread"]).values[:, 0:]
    names = table.early.values.tolist()
    heads = sum(name.startswith("L0") for name in names)
    z = deviations[:-heads, heads:]
    bound = float(np.nanmax(np.abs(z)))
    figure = go.Figure(
        go.Heatmap(
            z=z, x=names[heads:], y=names[:-heads], zmin=-bound, zmax=bound, colorscale=theme.DIVERGING,
            reversescale=True,
            customdata=table["score"].values[:-heads, heads:], colorbar={"title": "standard<br>deviations"},
            hovertemplate="%{y} into %{x}: score %{customdata:.3f}, %{z:.1f} standard deviations<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title="later head (values)")
    figure.update_yaxes(title="earlier head (output)", autorange="reversed")
    title = result.sentence().split(", most")[0].rstrip(".")
    note = "Colour: standard deviations from shuffles of the later head's rows; white cells are no pairs"
    return theme.finish(figure, title, result.provenance, width=860, height=640, note=note)


@drawing(HeadTable)
def head_table(result: HeadTable) -> go.Figure:
    """Effective keys, dropped mass, and what ablating each head costs."""
    rows = result.rows
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.07)
    panels = (("effective_keys", "effective keys", theme.BLUE), ("dropped_mass", "dropped mass", theme.ORANGE))
    for place, (name, label, colour) in enumerate(panels, start=1):
        figure.add_bar(
            x=rows["head"], y=rows[name], marker={"color": colour}, showlegend=False, error_y=_error(rows, name),
            hovertemplate=f"%{{x}}: {label} %{{y:.3f}}<extra></extra>", row=place, col=1,
        )  # fmt: skip
        figure.update_yaxes(title=label, rangemode="tozero", row=place, col=1)
    for name, colour, pattern in (("zero", theme.GREY, "/"), ("mean", theme.VERMILION, "")):
        figure.add_bar(
            x=rows["head"], y=rows[name], name=f"{name} ablation", error_y=_error(rows, name),
            marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate=f"%{{x}}: {name} ablation raises the loss by %{{y:.4f}}<extra></extra>", row=3, col=1,
        )  # fmt: skip
    figure.update_yaxes(title="rise of the loss, nats", row=3, col=1)
    figure.update_layout(legend={"x": 1, "xanchor": "right", "y": 0.28})
    note = f"Bars are 95% intervals over windows; loss without ablation {result.loss:.3f} nats a character"
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=820, note=note)


def _error(rows: pd.DataFrame, name: str) -> dict[str, Any]:
    values, low, high = rows[name], rows[f"{name}_low"], rows[f"{name}_high"]
    return theme.error_bars(values, low, high, width=2, thickness=1.2, color=theme.BLACK)


@drawing(ScoreReading)
def score_reading(result: ScoreReading) -> go.Figure:
    """How many coordinates carry the best key's advantage, and what the key bias gives of it."""
    rows = result.rows
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.09)
    figure.add_bar(
        x=rows["head"], y=rows["coordinates"], marker={"color": theme.BLUE}, showlegend=False,
        customdata=rows["top_share"], row=1, col=1,
        hovertemplate="%{x}: %{y:.1f} coordinates, the largest gives %{customdata:.0%}<extra></extra>",
    )  # fmt: skip
    figure.add_bar(
        x=rows["head"], y=rows["bias_share"], marker={"color": theme.GREEN}, showlegend=False,
        error_y=_error(rows, "bias_share"), row=2, col=1,
        hovertemplate="%{x}: the key bias gives %{y:+.0%}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(title="coordinates", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="key bias's share", tickformat="+.0%", row=2, col=1)
    note = f"Scores and sums of their parts differ by at most {result.error:.1e} (float32)"
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=640, note=note)


@drawing(TernaryTraining)
def ternary_training(result: TernaryTraining) -> go.Figure:
    """Zeros, flips between snapshots, and distance from the start, by kind of matrix."""
    table = result.table
    panels = (
        ("zeros", "share of zeros"),
        ("flipped", "changed since the<br>snapshot before"),
        ("from_start", "changed since<br>the start"),
    )
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    steps = table.step.values
    for place, (name, label) in enumerate(panels, start=1):
        for index, kind in enumerate(table.kind.values.tolist()):
            figure.add_scatter(
                x=np.maximum(steps, 0.5), y=table[name].sel(kind=kind).values, mode="lines+markers", name=kind,
                legendgroup=kind, showlegend=place == 1, customdata=steps, row=place, col=1,
                line={"color": _COLOURS[index % 6]}, marker={"symbol": _SYMBOLS[index % 6], "size": 8},
                hovertemplate=f"{kind}, step %{{customdata}}: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
        figure.update_yaxes(title=label, rangemode="normal" if name == "zeros" else "tozero", row=place, col=1)
    ticks = steps.tolist()
    figure.update_xaxes(type="log", tickvals=[max(t, 0.5) for t in ticks], ticktext=[f"{t:,}" for t in ticks])
    figure.update_xaxes(title="step (logarithmic, 0 at the left)", row=3, col=1)
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=860)


@drawing(PatchingCheck)
def patching_check(result: PatchingCheck) -> go.Figure:
    """Real over estimated effect of every head on every window, one panel a kind and step."""
    steps, kinds = result.effects.step.values.tolist(), result.effects.kind.values.tolist()
    numbers = result.to_dataframe().set_index(["step", "kind"])
    titles = [f"{kind}, {_way(step)}: rank correlation {numbers.loc[(step, kind), 'spearman']:.2f}"
              for step in steps for kind in kinds]  # fmt: skip
    figure = make_subplots(
        rows=len(steps), cols=len(kinds), subplot_titles=titles, horizontal_spacing=0.06, vertical_spacing=0.16
    )
    for row, step in enumerate(steps, start=1):
        for place, kind in enumerate(kinds, start=1):
            part = result.effects.sel(step=step, kind=kind)
            both = np.stack([part[name].values for name in ("estimate", "real")])
            ends = [float(both.min()), float(both.max())]
            figure.add_scatter(
                x=ends, y=ends, mode="lines", line={"color": theme.GREY, "dash": "dash", "width": 1},
                hoverinfo="skip", showlegend=False, row=row, col=place,
            )  # fmt: skip
            layers, heads, windows = both.shape[1:]
            names = np.repeat([f"head {head}" for head in range(heads)], windows)
            for layer in range(layers):
                figure.add_scatter(
                    x=both[0, layer].ravel(), y=both[1, layer].ravel(), mode="markers", name=f"layer {layer}",
                    legendgroup=str(layer), showlegend=row == place == 1, text=names, row=row, col=place,
                    marker={"size": 5, "color": _COLOURS[layer % 6], "symbol": _SYMBOLS[layer % 6], "opacity": 0.6},
                    hovertemplate=f"layer {layer}, %{{text}}: estimated %{{x:.4f}}, real %{{y:.4f}}<extra></extra>",
                )  # fmt: skip
            last = "estimated, nats" if row == len(steps) else None
            figure.update_xaxes(title=last, nticks=4, row=row, col=place)
        figure.update_yaxes(title="real, nats", row=row, col=1)
    note = "Dashed: equal. Rise of a window's loss when a head's activation moves towards that of the corrupted input"
    figure.update_annotations(font_size=12)
    figure.update_layout(legend={"orientation": "h", "y": -0.12})
    return theme.finish(figure, result.sentence(), result.provenance, width=1180, height=820, note=note)


def _way(step: float) -> str:
    return "all the way" if step == 1 else f"{step:.0%} of the way"
