"""Pictures of :class:`interp.probes.attention.AttentionByRole`."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.attention import OWN, PREVIOUS, AttentionByRole

_FAINT = 1e-4  # weights below this look alike in the pattern picture


@drawing(AttentionByRole)
def attention_by_role(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> go.Figure:
    """Weight of one head (the main one by default) by target and role, and the score gap of each target."""
    layer, head = result.chosen_head(layer, head).values()
    table = result.table.sel(layer=layer, head=head)
    targets, roles = table.target.values.tolist(), table.role.values.tolist()
    weight, n_keys = table.weight.values, table.n_keys.values
    shown = np.where(n_keys > 0, weight, np.nan)
    text = [
        [("" if not k else "<0.001" if w < 5e-4 else f"{w:.3f}") for w, k in zip(*rows, strict=True)]
        for rows in zip(weight, n_keys, strict=True)
    ]
    gap = result.gap.sel(layer=layer, head=head)
    with_gap = bool(gap.notnull().any())
    columns = 2 if with_gap else 1
    figure = make_subplots(
        cols=columns, shared_yaxes=True, column_widths=[0.66, 0.34][:columns], horizontal_spacing=0.05
    )
    figure.add_heatmap(
        x=roles,
        y=targets,
        z=shown,
        text=text,
        texttemplate="%{text}",
        colorscale=theme.SEQUENTIAL,
        zmin=0,
        zmax=1,
        xgap=2,
        ygap=2,
        customdata=np.stack((n_keys, table.spread.values, table.uniform.values), -1),
        hovertemplate="predicting %{y}: %{z:.4f} on %{x} (%{customdata[0]} positions)<br>"
        "standard deviation over inputs %{customdata[1]:.1e}<br>"
        "attention blind to roles: %{customdata[2]:.3f}<extra></extra>",
        colorbar={"title": {"text": "weight", "side": "right"}, "thickness": 12, "len": 0.9, "x": 1.01},
    )
    figure.update_xaxes(title="role of the position attended to", row=1, col=1)
    figure.update_yaxes(title="answer token predicted", autorange="reversed", row=1, col=1)
    if with_gap:
        reference = math.log(result.base)
        figure.add_scatter(
            x=gap.values,
            y=targets,
            mode="markers",
            marker={"color": theme.VERMILION, "size": 9},
            hovertemplate="%{y}: %{x:.3f} nats<extra></extra>",
            showlegend=False,
            row=1,
            col=2,
        )
        figure.add_vline(x=reference, line={"dash": "dash", "color": theme.GREY}, row=1, col=2)
        figure.add_annotation(
            x=reference, y=1, xref="x2", yref="paper", yanchor="bottom", showarrow=False,
            text=f"ln {result.base} = {reference:.3f}", font={"size": 12, "color": theme.GREY},
        )  # fmt: skip
        span = [*gap.values[~np.isnan(gap.values)], reference, 0.0]
        margin = 0.12 * (max(span) - min(span))
        figure.update_xaxes(
            title="ln(own operand / previous), nats", range=[min(span) - margin, max(span) + margin], row=1, col=2
        )
    return theme.finish(figure, result.statement(layer, head), result.provenance, height=600, note=_note(result))


def _note(result: AttentionByRole) -> str:
    if result.position_only:
        return f"The same on every input (largest standard deviation {result.max_spread:.0e})"
    return f"Means over inputs; the weights depend on them (standard deviation up to {result.max_spread:.2g})"


@drawing(AttentionByRole, "heads")
def attention_heads(result: AttentionByRole) -> go.Figure:
    """Every head's mean weight by role, over the targets that have a column of operands and one before it."""
    weight, keys = result.table.weight, result.table.n_keys
    needed = [role for role in weight.role.values if role == OWN or str(role).startswith(PREVIOUS)]
    both = [target for target in weight.target.values if (keys.sel(target=target, role=needed) > 0).all()]
    mean = weight.sel(target=both or weight.target.values).mean("target")
    roles = mean.role.values.tolist()
    heads = [(i, h) for i in mean.layer.values.tolist() for h in mean["head"].values.tolist()]
    z = np.array([mean.sel(layer=i, head=h).values for i, h in heads])
    figure = go.Figure(
        go.Heatmap(
            x=roles, y=[f"L{i}H{h}" for i, h in heads], z=z, zmin=0, zmax=1, colorscale=theme.SEQUENTIAL,
            text=[[f"{value:.2f}" for value in row] for row in z], texttemplate="%{text}", xgap=3, ygap=3,
            hovertemplate="%{y}: %{z:.4f} on %{x}<extra></extra>",
            colorbar={"title": {"text": "weight", "side": "right"}, "thickness": 12},
        )
    )  # fmt: skip
    figure.update_xaxes(title="role of the position attended to", showgrid=False)
    figure.update_yaxes(title="head", autorange="reversed", showgrid=False)
    most = [roles[int(row.argmax())] for row in z]
    ranked = sorted(set(most), key=lambda role: (-most.count(role), roles.index(role)))
    counted = [f"{most.count(role)} at {role}" for role in ranked]
    span = f"{both[0]} to {both[-1]}" if len(both) > 1 else ", ".join(map(str, both)) or "all targets"
    counted[0] = f"{most.count(ranked[0])} of {len(heads)} heads look mostly at {ranked[0]}"
    title = ", ".join(counted)
    note = f"Means over {span}. {_note(result)}"
    return theme.finish(figure, title, result.provenance, width=860, height=230 + 40 * len(heads), note=note)


@drawing(AttentionByRole, "pattern")
def attention_pattern(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> go.Figure:
    """The mean pattern of one head: a row for each answer token, a column for each position, colours by log weight."""
    layer, head = result.chosen_head(layer, head).values()
    pattern = result.pattern.sel(layer=layer, head=head)
    visible = np.stack([_visible(result, target) for target in range(pattern.sizes["target"])])
    values = np.where(visible, pattern.values, np.nan)
    keys, labels = pattern.key.values, [str(label) for label in pattern.label.values]
    figure = go.Figure(
        go.Heatmap(
            x=keys,
            y=pattern.target.values.tolist(),
            z=np.log10(np.maximum(values, _FAINT)),
            zmin=math.log10(_FAINT),
            zmax=0,
            colorscale=theme.SEQUENTIAL,
            xgap=1,
            ygap=1,
            customdata=np.stack((values, np.broadcast_to(np.array(labels, dtype=object), values.shape)), -1),
            hovertemplate="predicting %{y}, attending to %{customdata[1]}: %{customdata[0]:.4f}<extra></extra>",
            colorbar={
                "title": {"text": "weight", "side": "top"},
                "thickness": 12,
                "tickvals": [-4, -3, -2, -1, 0],
                "ticktext": ["≤ 0.0001", "0.001", "0.01", "0.1", "1"],
            },
        )
    )
    figure.update_xaxes(
        title="position attended to", tickvals=keys, ticktext=labels, tickangle=0, tickfont={"size": 11}, showgrid=False
    )
    figure.update_yaxes(title="answer token predicted", autorange="reversed", showgrid=False)
    figure.update_layout(plot_bgcolor=theme.LIGHT)
    share = _share_of_top(values, 5)
    title = (
        f"L{layer}H{head}: the five strongest positions hold {share:.1%} of the weight of an answer token, on average"
    )
    return theme.finish(
        figure, title, result.provenance, width=1150, height=520, note=f"Grey: not visible. {_note(result)}"
    )


def _visible(result: AttentionByRole, target: int) -> np.ndarray:
    """Keys up to the query: as many as the target's roles hold."""
    return np.arange(result.pattern.sizes["key"]) < int(result.table.n_keys.isel(target=target).sum())


def _share_of_top(values: np.ndarray, count: int) -> float:
    return float(np.sort(np.nan_to_num(values), axis=-1)[:, -count:].sum(-1).mean())
