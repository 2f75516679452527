"""Pictures of head roles, of what heads write, and of trained next to hand-built heads."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.comparison import CoupledComparison
from interp.papers.position_coupling.keys import ROLE_NAMES
from interp.papers.position_coupling.roles import HeadRoles
from interp.papers.position_coupling.writes import HeadWrites

_GROUP_NAMES = {
    "sum": "digit sum",
    "carry": "carry",
    "same digit": "same digit of others",
    "eos": "EOS",
    "rest": "rest",
}
_MOST_HEADS = 12  # of a large model, beside the constructed ones
_GROUP_COLOURS = (theme.BLUE, theme.VERMILION, theme.SKY, theme.PURPLE, theme.LIGHT)


@drawing(HeadRoles)
def head_roles(result: HeadRoles) -> go.Figure:
    """Overlap of every head's mean pattern with every constructed role; the role it plays is outlined."""
    heads, roles = result.heads, result.table.role.values.tolist()
    names = [f"L{i}H{h}" for i, h in heads]
    cells = [result.table.sel(layer=i, head=h) for i, h in heads]
    overlap = np.array([cell.overlap.values for cell in cells])
    share = np.array([cell.share.values for cell in cells])
    shuffled = np.array([cell.shuffled_high.values for cell in cells])
    p_value = np.array([cell.p_value.values for cell in cells])
    rows = zip(overlap, share, strict=True)
    text = [[f"{o:.2f}<br>share {s:.2f}" for o, s in zip(*row, strict=True)] for row in rows]
    figure = go.Figure(
        go.Heatmap(
            x=[ROLE_NAMES[role] for role in roles],
            y=names,
            z=overlap,
            zmin=0,
            zmax=1,
            colorscale=theme.SEQUENTIAL,
            text=text,
            texttemplate="%{text}",
            xgap=3,
            ygap=3,
            customdata=np.stack((shuffled, p_value), -1),
            hovertemplate="%{y} as %{x}: overlap %{z:.3f}; shuffled tokens below %{customdata[0]:.3f} (97.5%), "
            "p = %{customdata[1]:.3f}<extra></extra>",
            colorbar={"title": {"text": "overlap", "side": "top"}, "thickness": 12},
        )
    )
    plays = result.roles()
    for row, head in enumerate(heads):
        role = plays[head]
        if role is not None:
            column = roles.index(role)
            figure.add_shape(
                type="rect", x0=column - 0.47, x1=column + 0.47, y0=row - 0.46, y1=row + 0.46,
                line={"color": theme.ORANGE, "width": 4},
            )  # fmt: skip
    figure.update_xaxes(title="role in the construction", showgrid=False)
    figure.update_yaxes(title="head", autorange="reversed", showgrid=False)
    counts = {role: sum(value == role for value in plays.values()) for role in roles}
    found = ", ".join(f"{count} {ROLE_NAMES[role]}" for role, count in counts.items() if count)
    title = f"Roles of {len(heads)} heads: {found or 'none'}"
    none = sum(value is None for value in plays.values())
    if found and none:
        title += f", {none} none"
    note = "Outlined: the role that a head plays. Overlap 1: the constructed pattern; share: attention on its tokens"
    height = 260 + max(4, len(heads)) * (62 if len(heads) <= 8 else 30)
    return theme.finish(figure, title, result.provenance, width=760, height=height, note=note)


@drawing(CoupledComparison)
def coupled_comparison(result: CoupledComparison) -> go.Figure:
    """Distances of all pairs, the matched ones outlined, and where each head of both models looks."""
    others = result.distance.reference.values.tolist()
    pairs = {str(head) for head in result.pairs["head"].values}
    nearest = result.distance.distance.min("reference").to_series().sort_values()
    shown = pairs | set([head for head in nearest.index if head not in pairs][: max(0, _MOST_HEADS - len(pairs))])
    heads = [head for head in result.distance["head"].values.tolist() if head in shown]
    figure = make_subplots(
        cols=2,
        column_widths=[0.42, 0.58],
        horizontal_spacing=0.17,
        subplot_titles=("distance of attention", "where a head looks, BOS apart"),
    )
    distance = result.distance.distance.sel(head=heads).values
    figure.add_heatmap(
        x=others,
        y=heads,
        z=distance,
        zmin=0,
        zmax=1,
        colorscale=theme.SEQUENTIAL,
        reversescale=True,
        text=[[f"{value:.2f}" for value in row] for row in distance],
        texttemplate="%{text}",
        xgap=3,
        ygap=3,
        showscale=False,
        hovertemplate="%{y} and %{x}: %{z:.3f}<extra></extra>",
        row=1,
        col=1,
    )
    matched: dict[str, str] = {}
    for reference in result.pairs.reference.values.tolist():
        head = str(result.pairs.sel(reference=reference)["head"].values)
        matched[reference] = head
        x, y = others.index(reference), heads.index(head)
        far = float(result.pairs.distance.sel(reference=reference)) >= 0.5
        figure.add_shape(
            type="rect", x0=x - 0.47, x1=x + 0.47, y0=y - 0.46, y1=y + 0.46,
            line={"color": theme.ORANGE, "width": 3 if far else 4, "dash": "dot" if far else "solid"},
            row=1, col=1,
        )  # fmt: skip
    rows = []
    for reference in others:
        rows.append((f"<i>{reference}</i>", result.reference_profile.sel(head=reference).values))
        if reference in matched:
            rows.append((f"{matched[reference]}  ", result.profile.sel(head=matched[reference]).values))
    rows += [(f"{h} ", result.profile.sel(head=h).values) for h in heads if h not in matched.values()][:6]
    names = [name for name, _ in rows]
    for index, group in enumerate(result.profile.group.values.tolist()):
        figure.add_bar(
            y=names,
            x=[values[index] for _, values in rows],
            orientation="h",
            name=_GROUP_NAMES[group],
            marker={"color": _GROUP_COLOURS[index], "line": {"color": "white", "width": 1}},
            hovertemplate=f"%{{y}}: %{{x:.3f}} on {_GROUP_NAMES[group]}<extra></extra>",
            row=1,
            col=2,
        )
    figure.update_xaxes(title="head of the construction", showgrid=False, row=1, col=1)
    figure.update_yaxes(title="head of the model", autorange="reversed", showgrid=False, row=1, col=1)
    figure.update_xaxes(title="share of attention off BOS", range=[0, 1], row=1, col=2)
    figure.update_yaxes(autorange="reversed", row=1, col=2)
    figure.update_layout(
        barmode="stack", bargap=0.25, legend={"orientation": "h", "y": -0.2, "x": 0.45, "traceorder": "normal"}
    )
    figure.update_annotations(font={"size": 13})
    total = result.total
    control = "" if np.isnan(total["untrained"]) else f", untrained {total['untrained']:.2f}"
    close = int((result.pairs.distance.values < 0.5).sum())
    title = (
        f"{close} of {len(matched)} constructed heads have a counterpart (distance below 0.5); mean matched distance "
        f"{total['distance']:.2f}{control}, shuffled roles {total['shuffled']:.2f}"
    )
    note = f"{result.names[0]} beside {result.names[1]} (italics); outlined: matched pairs, dotted from 0.5 on"
    if len(heads) < result.distance.sizes["head"]:
        note += f"; the {len(heads)} nearest of {result.distance.sizes['head']} heads"
    return theme.finish(figure, title, result.provenance, width=1100, height=600, note=note)


@drawing(CoupledComparison, "difference")
def coupled_difference(result: CoupledComparison) -> go.Figure:
    """Signed: mean attention by role of every matched head minus that of its constructed counterpart."""
    difference = result.difference()
    pairs = zip(difference["head"].values.tolist(), difference.reference.values.tolist(), strict=True)
    figure = go.Figure(
        go.Heatmap(
            x=[_GROUP_NAMES[group] for group in difference.group.values.tolist()],
            y=[f"{head} - {reference}" for head, reference in pairs],
            z=difference.values,
            zmin=-1,
            zmax=1,
            zmid=0,
            colorscale=theme.DIVERGING,
            reversescale=True,
            text=[[f"{value:+.2f}" for value in row] for row in difference.values],
            texttemplate="%{text}",
            xgap=3,
            ygap=3,
            hovertemplate="%{y}: %{z:+.3f} on %{x}<extra></extra>",
            colorbar={"title": {"text": "difference", "side": "top"}, "thickness": 12},
        )
    )
    figure.update_xaxes(title="role of the tokens attended to", showgrid=False)
    figure.update_yaxes(title="matched pair", autorange="reversed", showgrid=False)
    row, column = np.unravel_index(int(np.abs(difference.values).argmax()), difference.shape)
    label = f"{difference['head'].values[row]} and the constructed {difference.reference.values[row]} head"
    title = f"Largest difference by role {difference.values[row, column]:+.2f}, between {label}"
    note = f"{result.names[0]} minus {result.names[1]}, shares of attention off BOS; red: the model attends more"
    return theme.finish(figure, title, result.provenance, width=860, height=250 + 52 * len(difference), note=note)


@drawing(HeadWrites)
def head_writes(result: HeadWrites) -> go.Figure:
    """Coordinate of the ten digits along each head's main direction, and how linear it is."""
    heads = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()][:8]
    columns = min(4, len(heads))
    rows = -(-len(heads) // columns)
    titles = []
    for i, h in heads:
        linear = float(result.table.linear.sel(layer=i, head=h))
        titles.append(f"L{i}H{h}: " + ("no digit written" if np.isnan(linear) else f"{linear:.0%} linear"))
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.16)
    for index, (i, h) in enumerate(heads):
        row, column = divmod(index, columns)
        share = float(result.table.line.sel(layer=i, head=h))
        figure.add_scatter(
            x=np.arange(10),
            y=result.line_of.sel(layer=i, head=h).values,
            mode="markers+lines",
            line={"color": theme.LIGHT},
            marker={"color": theme.BLUE, "size": 9},
            showlegend=False,
            hovertemplate=f"digit %{{x}}: %{{y:.2f}}<br>the direction holds {share:.0%} of the variance<extra></extra>",
            row=row + 1,
            col=column + 1,
        )
        figure.update_xaxes(title="digit attended to", dtick=3, range=[-0.6, 9.6], row=row + 1, col=column + 1)
    figure.update_yaxes(range=[-2.6, 2.6], zeroline=True, zerolinecolor=theme.LIGHT)
    figure.update_yaxes(title="main direction, sd", col=1)
    kept = result.table.linear.values[~np.isnan(result.table.linear.values)]
    title = f"What heads write about a digit is {kept.min():.0%} to {kept.max():.0%} linear in its value"
    note = "Along each head's first principal direction; percentages are of the whole variance over ten digits"
    return theme.finish(figure, title, result.provenance, width=1000, height=150 + 270 * rows, note=note)
