"""Figures of attention: where it looks, what heads write about a digit, and the number that it writes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, curve, hover, points, written
from interp.figures.panels import Panel, compose, vline
from interp.probes.attention import AttentionByRole
from interp.probes.head_writes import HeadWrites
from interp.probes.written_number import WrittenNumber
from models.numerals import in_percent, small
from models.tasks.places import OWN
from models.transformer.part_names import head_name

_FAINT = 1e-4  # weights below this have the same colour in the pattern figure


@drawing(AttentionByRole)
def attention_by_role(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> go.Figure:
    """Weight of one head (default: the main one) by target and role, and the score gap of each target."""
    layer, head = result.chosen_head(layer, head).values()
    table = result.table.sel(layer=layer, head=head)
    targets, roles = table.target.values.tolist(), table.role.values.tolist()
    weight, n_keys = table.weight.values, table.n_keys.values
    shown = np.where(n_keys > 0, weight, np.nan)
    said = hover(
        "predicting {y}: {z:.4f} on {x} ({n} positions)<br>standard deviation over inputs {spread:.2g}<br>"
        "uniform attention: {uniform:.3f}",
        n=n_keys, spread=table.spread.values, uniform=table.uniform.values,
    )  # fmt: skip
    text = written(shown, lambda w: "<0.001" if w < 5e-4 else f"{w:.3f}")
    map_ = cells(shown, roles, targets, text=text, bar="weight", gap=2, **said)
    panels = [Panel([map_], x="role of the position attended to", y="answer token predicted")]
    gap = result.gap.sel(layer=layer, head=head).values
    if not np.isnan(gap).all():
        level = math.log(result.base)
        marks = [vline(level, f"ln {result.base} = {level:.3f}", place="top")]
        span = [*gap[~np.isnan(gap)], level, 0.0]
        beyond = 0.12 * (max(span) - min(span))
        x = {"title": "ln(own operand / previous), nats", "range": [min(span) - beyond, max(span) + beyond]}
        layer_ = points(gap, targets, None, theme.VERMILION, **hover("{y}: {x:.3f} nats"))
        panels.append(Panel([layer_], x=x, y={"autorange": "reversed"}, marks=marks))
    return compose(
        panels, result.statement(layer, head), result.provenance, note=_note(result), columns=len(panels), height=600,
        widths=[0.66, 0.34][: len(panels)], shared="y", gaps=(80, 0), margin={"t": 14},
    )  # fmt: skip


def _note(result: AttentionByRole) -> str:
    if result.position_only:
        return f"The same on every input (largest standard deviation {small(result.max_spread, 1)})"
    return f"Means over inputs; the weights depend on them (standard deviation up to {result.max_spread:.2g})"


@drawing(AttentionByRole, "heads")
def attention_heads(result: AttentionByRole) -> go.Figure:
    """Every head's mean weight by role, over the targets with operands in the own and the previous column."""
    weight, keys = result.table.weight, result.table.n_keys
    needed = [role for role in weight.role.values if role == OWN or str(role).startswith("previous")]
    both = [target for target in weight.target.values if (keys.sel(target=target, role=needed) > 0).all()]
    mean = weight.sel(target=both or weight.target.values).mean("target")
    roles = mean.role.values.tolist()
    heads = [(i, h) for i in mean.layer.values.tolist() for h in mean["head"].values.tolist()]
    z = np.array([mean.sel(layer=i, head=h).values for i, h in heads])
    names = [head_name(i, h) for i, h in heads]
    layer = cells(z, roles, names, text=written(z), bar="weight", gap=3, **hover("{y}: {z:.4f} on {x}"))
    panel = Panel([layer], x="role of the position attended to", y="head")
    most = [roles[int(row.argmax())] for row in z]
    ranked = sorted(set(most), key=lambda role: (-most.count(role), roles.index(role)))
    counted = [f"{most.count(role)} at {role}" for role in ranked]
    span = f"{both[0]} to {both[-1]}" if len(both) > 1 else ", ".join(map(str, both)) or "all targets"
    counted[0] = f"{most.count(ranked[0])} of {len(heads)} heads look mostly at {ranked[0]}"
    title = ", ".join(counted)
    note = f"Means over {span}. {_note(result)}"
    return compose([panel], title, result.provenance, note=note, width=860, height=230 + 40 * len(heads))


@drawing(AttentionByRole, "pattern")
def attention_pattern(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> go.Figure:
    """The mean pattern of one head: one row per answer token, one column per position, coloured by log weight."""
    layer, head = result.chosen_head(layer, head).values()
    pattern = result.pattern.sel(layer=layer, head=head)
    visible = np.stack([_visible(result, target) for target in range(pattern.sizes["target"])])
    values = np.where(visible, pattern.values, np.nan)
    keys, labels = pattern.key.values, [str(label) for label in pattern.label.values]
    said = hover("predicting {y}, attending to {label}: {weight:.4f}", weight=values, label=np.array(labels)[None])
    bar = {"title": "weight", "tickvals": [-4, -3, -2, -1, 0], "ticktext": ["≤ 0.0001", "0.001", "0.01", "0.1", "1"]}
    faint = np.log10(np.maximum(values, _FAINT))
    layer_ = cells(faint, keys, pattern.target.values.tolist(), limits=(math.log10(_FAINT), 0), bar=bar, **said)
    x = {"tickvals": keys, "ticktext": labels, "tickangle": 0, "tickfont": {"size": 11}}
    panel = Panel([layer_], x=x | {"title": "position attended to"}, y="answer token predicted")
    share = _share_of_top(values, 5)
    title = (
        f"{head_name(layer, head)}: the five strongest positions hold {in_percent(share)} of the weight of an answer "
        "token, on average"
    )
    return compose(
        [panel], title, result.provenance, note=f"Grey: not visible. {_note(result)}", width=1150, height=520,
        plot_bgcolor=theme.LIGHT,
    )  # fmt: skip


def _visible(result: AttentionByRole, target: int) -> np.ndarray:
    """Mask of the keys up to the query: as many as the target's roles hold."""
    return np.arange(result.pattern.sizes["key"]) < int(result.table.n_keys.isel(target=target).sum())


def _share_of_top(values: np.ndarray, count: int) -> float:
    return float(np.sort(np.nan_to_num(values), axis=-1)[:, -count:].sum(-1).mean())


@drawing(HeadWrites)
def head_writes(result: HeadWrites) -> go.Figure:
    """Coordinates of the digits along each head's main direction, and how linear they are."""
    heads = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()][:8]
    columns = min(4, len(heads))
    panels = []
    for i, h in heads:
        row = result.table.sel(layer=i, head=h)
        said = hover(f"digit {{x}}: {{y:.2f}}<br>the direction holds {in_percent(row.line, 0)} of the variance")
        line = result.line_of.sel(layer=i, head=h).values
        style: dict[str, Any] = {"symbol": "circle", "size": 9, "marker": {"color": theme.BLUE}} | said
        linear = float(row.linear)
        panels.append(
            Panel(
                [curve(result.line_of.digit.values, line, None, theme.LIGHT, **style)],
                f"{head_name(i, h)}: {'no digit written' if np.isnan(linear) else in_percent(linear, 0) + ' linear'}",
                x={"title": "digit attended to", "dtick": 3, "range": [-0.6, result.line_of.sizes["digit"] - 0.4]},
                y={
                    "title": "" if len(panels) % columns else "main direction, sd", "range": [-2.6, 2.6],
                    "zeroline": True, "zerolinecolor": theme.LIGHT,
                },
            )
        )  # fmt: skip
    kept = result.table.linear.values[~np.isnan(result.table.linear.values)]
    least, most = (in_percent(end, 0) for end in (kept.min(), kept.max()))
    title = f"What heads write for a digit is {least} to {most} linear in its value"
    base = result.line_of.sizes["digit"]
    note = f"Along each head's first principal direction; percentages are of the whole variance over {base} digits"
    height = 150 + 270 * -(-len(heads) // columns)
    return compose(
        panels, title, result.provenance, note=note, columns=columns, height=height, shared="y", gaps=(36, 90)
    )


_LOOKS = {0: (theme.BLUE, "circle"), 1: (theme.VERMILION, "diamond")}


@drawing(WrittenNumber)
def figure_bracket(result: WrittenNumber) -> go.Figure:
    """The written number less the own column's part, over the written digit; the colour is the carry."""
    found, aside = result.points, np.random.default_rng(0).uniform(-0.25, 0.25, result.points.sizes["point"])
    layers = []
    for value, (colour, symbol) in _LOOKS.items():
        rows = found.carry_in.values == value
        x, y = (found.written.values + aside)[rows], found.bracket.values[rows]
        said = hover("{y:.1f} after a {digit}", digit=found.written.values[rows])
        layers.append(points(x, y, f"carry {value}", colour, symbol, 5, opacity=0.5, **said))
    title = "The previous column's weight in what attention writes could not be told from 0"
    if not np.isnan(result.ratio):
        explained = in_percent(result.explained)
        title = f"The own column counts {result.ratio:.2f} times the previous one (explained {explained})"
        if not np.isnan(result.apart):
            title += "; carry and no carry "
            title += f"are at least {result.apart:.1f} apart in this sample" if result.apart > 0 else "overlap"
    x = {"title": "digit written before<br>(the query's own token)", "dtick": 1}
    y = "number written, less the own column's part<br>(digits of the previous column)"
    note = f"{len(aside):,} columns, with horizontal jitter; exact sums lie {result.base - 1} apart"
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, note=note, height=500)
