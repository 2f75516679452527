"""The form of most results: a tidy table, of which keys and measures say what its columns are.

    # columns: head, matching, matching_low, matching_high, matching_untrained
    found = TableResult("", table, provenance, ("head",), (Measure("matching", "share", ("untrained",)),))
    found.largest("matching")         # an Estimate: value, interval, n, control
    found.figure()                    # follows from keys and measures

A row is about what its ``keys`` name. A measure NAME is a column; ``NAME_low`` and ``NAME_high`` are its 95% interval,
and ``NAME_CONTROL`` is the same measure of each of its controls (with an interval ``NAME_CONTROL_low``,
``NAME_CONTROL_high`` where there is one). ``n`` is how many examples a row has, ``n_NAME`` how many of them a measure
has if these are fewer. Columns that are none of these are further facts about a row.

The figure has a panel for each measure: over one key points, with the intervals and the controls beside them, or curves
where the key is a number; over two keys a grid. Of more keys all but the last two have a panel for each of their
values. A probe declares a view of its own (:func:`interp.core.drawings.drawing`) only where that will not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate, known
from interp.core.frames import as_frame
from interp.core.results import Provenance, Result
from interp.core.views import Curves, Grid, Picture, Points, Series, View
from interp.core.wording import CONTROLS
from models.errors import UserError, known_name
from models.transformer import head_name

_T = TypeVar("_T", bound="TableResult")
if TYPE_CHECKING:
    AnyTable = Any  # each result knows which of the two its table is
else:
    AnyTable = pd.DataFrame | xr.Dataset
ENDS = ("low", "high")
_LONG_NAME = 20  # letters, from which on names stand down the side of a chart


@dataclass(frozen=True)
class Measure:
    """A measured column of a table, its unit ("share", "nats", ...) and the controls that have columns beside it.

    ``title`` heads its panel of the figure; without one it is the name.
    """

    name: str
    unit: str = ""
    controls: tuple[str, ...] = ()
    title: str = ""

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ")

    def cells(self, value: float, low: float | None = None, high: float | None = None, **controls: float) -> dict:
        """The cells of a row by the names of their columns; an interval that is not given has none."""
        ends = {} if low is None else {f"{self.name}_low": low, f"{self.name}_high": high}
        return {self.name: value} | ends | {f"{self.name}_{name}": each for name, each in controls.items()}

    def estimate(self, row: Mapping[str, Any], name: str = "", n: int | None = None) -> Estimate:
        """The number of one row, with its interval and its first control."""
        low, high = (known(row.get(f"{self.name}_{end}")) for end in ENDS)
        beside = [each for each in self.controls if known(row.get(f"{self.name}_{each}")) is not None]
        control = float(row[f"{self.name}_{beside[0]}"]) if beside else None
        note = CONTROLS.get(beside[0], beside[0].replace("_", " ")) if beside else ""
        of = known(row.get(f"n_{self.name}", row.get("n", n)))
        return Estimate(
            float(row[self.name]), low, high, None if of is None else int(of), control=control, control_note=note,
            name=name, unit=self.unit,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class TableResult(Result):
    """A finding in words, and the table that it is read off.

    Attributes:
        said: the finding: one sentence with number, interval, control and n.
        table: tidy, or a labelled dataset whose dimensions are the keys.
        keys: the columns that say what a row is about, the widest first ("layer", "head"); by default the first.
        measures: what was measured of it, the one that a reader wants first; by default every column of numbers.
    """

    said: str
    table: AnyTable
    provenance: Provenance
    keys: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        keys = self.keys or tuple(map(str, self.table.columns[:1]))
        object.__setattr__(self, "keys", keys)
        if not self.measures:
            numbers = map(str, self.table.drop(columns=[*keys]).select_dtypes("number").columns)
            named = tuple(Measure(name) for name in numbers if not name.endswith(("_low", "_high")))
            object.__setattr__(self, "measures", named)

    def sentence(self) -> str:
        return self.said

    def saying(self: _T, text: str) -> _T:
        """The same result with another finding."""
        return replace(self, said=text)

    def to_dataframe(self) -> pd.DataFrame:
        """One row for each combination of the keys, with the number of inputs, ``n``."""
        rows = as_frame(self.table, self.keys)
        return rows if "n" in rows else rows.assign(n=self.provenance.n)

    def measure(self, name: str) -> Measure:
        """A measure by name. Raises UserError if there is none."""
        found = {each.name: each for each in self.measures}
        return found[known_name("measure", name, found)]

    def rows_at(self, **keys: Any) -> pd.DataFrame:
        """The rows of the table at some values of keys. Raises UserError for a key or a value that it does not have."""
        rows = self.to_dataframe()
        for key, value in keys.items():
            values = rows[known_name("key", key, self.keys)]
            rows = rows[values == known_name(key.replace("_", " "), value, values.unique().tolist())]
        return rows

    def estimates(self, measure: str, **keys: Any) -> list[Estimate]:
        """The numbers of all rows (at these keys) that have one, called by their other keys."""
        of, n = self.measure(measure), self.provenance.n
        others = [key for key in self.keys if key not in keys] or self.keys
        rows = self.rows_at(**keys).dropna(subset=[measure]).to_dict("records")
        return [of.estimate(row, row_name(row, others), n) for row in rows]

    def largest(self, measure: str, **keys: Any) -> Estimate:
        """The largest number of a measure (at these keys), with those of all rows as its ``parts``.

        Raises:
            UserError: no row has one, or a key that the table does not have.
        """
        found = self.estimates(measure, **keys)
        if not found:
            raise UserError(f"No {self.keys[-1]} has a {measure.replace('_', ' ')} here.")
        return replace(max(found, key=lambda each: each.value), parts=tuple(found))

    def cell(self, measure: str, **keys: Any) -> Estimate:
        """The number at these keys. Raises UserError unless exactly one row has them."""
        rows = self.rows_at(**keys)
        if len(rows) != 1:
            raise UserError(f"{len(rows)} rows have {', '.join(f'{key} {value}' for key, value in keys.items())}.")
        (row,) = rows.to_dict("records")
        return self.measure(measure).estimate(row, row_name(row, self.keys), self.provenance.n)

    def pivot(self, measure: str) -> pd.DataFrame:
        """A measure over two keys, the first down the side and the second across. Raises UserError for others."""
        if len(self.keys) != 2:
            raise UserError(f"A table of two keys can be pivoted; this one has {', '.join(self.keys)}.")
        rows, columns = self.keys
        return as_frame(self.table).pivot(index=rows, columns=columns, values=self.measure(measure).name)


def row_name(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    """What a row is about, in words: "L0H1" for a layer and a head, else the values of the keys."""
    if {"layer", "head"} <= {*keys}:
        row = dict(row) | {"head": head_name(row["layer"], row["head"])}
        keys = [key for key in keys if key != "layer"]
    return ", ".join(str(row[key]) for key in keys)


def largest(measure: str, **keys: Any) -> Callable[[TableResult], Estimate]:
    """Reads the largest number of a measure (at some keys) off a result: for :class:`interp.core.probe.Summary`."""
    return lambda found: _noted(found.largest(measure, **keys))


def at(measure: str, **keys: Any) -> Callable[[TableResult], Estimate]:
    """Reads the number at some keys off a result: for :class:`interp.core.probe.Summary`."""
    return lambda found: _noted(found.cell(measure, **keys))


def _noted(found: Estimate) -> Estimate:
    """The number with its row's name as a note, for a table whose columns are questions."""
    return replace(found, note=found.note or found.name)


# ---- the figure that follows from keys and measures


MOST_PANELS, MOST_ROWS = 16, 32  # of a figure and of a panel; the table has all


@drawing(TableResult)
def table_view(result: TableResult, **at: Any) -> Picture:
    """A panel for each measure, and for each value of all but the last two keys that differ among the rows. Keys with a
    value (``layer=0``) select rows, and few heads are called by their names, L0H1. Of many panels, and of many rows of
    a panel, those with the largest numbers are shown.

    Raises:
        UserError: a key that the table does not have, or a value that its rows do not have.
    """
    frame = result.to_dataframe()
    for key, value in at.items():
        values = frame[known_name("key", key, result.keys)].unique().tolist()
        frame = frame[frame[key] == known_name(key, value, values)]
    keys = result.keys
    if {"layer", "head"} <= {*keys} and len(frame[["layer", "head"]].drop_duplicates()) <= MOST_PANELS:
        names = [head_name(layer, head) for layer, head in zip(frame["layer"], frame["head"], strict=True)]
        frame, keys = frame.assign(head=names), tuple(key for key in keys if key != "layer")
    keys = tuple(key for key in keys if frame[key].nunique() > 1) or keys[-1:]
    first, rest, views, notes = keys[:-2], keys[-2:], [], []
    for measure in result.measures:
        known = frame.dropna(subset=[measure.name])
        known = frame if known.empty else known
        rows, note = _with_largest(known, first, measure, MOST_PANELS, "panels") if first else (known, "")
        notes.append(note)
        for _, panel in rows.groupby([*first], sort=False) if first else [((), rows)]:
            panel, note = _with_largest(panel, rest[:1], measure, MOST_ROWS, "rows")
            notes.append(note)
            called = f"{_value_name(first, panel)}: " if first else ""
            views.append(_panel(panel, rest, measure, called + measure.heading, bool((known[measure.name] < 0).any())))
    title = f"{result.measures[0].heading}: {', '.join(f'{key} {value}' for key, value in at.items())}" if at else ""
    side = frame[first[-1]].nunique() if first else 0
    return Picture(views, side if side <= 4 else 3, title, "; ".join(dict.fromkeys(filter(None, notes))))


def _with_largest(
    frame: pd.DataFrame, keys: Sequence[str], measure: Measure, most: int, what: str
) -> tuple[pd.DataFrame, str]:
    """The rows with at most so many values of keys, those with the largest numbers, and a note of what is left out; a
    key of numbers is an axis and is kept whole."""
    groups = frame.groupby([*keys], sort=False).ngroup()
    if groups.nunique() <= most or (what == "rows" and pd.api.types.is_numeric_dtype(frame[keys[0]])):
        return frame, ""
    largest = frame[measure.name].abs().groupby(groups).max().nlargest(most).index
    return frame[groups.isin(largest)], f"{most} of {groups.nunique():,} {what}, those with the largest numbers"


def _value_name(keys: Sequence[str], rows: pd.DataFrame) -> str:
    row = rows.iloc[0].to_dict()
    bare = len(keys) > 1 or isinstance(row[keys[0]], str)
    return row_name(row, keys) if bare else f"{keys[0]} {row[keys[0]]}"


def _panel(frame: pd.DataFrame, keys: tuple[str, ...], measure: Measure, title: str, signed: bool) -> View:
    """One measure over one or two keys."""
    unit = measure.unit or measure.heading
    if len(keys) == 2:
        order = frame[keys[0]].unique(), frame[keys[1]].unique()
        ends = [f"{measure.name}_{end}" for end in ENDS if f"{measure.name}_{end}" in frame]
        values, *bounds = (
            frame.pivot(index=keys[0], columns=keys[1], values=name).reindex(order[0], columns=order[1])
            for name in (measure.name, *ends)
        )
        colours = "share" if measure.unit == SHARE else "signed" if signed else "range"
        low, high = (each.values for each in bounds) if len(bounds) == 2 else (None, None)
        at = keys[1].replace("_", " "), keys[0].replace("_", " "), title, values.values
        return Grid(*at, [*values.index], [*values.columns], unit, colours, low=low, high=high)
    key = keys[0]
    series = [_series(frame, key, measure.name, "measured")]
    beside = [each for each in measure.controls if f"{measure.name}_{each}" in frame]
    series += [_series(frame, key, f"{measure.name}_{each}", each.replace("_", " "), control=True) for each in beside]
    at = key.replace("_", " "), unit, title, series
    scale = SHARE if measure.unit == SHARE else ""
    if pd.api.types.is_numeric_dtype(frame[key]) and len(frame) > 1:
        return Curves(*at, scale=scale)
    return Points(*at, scale=scale, across=frame[key].astype(str).str.len().max() > _LONG_NAME)


def _series(frame: pd.DataFrame, key: str, name: str, title: str, **more: Any) -> Series:
    ends = tuple(f"{name}_{end}" for end in ENDS)
    return Series.of(frame, key, name, title, ends if {*ends} <= {*frame} else (), **more)
