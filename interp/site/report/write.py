"""From results to the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from tqdm import tqdm

import models
from interp.site.pages import figure_html, style
from interp.site.report.content import Beside, ModelFindings, gather, gather_beside, summary
from interp.site.report.stepping import step_views
from models.checkpoint import write_bytes_atomic
from models.errors import UserError
from models.tasks.addition import FixedWidthAddition

#: Parameters of the largest model that the page takes up by itself: it shows every one of them.
SMALL = 1_000


def write_report(names: Sequence[str] = (), out: Path = Path("report.html"), n: int = 2048, seed: int = 0) -> None:
    """Probe the named models (the zoo's small ten-digit adders by default, smallest first) and write the page.

    About ten seconds a model, three for its row of the comparison, and one for each of up to two explorers. ``n``
    problems a probe, drawn with ``seed``.

    Raises:
        UserError: an unknown model, an empty zoo, or a page that cannot be written.
    """
    names = list(names) or [name for name in models.zoo_names() if _suits(name)]
    if not names:
        raise UserError("The zoo holds no model to report on; train one with `interp train` and `interp publish`.")
    if Path(out).is_dir():
        raise UserError(f"{out} is a folder; give --out the name of a file.")
    for name in names:
        models.load(name)  # so that a wrong name is said before any work
    found = []
    for name in (bar := tqdm(names, desc="probing", unit="model")):
        bar.set_postfix_str(name)
        found.append(gather(name, n, seed))
    found.sort(key=lambda model: model.n_parameters)
    beside = gather_beside([model.name for model in found], n, seed)
    write_bytes_atomic(Path(out), render(found, beside).encode())


def _suits(name: str) -> bool:
    """Whether a zoo entry is for the task whose questions the page asks, and small enough to be looked at whole."""
    model = models.build(models.zoo.read_entry(name)["model"])
    return isinstance(model.task, FixedWidthAddition) and sum(p.numel() for p in model.parameters()) <= SMALL


def render(found: Sequence[ModelFindings], beside: Beside) -> str:
    """The page as text, with one inlined plotly.js and no other reference."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("interp.site.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["figure"] = figure_html
    page = environment.get_template("report.html.j2")
    return page.render(
        models=found,
        beside=beside,
        summary=summary(found),
        views=step_views([model.name for model in found]),
        style=Markup(style()),
        plotlyjs=Markup(get_plotlyjs()),
    )
