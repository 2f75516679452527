"""Figures of proofs and attacks: where the right token leads by least, and how much is proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.core.drawings import drawing
from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.layers import bars, cells, curve, hover, points, words, written
from interp.figures.panels import Panel, compose, hline
from interp.proofs.answer_curves import DecisionCurves
from interp.proofs.attacks.gradient_attack import SEARCHES, Attack
from interp.proofs.bounds_on_accuracy import AccuracyBounds
from interp.proofs.by_operator import OperatorEvidence
from interp.proofs.carry_unit_ranges import SIDES, CarryUnitRanges
from interp.proofs.certificate import PairEvidence
from interp.proofs.coupled_grid import CertifiedGrid
from interp.proofs.decompile import Decompiled
from interp.proofs.hand_built import HandBuiltEvidence
from interp.proofs.small_domain import SmallDomainEvidence
from interp.proofs.verdict import RUNGS, Verdict
from models.errors import UserError
from models.numerals import shown

_WORST = 5
_LEAST = "Smallest lead of the right token among the hunted pairs of every class. Lowest: "
_MOST_ROWS = 24  # more numbers would stand on top of each other
#: Dark enough for the smallest margins to be seen on white, light enough for the largest to be written on.
_SCALE = sample_colorscale("Blues", np.linspace(0.12, 0.7, 9).tolist())


@drawing(Verdict)
def figure_verdict(result: Verdict) -> go.Figure:
    """The least margins that were met or proved, by what the method judged: classes, problems or parts of a proof.

    Raises:
        UserError: a verdict whose method keeps no table of margins.
    """
    for evidence, draws in (
        (PairEvidence, figure_margins),
        (OperatorEvidence, figure_operators),
        (SmallDomainEvidence, figure_exhaustive),
        (HandBuiltEvidence, figure_parts),
    ):
        if isinstance(result.evidence, evidence):
            return draws(result)
    raise UserError(f"A verdict by the method {result.method!r} has no figure.")


def figure_margins(result: Verdict) -> go.Figure:
    """The smallest margin among hunted pairs, right token by position, and the problems where it is lowest.

    Colour is the margin's logarithm; a wrong answer (a margin of zero or less) is red on white.
    """
    panel, lowest = _of_classes(result)
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance, note=_LEAST + lowest)


def figure_operators(result: Verdict) -> go.Figure:
    """The same for each operator of a task, one above the other."""
    panels, notes = [], []
    for operator, part in result.parts.items():
        panel, lowest = _of_classes(part)
        panels.append(replace(panel, title=f"with {operator}"))
        notes.append(f"{lowest} (with {operator})")
    title, note = f"{result.model}: {result.finding()}", _LEAST + "; ".join(notes)
    return compose(panels, title, result.provenance, note=note, columns=1, height=450 * len(panels))


def _of_classes(result: Verdict) -> tuple[Panel, str]:
    """The panel of margins of a verdict on pairs, and its lowest ones in words."""
    data, rule = result.classes, result.rule
    margin, answer, target = data.margin.values, data.answer.values, data.target.values
    least = np.where(np.isnan(margin), -np.inf, margin)
    targets = sorted(set(target.tolist()))
    ended = rule.written
    tokens = [*map(str, range(10)), "EOS"] if targets[-1] == ended else list(map(str, range(10)))
    z = np.full((len(tokens), len(targets)), np.nan)
    said = np.full(z.shape, "", dtype=object)
    for column, t in enumerate(targets):
        for digit in range(len(tokens)):
            asked = (target == t) & ((answer == digit) if digit < 10 and t < ended else (digit == 10 and t == ended))
            rows = np.flatnonzero(asked)
            if len(rows):
                row = rows[least[rows].argmin()]
                z[digit, column] = least[row]
                said[digit, column] = f"{rule.problem(int(data.a[row]), int(data.b[row]))}: margin {least[row]:.3g}"
    panel = margins(z, said, [rule.label(t) for t in targets], tokens, "token asked for", "right token")
    worst = [
        f"{rule.problem(int(data.a[row]), int(data.b[row]))} ({least[row]:.3g}, at {rule.label(int(target[row]))})"
        for row in np.argsort(least)[:_WORST]
    ]
    return panel, "; ".join(worst)


def margins(z: np.ndarray, said: np.ndarray, columns: list[str], rows: list[Any], x: str, y: str) -> Panel:
    """Margins ``z`` [row, column] by their logarithm; a wrong answer (zero or less) is red on white."""
    positive = z[np.isfinite(z) & (z > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if len(positive) else (-1.0, 1.0)
    ticks = [tick for tick in np.arange(-6, 7) / 2 if low <= tick <= high] or [low, high]
    bar = {"title": "margin (logits)", "tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]}
    logs = np.where(z > 0, np.log10(np.where(z > 0, z, 1.0)), np.nan)
    text = written(np.where(z > 0, z, np.nan), lambda margin: f"{margin:.2f}" if margin >= 0.1 else f"{margin:.2g}")
    text = text if len(rows) <= _MOST_ROWS else None
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
    """Each digit's lead as a function of the attention scalar; thick where classes with this answer reach.

    A thick line below zero would be a wrong answer. The axis ends a little below minus a tenth of the largest lead.
    Colours rise evenly in lightness with the digit, which is also written above each reached range.
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
    """Gaps between the program's levels, by target and own token, in steps. A threshold fits into a gap above 0."""
    table = result.levels.pivot(index="own", columns="target", values="gap")
    z, columns, rows = table.values, [f"s{t:.0f}" for t in table.columns], [f"{own:.0f}" for own in table.index]
    bar = {"title": "least gap (steps)"}
    said = hover("{x} after {y}: {z:.3f} of a step")
    panel = Panel(
        [cells(z, columns, rows, scale=_SCALE, limits=(0.0, 1.0), text=written(z), letters=11, bar=bar, **said)],
        x={"title": "digit asked for", "type": "category"},
        y={"title": "own token (the digit before)", "type": "category"},
    )
    note = f"Least proved gap between the levels of {result.levels_of} = k and k + 1, in steps between them"
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


def figure_exhaustive(result: Verdict) -> go.Figure:
    """The smallest margin (or proved bound of margins) of each right token at each target, with its problem."""
    data = result.smallest
    z, problems = data.margin.values.T, data.problem.values.T
    targets, tokens = data.target.values.tolist(), data.token.values.tolist()
    said = np.array([f"{p}: margin {m:.3f}" for p, m in zip(problems.flat, z.flat, strict=True)]).reshape(z.shape)
    panel = margins(z, said, targets, tokens, "target", "right token")
    order = [at for at in np.argsort(z, axis=None)[:_WORST] if np.isfinite(z.flat[at])]
    worst = [f"{problems.flat[at]} ({z.flat[at]:.3f}, at {targets[at % len(targets)]})" for at in order]
    note = f"Smallest lead of the right token over all {result.what}. Lowest: " + "; ".join(worst)
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance, note=note)


@drawing(AccuracyBounds)
def figure_accuracy_bounds(result: AccuracyBounds) -> go.Figure:
    """Proved bounds on the share of errors, by output digit and by longest carry chain, on a log scale.

    A bar reaches from the lower to the upper bound; it looks like a dot where they are equal or too close to tell
    apart. An open triangle is the upper bound where no error is proved, a circle at the foot that none is possible.
    """
    table = result.to_dataframe()
    low, high = table.error_low.to_numpy(dtype=float), table.error_high.to_numpy(dtype=float)
    positive = np.concatenate((low[low > 0], high[high > 0]))
    foot = 10.0 ** (np.floor(np.log10(positive.min() if len(positive) else 1e-3)) - 1)
    top = np.log10(max(positive.max() if len(positive) else 1e-2, foot * 100)) + 0.3
    y = {"type": "log", "exponentformat": "power", "dtick": 1, "range": [np.log10(foot) - 0.3, top]}
    panels = []
    for part, colour, title, x in (
        ("target", theme.BLUE, "by output digit", "target, teacher-forced"),
        ("carry chain", theme.ORANGE, "by longest carry chain", "columns the carry travels"),
    ):
        rows = table[table.part == part]
        names = {"type": "category", "categoryorder": "array", "categoryarray": rows.name.tolist(), "title": x}
        of_y = y | {"title": "" if panels else "share of pairs answered wrongly"}
        panels.append(Panel(_marks(rows, foot, colour), title, names, of_y))
    return compose(
        panels, result.finding(), result.provenance, columns=2, height=520, shared="y", gaps=(30, 0), margin={"t": 14}
    )


@drawing(CarryUnitRanges)
def figure_carry_unit_ranges(result: CarryUnitRanges) -> go.Figure:
    """The range of every neuron's input without and with each signal, side by side."""
    panels = []
    for signal in result.signals:
        rows, layers = result.ranges[result.ranges.signal == signal], []
        for side, colour in zip(SIDES, (theme.GREY, theme.BLUE), strict=True):
            low, high = rows[f"low_{side}"], rows[f"high_{side}"]
            said = hover(f"{{x}} {side} {signal}: {{low:.3g}} to {{high:.3g}}", low=low, high=high)
            layers.append(
                bars(rows.neuron, high - low, side, colour, base=low, legendgroup=side, showlegend=not panels, **said)
            )
        y = "" if panels else "bounds of the neuron's input"
        panels.append(Panel(layers, signal, {"title": "neuron", "type": "category"}, {"title": y}))
    return compose(panels, result.sentence(), result.provenance, columns=2, height=480, shared="y")


def _marks(rows: pd.DataFrame, foot: float, colour: str) -> list[go.Scatter]:
    low, high = rows.error_low.to_numpy(dtype=float), rows.error_high.to_numpy(dtype=float)
    text = [
        f"{n:,} pairs: {w:,} wrong, {o:,} open" for n, w, o in zip(rows.pairs, rows.wrong, rows.open, strict=True)
    ]  # fmt: skip
    at = np.where(low > 0, low, np.where(high > 0, high, foot))
    return [
        points(
            rows.name.to_numpy()[chosen], at[chosen], name, mark, symbol, size,
            ends=(at[chosen], np.maximum(high, at)[chosen]), bar={"color": colour, "width": 6},
            text=[said for said, here in zip(text, chosen, strict=True) if here], **hover("{x}: {text}"),
        )
        for name, chosen, mark, symbol, size in (
            ("between", low > 0, colour, "circle", 9),
            ("at most", (low <= 0) & (high > 0), colour, "triangle-down-open", 10),
            ("no error is possible", high <= 0, theme.GREY, "circle-open", 8),
        )
        if chosen.any()
    ]  # fmt: skip


def figure_parts(result: Verdict) -> go.Figure:
    """The proved margin of every part, in order; parts without a bound are missing, those below zero prove nothing."""
    table = result.to_dataframe()
    said = hover("{text}")
    texts = [f"{part}: {shown(bound, 4)}" for part, bound in zip(table.part, table.margin, strict=True)]
    colours = [theme.BLUE if proved else theme.VERMILION for proved in table.proved]
    layer = points(list(range(1, len(table) + 1)), table.margin, None, colours, size=5, text=texts, **said)
    panel = Panel(
        [layer], x="part of the proof", y="lower bound of the margin (logits)", marks=[hline(0, dash="solid")]
    )
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance)


def certified_margins(result: CertifiedGrid) -> go.Figure:
    """The proved margin of every shape, operands by digits."""
    m, n = result.margins.shape
    said = hover("{y} operands of {x} digits: margin at least {z:.4f}")
    layer = cells(
        result.margins, list(range(1, n + 1)), list(range(1, m + 1)), limits=None, bar="margin (logits)", gap=0, **said
    )
    panel = Panel([layer], x="digits of each operand", y={"title": "operands", "autorange": True})
    provenance = Provenance(result.margins.size, None, "shapes, all problems of each", RUNGS[result.arithmetic])
    return compose([panel], result.sentence(), provenance, width=800, height=620)


_STYLE = {"attack": (theme.VERMILION, "solid", "circle"), "random": (theme.GREY, "dash", "circle-open")}


@drawing(Attack)
def figure_attack(result: Attack) -> go.Figure:
    """Smallest margin so far over runs (left) and by target (right); below zero the model answers wrong."""
    runs_of, by_target = [], []
    targets = result.margins["target"].values.tolist()
    for search in SEARCHES:
        colour, dash, symbol = _STYLE[search]
        runs, margins = (np.array(x, dtype=float) for x in zip(*result.history[search], strict=True))
        steps: dict[str, Any] = {"line": {"shape": "hv"}} | hover("{x:,} runs: {y:.3f}", extra=search)
        after = [*runs, result.runs], _drawn(np.append(margins, margins[-1]))
        runs_of.append(curve(*after, search, colour, dash, 2.5, **steps))
        outline: dict[str, Any] = {"marker": {"line": {"color": colour, "width": 2}}} | hover(
            "{x}: {y:.3f}", extra=search
        )
        smallest = _drawn(result.margins["by_target"].sel(search=search).values)
        by_target.append(points(targets, smallest, search, colour, symbol, **outline))
    x = {"title": "runs (a gradient counts as three)", "type": "log", "exponentformat": "power"}
    zero = [hline(0, dash="solid", colour=theme.BLACK)]
    panels = [
        Panel(runs_of, x=x, y="smallest margin so far (logits)", marks=zero),
        Panel(by_target, x={"title": "target", "type": "category"}, y="smallest margin (logits)", marks=zero),
    ]
    note = f"{result.task}. Below zero the model answers wrong. Both searches spent {result.runs:,} runs"
    title = f"{result.model}: {result.sentence()}"
    return compose(panels, title, result.provenance, note=note, columns=2, widths=[0.55, 0.45], gaps=(90, 0))


def _drawn(margins: np.ndarray) -> list[float | None]:
    """Margins for Plotly; None, which it does not draw, for infinities and NaN."""
    return [float(margin) if np.isfinite(margin) else None for margin in margins]
