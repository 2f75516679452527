"""The site that `make docs` builds: every model, study and notebook has its page, and all of it works from disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stored_notebooks import figure_words, read_notebook, stored_notebooks

import models
from interp.compare.parameter_tables import parameter_table
from models.registry import constructed
from tests.interp.site.looks import FAINT_TEXTS, wait_until

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WIDTHS = (1400, 380)
ADDER, COUPLED = "microadder-57", "position-coupling-1l4h-small"


def hook(name: str) -> Any:
    """A file of docs/ as a module. MkDocs is an extra that some environments lack."""
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_page(path: str) -> Any:
    return SimpleNamespace(file=SimpleNamespace(src_uri=path), url=path.replace(".md", ".html"))


# ---- what the pages say


def test_a_models_page_has_its_certificate_its_card_and_all_its_numbers():
    pages = hook("model_pages")
    row = next(row for row in pages.rows() if row["model"] == ADDER)
    page = pages.model_page(row)
    assert "interp certify microadder-57 --check" in page and "| all inputs | certified with rounding |" in page
    assert "The same seeds again" in page  # a line of the card
    assert "](../explore/microadder-57.html)" in page
    values = parameter_table(models.load(ADDER))["value"]
    assert len(values) == 57 and all(f"<td class='number'>{value:.6g}</td>" in page for value in values)


def test_what_was_only_sampled_is_not_called_proved():
    pages = hook("model_pages")
    page = pages.model_page(next(row for row in pages.rows() if row["model"] == COUPLED))
    assert "certified" not in page and "sampled" in page and "not judged" in page
    assert "How far does it generalise?" in page and page.count("class='drawing'") == 2


def test_the_zoos_table_links_to_every_stored_and_every_constructed_model():
    pages = hook("model_pages")
    zoo = pages.on_page_markdown((DOCS / "zoo.md").read_text(), page=as_page("zoo.md"))
    linked = re.findall(r"^\| \[(.+?)\]\(models/(.+?)\.md\) \|", zoo, re.MULTILINE)
    assert all(name == file for name, file in linked)
    assert {name for name, _ in linked} == {*models.zoo_names(), *constructed()} == {r["model"] for r in pages.rows()}


@pytest.mark.slow
def test_a_papers_page_has_every_number_and_every_study():
    pages = hook("study_pages")
    page = pages.study_page("adder-456")
    found = pages.headlines("adder-456")
    table = page.split("## The paper's numbers and ours")[1].split("\n## ")[0]
    assert table.count("<tr>") == len(found.rows) + 2  # and two headings
    own = [target for target in pages.stored_studies() if target.startswith("adder-456:")]
    assert len(own) > 2 and all(pages.command_of(target) in unescape(page) for target in own)
    counted = pages.overview()
    assert f"| [{pages.PAPERS['adder-456'].label}](adder-456.md) |" in counted and found.rows[0].headline.claim in page


@pytest.mark.parametrize("name", stored_notebooks())
def test_a_notebooks_figures_take_the_place_of_their_pictures(name: str):
    """With their notes; a figure need not have one."""
    pages = hook("live_figures")
    page = pages.on_page_markdown((DOCS / "notebooks" / f"{name}.md").read_text(), page=as_page(f"notebooks/{name}.md"))
    drawn = [piece.figure for piece in read_notebook(stored_notebooks()[name]).pieces if piece.figure is not None]
    notes = [f"\n*{note}*\n" for _, note in map(figure_words, drawn) if note]
    assert page.count("class='drawing'") == len(drawn) >= 1 and ".png)" not in page
    assert not any(note in page for note in notes)
    html = pages.on_page_content(page, page=as_page(f"notebooks/{name}.md"))
    assert html.count("<script defer") == 2 and 'src="../site/plotly.js"' in html
    assert pages.on_page_content("<p>text</p>", page=as_page("guide.md")) == "<p>text</p>"


# ---- the whole site


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it."""
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, root / "docs", ignore=shutil.ignore_patterns("api", "__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", root)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    for command in (["docs/api.py", "docs/api"], ["-m", "mkdocs", "build", "--strict"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, timeout=1_800
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "warn" not in done.stderr.lower(), done.stderr[-2000:]
    return root / "site"


@pytest.mark.slow
def test_the_reference_has_a_page_for_every_public_module(site: Path):
    for page in ("interp/compare/compare.html", "models/tasks/base.html", "index.html"):
        assert (site / "api" / page).exists()
    assert "Jensen-Shannon" in (site / "api/interp/compare/heads.html").read_text()


@pytest.mark.slow
def test_every_page_is_in_the_site_and_loads_nothing_from_a_network(site: Path):
    texts = [page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")]
    names = [*models.zoo_names(), *constructed()]
    for page in (*texts, *(f"models/{name}.html" for name in names), "studies/comparison.html"):
        text = (site / page.replace("README.html", "index.html")).read_text()
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', text), page
    held = [path for path in site.rglob("*.js") if b"* plotly.js v" in path.read_bytes()[:2000]]
    assert [path.name for path in held] == ["plotly.js"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "zoo.html",
        f"models/{ADDER}.html",
        f"models/{COUPLED}.html",
        f"stories/{ADDER}.html",
        "studies/index.html",
        "studies/microadder.html",
        "notebooks/02_how_microadder_adds.html",
        "explore.html",
    ],
)
def test_every_figure_is_drawn_and_no_page_is_wider_than_the_window(site: Path, open_page: Any, path: str):
    page = open_page(site / path, WIDTHS[0])
    figures = (site / path).read_text().count("class='drawing'")
    if figures:
        page.wait_for_selector("html[data-figures=drawn]", state="attached")
    page.evaluate("document.querySelectorAll('details').forEach((folded) => (folded.open = true))")
    wait_until(page, "n => document.querySelectorAll('.drawing svg.main-svg:first-child').length >= n", figures)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} at {width}"


@pytest.mark.slow
def test_generated_text_stands_out_from_its_ground_in_both_themes(site: Path, open_page: Any):
    page = open_page(site / f"models/{ADDER}.html", 380)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.reload()
        assert page.evaluate(FAINT_TEXTS, ".md-content :is(p, td, th, strong, small, li)") == []


@pytest.mark.slow
@pytest.mark.parametrize(("words", "found"), [("grokking", "Glossary"), ("parity hand built", "parity-hand-built")])
def test_the_site_is_searched_from_disk_without_a_network(site: Path, open_page: Any, words: str, found: str):
    page = open_page(site / "hooks.html")
    page.keyboard.press("s")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__item")
    page.locator(".md-search-result__list", has_text=found).wait_for()


@pytest.mark.slow
def test_the_explorer_runs_on_a_page_of_the_site(site: Path, open_page: Any):
    page = open_page(site / "explore" / "toygpt-learned-pre.html")
    page.wait_for_selector(".cx-verdict")
    page.locator("[data-problem]").fill("57+48")
    page.keyboard.press("Enter")
    assert "105" in page.locator(".cx-verdict").inner_text()
