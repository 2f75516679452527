"""The API reference, from docstrings: every public module of interp and models as a page of static HTML.

    python docs/api.py [FOLDER]        docs/api unless given; opens from disk

Needs the extra "docs" (pdoc).
"""

from __future__ import annotations

import pkgutil
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pdoc
from markupsafe import Markup
from pdoc.extract import walk_specs
from pdoc.render import configure, env
from pygments.formatters import HtmlFormatter

import interp
import models
from interp.site.pages import theme_script

THEME = Path(__file__).parent / "api_theme"
SOURCE = "A mechanistic-interpretability workbench for transformers that do arithmetic"


def public_modules() -> list[str]:
    """Names of all modules whose name, and whose packages' names, begin with no underscore."""
    found = [
        module.name
        for package in (interp, models)
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    ]
    return sorted(
        name for name in ("interp", "models", *found) if not any(part.startswith("_") for part in name.split("."))
    )


def specifications() -> list[str]:
    """What pdoc is to be given: a package stands for its modules, but for those that its ``__all__`` leaves out."""
    given: list[str] = []
    covered: set[str] = set()
    for name in public_modules():
        module = import_module(name)
        for entry in getattr(module, "__all__", ()):
            getattr(module, entry)  # names that come on first use: pdoc looks for those that are there
        if name not in covered:
            given.append(name)
            covered |= set(walk_specs([name]))
    return given


def write(folder: Path) -> int:
    """Write the pages; returns their number. Takes about a minute."""
    # Of a NamedTuple's constructor pdoc cannot evaluate the shapes; it shows them as they are written.
    warnings.filterwarnings("ignore", "Error parsing type annotation", UserWarning)
    # Of torch's own, which Tensor's subclass inherits, pdoc finds no source.
    warnings.filterwarnings("ignore", r"Cannot determine where .*ReadOnly\._is_param", UserWarning)
    dark_code = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs(
        ":root[data-theme=dark] .pdoc-code"
    )
    env.globals |= {"theme_script": Markup(theme_script()), "dark_code": Markup(f"@media screen {{ {dark_code} }}")}
    configure(docformat="google", show_source=False, footer_text=SOURCE, search=True, template_directory=THEME)
    pdoc.pdoc(*specifications(), output_directory=folder)
    pages = list(folder.rglob("*.html"))
    for page in pages:
        page.write_text(_without_dead_links(page.read_text(encoding="utf-8")), encoding="utf-8")
    return len(pages)


def _without_dead_links(html: str) -> str:
    """Links to nothing on their own page as words: inherited docstrings name methods that the page leaves out."""
    there = set(re.findall(r'\bid="([^"]+)"', html))
    return re.sub(r'<a href="#([^"]+)">(.*?)</a>', lambda link: link[0] if link[1] in there else link[2], html)


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "api"
    print(f"wrote {write(out)} pages to {out}")
