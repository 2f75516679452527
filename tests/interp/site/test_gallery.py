"""The gallery: every model has its page, everything works from disk, and nothing is made twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import models
from interp.cli import main
from interp.site.gallery import site as building
from interp.site.gallery.facts import Row
from interp.site.gallery.manifest import FILE, open_folder
from interp.site.gallery.model_page import Made, path_of
from interp.site.gallery.papers import paper_of
from interp.site.gallery.render import Link, markdown
from interp.site.gallery.site import build, model_names
from interp.site.notebooks import stored_notebooks
from interp.site.pages import style
from models.errors import UserError
from studies.claims import registered
from studies.claims.headline import Headline
from studies.runs.stored_studies import stored_studies
from tests.interp.site.looks import FAINT_TEXTS, MEETING_TEXTS, wait_until
from tests.shape_checks import unchecked_shapes

NAMES = ("microadder-57", "parity-hand-built", "position-coupling-1l4h-small")
NOTEBOOK = "01_quick_start"
WIDTHS = (1400, 380)


@cache
def few_rows() -> tuple[Headline, ...]:
    """Of every paper, the first two numbers of each kind."""
    kept: dict[tuple[str, str], list[Headline]] = {}
    for row in registered():
        kept.setdefault((row.paper, row.kind), []).append(row)
    return tuple(row for rows in kept.values() for row in rows[:2])


def few_studies() -> dict[str, Path]:
    """Of every paper, the first stored study; all of them have tests of their own."""
    return {target: path for target, path in stored_studies().items() if target in FIRST_STUDIES}


FIRST_STUDIES = {target.partition(":")[0]: target for target in reversed(stored_studies())}.values()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A gallery of three models: trained and certified, constructed, and trained on many lengths; with one notebook and
    some of the papers' numbers. The probes' shapes are checked by their own tests, in half of the time."""
    folder = tmp_path_factory.mktemp("gallery") / "site"
    notebooks = {NOTEBOOK: stored_notebooks()[NOTEBOOK]}
    with pytest.MonkeyPatch.context() as patch, unchecked_shapes():
        asked = import_module("studies.claims.headline_table")
        patch.setattr(asked, "registered", lambda paper=None: tuple(r for r in few_rows() if paper in (None, r.paper)))
        for module in ("site", "notebook_pages"):
            patch.setattr(f"interp.site.gallery.{module}.stored_notebooks", lambda: notebooks)
        for module in ("papers", "overviews"):
            patch.setattr(f"interp.site.gallery.{module}.stored_studies", few_studies)
        patch.setattr("interp.site.gallery.model_page.N", 64)
        patch.setattr("interp.site.gallery.probe_cells.PER_CHAIN", {True: 20, False: 10})
        build(folder, NAMES, progress=False)
        yield folder


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


class Parsed(HTMLParser):
    """References, anchors and headings of a page; the text of scripts is not markup."""

    def __init__(self, path: Path):
        super().__init__()
        self.references: list[str] = []
        self.anchors: list[str] = []
        self.headings: list[int] = []
        self.tags: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.references += [str(found[key]) for key in ("href", "src", "srcset", "action") if found.get(key)]
        self.anchors += [str(found["id"])] if found.get("id") else []
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


# ---- what it says


def test_every_model_has_a_page_and_a_line_with_its_size_and_score(site: Path):
    index = (site / "index.html").read_text()
    for name in NAMES:
        assert f'<a href="{path_of(name)}">{name}</a>' in index and (site / path_of(name)).is_file()
    assert index.count('class="attention"') == len(NAMES)
    assert "certified with rounding" in index and "10,010 of 10,010" in index and "1 of 128" in index


def test_a_models_page_has_its_certificate_its_card_and_all_its_numbers(site: Path):
    page = (site / path_of("microadder-57")).read_text()
    assert "interp certify microadder-57 --check" in page
    assert "certified with rounding" in page and "Control, the same architecture untrained" in page
    assert "The same seeds again" in page  # a line of the card
    values = [row["value"] for row in _parameters("microadder-57")]
    assert len(values) == 57 and all(f"<td class='number'>{value:.6g}</td>" in page for value in values)


def _parameters(name: str) -> list[dict[str, Any]]:
    from interp.core.parameters import parameter_table

    return parameter_table(models.load(name)).to_dict("records")


def test_what_was_only_sampled_is_not_called_proved(site: Path):
    page = (site / path_of("position-coupling-1l4h-small")).read_text()
    assert "certified" not in page and "sampled" in page and "not judged" in page


def test_a_card_keeps_its_table_loses_its_title_and_cannot_bring_markup():
    html = markdown("# name\n\ntext <script>alert(1)</script>\n\n## More\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "<h1>" not in html and "<h2>" not in html and "<h3>More</h3>" in html
    assert "<script>" not in html and "<div class='scroll'><table>" in html


# ---- how it is made


def test_the_pages_refer_to_nothing_outside_and_every_link_resolves(site: Path):
    anchors = {path: Parsed(path).anchors for path in pages(site)}
    for path in pages(site):
        for reference in Parsed(path).references:
            if reference.startswith("data:,"):
                continue
            assert not re.match(r"[a-z]+:|//|/", reference), f"{path.name} refers to {reference}"
            file, _, anchor = reference.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.is_file() and target.is_relative_to(site.resolve()), f"{path.name} links to {reference}"
            assert not anchor or anchor in anchors[target], f"{path.name} links to {reference}"
    text = (site / "site.css").read_text()
    assert "url(" not in text and "@import" not in text


def test_plotly_is_there_once_and_pages_are_small(site: Path):
    held = [path for path in site.rglob("*") if path.is_file() and b"* plotly.js v" in path.read_bytes()[:2000]]
    assert [path.name for path in held] == ["plotly.min.js"]
    assert all(path.stat().st_size < 1_500_000 for path in pages(site))


def test_headings_are_in_order_and_every_page_has_its_landmarks(site: Path):
    for path in pages(site):
        parsed = Parsed(path)
        assert parsed.headings[0] == 1 and parsed.headings.count(1) == 1
        steps = zip(parsed.headings, parsed.headings[1:], strict=False)
        assert all(after <= before + 1 for before, after in steps), f"{path.name}: {parsed.headings}"
        assert {"header", "nav", "main", "footer"} <= set(parsed.tags)
        assert len(parsed.anchors) == len(set(parsed.anchors)), path.name


def test_text_stands_out_from_its_ground_in_both_themes():
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", rule))
        for rule in re.findall(r":root[^{]*{([^}]*--ink[^}]*)}", style())
    ]
    assert len(themes) == 2
    for theme in themes:
        for name in ("ink", "soft", "accent", "focus"):
            assert _contrast(theme[name], theme["paper"]) >= 4.5, name
        assert _contrast(theme["ink"], theme["tint"]) >= 4.5 and _contrast(theme["edge"], theme["paper"]) >= 3


def _contrast(colour: str, ground: str) -> float:
    """WCAG 2 contrast of two colours."""
    low, high = sorted(map(_luminance, (colour, ground)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * letter for letter in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# ---- in a browser


def drawn(page: Any) -> None:
    page.wait_for_selector("html[data-figures=drawn]", state="attached")


@pytest.mark.slow
def test_every_figure_is_drawn_and_no_page_is_wider_than_the_window(site: Path, open_page: Callable[..., Any]):
    assert_drawn(pages(site), open_page)


def test_a_models_figures_are_drawn_and_its_page_is_not_wider_than_the_window(site: Path, open_page):
    assert_drawn([site / path_of(NAMES[1])], open_page)


def assert_drawn(paths: list[Path], open_page: Callable[..., Any]) -> None:
    for path in paths:
        page = open_page(path, WIDTHS[0])
        drawn(page)
        assert page.locator(".drawing:visible").count() == page.locator(".drawing:has(svg.main-svg)").count(), path.name
        page.evaluate("document.querySelectorAll('details').forEach((folded) => (folded.open = true))")
        figures = path.read_text().count("class='drawing'")
        wait_until(page, "n => document.querySelectorAll('.drawing svg.main-svg:first-child').length >= n", figures)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.locator(".drawing:has(svg.main-svg)").count() == figures, path.name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path.name} at {width}"
        page.close()


def test_texts_of_figures_do_not_meet_on_a_telephone_and_all_text_stands_out(site: Path, open_page):
    page = open_page(site / path_of("microadder-57"), 380)
    drawn(page)
    assert page.evaluate(MEETING_TEXTS) == []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_selector(f"html[data-theme={theme}]", state="attached")
        assert page.evaluate(FAINT_TEXTS, "body *") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", path_of("microadder-57")])
def test_the_keyboard_reaches_every_control_in_order(site: Path, open_page: Callable[..., Any], name: str):
    page = open_page(site / name, 380)
    drawn(page)
    controls = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")]
            .filter((e) => e.checkVisibility() && !e.closest(".js-plotly-plot")).map((e, i) => (e.dataset.stop = i))"""
    )
    assert len(controls) > 10
    met = []
    for _ in range(20 * len(controls)):  # the buttons over figures, too, which are plotly's
        page.keyboard.press("Tab")
        stop = page.evaluate("document.activeElement.dataset?.stop ?? null")
        if stop is not None:
            met.append(int(stop))
        if stop == str(controls[-1]):
            break
    assert met == controls
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_the_theme_is_the_systems_until_the_reader_chooses_another(site: Path, open_page: Callable[..., Any]):
    page = open_page(site / path_of("parity-hand-built"))  # it has few figures
    drawn(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    turned = "getComputedStyle(document.querySelector('.js-plotly-plot')).filter"
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.evaluate(turned) == "none"
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]", state="attached")
    assert page.evaluate(ground) == "rgb(24, 24, 24)" and "invert" in page.evaluate(turned)
    page.get_by_role("button", name="Light theme").press("Enter")
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.evaluate(turned) == "none"
    page.reload()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"  # remembered
    page.get_by_role("button", name="Dark theme").click()
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_the_buttons_over_a_figure_save_it_as_svg_and_send_data_nowhere(site: Path, open_page: Callable[..., Any]):
    page = open_page(site / path_of("microadder-57"))
    drawn(page)
    names = set(page.locator(".modebar-btn").evaluate_all("all => all.map((e) => e.dataset.title)"))
    assert names == {"Download plot", "Zoom in", "Zoom out", "Reset axes"}
    with page.expect_download() as waited:
        page.locator(".modebar-btn[data-title='Download plot']").first.click()
    assert "<svg" in Path(waited.value.path()).read_text()[:200]


def test_the_list_of_models_filters_and_sorts(site: Path, open_page: Callable[..., Any]):
    page = open_page(site / "index.html")
    shown = lambda: page.locator("table.models th[scope=row]:visible").all_inner_texts()  # noqa: E731
    assert set(shown()) == set(NAMES)
    page.get_by_label("Filter").fill("certified rounding")
    assert shown() == ["microadder-57", "parity-hand-built"]
    page.get_by_label("Filter").fill("certified of 128")
    assert shown() == ["microadder-57"] and page.locator("output").inner_text() == "1 of 3 models"
    page.keyboard.press("Escape")
    assert len(shown()) == 3
    page.get_by_role("button", name="parameters").press("Enter")
    assert shown() == ["microadder-57", "parity-hand-built", "position-coupling-1l4h-small"]  # within each paper
    page.get_by_role("button", name="parameters").press("Enter")
    assert shown()[-1] == "parity-hand-built"
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("parameters")


@pytest.mark.slow
def test_the_papers_numbers_filter_and_sort_from_the_keyboard(site: Path, open_page: Callable[..., Any]):
    page, rows = open_page(site / "reproduction.html"), few_rows()
    of_kind = Counter(row.kind for row in rows)
    assert page.locator("output").inner_text() == f"{len(rows)} numbers"
    shown = page.locator("table.headlines tbody tr:visible")
    for kind, n in of_kind.items():
        page.get_by_label("Kind").select_option(kind)
        assert shown.count() == n and page.locator("output").inner_text() == f"{n} of {len(rows)} numbers"
    page.get_by_label("Paper").select_option("toygpt")
    assert shown.count() == sum(row.kind == kind and row.paper == "toygpt" for row in rows)
    page.get_by_label("Kind").select_option("")
    page.get_by_label("Paper").select_option("")
    page.get_by_label("Verdict").select_option("reproduced")
    assert set(page.locator("tr:visible td[data-label=verdict] strong").all_inner_texts()) == {"reproduced"}
    page.get_by_label("Words").fill("no such words")
    assert shown.count() == 0
    page.keyboard.press("Escape")
    page.get_by_label("Verdict").select_option("")
    page.get_by_role("button", name="printed").press("Enter")
    values = page.locator("td[data-label=printed]").evaluate_all("all => all.map((e) => e.dataset.value)")
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(numbers) and values[len(numbers) :] == [""] * (len(values) - len(numbers))
    page.get_by_role("button", name="claim").press("Enter")
    page.get_by_role("button", name="claim").press("Enter")
    claims = page.locator("td[data-label=claim]").all_inner_texts()
    assert claims[0] > claims[-1] and page.locator("th[aria-sort=descending]").inner_text().startswith("claim")


# ---- building


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != FILE}


def test_a_second_build_touches_nothing_and_a_spoilt_page_is_made_again(site: Path):
    before = times(site)
    again = build(site, NAMES, progress=False)
    assert not again.made and not again.removed and times(site) == before
    spoilt = site / "site.css"
    whole = spoilt.read_bytes()
    spoilt.write_bytes(b"")
    assert build(site, NAMES, progress=False).made == ("site.css",) and spoilt.read_bytes() == whole


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pages that cost nothing, to watch the building alone; the names of models in the order they were asked for."""
    asked: list[str] = []

    def fake(name: str, *_: Any) -> Made:
        asked.append(name)
        return Made(f"<h1>{name}</h1>".encode(), None)

    monkeypatch.setattr(building, "model_page", fake)
    monkeypatch.setattr(building, "_other_pages", lambda *_: [])
    return asked


def test_a_build_that_was_stopped_goes_on_where_it_was(tmp_path: Path, quick: list[str], monkeypatch, capsys):
    calm = building.model_page

    def stops(name: str, *rest: Any) -> Made:
        if quick:
            raise KeyboardInterrupt
        return calm(name, *rest)

    monkeypatch.setattr(building, "model_page", stops)
    out = ["--out", str(tmp_path / "g"), "--models", "microadder-57", "microadder-67"]
    assert main(["gallery", *out]) == 130
    assert "goes on" in capsys.readouterr().err and len(quick) == 1
    assert json.loads((tmp_path / "g" / FILE).read_text())["gallery"] == "carrylens"
    monkeypatch.setattr(building, "model_page", calm)
    assert main(["gallery", *out]) == 0
    assert sorted(quick) == ["microadder-57", "microadder-67"]
    assert "files made" in capsys.readouterr().out


def test_the_index_has_models_of_no_paper_apart_and_says_how_many_numbers_others_found():
    rows = {"subtractor-47": "trained", "arc-decoder-15": "published numbers", "microadder-57": "trained"}
    rows |= {"modular-clock-hand-built": "constructed"}
    given = {name: asdict(Row(name, path_of(name), paper_of(name), how, "a task", 1, "")) for name, how in rows.items()}
    pages = {path_of(name): SimpleNamespace(row=row) for name, row in given.items()}
    manifest: Any = SimpleNamespace(pages=pages)
    made = building._index(manifest, list(rows), [Link("paper/microadder.html", "MicroAdder")]).make()
    text = " ".join(made.html.decode().split())
    assert "2 trained by this project, 1 with numbers that others published and 1 set by hand." in text
    microadder, others = text.split('id="microadder"')[1].split('id="others"')
    assert "microadder-57" in microadder and "subtractor-47" not in microadder and "subtractor-47" in others


def test_naming_a_model_leaves_the_others_and_all_removes_what_is_gone(tmp_path: Path, quick: list[str], monkeypatch):
    build(tmp_path, ["microadder-57"], progress=False)
    build(tmp_path, ["microadder-67"], progress=False)
    assert sorted(quick) == ["microadder-57", "microadder-67"]
    assert (tmp_path / path_of("microadder-57")).is_file()
    assert build(tmp_path, ["microadder-57"], fresh=True, progress=False).kept == 0 and quick[-1] == "microadder-57"
    monkeypatch.setattr(building, "model_names", lambda: ["microadder-67"])
    assert build(tmp_path, progress=False).removed == (path_of("microadder-57"),)
    assert not (tmp_path / path_of("microadder-57")).exists() and (tmp_path / path_of("microadder-67")).is_file()


def test_the_gallery_has_every_stored_and_every_constructed_model():
    constructed = {name for name in models.names() if models.get_spec(name).recipe is None}
    assert set(model_names()) == set(models.zoo_names()) | constructed
    assert len(model_names()) == len(set(model_names()))


# ---- bad input


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["gallery", "--out", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        build(tmp_path / "thesis.tex", progress=False)


def test_an_unknown_model_is_refused_with_the_closest_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UserError, match="Did you mean 'microadder-57'"):
        build(tmp_path / "g", ["microader-57"], progress=False)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    "value",
    [
        {"gallery": "other", "format": 1, "pages": {}},
        {"gallery": "carrylens", "format": 1, "pages": {"a.html": {"inputs": "x"}}},
        {"gallery": "carrylens", "format": 1, "pages": {"../a.html": {"inputs": "x", "sha256": "y"}}},
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, value: dict[str, Any]):
    (tmp_path / FILE).write_text(json.dumps(value))
    with pytest.raises(UserError, match="not a gallery's|outside its folder"):
        open_folder(tmp_path)


@pytest.mark.slow
def test_the_whole_gallery_is_built_and_every_page_works(tmp_path: Path, open_page, without_shape_checks):
    build(tmp_path / "g", progress=False)
    assert {path.stem for path in (tmp_path / "g" / "model").iterdir()} == set(model_names())
    test_the_pages_refer_to_nothing_outside_and_every_link_resolves(tmp_path / "g")
    test_headings_are_in_order_and_every_page_has_its_landmarks(tmp_path / "g")
    test_every_figure_is_drawn_and_no_page_is_wider_than_the_window(tmp_path / "g", open_page)
    assert not build(tmp_path / "g", progress=False).made
