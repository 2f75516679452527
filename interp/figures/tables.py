"""Tables as a notebook shows them: no index, words from the left, and no text cut short.

table([("s5", 7)], ["target", "digit"], "a caption", precision=3)     any rows
findings({"trained": result, "untrained": other})                     what several results say, a row each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from interp.core.results import Result

_LEFT = {"selector": "th, td, caption", "props": "text-align: left; vertical-align: top"}


def table(
    rows: pd.DataFrame | Sequence[Sequence[Any]], columns: Sequence[str] = (), caption: str = "", **form: Any
) -> Styler:
    """A table to look at.

    Args:
        rows: a frame, or rows of values.
        columns: the names of the columns. A frame brings its own.
        caption: what stands above it.
        form: how numbers are written, as in pandas' ``Styler.format``: ``precision``, ``thousands``, ``na_rep``, ...
    """
    frame: Any = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=list(columns))
    styler: Styler = frame.style.hide(axis="index").format(**{"na_rep": "", "precision": 3} | form)
    styler = styler.set_table_styles([_LEFT])
    return styler.set_caption(caption) if caption else styler


def findings(results: Mapping[str, Result], what: str = "") -> Styler:
    """What several results say and what each rests on. ``what`` is the name of the first column."""
    rows = [(name, found.sentence(), str(found.provenance)) for name, found in results.items()]
    return table(rows, [what, "finding", "evidence"])
