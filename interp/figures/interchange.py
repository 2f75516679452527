"""Figures of :mod:`interp.causal.interchange`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.causal.interchange.accuracy import HYPOTHESIS, InterchangeAccuracy, counted
from interp.causal.interchange.interchange_sweeps import InterchangeSweep
from interp.causal.interchange.scrubbing import CausalScrubbing
from interp.causal.interchange.which import CHANGED_BY, CORRUPTIONS, WhichAlgorithm
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, curve, hover
from interp.figures.panels import QUARTERS, Panel, compose, hline, label
from models.numerals import in_percent, in_percent_with

_CORRUPTION_NAMES = {"plausible": "the digit of the other carry", "any": "any wrong digit"}
_CARRY_COLOURS = {"-1": theme.SKY, "0": theme.BLUE, "1": theme.VERMILION, "2": theme.ORANGE, "other": theme.LIGHT}


@drawing(InterchangeAccuracy)
def interchange_accuracy(result: InterchangeAccuracy) -> go.Figure:
    """Interchange accuracy of the hypothesis next to its controls, with 95% intervals."""
    table = result.to_dataframe().iloc[::-1]
    value, run = table["accuracy"], table["run"]
    layer = bars(
        value, run, None, [theme.BLUE if name == HYPOTHESIS else theme.GREY for name in run], across=True,
        ends=(table["low"], table["high"]), bar={"width": 5}, width=0.6,
        **hover(
            "{y}: {x:.3f} ({right:,} of {n:,}; the base's answer kept in {stayed:.3f})",
            right=table["right"], n=table["n_changed"], stayed=table["stayed"],
        ),
    )  # fmt: skip
    placed: dict[str, Any] = {"xanchor": "left", "xshift": 8, "size": 13}
    numbers = [
        label(at, row, f"{shown:.3f}", **placed) for at, row, shown in zip(table["high"], run, value, strict=True)
    ]
    x = {"title": "share of pairs with the causal model's answer, where it changes", "range": [0, 1.12]}
    panel = Panel([layer], x=x | {"tickvals": QUARTERS}, y={"ticksuffix": "  "}, marks=numbers)
    found = result.accuracy()
    title = (
        f"{result.model}: {in_percent(found.value)} of {found.n:,} answers change as {result.algorithm} says when "
        f"the {result.variable.replace('_', ' ')} is interchanged"
    )
    note = (
        f"Column {result.column}, {result.site}, {result.subspace}. Bars: 95% Clopper-Pearson. "
        f"{in_percent(result.clean.value)} right without intervention"
    )
    return compose(
        [panel], title, result.provenance, note=note, width=900, height=320 + 34 * len(table),
        margin={"l": 130, "r": 80},
    )  # fmt: skip


@drawing(InterchangeSweep)
def interchange_sweep(result: InterchangeSweep) -> go.Figure:
    """Interchange accuracy of every site; grey where source and base never differ."""
    values = np.where(result.live.values, result.accuracy.values, np.nan)
    hooks = [str(name).replace("blocks.", "L").replace(".hook_", " ") for name in result.right.hook.values]
    positions = [str(place) for place in result.right.position.values]
    layer = cells(
        values, positions, hooks, bar={"title": "accuracy", "tickvals": QUARTERS}, **hover("{y} at {x}: {z:.3f}")
    )
    x = {"title": "position", "tickangle": 0 if len(positions) < 40 else -90}
    panel = Panel([layer], x=x, y={"title": "layer and stream", "ticksuffix": " "})
    site = result.best()
    best = float(result.accuracy.sel(hook=site.hook, position=str(site.at)))
    title = (
        f"{result.model}: the {result.variable.replace('_', ' ')} of column {result.column} ({result.algorithm}) is "
        f"interchanged best at {site} ({in_percent(best)})"
    )
    note = "One whole site at a time; grey: source and base agree there"
    return compose([panel], title, result.provenance, note=note, height=250 + 42 * len(hooks), plot_bgcolor=theme.LIGHT)


@drawing(WhichAlgorithm)
def which_algorithm(result: WhichAlgorithm) -> go.Figure:
    """Left: how often the model gives each algorithm's digit where they disagree. Right: the carry that its predictions
    imply, by the difference x' + y' - z'."""
    names = [name for group in result.ranking() for name in group]
    followed = []
    for corruption, colour in zip(CORRUPTIONS, (theme.GREEN, theme.PURPLE), strict=True):
        found = [result.accuracy(name, corruption) for name in names]
        said = hover("{x}: {y:.3f} ({right:,} of {n:,})", right=[p.successes for p in found], n=[p.n for p in found])
        name, ends = (
            f"{_CORRUPTION_NAMES[corruption]} (n = {found[0].n:,})",
            ([p.low for p in found], [p.high for p in found]),
        )
        followed.append(bars(names, [p.value for p in found], name, colour, ends=ends, **said))
    table = result.implied_carries("any")
    implied, base = [], np.zeros(len(table))
    for carry, colour in _CARRY_COLOURS.items():
        name = f"carry {carry}".replace("-", "−") if carry != "other" else "no such carry"
        said = hover(f"difference {{x}}: {carry} in {{y:.3f}} of {{n:,}}", n=table["n"])
        style: dict[str, Any] = {"base": base, "legend": "legend2", "offsetgroup": "carries"} | said
        implied.append(bars(table["difference"], table[carry], name, colour, **style))
        base = base + table[carry].values
    share = {"range": [0, 1.08], "tickvals": QUARTERS}
    occurring = f"−1, 0, {result.base - 1}, {result.base}"
    difference = {"title": f"difference x' + y' − z' ({occurring} occur uncorrupted)", "dtick": 3}
    panels = [
        Panel(
            followed, "where the algorithms disagree", "algorithm",
            share | {"title": "share with the algorithm's digit"},
        ),
        Panel(
            implied, "any wrong digit: the carry a prediction implies", difference,
            share | {"title": "share of predictions"},
        ),
    ]  # fmt: skip
    below = {"yanchor": "top", "y": -0.2}
    return compose(
        panels, _followed(result), result.provenance, note=_which_note(result), columns=2,
        width=1100, height=600, widths=[0.42, 0.58], gaps=(120, 0), barmode="group", bargap=0.12,
        legend=below | {"orientation": "v"}, legend2=below | {"x": 0.49, "orientation": "h"},
        meta={"least_width": 860},
    )  # fmt: skip


def _followed(result: WhichAlgorithm) -> str:
    if result.winner(result.deciding) is None:
        return f"{result.model} follows none of the algorithms"
    return f"{result.model} follows the {result.verdict} algorithm"


def _which_note(result: WhichAlgorithm) -> str:
    best = result.ranking(result.deciding)[0][0]
    note = "The output before one query is replaced. "
    for corruption, change in zip(CORRUPTIONS, ("a plausible wrong digit changes", "any changes"), strict=True):
        shares = [result.followed(best, corruption, changed_by=by) for by in CHANGED_BY]
        if shares[0].n:
            note += f"Of the {shares[0].n:,} predictions that {change}, {shares[0]} become the {best} algorithm's digit"
            note += (
                f", and {shares[2]} of the {shares[2].n:,} where its digit changes too. "
                if 0 < shares[2].n < shares[0].n
                else ". "
            )
    twins = [result.accuracy(best, corruption, of="untrained") for corruption in CORRUPTIONS]
    twin = " and ".join(f"{share.value:.3f}" for share in twins if share.n)
    return note + f"An untrained twin gives that digit in {twin}. Bars: 95% Clopper-Pearson"


@drawing(CausalScrubbing)
def causal_scrubbing(result: CausalScrubbing) -> go.Figure:
    """Share of the loss recovered by column: the hypothesis next to the same sites scrubbed as irrelevant."""
    table: Any = result.to_dataframe()
    lines = []
    for run, name, colour in (
        ("scrubbed", "as the hypothesis allows", theme.BLUE), ("all irrelevant", "as if irrelevant", theme.GREY),
    ):  # fmt: skip
        rows = table[(table["run"] == run) & (table["column"] != "all")]
        said = hover(
            "column {x}: {y:.4f} (loss {loss:.4f} nats, {right:.3f} of digits right, n = {n:,})",
            loss=rows["loss"], right=rows["right"], n=rows["n"],
        )  # fmt: skip
        style: dict[str, Any] = {"symbol": "circle", "size": 9, "ends": (rows["low"], rows["high"])} | said
        lines.append(curve(rows["column"], rows["recovered"], f"resampled {name}", colour, width=1.5, **style))
    panel = Panel(
        lines, x={"title": "column predicted (0 is the units)", "dtick": 1}, y="share of the loss recovered",
        marks=[hline(0, dash="dot"), hline(1, dash="dot")],
    )  # fmt: skip
    share, low, high = result.recovered()
    title = (
        f"{result.model}: {counted(len(result.claims), 'claim')} in terms of {result.algorithm} "
        f"recover{'s' * (len(result.claims) == 1)} "
        f"{in_percent_with(share, low, high)} of the loss"
    )
    note = (
        f"0 is another problem's logits ({result.loss('scrambled'):.2f} nats), 1 the clean run "
        f"({result.loss('clean'):.4f}). Bars: 95% bootstrap"
    )
    return compose([panel], title, result.provenance, note=note)
