"""Figures of :class:`interp.probes.carry.CarryUnits`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.core.drawings import drawing
from interp.core.signal_measures import signal_name
from interp.figures import theme
from interp.figures.layers import bars, hover, points
from interp.figures.panels import QUARTERS, Panel, compose, hline
from interp.probes.carry import CarryUnits
from models.errors import UserError
from models.numerals import in_percent
from models.transformer.part_names import neuron_name

_PANELS = 4
_CARRY_COLOUR = {0: theme.BLUE, 1: theme.VERMILION}


def _units(result: CarryUnits) -> list[dict[str, Any]]:
    """Verdicts of the units that get a panel: units that carry a signal come first, then those that separate best."""
    # Not from the data frame of verdicts: pandas turns a missing signal into NaN, which is true.
    layers, units = result.table.layer.values.tolist(), result.table.unit.values.tolist()
    verdicts = [result.verdict(layer, unit) for layer in layers for unit in units]
    verdicts.sort(key=lambda row: (row["signal"] is None, -np.nan_to_num(row["auroc_apart"])))
    return sorted(verdicts[:_PANELS], key=lambda row: (row["layer"], row["unit"]))


def _panel_title(result: CarryUnits, unit: dict[str, Any]) -> str:
    name = neuron_name(unit["layer"], unit["unit"])
    if not unit["signal"]:
        return f"{name}: no single signal"
    above = bool(result.table.above.sel(layer=unit["layer"], unit=unit["unit"], signal=unit["signal"]))
    return f"{name}: {'on' if above else 'off'} with {signal_name(unit['signal'])}"


def _summary(result: CarryUnits) -> str:
    verdicts = result.verdicts()
    found = verdicts[verdicts["signal"].notna()]
    if found.empty:
        return f"None of {len(verdicts)} MLP neurons separates a carry signal from its rivals"
    signal = found["signal"].mode().iloc[0]
    found = found[found["signal"] == signal]
    one, counts = len(found) == 1, [f"{n} {kind}" for kind, n in result.count_kinds(signal).items()]
    worst = f"{found['auroc_apart'].min():.3f}"
    held = f"AUROC {worst}{'' if one or worst == '1.000' else ' or more'} even with each rival signal held fixed"
    if (found["kind"] == "switch").all():
        kind = "is a needed switch of" if one else "are needed switches of"
        return f"{len(found)} of {len(verdicts)} MLP neurons {kind} {signal_name(signal)}: {held}"
    verb = "tells" if one else "tell"
    return f"{len(found)} of {len(verdicts)} MLP neurons {verb} {signal_name(signal)} ({', '.join(counts)}): {held}"


@drawing(CarryUnits)
def carry_unit_activations(result: CarryUnits) -> go.Figure:
    """Input of each unit over the column's digit sum; the colour is the carry in, filled markers have a carry out. For
    a task without digit sums, the picture of ablations."""
    if result.by_sum is None:
        return carry_unit_ablation(result)
    units, base = _units(result), result.by_sum.attrs.get("base", 10)
    panels = []
    for unit in units:
        here = {"layer": unit["layer"], "unit": unit["unit"]}
        marks = []
        if unit["signal"]:
            threshold = float(result.table.threshold.sel(signal=unit["signal"], **here))
            marks = [hline(threshold, f"threshold {threshold:.2f}", place="bottom right")]
        panels.append(
            Panel(
                [_inputs(result.by_sum.sel(carry_in=carry, **here), carry, base) for carry in (0, 1)],
                _panel_title(result, unit),
                x={"title": "a + b in the column (digit sum)", "dtick": max(3, base // 3)},
                y="" if panels else "input of the neuron (pre-activation)",
                marks=marks,
            )
        )
    note = "Bars: smallest to largest; markers: mean, filled where the column has a carry out"
    if (named := int(result.verdicts()["signal"].notna().sum())) > len(units):
        note = f"The {len(units)} that separate best, of {named}. {note}"
    return compose(panels, _summary(result), result.provenance, note=note, columns=len(panels), height=540)


def _inputs(cell: xr.DataArray, carry: int, base: int) -> go.Scatter:
    """Mean and range of a unit's input by digit sum, for one carry in."""
    cell = cell[cell.sel(stat="n").values > 0]
    sums = cell.digit_sum.values
    low, mean, high, n = (cell.sel(stat=stat).values for stat in ("min", "mean", "max", "n"))
    out = sums + carry >= base
    said = hover(
        "digit sum {sum}, carry out {out}<br>mean {y:.2f}, range {low:.2f} to {high:.2f} (n = {n:,})",
        sum=sums, low=low, high=high, n=n, out=out,
    )  # fmt: skip
    return points(
        sums + (0.16 if carry else -0.16), mean, f"carry in {carry}", _CARRY_COLOUR[carry],
        "diamond" if carry else "circle", 8, ends=(low, high), bar={"width": 0, "thickness": 2.0}, filled=out, **said,
    )  # fmt: skip


@drawing(CarryUnits, "ablation")
def carry_unit_ablation(result: CarryUnits, signal: str | None = None) -> go.Figure:
    """Token accuracy of the whole model and with each unit at zero, on columns with and without a signal (default: the
    carry out, or else the signal that most units have, or else the first)."""
    known = result.table.signal.values.tolist()
    found = result.verdicts()["signal"].dropna().mode().tolist()
    chosen_signal: str = signal or ("carry_out" if "carry_out" in known else (found or known)[0])
    table = result.without_units(chosen_signal).dropna(subset="ablated")
    if table.empty:
        raise UserError("No neuron was ablated, so there is nothing to draw; run carry_units with max_ablated above 0.")
    kept = table.assign(size=table["drop"].abs()).groupby(["layer", "unit"])["size"].max()
    chosen = list(kept.sort_values(ascending=False).index[:8])
    chosen.sort()
    name = signal_name(chosen_signal)
    labels = ["whole model", *(f"{neuron_name(layer, unit)} zeroed" for layer, unit in chosen)]
    layers = []
    for present, colour, pattern in ((False, theme.BLUE, ""), (True, theme.VERMILION, "/")):
        rows = table[table["present"] == present].set_index(["layer", "unit"]).loc[chosen]
        values, low, high = ([rows[f"clean{end}"].iloc[0], *rows[f"ablated{end}"]] for end in ("", "_low", "_high"))
        layers.append(
            bars(
                labels, values, f"columns {'with' if present else 'without'} {name} (n = {int(rows['n'].iloc[0]):,})",
                colour, ends=(low, high), bar={"thickness": 1.5}, pattern=pattern,
                text=[f"{value:.3f}" for value in values], textposition="outside", **hover("{x}: {y:.4f}"),
            )
        )  # fmt: skip
    y = {"title": "share of answer digits right", "range": [0, 1.12], "tickvals": QUARTERS}
    panel = Panel(layers, x="neurons are set to zero at every position", y=y)
    return compose(
        [panel], _ablation_title(result, table, chosen, chosen_signal), result.provenance,
        note="Bars: 95% Korn-Graubard intervals", barmode="group", bargap=0.3,
    )  # fmt: skip


def _ablation_title(result: CarryUnits, table: Any, chosen: list[tuple[int, int]], signal: str) -> str:
    """The title: two units that break opposite columns, or else the most selective unit."""
    name, pairs = signal_name(signal), result.double_dissociation(signal)
    if len(pairs):
        pair = pairs.iloc[0]
        return (
            f"Zeroing {pair.unit} keeps {in_percent(pair.unit_with)} of the digits with {name} right and "
            f"{in_percent(pair.unit_without)} of the others; {pair.other} does the opposite "
            f"({in_percent(pair.other_with)} and {in_percent(pair.other_without)})"
        )
    drop = table.set_index(["layer", "unit", "present"])["drop"]
    unit = max(chosen, key=lambda key: abs(drop[(*key, True)] - drop[(*key, False)]))
    return (
        f"No double dissociation on {name}: zeroing {neuron_name(unit[0], unit[1])} changes accuracy by "
        f"{-100 * drop[(*unit, True)]:+.1f} points with it and {-100 * drop[(*unit, False)]:+.1f} without"
    )
