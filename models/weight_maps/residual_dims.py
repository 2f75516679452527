"""Named dimensions of a residual stream, for weights that are written by hand."""

from __future__ import annotations

from collections.abc import Mapping


def residual_dims(widths: Mapping[str, int]) -> dict[str, slice]:
    """Consecutive slices of the residual stream, one a name: ``{"NUM": 1, "SUM": 10}`` gives 0:1 and 1:11."""
    dims, start = {}, 0
    for name, width in widths.items():
        dims[name] = slice(start, start + width)
        start += width
    return dims


def dim_labels(dims: Mapping[str, slice]) -> list[str]:
    """One label a dimension, for axes: "NUM", and "SUM[0]" ... "SUM[9]" where a name has several."""
    labels = []
    for name, where in dims.items():
        width = where.stop - where.start
        labels += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
    return labels
