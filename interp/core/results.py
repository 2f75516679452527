"""What every probe returns: a frozen object that can say what it found, tabulate it and draw it."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from interp.core.as_json import decode, encode
from interp.core.drawings import draw
from interp.core.frames import as_frame
from models.calls import check_fields
from models.errors import UserError, known_name
from models.number_format import number

Strength = Literal["sampled", "exhaustive", "certified in floats", "certified in intervals", "certified with rounding"]
#: What the inputs are where the user gave them.
GIVEN = "given problems"
_PREVIEW_ROWS = 12


@dataclass(frozen=True)
class Provenance:
    """What a number rests on: how many inputs, how they were drawn, and how strong a claim they support.

    ``strength`` is the strength of the evidence. A sample, however large, is "sampled" and never "exhaustive".
    """

    n: int
    seed: int | None
    source: str  # what the n inputs are: "uniform problems", "rows of the table", ...
    strength: Strength = "sampled"

    def __post_init__(self) -> None:
        check_fields(self)
        known_name("strength", self.strength, get_args(Strength))
        if self.n < 0:
            raise UserError(f"n must be a number of inputs, not {self.n}.")

    @property
    def resampling_seed(self) -> int:
        """The seed of resamples and controls; 0 for inputs of which none was drawn, such as all rows of a table."""
        return 0 if self.seed is None else self.seed

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        zeros = len(str(self.n)) - 1
        n = f"10^{zeros}" if zeros >= 12 and self.n == 10**zeros else f"{self.n:,}"
        return f"{self.strength}: n = {n} {self.source}{seed}"


class Result(ABC):
    """Base of all results. Subclasses are frozen dataclasses with ``eq=False`` (they hold arrays)."""

    table: Any
    provenance: Provenance

    @abstractmethod
    def sentence(self) -> str:
        """The finding in plain words; every number in it is computed from this result."""

    def to_dataframe(self) -> pd.DataFrame:
        """One row per measured quantity, with its interval and n; by default the result's ``table``."""
        return as_frame(self.table)

    def figure(self, kind: str = "", **options: Any) -> Any:
        """The default figure, or the one named ``kind``, as a ``plotly.graph_objects.Figure``.

        :func:`interp.figures.drawings` lists the figures of a result's type and the ``options`` of each.

        Raises:
            UserError: there is no such figure.
        """
        return draw(self, kind, **options)

    def to_dict(self) -> dict[str, Any]:
        """The whole result in a form that JSON can hold; :meth:`from_dict` of its class reads it."""
        return encode(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Any:
        """The result that :meth:`to_dict` wrote. Raises UserError for anything else."""
        return decode(cls, value)

    def _repr_html_(self) -> str:
        table = self.to_dataframe()
        shown = table.head(_PREVIEW_ROWS).rename(columns=lambda name: str(name).replace("_", " "))
        more = f"<p>{len(table) - _PREVIEW_ROWS:,} more rows in <code>.to_dataframe()</code>.</p>"
        return (
            f"<p><b>{type(self).__name__}</b>: {html.escape(self.sentence())}</p>"
            f"<p><i>{html.escape(str(self.provenance))}</i></p>"
            + shown.to_html(index=False, float_format=number, na_rep="")
            + (more if len(table) > _PREVIEW_ROWS else "")
        )

    def __str__(self) -> str:
        return f"{self.sentence()} ({self.provenance})"
