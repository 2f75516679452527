"""Pictures of certificates: where the right token leads by least."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import cells, curve, hover, words, written
from interp.figures.panels import Panel, compose, hline
from interp.proofs.certificate import Certificate
from interp.proofs.curves import DecisionCurves
from interp.proofs.decompile import Decompiled

_WORST = 5
#: Dark enough for the smallest margins to be seen on white, light enough for the largest to be written on.
_SCALE = sample_colorscale("Blues", np.linspace(0.12, 0.7, 9).tolist())


@drawing(Certificate)
def figure_margins(result: Certificate) -> go.Figure:
    """The smallest margin among hunted pairs, right token by position, and the problems where it is lowest.

    Colour is the margin's logarithm; a wrong answer (a margin of zero or less) stands in red on white.
    """
    data = result.classes
    margin, answer, target = data.margin.values, data.answer.values, data.target.values
    least = np.where(np.isnan(margin), -np.inf, margin)
    targets = sorted(set(target.tolist()))
    tokens = [*map(str, range(10)), "EOS"] if targets[-1] > 10 else list(map(str, range(10)))
    z = np.full((len(tokens), len(targets)), np.nan)
    said = np.full(z.shape, "", dtype=object)
    for column, t in enumerate(targets):
        for digit in range(len(tokens)):
            asked = (target == t) & ((answer == digit) if digit < 10 and t < 11 else (digit == 10 and t > 10))
            rows = np.flatnonzero(asked)
            if len(rows):
                row = rows[least[rows].argmin()]
                z[digit, column] = least[row]
                said[digit, column] = f"{int(data.a[row])} + {int(data.b[row])}: margin {least[row]:.3f}"
    panel = margins(z, said, [label(t) for t in targets], tokens, "token asked for", "right token")
    worst = [
        f"{int(data.a[row])} + {int(data.b[row])} ({least[row]:.3f}, at {label(int(target[row]))})"
        for row in np.argsort(least)[:_WORST]
    ]
    note = "Smallest lead of the right token among the hunted pairs of every class. Lowest: " + "; ".join(worst)
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance, note=note)


def margins(z: np.ndarray, said: np.ndarray, columns: list[str], rows: list[Any], x: str, y: str) -> Panel:
    """Margins ``z`` [row, column] by their logarithm; a wrong answer (zero or less) stands in red on white."""
    positive = z[np.isfinite(z) & (z > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if len(positive) else (-1.0, 1.0)
    ticks = [tick for tick in np.arange(-6, 7) / 2 if low <= tick <= high] or [low, high]
    bar = {"title": "margin (logits)", "tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]}
    logs = np.where(z > 0, np.log10(np.where(z > 0, z, 1.0)), np.nan)
    text = written(np.where(z > 0, z, np.nan))
    style: dict[str, Any] = {"scale": _SCALE, "limits": (low, high), "text": text, "letters": 11, "bar": bar}
    layers: list[Any] = [cells(logs, columns, rows, **style, **hover("{x} = {y}<br>{problem}", problem=said))]
    wrong = np.argwhere(z <= 0)
    if len(wrong):
        layers.append(
            words(
                [columns[column] for _, column in wrong], [rows[row] for row, _ in wrong],
                [f"<b>{z[row, column]:.2f}</b>" for row, column in wrong], theme.VERMILION,
                name="wrong", showlegend=False,
                **hover("{problem}", extra="wrong", problem=[said[row, column] for row, column in wrong]),
            )
        )  # fmt: skip
    return Panel(layers, x={"title": x, "type": "category"}, y={"title": y, "type": "category", "autorange": True})


@drawing(DecisionCurves)
def figure_curves(result: DecisionCurves) -> go.Figure:
    """Each digit's lead over the attention scalar; thick where a class for which it is right reaches.

    A thick line below zero would be a wrong answer. Leads below a tenth of the largest, negated, are left out. Colours
    rise evenly in lightness with the digit, which is also written above each reached range.
    """
    lead = result.lead
    top = float(lead.max())
    colours = sample_colorscale("Viridis", np.linspace(0.0, 0.85, 10).tolist())
    s = lead.s.values
    layers = []
    for digit, colour in enumerate(colours):
        values = lead.sel(digit=digit).values
        layers.append(curve(s, values, None, colour, width=1, opacity=0.45, hoverinfo="skip"))
        x: list[float] = []
        y: list[float] = []
        for row in result.reached[result.reached.answer == digit].itertuples():
            at = np.unique(np.concatenate(([row.low, row.high], s[(s > row.low) & (s < row.high)])))
            x += [*at.tolist(), float("nan")]
            y += [*np.interp(at, s, values).tolist(), float("nan")]
        if x:
            said = hover(f"{digit} is right<br>s = {{x:.3f}}, lead {{y:.3f}}")
            layers.append(curve(x, y, None, colour, width=6, symbol="circle", size=6, **said))
            crests = _crests(np.array(x), np.array(y), 0.01 * top)
            layers.append(words(*crests, str(digit), size=13, textposition="top center"))
    y_axis = {"title": "lead over the best other digit (logits)", "range": [-0.12 * top, 1.08 * top]}
    panel = Panel(layers, x="attention scalar s (stream units)", y=y_axis, marks=[hline(0, dash="solid")])
    note = "A digit's lead is thick, with the digit above it, where classes reach for which it is right"
    return compose([panel], result.sentence(), result.provenance, note=note)


@drawing(Decompiled)
def figure_decompiled(result: Decompiled) -> go.Figure:
    """How far apart the program's levels are, by target and own token, in steps: above 0 a threshold fits between."""
    table = result.levels.pivot(index="own", columns="target", values="gap")
    z, columns, rows = table.values, [label(int(t)) for t in table.columns], [f"{own:.0f}" for own in table.index]
    bar = {"title": "least gap (steps)"}
    said = hover("{x} after {y}: {z:.3f} of a step")
    panel = Panel(
        [cells(z, columns, rows, scale=_SCALE, limits=(0.0, 1.0), text=written(z), letters=11, bar=bar, **said)],
        x={"title": "digit asked for", "type": "category"},
        y={"title": "own token (the digit before)", "type": "category"},
    )
    note = "Least proved gap between the levels of sum plus carry = k and k + 1, in steps between them"
    return compose([panel], result.sentence(), result.provenance, note=note)


def _crests(x: np.ndarray, y: np.ndarray, above: float) -> tuple[list[float], list[float]]:
    """A little above the highest point of each cluster of reached ranges (pieces between NaNs, close together)."""
    pieces = [part[~np.isnan(part[:, 0])] for part in np.split(np.stack((x, y), 1), np.flatnonzero(np.isnan(x)) + 1)]
    pieces = sorted((part for part in pieces if len(part)), key=lambda part: part[0, 0])
    room = 0.03 * (np.nanmax(x) - np.nanmin(x))
    clusters = [pieces[0]]
    for part in pieces[1:]:
        if part[0, 0] - clusters[-1][:, 0].max() <= room:
            clusters[-1] = np.concatenate((clusters[-1], part))
        else:
            clusters.append(part)
    highest = [cluster[cluster[:, 1].argmax()] for cluster in clusters]
    return [float(at[0]) for at in highest], [float(at[1]) + above for at in highest]


def label(target: int) -> str:
    return f"s{target}" if target < 11 else "EOS"
