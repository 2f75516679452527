"""Figures for dark notebooks and slides: hues stay and lightness is inverted, as on this project's dark pages."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import get_colorscale

from interp.core.results import Result

_WHITE = 1 - 0.906  # the level that white becomes: the background of dark pages, #181818
_LUMINANCE = np.array([0.213, 0.715, 0.072])
_HEX, _RGB = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{6})", re.IGNORECASE), re.compile(r"rgba?\(([^)]*)\)")
_NAMED = {"white": "#ffffff", "black": "#000000"}


def dark(figure: Result | go.Figure) -> go.Figure:
    """A copy of a figure, or of a result's default figure, on a dark background.

    A colour c in [0, 1]^3 becomes 2 Y(c') - c' with c' = 0.906 - 0.812 c and Y the luminance (0.213, 0.715, 0.072),
    cut to [0, 1]: CSS' ``invert(0.906) hue-rotate(180deg)``. Named colours other than white and black stay as they are.

    Raises:
        UserError: the result has no figure.
    """
    drawn = figure.figure() if isinstance(figure, Result) else figure
    return go.Figure(_turned(drawn.to_plotly_json()))


def _turned(value: Any, of: str = "") -> Any:
    """Invert the part of a figure under the key ``of``; strings under colour keys are colours or names of scales."""
    if isinstance(value, dict):
        return {key: _turned(part, key) for key, part in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.kind in "OU"):
        return [_turned(part, of) for part in value]
    if not isinstance(value, str) or "color" not in of:
        return value
    if of == "colorscale" and _levels(value) is None:
        return [[at, _turned(colour, "color")] for at, colour in get_colorscale(value)]
    levels = _levels(value)
    if levels is None:
        return value
    inverted = 1 - _WHITE - (1 - 2 * _WHITE) * levels[:3]
    r, g, b = np.clip(2 * _LUMINANCE @ inverted - inverted, 0, 1) * 255
    return f"rgba({r:.0f}, {g:.0f}, {b:.0f}, {levels[3]:g})"


def _levels(colour: str) -> np.ndarray | None:
    """Red, green, blue and opacity in [0, 1], or None for a string that is not a colour."""
    colour = _NAMED.get(colour, colour)
    if found := _HEX.fullmatch(colour):
        digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
        return np.array([*(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)), 1.0])
    if found := _RGB.fullmatch(colour):
        numbers = [float(number) for number in found[1].split(",")]
        return np.array([*(level / 255 for level in numbers[:3]), *(numbers[3:] or [1.0])])
    return None
