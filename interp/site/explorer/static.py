"""The explorer as a piece of HTML with models, style and script, which needs no kernel and no network."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from interp.site.explorer.pack import view_data
from interp.site.pages import secured, style, theme_script
from models.errors import UserError
from models.files import write_bytes_atomic

HERE = Path(__file__).parent
SCRIPTS = (
    "forward",
    "ownform",
    "tasks",
    "attribution",
    "parts",
    "link",
    "drawings",
    "frames",
    "panel",
    "view",
)  # each needs earlier ones


def bundle() -> str:
    """All scripts as one module, which exports :func:`mount` and what the tests use."""
    texts = [(HERE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)


def _css() -> str:
    return (HERE / "view.css").read_text(encoding="utf-8")


def assets() -> Markup:
    """The style and the script for all views of a page; the page needs them once, anywhere."""
    return Markup("<style>\n{}</style>\n<script type='module'>\n{}\nmountAll(document);\n</script>\n").format(
        Markup(_css()), Markup(bundle())
    )


def static_view(
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
    method: str = "zero",
    with_assets: bool = True,
) -> Markup:
    """A view of one or two models that runs in the reader's browser, as HTML to put into a page.

    Its size is that of the weights: 6 bytes per number, 20 kB for MicroAdder, 4 MB for ToyGPT.

    Args:
        models, problems, method: as for :func:`view_data`.
        with_assets: include the style and script, which a page needs once (:func:`assets`).

    Raises:
        UserError: as :func:`view_data`.
    """
    view = _as_view(view_data(models, problems, method))
    return view + assets() if with_assets else view


def _as_view(data: dict[str, Any]) -> Markup:
    """A view's data (:func:`view_data`) as HTML, without style and script."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(
        '<div class="cx" data-explorer><script type="application/json">{}</script>'
        "<noscript>This view runs the model in the browser and needs JavaScript.</noscript></div>\n"
    ).format(Markup(text))


def write_explorer(
    path: Path,
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
) -> None:
    """Write a page with nothing but a view; it opens from disk, without a network.

    Raises:
        UserError: as for :func:`view_data`, or a path that is a folder.
    """
    write_page(Path(path), view_data(models, problems))


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Write a view's data (:func:`view_data`) as a page of its own. Raises UserError for a path that is a folder."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    view, title = _as_view(data) + assets(), " and ".join(model["name"] for model in data["models"])
    page = Markup(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        "<title>{title}, step by step</title>\n<style>{style} body {{ max-width: 1280px; padding: 1rem; }} "
        "@media (max-width: 480px) {{ body {{ padding: .4rem; }} }}</style>\n<script>{theme}</script>\n</head>\n"
        "<body>\n<h1>{title}, step by step</h1>\n{view}</body>\n</html>\n"
    ).format(title=title, view=view, style=Markup(style()), theme=Markup(theme_script()))
    write_bytes_atomic(path, secured(page).encode())
