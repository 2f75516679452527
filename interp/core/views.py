"""What a result shows, as data: six views, of which :mod:`interp.figures` makes figures. Nothing here draws.

    @drawing(CompositionScores)                        # result.figure()
    def composition_scores(result) -> Grid:
        return Grid(result.accuracy, unit="accuracy", x="position", y="layer and stream")

    Grid      numbers by row and column: a heat map
    Bars      values by name, next to each other or stacked
    Points    values by name or number, with their intervals
    Curves    values along an axis of numbers
    Graph     nodes, and edges of some width between them
    Table     texts by row and column

A function that declares a view stands next to its result. It returns one view, several side by side, or a
:class:`Picture`, which adds a note or another title; without one, the title is the result's sentence. How a view looks
(colours, symbols, sizes, what is said on hovering) follows from the data and is the same for all results.

Shapes: a grid's arrays are [row, column]; a series' are [point].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import pandas as pd

from interp.core.results import Provenance

Scale = Literal["", "share", "log"]  # of an axis: linear, from 0% to 100%, or logarithmic
Colours = Literal["share", "signed", "log", "range"]  # 0 to 1, white at 0, logarithmic, least to largest


@dataclass(frozen=True, eq=False)
class Series:
    """Values of one thing: (x, y) by point, with the ends of y's intervals and further numbers for hovering.

    ``control`` draws it in grey. ``filled`` leaves some marks open. ``labels`` are written next to the points, those
    that have one. ``values`` are along y, or along x in a view whose ``across`` is set.
    """

    name: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    _: KW_ONLY
    control: bool = False
    filled: Any = None
    labels: Any = None
    said: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table: pd.DataFrame, x: str, y: str, name: str = "", ends: Sequence[str] = (), said: Sequence[str] = (),
        **more: Any,
    ) -> Series:  # fmt: skip
        """A series from the columns of a table: ``ends`` of the intervals, and ``said`` on hovering."""
        low, high = (table[end].to_numpy() for end in ends) if ends else (None, None)
        heard = {column.replace("_", " "): table[column].to_numpy() for column in said}
        return cls(name, table[x].to_numpy(), table[y].to_numpy(), low, high, said=heard, **more)


@dataclass(frozen=True)
class Line:
    """A line to compare with, at a value of the axis."""

    at: float
    name: str = ""
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, eq=False)
class View:
    """What the axes show, and what this view is among several."""

    x: str = ""
    y: str = ""
    title: str = ""


@dataclass(frozen=True, eq=False)
class Grid(View):
    """``values`` [row, column] as colours, NaN as blanks; they are also written in the cells that have room for it.

    A labelled array brings the names of its rows and columns along. ``grey`` marks cells that differ from blanks, and
    says what they are in the note. ``frames`` are (row, column) of cells with a frame; ``box`` is a frame around
    (first column, last column, first row, last row), by their values. ``marks`` are points on top of the cells. With
    logarithmic colours, a value of zero or less is written in red on white.
    """

    values: Any = None
    rows: Any = None
    columns: Any = None
    unit: str = ""
    colours: Colours = "share"
    limit: float | None = None  # where colours end
    low: Any = None
    high: Any = None
    text: Any = None  # texts of the cells, instead of the values
    said: Mapping[str, Any] = field(default_factory=dict)
    grey: Any = None
    frames: Sequence[tuple[int, int]] = ()
    box: tuple[float, float, float, float] | None = None
    marks: Sequence[Series] = ()
    upwards: bool = False  # the first row is at the bottom


@dataclass(frozen=True, eq=False)
class Chart(View):
    """Series on common axes, and lines to compare with. ``across`` puts the names of x down the side."""

    series: Sequence[Series] = ()
    scale: Scale = ""  # of the values
    lines: Sequence[Line] = ()
    across: bool = False
    shaded: tuple[float, float] | None = None  # a range of x, such as what was trained on


@dataclass(frozen=True, eq=False)
class Bars(Chart):
    """A group of bars for each name. Intervals that do not hold a bar's end are where it begins and ends."""

    stacked: bool = False


@dataclass(frozen=True, eq=False)
class Points(Chart):
    """A mark for each point; those of several series at one name stand next to each other. ``square``: the axes have
    one unit, and ``circle`` is (x, y, radius) of a dotted circle. ``diagonal`` shows where both values are equal."""

    square: bool = False
    diagonal: bool = False
    circle: tuple[float, float, float] | None = None


@dataclass(frozen=True, eq=False)
class Curves(Chart):
    """A line for each series, which NaN interrupts. With ``log_x`` 0 stands before the least of the others."""

    log_x: bool = False
    steps: bool = False  # a value holds until the next one
    bands: bool = False  # intervals as an area instead of bars


@dataclass(frozen=True)
class GraphNode:
    """A part of a model in a row of the graph, counted from below; nodes outside of what was found are grey."""

    name: str
    row: int
    text: str
    group: str = ""
    inside: bool = True


@dataclass(frozen=True)
class GraphEdge:
    """From one node's name to another's; ``weight`` in [0, 1] is its width, ``kind`` its colour."""

    sender: str
    receiver: str
    kind: str
    weight: float
    text: str = ""
    said: str = ""


@dataclass(frozen=True, eq=False)
class Graph(View):
    """Nodes in rows from below, with a column of rows for each group. ``kinds`` are all kinds that edges can have."""

    kinds: Sequence[str] = ()
    nodes: Sequence[GraphNode] = ()
    edges: Sequence[GraphEdge] = ()


@dataclass(frozen=True, eq=False)
class Table(View):
    """Texts [row, column] under headings; ``shares`` in [0, 1] colour their cells and NaN does not, ``grey`` marks
    cells that have no answer, and ``said`` is shown on hovering."""

    texts: Any = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    shares: Any = None
    grey: Any = None
    said: Any = None


@dataclass(frozen=True, eq=False)
class Picture:
    """Views next to each other, with what stands above them.

    Args:
        columns: how many views stand side by side; 0 is all.
        title: the finding; empty is the result's sentence.
        note: what the reader must know to read the picture.
        shared: the axes that the views of a row ("y") or a column ("x") have in common.
        provenance: what the numbers rest on; None is the result's.
    """

    views: Sequence[View]
    columns: int = 0
    title: str = ""
    note: str = ""
    shared: str = ""
    provenance: Provenance | None = None


Shown = View | Sequence[View] | Picture


def picture(shown: Shown) -> Picture:
    """Any form of what a declaration returns as a picture."""
    if isinstance(shown, Picture):
        return shown
    return Picture((shown,) if isinstance(shown, View) else tuple(shown))
