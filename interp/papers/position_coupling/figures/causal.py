"""Picture of :class:`interp.papers.position_coupling.causal.PatternSubstitution`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.causal import PatternSubstitution
from interp.papers.position_coupling.keys import ROLE_NAMES


@drawing(PatternSubstitution)
def pattern_substitution(result: PatternSubstitution) -> go.Figure:
    """Exact match of every head under every pattern, the whole model as a line; the own role's ideal is filled."""
    units = [unit for unit in result.roles if unit in result.table.unit.values]
    if len(units) > 9:
        playing = [unit for unit in units if result.roles[unit] is not None]
        units = (playing or units)[-9:]
    patterns = result.table.pattern.values.tolist()
    symbols = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")
    colours = (theme.BLUE, theme.VERMILION, theme.SKY, theme.PURPLE, theme.GREEN, theme.BLACK, theme.ORANGE)
    figure = go.Figure()
    low, high = result.before_interval
    figure.add_hrect(y0=low, y1=high, fillcolor=theme.LIGHT, line_width=0, layer="below")
    figure.add_hline(
        y=result.before / result.n,
        line={"color": theme.GREY, "dash": "dash"},
        annotation={"text": "whole model", "font": {"color": theme.GREY, "size": 12}},
        annotation_position="top left" if result.before / result.n < 0.9 else "bottom left",
    )
    spread = 0.7 / max(1, len(patterns) - 2)
    for index, pattern in enumerate(patterns):
        everyone = pattern == "ideal, own roles"
        column = result.table.exact.sel(pattern=pattern)
        kept = [(x, unit) for x, unit in enumerate(units) if not np.isnan(column.sel(unit=unit))]
        if not kept:
            continue
        cells = [result.table.sel(unit=unit, pattern=pattern) for _, unit in kept]
        own = [everyone or pattern == f"ideal {ROLE_NAMES.get(result.roles[unit] or '', '-')}" for _, unit in kept]
        exact = np.array([float(cell.exact) for cell in cells])
        colour = colours[index % len(colours)]
        figure.add_scatter(
            x=[x + (0 if everyone else spread * (index - (len(patterns) - 2) / 2)) for x, _ in kept],
            y=exact,
            mode="markers",
            name=pattern,
            marker={
                "size": 11,
                "symbol": symbols[index % len(symbols)],
                "color": [colour if filled else "white" for filled in own],
                "line": {"color": colour, "width": 2},
            },
            error_y=theme.error_bars(
                *([float(cell[end]) for cell in cells] for end in ("exact", "low", "high")),
                width=0,
                thickness=1.5,
                color=colour,
            ),
            customdata=[[float(cell.lost), float(cell.won), float(cell.tokens)] for cell in cells],
            hovertemplate=f"{pattern}: %{{y:.3f}}; lost %{{customdata[0]}}, won %{{customdata[1]}}, tokens right "
            "%{customdata[2]:.3f}<extra></extra>",
        )
    texts = [f"{unit}<br>{_role(result, unit)}" for unit in units]
    figure.update_xaxes(
        tickvals=list(range(len(units))), ticktext=texts, title="head and its role", showgrid=False, zeroline=False
    )
    for x in range(1, len(units)):
        figure.add_vline(x=x - 0.5, line={"color": theme.LIGHT, "width": 1})
    figure.update_yaxes(title="responses entirely right", range=[-0.04, 1.04])
    own_rates = [float(result.own(unit).exact) for unit, role in result.roles.items() if role not in (None, "own")]
    before = result.before / result.n
    if own_rates:
        title = (
            f"With one head's pattern replaced by the ideal of its role, {min(own_rates):.2f} to {max(own_rates):.2f} "
            f"of responses are right ({before:.2f} before)"
        )
    else:
        title = f"No head has a role to substitute; the whole model is right on {before:.2f}"
    note = "Filled: the ideal pattern of the head's own role; open: other patterns (controls). 95% intervals"
    figure.update_layout(legend={"orientation": "h", "y": -0.24, "x": 0})
    return theme.finish(figure, title, result.provenance, width=1000, height=620, note=note)


def _role(result: PatternSubstitution, unit: str) -> str:
    role = result.roles[unit]
    return "no role" if role is None else ROLE_NAMES.get(role, "own roles")
