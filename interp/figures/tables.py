"""Tables for notebooks: no index, text aligned left and never truncated.

table([("s5", 7)], ["target", "digit"], "a caption", precision=3)     any rows
findings({"trained": result, "untrained": other})                     what several results say, one row each
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
    """A formatted table.

    Args:
        rows: a frame, or rows of values.
        columns: the names of the columns. A frame brings its own.
        caption: text above the table.
        form: the format of numbers, as in pandas' ``Styler.format``: ``precision``, ``thousands``, ``na_rep``, ...
    """
    frame: Any = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=list(columns))
    styler: Styler = frame.style.hide(axis="index").format(**{"na_rep": "", "precision": 3} | form)
    styler = styler.format_index(lambda name: str(name).replace("_", " "), axis=1).set_table_styles([_LEFT])
    return styler.set_caption(caption) if caption else styler


def findings(results: Mapping[str, Result], what: str = "") -> Styler:
    """A table of what several results say and the evidence of each. ``what`` is the name of the first column."""
    rows = [(name, found.sentence(), str(found.provenance)) for name, found in results.items()]
    return table(rows, [what, "finding", "evidence"])
