"""Figures of head roles, of what heads write and cost, of their growth, and of trained next to hand-built heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, curve, hover, points, written
from interp.figures.panels import Mark, Panel, compose, frame, hline, vline
from interp.papers.position_coupling.causal import PatternSubstitution
from interp.papers.position_coupling.comparison import CoupledComparison
from interp.papers.position_coupling.growth import AttendedGrowth
from interp.papers.position_coupling.keys import ROLE_NAMES
from interp.papers.position_coupling.roles import HeadRoles

_GROUPS = {  # name, colour
    "sum": ("digit sum", theme.BLUE),
    "carry": ("carry", theme.VERMILION),
    "same digit": ("same digit of others", theme.SKY),
    "eos": ("EOS", theme.PURPLE),
    "rest": ("rest", theme.LIGHT),
}
_MOST_HEADS = 12  # heads of a large model that are shown next to the constructed ones
_MOST_UNITS = 9  # units in one figure
_EIGHT = (theme.BLUE, theme.VERMILION, theme.GREEN, theme.PURPLE, theme.SKY, theme.ORANGE, theme.YELLOW, theme.GREY)
_EIGHT_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
_PATTERN_COLOURS = (
    theme.BLUE, theme.VERMILION, theme.SKY, theme.PURPLE, theme.GREEN, theme.BLACK, theme.ORANGE,
)  # fmt: skip
_ATTENDED = {"keys": "tokens above 0.01, not counting BOS", "effective": "exp(entropy) of the weights off BOS, tokens"}


@drawing(HeadRoles)
def head_roles(result: HeadRoles) -> go.Figure:
    """The overlap of every head's mean pattern with every constructed role; the role that it plays is outlined."""
    heads, roles, plays = result.heads, result.table.role.values.tolist(), result.roles()
    overlap, share, shuffled, p_value = (
        np.array([result.table[name].sel(layer=i, head=h).values for i, h in heads])
        for name in ("overlap", "share", "shuffled_high", "p_value")
    )
    rows = zip(overlap, share, strict=True)
    text = [[f"{o:.2f}<br>share {s:.2f}" for o, s in zip(*row, strict=True)] for row in rows]
    said = hover(
        "{y} as {x}: overlap {z:.3f}; shuffled tokens below {shuffled:.3f} (97.5%), p = {p:.3f}",
        shuffled=shuffled, p=p_value,
    )  # fmt: skip
    names = [ROLE_NAMES.get(role, role) for role in roles]
    layer = cells(overlap, names, [f"L{i}H{h}" for i, h in heads], text=text, bar="overlap", gap=3, **said)
    frames = [
        frame(roles.index(role), row, theme.ORANGE)
        for row, head in enumerate(heads)
        if (role := plays[head]) is not None
    ]
    counts = {role: sum(value == role for value in plays.values()) for role in roles}
    found = ", ".join(f"{count} {name}" for name, count in zip(names, counts.values(), strict=True) if count)
    title = f"Roles of {len(heads)} heads: {found or 'none'}"
    none = sum(value is None for value in plays.values())
    if found and none:
        title += f", {none} none"
    note = "Outlined: the role that a head plays. Overlap 1: the constructed pattern; share: attention on its tokens"
    height = 260 + max(4, len(heads)) * (62 if len(heads) <= 8 else 30)
    panel = Panel([layer], x="role in the construction", y="head", marks=frames)
    return compose([panel], title, result.provenance, note=note, width=760, height=height)


@drawing(CoupledComparison)
def coupled_comparison(result: CoupledComparison) -> go.Figure:
    """The distances of all pairs, with the matched ones outlined, and where each head of both models looks."""
    others = result.distance.reference.values.tolist()
    pairs = {str(head) for head in result.pairs["head"].values}
    nearest = result.distance.distance.min("reference").to_series().sort_values()
    shown = pairs | set([head for head in nearest.index if head not in pairs][: max(0, _MOST_HEADS - len(pairs))])
    heads = [head for head in result.distance["head"].values.tolist() if head in shown]
    distance = result.distance.distance.sel(head=heads).values
    matched = {
        reference: str(result.pairs["head"].sel(reference=reference).values)
        for reference in result.pairs.reference.values.tolist()
    }
    frames = []
    for reference, head in matched.items():
        far = float(result.pairs.distance.sel(reference=reference)) >= 0.5
        style: dict[str, Any] = {"width": 3, "dash": "dot"} if far else {"width": 4}
        frames.append(frame(others.index(reference), heads.index(head), theme.ORANGE, **style))
    panels = [
        Panel(
            [
                cells(
                    distance, others, heads, reversescale=True, text=written(distance), gap=3,
                    **hover("{y} and {x}: {z:.3f}"),
                )
            ],
            "distance of attention", "head of the construction", "head of the model", frames,
        ),
        Panel(
            _profiles(result, matched, [head for head in heads if head not in matched.values()][:6]),
            "where a head looks, not counting BOS", {"title": "share of attention off BOS", "range": [0, 1]},
            {"autorange": "reversed"},
        ),
    ]  # fmt: skip
    total = result.total
    control = "" if np.isnan(total["untrained"]) else f", untrained {total['untrained']:.2f}"
    close = int((result.pairs.distance.values < 0.5).sum())
    title = (
        f"{close} of {len(matched)} constructed heads have a counterpart (distance below 0.5); mean matched distance "
        f"{total['distance']:.2f}{control}, shuffled roles {total['shuffled']:.2f}"
    )
    note = f"{result.names[0]} next to {result.names[1]} (italics); outlined: matched pairs, dotted from 0.5 on"
    if len(heads) < result.distance.sizes["head"]:
        note += f"; the {len(heads)} nearest of {result.distance.sizes['head']} heads"
    return compose(
        panels, title, result.provenance, note=note, columns=2, width=1100, height=600, widths=[0.42, 0.58],
        gaps=(170, 0), barmode="stack", bargap=0.25, legend={"y": -0.2, "x": 0.45},
    )  # fmt: skip


def _profiles(result: CoupledComparison, matched: dict[str, str], rest: list[str]) -> list[go.Bar]:
    """Where heads look: every constructed head with its counterpart below it, and then other heads."""
    rows = []
    for reference in result.distance.reference.values.tolist():
        rows.append((f"<i>{reference}</i>", result.reference_profile.sel(head=reference).values))
        if reference in matched:
            rows.append((f"{matched[reference]}  ", result.profile.sel(head=matched[reference]).values))
    rows += [(f"{head} ", result.profile.sel(head=head).values) for head in rest]
    layers = []
    for index, group in enumerate(result.profile.group.values.tolist()):
        name, colour = _GROUPS[group]
        style: dict[str, Any] = {"marker": {"line": {"color": "white", "width": 1}}} | hover(
            f"{{y}}: {{x:.3f}} on {name}"
        )
        shares = [values[index] for _, values in rows]
        layers.append(bars(shares, [row for row, _ in rows], name, colour, across=True, **style))
    return layers


@drawing(CoupledComparison, "difference")
def coupled_difference(result: CoupledComparison) -> go.Figure:
    """The mean attention by role of every matched head minus that of its constructed counterpart, with signs."""
    difference = result.difference()
    pairs = list(zip(difference["head"].values.tolist(), difference.reference.values.tolist(), strict=True))
    layer = cells(
        difference.values, [_GROUPS[group][0] for group in difference.group.values.tolist()],
        [f"{head} - {reference}" for head, reference in pairs], signed=1.0, text=written(difference.values, "+.2f"),
        bar="difference", gap=3, **hover("{y}: {z:+.3f} on {x}"),
    )  # fmt: skip
    row, column = np.unravel_index(int(np.abs(difference.values).argmax()), difference.shape)
    title = (
        f"Largest difference by role {difference.values[row, column]:+.2f}, between {pairs[row][0]} and the "
        f"constructed {pairs[row][1]} head"
    )
    note = f"{result.names[0]} minus {result.names[1]}, shares of attention off BOS; blue: the model attends more"
    panel = Panel([layer], x="role of the tokens attended to", y="matched pair")
    return compose([panel], title, result.provenance, note=note, width=860, height=250 + 52 * len(difference))


@drawing(AttendedGrowth)
def attended_growth(result: AttendedGrowth, measure: str = "keys") -> go.Figure:
    """Tokens attended to in one prediction over the number of operands, with slopes and the number needed."""
    table, fits = result.table, result.slopes.sel(measure=measure)
    operands, needed = table.operands.values, table.needed.values
    units = [u for u in table.unit.values.tolist() if not table[measure].sel(unit=u).isnull().any()]
    if len(units) > _MOST_UNITS:
        ranked = sorted(units[:-1], key=lambda unit: float(fits.slope.sel(unit=unit)))
        units = [*ranked[:4], *ranked[-4:], units[-1]]
    style = hover("needed: {y}")
    lines = [curve(operands, needed, "needed for the digit sum", theme.GREY, "dash", **style)]
    for index, unit in enumerate(units):
        values, high = (table[f"{measure}{end}"].sel(unit=unit).values for end in ("", "_high"))
        slope, low, top = (round(float(fits[k].sel(unit=unit)), 2) + 0.0 for k in ("slope", "low", "high"))
        style: dict[str, Any] = {"symbol": _EIGHT_SYMBOLS[index % 8], "size": 9} | hover(
            f"{unit}, {{x}} operands: {{y:.2f}}"
        )
        style |= {"error_y": {"array": high - values, "color": _EIGHT[index % 8], "thickness": 1.5, "width": 0}}
        look = (_EIGHT[index % 8], "solid", 1.5)
        if unit == "any head":
            look = (theme.BLACK, "dot", 3)
            style["error_y"]["color"] = theme.BLACK
        name = f"{unit}: {slope:+.2f} [{low:+.2f}, {top:+.2f}] an operand"
        lines.append(curve(operands, values, name, *look, **style))
    y = {"title": _ATTENDED[measure], "rangemode": "tozero"}
    slopes = [float(fits.slope.sel(unit=u)) for u in units if u != "any head"]
    control = float(fits.untrained.values[0])
    title = (
        f"A head attends to {round(min(slopes), 2) + 0.0:+.2f} to {round(max(slopes), 2) + 0.0:+.2f} tokens more for "
        f"every operand; the digit sum needs "
        f"{round(np.polyfit(operands, needed, 1)[0], 2) + 0.0:+.2f}"
        + ("" if np.isnan(control) else f", an untrained head takes {control:+.2f}")
    )
    exact = table.exact.values
    note = "" if np.isnan(exact).all() else f"Exact match {exact.min():.2f} to {exact.max():.2f} on these shapes"
    panel = Panel(lines, x={"title": "operands", "dtick": 1}, y=y)
    return compose(
        [panel], title, result.provenance, note=note, width=1050, height=540,
        legend={"orientation": "v", "x": 1.02, "y": 1},
    )  # fmt: skip


@drawing(PatternSubstitution)
def pattern_substitution(result: PatternSubstitution) -> go.Figure:
    """Exact match for every head and pattern, with the whole model as a line; the own role's ideal is filled."""
    units = [unit for unit in result.roles if unit in result.table.unit.values]
    if len(units) > _MOST_UNITS:
        playing = [unit for unit in units if result.roles[unit] is not None]
        units = (playing or units)[-_MOST_UNITS:]
    before, (low, high) = result.before / result.n, result.before_interval
    patterns = result.table.pattern.values.tolist()
    spread = 0.7 / max(1, len(patterns) - 2)
    layers = []
    for index, pattern in enumerate(patterns):
        everyone = pattern == "ideal, own roles"
        column = result.table.sel(pattern=pattern)
        kept = [(x, unit) for x, unit in enumerate(units) if not np.isnan(column.exact.sel(unit=unit))]
        if not kept:
            continue
        found = column.sel(unit=[unit for _, unit in kept])
        own = [everyone or pattern == f"ideal {ROLE_NAMES.get(result.roles[unit] or '', '-')}" for _, unit in kept]
        aside = 0 if everyone else spread * (index - (len(patterns) - 2) / 2)
        said = hover(
            f"{pattern}: {{y:.3f}}; lost {{lost}}, won {{won}}, tokens right {{tokens:.3f}}",
            lost=found.lost.values, won=found.won.values, tokens=found.tokens.values,
        )  # fmt: skip
        layers.append(
            points(
                [x + aside for x, _ in kept], found.exact.values, pattern, _PATTERN_COLOURS[index % 7],
                ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")[index % 7], 11, filled=own,
                ends=(found.low.values, found.high.values), bar={"width": 0, "thickness": 1.5}, **said,
            )
        )  # fmt: skip
    marks = [
        Mark("add_hrect", {"y0": low, "y1": high, "fillcolor": theme.LIGHT, "line_width": 0, "layer": "below"}),
        hline(before, "whole model", place="top left" if before < 0.9 else "bottom left"),
        *(vline(x - 0.5, dash="solid", colour=theme.LIGHT) for x in range(1, len(units))),
    ]
    x = {
        "tickvals": list(range(len(units))), "ticktext": [f"{unit}<br>{_role(result, unit)}" for unit in units],
        "title": "head and its role", "showgrid": False, "zeroline": False,
    }  # fmt: skip
    own_rates = [float(result.own(unit).exact) for unit, role in result.roles.items() if role not in (None, "own")]
    title = f"No head has a role to substitute; the whole model is right on {before:.2f}"
    if own_rates:
        title = (
            f"With one head's pattern replaced by the ideal of its role, {min(own_rates):.2f} to {max(own_rates):.2f} "
            f"of responses are right ({before:.2f} before)"
        )
    note = "Filled: the ideal pattern of the head's own role; open: other patterns (controls). 95% intervals"
    panel = Panel(layers, x=x, y={"title": "responses entirely right", "range": [-0.04, 1.04]}, marks=marks)
    return compose([panel], title, result.provenance, note=note, height=620, legend={"y": -0.24})


def _role(result: PatternSubstitution, unit: str) -> str:
    role = result.roles[unit]
    return "no role" if role is None else ROLE_NAMES.get(role, "own roles")
