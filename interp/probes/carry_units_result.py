"""The result of :func:`interp.carry_units`: what every unit detects, and what breaks without it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.frames import select
from interp.core.table_result import Measure, TableResult
from interp.core.thresholds import ABLE, CAUSAL, FEWEST_WITH_SIGNAL, SEPARATES
from interp.core.views import Bars, Line, Picture, Points, Series
from interp.core.wording import listed
from interp.probes import neuron_selectivity as measures
from interp.probes.neuron_signals import signal_name
from models.errors import UserError, known_name
from models.number_format import in_percent
from models.transformer import neuron_name

#: Kinds of units that separate a signal but do not carry it, in words.
_WORDS = {
    "needed": "needed, but not for that alone",
    "correlate": "no effect of its own",
    "not ablated": "not ablated",
    "not able": "the model is mostly wrong with it or without it, so ablation was not judged",
}
#: One unit of a kind, and several.
_NAMES = {
    "switch": ("switch that is needed", "switches that are needed"),
    "detector": ("detector", "detectors"),
    **{kind: (words, words) for kind, words in _WORDS.items()},
    "correlate": ("without an effect of its own", "without an effect of their own"),
}
#: All kinds, the strongest evidence first.
_STRENGTH = ("switch", "detector", *_WORDS, "none")
_NEARLY = 0.99  # of a model that is right this often, it goes without saying that it was right before


KEYS = ("layer", "unit", "signal")
MEASURES = (
    Measure("auroc_given_rivals", title="AUROC with each rival held fixed"),
    Measure("effect", SHARE, title="what ablation costs with the signal, more than without"),
    Measure("accuracy", SHARE, ("majority",), "accuracy of the best threshold"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class CarryUnits(TableResult):
    """The signals that each MLP neuron detects. ``table`` is a Dataset over (layer, unit, signal):

    * ``auroc``, ``auroc_given_rivals`` and the ``rival`` that lowers it most; NaN where fewer than
      :data:`~interp.core.thresholds.FEWEST_WITH_SIGNAL` problems have the signal, or lack it
    * ``threshold``, ``above`` (the signal lies above it, as ``auroc`` says); ``accuracy``, ``accuracy_low``,
      ``accuracy_high`` on the other half of the problems; ``majority``: accuracy of always predicting the more frequent
      answer
    * ``pre_min``, ``pre_max``, ``post_min``, ``post_max`` [..., present]: activation ranges, present in (False, True);
      ``gap`` between the two ranges of the input, positive where they do not overlap; ``flatter_state_range``,
      ``output_gap`` and ``relative_slope`` describe two states of the output
      (:func:`interp.probes.neuron_selectivity.ranges`)
    * ``ablated``, ``ablated_low``, ``ablated_high`` [..., present]: token accuracy with the unit at zero, or NaN
    * ``clean``, ``clean_low``, ``clean_high`` [signal, present]: token accuracy of the whole model; ``n``: columns
    * ``effect``, ``effect_low``, ``effect_high``: drop with the signal minus drop without it
    * ``effect_given_rivals``: the smallest effect with a rival held fixed, positive if in the direction of ``effect``

    ``agreement``, over (layer, unit, signal, rival): ``n`` [signal, rival] is the number of columns where the two
    differ; ``share`` (``low``, ``high``) of them have the unit's on/off state, at the signal's threshold, follow the
    signal.

    ``by_sum`` [layer, unit, digit_sum, carry_in, stat]: smallest, mean and largest input, and the count; its attribute
    ``base`` is the base of the digits. None for a task without digit sums; without carries in, all have carry in 0.
    """

    agreement: xr.Dataset
    by_sum: xr.DataArray | None

    def verdict(self, layer: int, unit: int) -> dict[str, Any]:
        """The ``signal`` that one unit carries (None if none passes), and its ``kind``.

        Every kind but "none" separates the signal from all others. What ablation costs, in digits on the columns with
        and without the signal, decides between them:

        * "detector": at least :data:`~interp.core.thresholds.CAUSAL` on one side and less on the other, by an effect
          whose interval excludes 0, and whose ``effect_given_rivals`` is that large and the largest of the rivals'
        * "switch": a detector whose ranges with and without the signal do not overlap in the sample, with one
          saturated state (:func:`interp.probes.neuron_selectivity.is_switch`)
        * "needed": at least as much on some side, but not for this signal alone; ``needed_for`` is the rival with the
          largest ``effect_given_rivals`` (None where it is below that)
        * "correlate": less on both sides
        * "not ablated"
        * "not able": the whole model is wrong about most of the digits with the signal, or of those without it, so that
          there is little that ablation could cost there
        """
        if (layer, unit) not in self._verdicts:
            select(self.table, layer=layer, unit=unit)  # raises, and says which units exist
        return dict(self._verdicts[layer, unit])

    @cached_property
    def _verdicts(self) -> dict[tuple[int, int], dict[str, Any]]:
        """All verdicts, by (layer, unit): by kind, then by what ablation shows, then by AUROC, the strongest first."""
        candidates = [s for s in self.table.signal.values.tolist() if s != "shuffled"]
        names, shape = (
            ("auroc_given_rivals", "accuracy", "effect", "effect_given_rivals"),
            ("gap", "flatter_state_range", "output_gap", "relative_slope"),
        )
        over = self.table.sel(signal=candidates).transpose("layer", "unit", "signal", ...)
        values = {name: over[name].values for name in (*names, *shape, "effect_low", "effect_high")}
        cost = (over["clean"] - over["ablated"]).transpose("layer", "unit", "signal", "present").values
        able = over["clean"].transpose("signal", "present").values.min(-1) > ABLE
        strongest = np.nan_to_num(values["auroc_given_rivals"], nan=0.5).argmax(-1)
        rivals = [candidates.index(name) for name in self.agreement.rival.values.tolist()]
        of_rivals = np.nan_to_num(values["effect_given_rivals"][..., rivals], nan=-np.inf)
        ablated = np.atleast_1d(~np.isnan(values["effect_given_rivals"]).all(-1))
        found = {}
        for i, layer in enumerate(over.layer.values.tolist()):
            for u, unit in enumerate(over.unit.values.tolist()):
                best = strongest[i, u]
                row = {name: float(value[i, u, best]) for name, value in values.items()}
                less, more = np.sort(np.nan_to_num(cost[i, u, best]))
                most = of_rivals[i, u].max()
                wins = row["effect_given_rivals"] >= max(CAUSAL, most)
                if not row["auroc_given_rivals"] >= SEPARATES:
                    kind = "none"
                elif not ablated[i, u]:
                    kind = "not ablated"
                elif not able[best]:
                    kind = "not able"
                elif more < CAUSAL:
                    kind = "correlate"
                elif less >= CAUSAL or not wins or row["effect_low"] <= 0 <= row["effect_high"]:
                    kind = "needed"
                else:
                    kind = "switch" if measures.is_switch(*(row[name] for name in shape)) else "detector"
                signal = None if kind == "none" else candidates[best]
                needed_for = candidates[rivals[of_rivals[i, u].argmax()]] if most >= CAUSAL else None
                start = {"layer": layer, "unit": unit, "signal": signal, "kind": kind, "needed_for": needed_for}
                found[layer, unit] = start | {name: row[name] for name in names}
        return dict(sorted(found.items(), key=lambda item: _weakness(item[1])))

    def verdicts(self) -> pd.DataFrame:
        """:meth:`verdict` of every unit, one row each, the strongest first and "none" last."""
        return pd.DataFrame(self._verdicts.values())

    def describe(self, layer: int, unit: int) -> str:
        """One unit's verdict as a sentence."""
        found, table = self.verdict(layer, unit), select(self.table, layer=layer, unit=unit)
        name = neuron_name(layer, unit)
        if found["signal"] is None:
            best = table.accuracy - table.majority
            return (
                f"{name} detects no single signal (its best threshold is {float(best.max()):+.1%} above the majority "
                "baseline)"
            )
        row = table.sel(signal=found["signal"])
        signal = signal_name(found["signal"])
        lows, highs = row.pre_min.values, row.pre_max.values
        state = "on with" if bool(row.above) else "off with"
        kind = {"switch": "a switch in this sample, and needed", "detector": "a detector"} | _WORDS
        if found["kind"] == "needed" and found["needed_for"] not in (None, found["signal"]):
            kind["needed"] = f"needed, most where there is {signal_name(found['needed_for'])}"
        text = (
            f"{name} is {state} {signal} ({kind[found['kind']]}): input in "
            f"[{lows[0]:.2f}, {highs[0]:.2f}] without and [{lows[1]:.2f}, {highs[1]:.2f}] with it"
        )
        if found["kind"] not in ("not able", "not ablated"):
            without, with_ = (
                in_percent(float(now)) + ("" if before > _NEARLY else f" (of {in_percent(float(before))})")
                for now, before in zip(row.ablated.values, row.clean.values, strict=True)
            )
            text += (
                f". Without {name}, {without} of the digits without {signal} stay right, and {with_} of those with it"
            )
        return text

    def finding(self) -> str:
        """How many units tell the signal that the strongest one tells, and what breaks without that one."""
        verdicts = self.verdicts()
        found = verdicts[verdicts["signal"].notna()]
        if verdicts["auroc_given_rivals"].isna().all():
            return (
                f"Nothing is said of {len(verdicts)} MLP neurons: no signal is present in {FEWEST_WITH_SIGNAL} of the "
                "problems and absent in as many."
            )
        if found.empty:
            text = f"None of {len(verdicts)} MLP neurons separates a signal from its rivals (best AUROC with rivals"
            return f"{text} held fixed {verdicts['auroc_given_rivals'].max():.3f}, asked for {SEPARATES})."
        signal = found["signal"].iloc[0]
        found = found[found["signal"] == signal]
        kinds = found["kind"].value_counts().reindex([kind for kind in _STRENGTH if kind in set(found["kind"])])
        told = listed(f"{n:,} {_NAMES[kind][n > 1]}" for kind, n in kinds.items())
        least = f"{found['auroc_given_rivals'].min():.3f}"
        least += " or more" * (len(found) > 1 and least != "1.000")
        name, at = signal_name(signal), {key: int(found.iloc[0][key]) for key in ("layer", "unit")}
        tell, of = "tells" if len(found) == 1 else "tell", f"{len(found):,} of {len(verdicts):,} MLP neurons"
        text = f"{of} {tell} {name} ({told}): AUROC {least} even with each rival signal held fixed."
        row = self.table.sel(signal=signal, **at)
        if row.ablated.isnull().any():
            return text
        ends = (row[f"ablated{end}"].values.tolist() for end in ("", "_low", "_high"))
        without, with_ = (Estimate(*each, unit=SHARE) for each in zip(*ends, strict=True))
        return (
            f"{text} Without {neuron_name(*at.values())}, {without} of the digits without {name} stay right, and "
            f"{with_} of those with it."
        )

    def double_dissociation(self, signal: str = "carry_out") -> pd.DataFrame:
        """The pairs of units that dissociate a signal doubly, the largest contrast first: columns with it need
        ``unit``, those without it need ``other``. Empty if there is none.

        If one unit breaks columns with a signal, those columns may just be harder. If a second one breaks the columns
        without it, difficulty explains neither. Both are switches or detectors of this signal by :meth:`verdict`.

        ``unit_without``, ``unit_with``, ``other_without``, ``other_with``: share of digits right with that unit at
        zero. ``contrast``: the unit's effect minus the other's, at most 2. ``low``, ``high``: from the ends of the
        effects' 95% intervals, and so wider than an interval of the difference need be.

        Raises:
            UserError: there is no such signal.
        """
        table = self.table.sel(signal=known_name("signal", signal, self.table.signal.values))
        found = self.verdicts()
        found = found[(found["signal"] == signal) & found["kind"].isin(["switch", "detector"])]
        cells = [table.sel(layer=row.layer, unit=row.unit) for row in found.itertuples()]
        rows = []
        for one, other in product(cells, cells):
            if float(one.effect) > 0 > float(other.effect):
                row: dict[str, Any] = {}
                for name, cell in (("unit", one), ("other", other)):
                    row[name] = neuron_name(int(cell.layer), int(cell.unit))
                    row |= {f"{name}_without": float(cell.ablated[0]), f"{name}_with": float(cell.ablated[1])}
                row |= {"contrast": float(one.effect - other.effect), "low": float(one.effect_low - other.effect_high)}
                rows.append(row | {"high": min(2.0, float(one.effect_high - other.effect_low))})
        columns = [f"{name}{end}" for name in ("unit", "other") for end in ("", "_without", "_with")]
        pairs = pd.DataFrame(rows, columns=[*columns, "contrast", "low", "high"])
        return pairs.sort_values("contrast", ascending=False, ignore_index=True)

    def _without_units(self, signal: str) -> pd.DataFrame:
        """One row per ablated unit and presence of a signal: accuracy, interval and drop from the whole model."""
        table = self.table.sel(signal=known_name("signal", signal, self.table.signal.values))
        frame = (
            table[["ablated", "ablated_low", "ablated_high", "clean", "clean_low", "clean_high", "n"]]
            .to_dataframe()
            .reset_index()
        )
        frame["drop"] = frame["clean"] - frame["ablated"]
        return frame.drop(columns="signal")

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, unit and signal; ranges and ablation accuracies in ``_with`` and ``_without`` columns.
        Units come in the order of :meth:`verdicts`, and the signals of each by ``auroc_given_rivals``."""
        frame = super().to_dataframe()
        places = {at: place for place, at in enumerate(self._verdicts)}
        unit = [places[at] for at in zip(frame["layer"], frame["unit"], strict=True)]
        order = pd.DataFrame({"unit": unit, "auroc": -frame["auroc_given_rivals"].fillna(-1.0)})
        return frame.loc[order.sort_values(["unit", "auroc"], kind="stable").index].reset_index(drop=True)


def _weakness(verdict: dict[str, Any]) -> tuple[int, float, float]:
    """What orders verdicts: differences below a hundredth do not."""
    effect, auroc = (np.nan_to_num(verdict[name]).round(2) for name in ("effect_given_rivals", "auroc_given_rivals"))
    return _STRENGTH.index(verdict["kind"]), -float(effect), -float(auroc)


_PANELS = 4


@drawing(CarryUnits)
def units_view(result: CarryUnits) -> Picture:
    """Input of each unit over the column's digit sum, for each carry in; filled marks have a carry out. For a task
    without digit sums, the picture of ablations."""
    if result.by_sum is None:
        return unit_ablation_view(result)
    # Not from the data frame of verdicts: pandas turns a missing signal into NaN, which is true.
    layers, units = result.table.layer.values.tolist(), result.table.unit.values.tolist()
    verdicts = [result.verdict(layer, unit) for layer in layers for unit in units]
    verdicts.sort(key=lambda row: (row["signal"] is None, -np.nan_to_num(row["auroc_given_rivals"])))
    named, base, views = sum(row["signal"] is not None for row in verdicts), result.by_sum.attrs.get("base", 10), []
    for row in sorted(verdicts[:_PANELS], key=lambda row: (row["layer"], row["unit"])):
        here = {"layer": row["layer"], "unit": row["unit"]}
        title, lines = f"{neuron_name(*here.values())}: no single signal", []
        if row["signal"]:
            of = result.table.sel(signal=row["signal"], **here)
            on = "on" if of.above else "off"
            title = f"{neuron_name(*here.values())}: {on} with {signal_name(row['signal'])}"
            lines.append(Line(float(of.threshold), f"threshold {float(of.threshold):.2f}"))
        series = [_inputs(result.by_sum.sel(carry_in=carry, **here), carry, base) for carry in (0, 1)]
        y = "" if views else "input of the neuron (pre-activation)"
        views.append(Points("a + b in the column (digit sum)", y, title, series, "", lines))
    note = "Intervals: smallest to largest; marks: mean, filled where the column has a carry out"
    if named > len(views):
        note = f"The {len(views)} that separate best, of {named}. {note}"
    return Picture(views, note=note)


def _inputs(cell: xr.DataArray, carry: int, base: int) -> Series:
    """Mean and range of a unit's input by digit sum, for one carry in; the two stand next to each other."""
    cell = cell[cell.sel(stat="n").values > 0]
    low, mean, high, n = (cell.sel(stat=stat).values for stat in ("min", "mean", "max", "n"))
    sums = cell.digit_sum.values
    x, out = sums + (0.16 if carry else -0.16), sums + carry >= base
    return Series(
        f"carry in {carry}", x, mean, low, high, filled=out, said={"digit sum": sums, "carry out": out, "n": n}
    )


@drawing(CarryUnits, "ablation")
def unit_ablation_view(result: CarryUnits, signal: str | None = None) -> Picture:
    """Token accuracy of the whole model and with each unit at zero, on columns with and without a signal (default: the
    carry out, or else the signal that most units have, or else the first)."""
    known, found = result.table.signal.values.tolist(), result.verdicts()["signal"].dropna().mode().tolist()
    of: str = signal or ("carry_out" if "carry_out" in known else (found or known)[0])
    table = result._without_units(of).dropna(subset="ablated")
    if table.empty:
        raise UserError("No neuron was ablated, so there is nothing to draw; run carry_units with max_ablated above 0.")
    kept = table.assign(size=table["drop"].abs()).groupby(["layer", "unit"])["size"].max()
    chosen = sorted(kept.sort_values(ascending=False).index[:8])
    name = signal_name(of)
    labels = ["whole model", *(f"{neuron_name(layer, unit)} zeroed" for layer, unit in chosen)]
    series = []
    for present in (False, True):
        rows = table[table["present"] == present].set_index(["layer", "unit"]).loc[chosen]
        values = ([rows[f"clean{end}"].iloc[0], *rows[f"ablated{end}"]] for end in ("", "_low", "_high"))
        said = f"columns {'with' if present else 'without'} {name} (n = {int(rows['n'].iloc[0]):,})"
        series.append(Series(said, labels, *(np.array(each, dtype=float) for each in values)))
    bars = Bars("neurons are set to zero at every position", "share of answer digits right", "", series, "share")
    title = f"Answer digits right without each neuron, on columns with and without {name}"
    return Picture([bars], title=title, note="Intervals: 95% Korn-Graubard")
