"""Figures as files: pages, data, and pictures for papers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go

from interp.core.results import Result
from models.errors import UserError
from models.files import write_bytes_atomic

PICTURES = ("svg", "pdf", "png")
SUFFIXES = ("html", "json", *PICTURES)


def save_figure(figure: Result | go.Figure, path: str | Path, scale: float = 1.0) -> Path:
    """Write a figure, or the default figure of a result; the suffix of ``path`` decides the format.

    Args:
        figure: a result or a Plotly figure.
        path: ``.html`` is an interactive page that opens without a network, ``.json`` is the figure's data, and
            ``.svg``, ``.pdf`` and ``.png`` are pictures of the figure's own size.
        scale: pixels of a PNG per pixel of the figure.

    Pictures are drawn by kaleido (the extra ``figures``), which needs a Chromium or Chrome.

    Raises:
        UserError: another suffix, a result without a figure, a picture without kaleido or a browser, or a file that
            cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        raise UserError(
            f"{path.name} must end in {', '.join(f'.{name}' for name in SUFFIXES[:-1])} or .{SUFFIXES[-1]}."
        )
    drawn = figure.figure() if isinstance(figure, Result) else figure
    if suffix == "json":
        data = drawn.to_json().encode()
    elif suffix == "html":
        data = drawn.to_html().encode()
    else:
        data = picture(drawn, suffix, scale)
    write_bytes_atomic(path, data)
    return path


def picture(figure: go.Figure, suffix: str, scale: float = 1.0) -> bytes:
    """The bytes of a picture; see :func:`save_figure`."""
    if find_spec("kaleido") is None:
        raise UserError(f"A .{suffix} picture needs kaleido; install it with `pip install 'carrylens[figures]'`.")
    try:
        return figure.to_image(format=suffix, scale=scale)
    except RuntimeError as error:  # no browser, or one that does not start
        raise UserError(f"A .{suffix} picture needs a working Chromium or Chrome ({_first_line(error)}).") from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
