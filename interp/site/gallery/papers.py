"""One page per paper: what its experiments found, drawn from the stored numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interp.core.sections import Section
from interp.site.gallery.render import Link, Part, commands, folded, page, sections
from models import registry
from studies.papers import PAPERS as BY_KEY
from studies.papers import Paper
from studies.runs.stored_studies import command_of, stored_sections, stored_studies
from studies.runs.study import studies

OPEN = 4  # sections of an experiment that are not folded
PAPERS = tuple(BY_KEY.values())


def paper_path(paper: Paper) -> str:
    return f"paper/{paper.key}.html"


def paper_of(name: str) -> str:
    """The paper that a model belongs to; empty for models of no paper."""
    return registry.get_spec(name).paper or ""


def inputs_of(paper: Paper) -> list[Path]:
    """The files of stored results that the page is made from."""
    return [path for target, path in stored_studies().items() if target.startswith(f"{paper.key}:")]


def paper_page(paper: Paper, models: Sequence[Link], links: Sequence[Link]) -> bytes:
    """The page of a paper; ``models`` are the site's models that belong to it."""
    order = list(studies())
    targets = [target for target in stored_studies() if target.startswith(f"{paper.key}:")]
    targets.sort(key=lambda target: order.index(target) if target in order else -1)
    parts = [part_of(target) for target in targets]
    if paper.key == "adder-456":
        parts = [*_counted(), *parts]
    return page(
        "paper.html.j2", paper_path(paper), paper.label, links, heading=f"{paper.label}: what was found",
        words=paper.words, parts=parts, models=[{"path": f"../{link.path}", "name": link.label} for link in models],
    )  # fmt: skip


def part_of(target: str) -> Part:
    """What a target found, after the command that makes it. Sections after the first few are folded."""
    what = target.partition(":")[2]
    known = studies().get(target)
    heading = known.title if known else _title(target)
    found = stored_sections(target)
    items = [commands([command_of(target)]), *sections(found[:OPEN], heading)]
    if len(found) > OPEN:
        more = len(found) - OPEN
        items.append(folded(f"{more} more section{'s' * (more > 1)}", "".join(sections(found[OPEN:]))))
    return Part(what, heading, items)


_TITLES = {
    "position-coupling:hand-built": "The hand-built transformer, proved and run",
    "addlm:runs": "The table and the ablation: every finished run",
}


def _title(target: str) -> str:
    """A target's heading where its study has none: the figure and what the paper varies in it, with the size."""
    from models.families.position_coupling_variants import FIGURES

    paper, _, what = target.partition(":")
    name = what.removesuffix("-small")
    if paper != "position-coupling" or name not in FIGURES:
        return _TITLES.get(target, what.replace("-", " "))
    number = f"Figure {name.removeprefix('fig')}: " if name.startswith("fig") else ""
    return f"{number}{FIGURES[name].title}{', at a small size' if name != what else ''}"


def _counted() -> list[Part]:
    """The table and the figure of adder-456 that need only the models and the zoo's curves."""
    import models
    from studies.adder_456.studies import FIGURE_1, comparison_table, on_uniform

    grokking = on_uniform([name for name in FIGURE_1 if name in models.zoo_names()])
    counts = Section("Table 4", "Counted on the models.", (comparison_table(),), level=3)
    again = "python -m studies reproduce adder-456"
    figure = Section("Figure 1", "", (grokking.summary(),), (grokking.figure(),), level=3)
    return [
        Part("table4", "Parameters by component", [commands([f"{again}:table4"]), *sections([counts])]),
        Part("fig1", "Grokking curves", [commands([f"{again}:fig1"]), *sections([figure])]),
    ]
