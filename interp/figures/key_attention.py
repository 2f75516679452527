"""Figures of the keys that heads attend to, and of patterns put in place of their own."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.compare.pattern_substitution import PatternSubstitution
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover, points
from interp.figures.panels import Mark, Panel, compose, frame, hline, vline
from interp.probes.coupled_keys import ROLE_NAMES
from interp.probes.key_attention import KeyAttention
from models.transformer.part_names import head_name

_MOST_UNITS = 9  # units in one figure
_PATTERN_COLOURS = (
    theme.BLUE, theme.VERMILION, theme.SKY, theme.PURPLE, theme.GREEN, theme.BLACK, theme.ORANGE,
)  # fmt: skip


@drawing(KeyAttention)
def key_attention(result: KeyAttention) -> go.Figure:
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
    layer = cells(overlap, names, [head_name(i, h) for i, h in heads], text=text, bar="overlap", gap=3, **said)
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
