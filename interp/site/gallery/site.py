"""The list of the gallery's pages, and the build of those that are not up to date."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plotly.offline import get_plotlyjs
from tqdm import tqdm

import models
from interp.core.stored_data import DATA, require_stored
from interp.site.explorer import asset_files
from interp.site.gallery.manifest import Manifest, code_digest, digest, digest_of, open_folder
from interp.site.gallery.model_page import Made, model_page, path_of
from interp.site.gallery.notebook_pages import NOTEBOOKS, notebook_page, notebook_path, notebooks_page
from interp.site.gallery.overviews import (
    COMPARISON,
    comparison_page,
    comparisons,
    view_links,
    view_page,
    views,
    weights_file,
    weights_path,
)
from interp.site.gallery.papers import PAPERS, inputs_of, paper_of, paper_page, paper_path
from interp.site.gallery.render import Link, page, script, stylesheet
from interp.site.gallery.reproduction import REPRODUCTION, reproduction_page
from interp.site.notebooks import read_notebook, stored_notebooks
from models.errors import unknown_name
from models.registry import PUBLISHED, TRAINED, by_paper, constructed
from models.zoo import ZOO
from studies.papers import DATA as STUDIES
from studies.papers import Paper

INDEX = "index.html"
_OTHERS = "Subtractors, modular adders, and adders that others published or that were built as controls."
_HOW = {TRAINED: "trained by this project", PUBLISHED: "with numbers that others published"}
#: Where a reader may begin: path, text of the link, what is there.
_STARTS = (
    (
        "explore/microadder-57.html",
        "Step through an answer",
        "57 numbers add in the browser: any problem, any part removed, scaled or patched",
    ),
    (NOTEBOOKS, "Read a story", "how 57 parameters add, who passes the carry on, and what a proof for all pairs takes"),
    (COMPARISON, "Is it the same algorithm?", "adders of five papers, asked the same questions"),
    (REPRODUCTION, "The papers' numbers and ours", "which were reproduced, which differ, and the command for each"),
)


@dataclass(frozen=True)
class Page:
    """A page of the site: ``inputs`` is a digest of all that it shows; ``make`` makes it."""

    path: str
    inputs: str
    make: Callable[[], Made]


@dataclass(frozen=True)
class Summary:
    """What a build did. ``size`` is that of the whole site in bytes."""

    folder: Path
    made: tuple[str, ...]
    kept: int
    removed: tuple[str, ...]
    size: int
    seconds: float

    def __str__(self) -> str:
        kept = f", {self.kept} were up to date" if self.kept else ""
        gone = f", {len(self.removed)} removed" if self.removed else ""
        return (
            f"{self.folder / INDEX}: {len(self.made)} files made{kept}{gone}; {self.size / 1e6:.1f} MB in "
            f"{self.seconds:.0f} s"
        )


def model_names() -> list[str]:
    """The models that have a page: those of the zoo and the constructed ones, paper by paper."""
    here = {*models.zoo_names(), *constructed()}
    return by_paper(name for name in models.names(sweeps=True) if name in here)


def build(out: Path, names: Sequence[str] = (), fresh: bool = False, progress: bool = True) -> Summary:
    """Build the site in ``out``, or bring it up to date.

    Args:
        out: a new or empty folder, or one that holds a gallery.
        names: build only these models and their papers; other pages of the folder stay. All models by default.
        fresh: make every page again.

    The build can be stopped anywhere: pages are written whole, and the same call continues it. Cost: two to three
    minutes for everything on one core, less than a second if nothing has changed.

    Raises:
        UserError: an unknown model, a folder that holds something other than a gallery, or a package that was installed
            without what the gallery shows.
    """
    require_stored(DATA / "notebooks")
    start, known = time.monotonic(), model_names()
    for name in names:
        if name not in known:
            raise unknown_name("model with a page", name, known)
    site = open_folder(Path(out))
    chosen = [name for name in known if name in names] if names else known
    site.folder.mkdir(parents=True, exist_ok=True)
    site.save()
    here = [name for name in known if name in chosen or path_of(name) in site.pages]
    shared = _shared_pages(here)
    links = [Link(path, label) for path, label in shared.items()]
    made, kept = [], 0
    pages = [
        *_fixed_files(),
        *(_model(name, view_links(name, here), links) for name in chosen),
        *_other_pages(shared, here, links),
    ]

    def in_order() -> Iterator[Page]:
        yield from pages
        yield _index(site, here, links)  # its rows come from the models' pages, which exist by now

    for one in (bar := tqdm(in_order(), "building", len(pages) + 1, unit="page", disable=not progress)):
        bar.set_postfix_str(one.path)
        if not fresh and site.is_current(one.path, one.inputs):
            kept += 1
            continue
        result = one.make()
        site.put(one.path, result.html, one.inputs, result.row)
        made.append(one.path)
    wanted = {INDEX, *(one.path for one in pages), *(path_of(name) for name in here)}
    removed = tuple(path for path in site.pages if path not in wanted)
    for path in removed:
        site.drop(path)
    return Summary(site.folder, tuple(made), kept, removed, site.size(), time.monotonic() - start)


def _shared_pages(here: Sequence[str]) -> dict[str, str]:
    """Paths and labels of the pages that every page links to: the papers of the models here, and the overviews."""
    papers = {paper_of(name) for name in here}
    pages = {paper_path(paper): paper.label for paper in PAPERS if paper.name in papers}
    if comparisons():
        pages[COMPARISON] = "Comparison"
    pages[REPRODUCTION] = "Reproduction"
    if stored_notebooks():
        pages[NOTEBOOKS] = "Notebooks"
    return pages | {path: "Step by step" for path in list(views(here))[:1]}


def _fixed_files() -> list[Page]:
    """Scripts, styles and plotly.js, once for all pages."""
    contents = {"plotly.min.js": get_plotlyjs(), "site.css": stylesheet(), "site.js": script()} | asset_files()
    return [
        Page(name, digest([text]), lambda text=text: Made(text.encode())) for name, text in contents.items()
    ]  # fmt: skip


def _inputs(links: Sequence[Link], *parts: str) -> str:
    """One digest of all that a page depends on: the code, its links, and ``parts``."""
    return digest([code_digest(), repr(links), *parts])


def _model(name: str, shown: Sequence[Link], links: Sequence[Link]) -> Page:
    entry = [ZOO / name / "config.json"] if name in models.zoo_names() else []
    inputs = _inputs(links, repr(shown), digest_of(entry))
    return Page(path_of(name), inputs, lambda: model_page(name, links, shown))


def _other_pages(shared: dict[str, str], here: Sequence[str], links: Sequence[Link]) -> list[Page]:
    everything = _inputs(links, *_stored_digests())
    found = [_paper(paper, here, links) for paper in PAPERS if paper_path(paper) in shared]
    if COMPARISON in shared:
        found.append(Page(COMPARISON, everything, lambda: Made(comparison_page(links))))
    found.append(Page(REPRODUCTION, everything, lambda: Made(reproduction_page(links))))
    found += _notebooks(links)
    for path in views(here):
        inputs = digest([everything, repr(views(here))])
        found.append(Page(path, inputs, lambda path=path: Made(view_page(path, here, links))))
        found.append(Page(weights_path(path), everything, lambda path=path: Made(weights_file(path))))
    return found


def _notebooks(links: Sequence[Link]) -> list[Page]:
    """The pages of the stored notebooks, and their list."""
    stored = stored_notebooks()
    found = [
        Page(
            notebook_path(name),
            _inputs(links, digest_of([file])),
            lambda file=file: Made(notebook_page(read_notebook(file), links)),
        )
        for name, file in stored.items()
    ]
    if found:
        inputs = _inputs(links, digest_of(stored.values()))
        found.append(Page(NOTEBOOKS, inputs, lambda: Made(notebooks_page(links))))
    return found


def _stored_digests() -> Iterator[str]:
    """Digests of all stored results and of every entry of the zoo."""
    yield digest_of([*DATA.rglob("*.json"), *STUDIES.rglob("*.json")])
    for name in models.zoo_names():
        yield f"{name}={digest_of([ZOO / name / 'config.json'])}"


def _paper(paper: Paper, here: Sequence[str], links: Sequence[Link]) -> Page:
    own = [Link(path_of(name), name) for name in here if paper_of(name) == paper.name]
    entries = [ZOO / name / "config.json" for name in models.zoo_names() if paper_of(name) == paper.name]
    parts = [digest_of(inputs_of(paper)), *(digest_of([entry]) for entry in entries)]
    inputs = _inputs(links, repr(own), *parts)
    return Page(paper_path(paper), inputs, lambda: Made(paper_page(paper, own, links)))


def _index(site: Manifest, here: Sequence[str], links: Sequence[Link]) -> Page:
    """The list of models, made from the rows that their pages left in the manifest."""

    def make() -> Made:
        rows = [row for name in here if (row := site.pages[path_of(name)].row) is not None]
        groups = [
            {
                "slug": paper.key,
                "title": paper.label,
                "words": paper.words,
                "page": paper_path(paper) if any(link.path == paper_path(paper) for link in links) else None,
                "rows": [row for row in rows if row["paper"] == paper.name],
            }
            for paper in PAPERS
        ]
        others = [row for row in rows if not row["paper"]]
        groups.append({"slug": "others", "title": "Of no paper", "words": _OTHERS, "page": None, "rows": others})
        made = Counter(_HOW.get(row["how"], "set by hand") for row in rows)
        how = [f"{n} {words}" for words, n in made.items()]
        rungs = [row["rung"] for row in rows]
        certified = sum(rung.startswith("certified") for rung in rungs)
        there = {link.path for link in links}
        starts = [{"path": path, "label": label, "words": words} for path, label, words in _STARTS if path in there]
        return Made(
            page(
                "index.html.j2", INDEX, "Transformers that do arithmetic", links, count=len(rows), starts=starts,
                how=" and ".join([", ".join(how[:-1]), how[-1]] if len(how) > 1 else how), certified=certified,
                without=sum(rung.startswith("certified") and rung != "certified with rounding" for rung in rungs),
                groups=[group for group in groups if group["rows"]],
            )
        )  # fmt: skip

    rows = [repr(record.row) for name in here if (record := site.pages.get(path_of(name)))]
    return Page(INDEX, _inputs(links, *rows), make)
