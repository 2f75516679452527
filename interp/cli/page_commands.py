"""The commands that write pages: compare, explore and report; and the page of an answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from interp.cli.own_flags import load_model, said
from interp.cli.shared_options import (
    HowMany,
    Json,
    Models,
    Page,
)
from interp.cli.written_files import STDOUT, command_line, write_reply
from models.errors import UserError

if TYPE_CHECKING:
    from interp.core import sections
    from interp.core.probe import Probe
    from interp.core.results import Result

_COMPARED = Path("compare.html")


def page_of(asked: Probe, name: str, found: Result) -> sections.Page:
    """The page of one answer: its sentence, its figure and its table."""
    from interp.core.sections import Page, Section, records

    table = found.to_dataframe()
    parts = [
        Section(asked.question, f"{found.sentence()}\n\n{found.provenance}.", figures=[found.figure()]),
        Section("In numbers", "", [table]),
    ]
    return Page(f"{asked.name} of {name}", parts, {"rows": records(table)})


def compare(
    models: Annotated[Models, tyro.conf.arg(metavar="MODEL MODEL [MODEL ...]", help_behavior_hint="(required)")],
    out: Page = _COMPARED,
    json: Json = None,
    problems: HowMany = None,
    seed: int = 0,
) -> None:
    """Compare models on one page.

    Two models of one format are matched head by head and neuron by neuron, with their distances. More than two, or
    models of different formats, are asked the same questions, one row per model.

    Args:
        models: Zoo names, constructed models, or models' folders or files (with --task if they do not say their own).
        out: The page to write (none with --json - alone).
        problems: How many problems to use; more take more time.
        seed: Seed of the problems and controls that are drawn.
    """
    if len(models) < 2:
        raise UserError("Comparing takes at least two models.")
    from interp.compare import comparison_sections as of
    from interp.compare.compare import compare, same_format
    from interp.compare.compare_models import compare_models
    from interp.core.sections import Page
    from interp.site.pages import write_page

    loaded = [load_model(name) for name in models]
    n: dict[str, Any] = {} if problems is None else {"n": problems}
    if len(loaded) == 2 and same_format(*(model.task for model in loaded)):
        found = compare(*loaded, **n, seed=seed)
        page = Page(f"{found.names[0]} next to {found.names[1]}", of.matched_sections(found), of.matched_data(found))
    else:
        found = compare_models(loaded, **n, seed=seed, progress=sys.stderr.isatty())
        page = Page(f"{len(loaded)} models, the same questions", of.table_sections(found), found.to_dict())
    if json != STDOUT or out != _COMPARED:  # the JSON alone, unless a page is asked for as well
        write_page(out, page, command_line())
    write_reply(json, found)
    print(page.sections[0].text)


def report(models: Models = (), out: Page = Path("report.html")) -> None:
    """Write one self-contained HTML page on how each model adds, chapter by chapter.

    Args:
        models: Zoo names or paths; the zoo's ten-digit adders of up to 1,000 parameters by default.
        out: The page to write.
    """
    from interp.site.report import write_report

    write_report(models, out, load=load_model, flags=said())


def explore(
    models: Annotated[Models, tyro.conf.arg(metavar="MODEL [MODEL]")] = (),
    problems: tuple[str, ...] = (),
    out: Page = Path("explore.html"),
) -> None:
    """Write a page that runs one or two models in the browser, on any problem. It shows attention, units, streams and
    logits at each digit, for the whole model or with components removed, scaled or patched from a second problem. It
    needs no kernel and no network; `interp.explore` shows the same in Jupyter.

    Args:
        models: One or two: zoo names, constructed models, or models' folders or files.
        problems: Problems to offer, such as --problems 57+48 99+1; examples for the models' task by default. Any can be
            typed.
        out: The page to write.
    """
    if not 1 <= len(models) <= 2:
        raise UserError(f"Name one model or two to explore, not {len(models)}.")
    from interp.site.explorer import write_explorer

    write_explorer(out, [load_model(name) for name in models], problems or None)
