"""The report is one page that needs nothing else."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

import models
from benchmarks.provability.ordinary_models import MODELS
from interp.site.chapters import CHAPTERS
from interp.site.report import write_report
from interp.site.story import Chapter, Story
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims import table as headlines
from tests.interp.proofs.columns.columns_by_hand import by_hand
from tests.interp.site.looks import FAINT_TEXTS, MEETING_TEXTS, wait_until
from tests.shape_checks import unchecked_shapes

#: Whether every figure that is shown has been drawn.
DRAWN = """() => [...document.querySelectorAll("figure")].every(
    (figure) => !figure.offsetParent || figure.querySelector("svg.main-svg"))"""
NAMES = ("microadder-57", "addlm-adder-two-digit")


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks_here() -> Iterator[None]:
    """Everything on the page has its own tests, which check shapes."""
    with unchecked_shapes():
        yield


#: Chapters that cost little: the verdict, the explorer, a figure, and where to go next.
FEW = ("right", "steps", "columns", "more")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report of few chapters on two models of different formats, with small samples."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(NAMES, out, n=64, only=FEW)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """All chapters."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(NAMES, out, n=64)
    return out


def test_the_page_has_no_outside_references(page: Path):
    text = page.read_text()
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", markup)
    assert "@import" not in markup and "url(" not in markup
    assert not re.findall(r"<script[^>]+src=", text)
    assert text.count("* plotly.js v") == 1


def test_a_first_screen_says_what_is_known_of_all_inputs_and_another_model_can_be_chosen(page: Path, open_page):
    opened = open_page(page, 1400)
    top = opened.locator("#right").locator("xpath=following-sibling::div[1]")
    assert top.bounding_box()["y"] < 900 and "all 10²⁰ pairs" in top.inner_text()
    lead = opened.locator("p.lead:visible")
    assert "digits of their sum" in lead.inner_text()
    assert lead.bounding_box()["y"] < 200 and "proved right on all 10²⁰ pairs" in lead.inner_text()
    # Another model changes the title, and leaves the explorer its controls.
    opened.locator("select.which").select_option(NAMES[1])
    assert opened.locator("h1").inner_text() == f"How {NAMES[1]} works"
    view = opened.locator(f"[data-model='{NAMES[1]}'] .cx")
    assert view.locator(".cx-head:visible").count() == 2 * 4 and view.locator(".cx-unit:visible").count() > 0


@pytest.mark.slow
def test_chapters_that_do_not_apply_say_so(whole: Path):
    text = whole.read_text()
    assert "This question does not apply to addlm-adder-two-digit" in text
    assert text.count("<h2 id=") >= 10


@pytest.mark.slow
def test_the_paper_stands_next_to_what_was_measured_and_the_twin_next_to_the_model(whole: Path):
    text = whole.read_text()
    account = unescape(text.split('<h2 id="paper">')[1].split("<h2 ")[0])
    rows = headlines("microadder").of_kind("behaviour").rows
    differ = [row.headline.claim for row in rows if row.label.startswith("differs")]
    assert differ and all(claim in account for claim in differ)
    assert "microadder-57-by-hand" in text.split('<h2 id="beside">')[1].split("<h2 ")[0]


@pytest.mark.slow
def test_a_carry_s_way_is_a_circuit_in_one_layer_and_a_stream_in_more_or_where_there_is_no_carry():
    (carry,) = (chapter for chapter in CHAPTERS if chapter.anchor == "carry")
    about, made, _, passed, _ = carry.items(Story.of("adder-456", 64))
    assert "made in column 3" in made and "passed on by column 3" in passed and "edges bring back" in made
    assert "add up to nine" in about
    for name in ("toygpt-learned-pre", "modular-addition-113"):
        (about, stream, _) = carry.items(Story.of(name, 32))
        assert "patching the residual stream restores" in stream
    assert "carry" not in about


@pytest.mark.slow
def test_in_a_browser_one_model_is_shown_at_a_time_and_every_figure_is_drawn(whole: Path, open_page):
    for width in (1400, 380):
        opened = open_page(whole, width)
        opened.wait_for_selector("html[data-figures=drawn]")
        for name in (NAMES[0], NAMES[1], NAMES[0]):
            opened.locator("select.which").select_option(name)
            wait_until(opened, DRAWN)
            figures = opened.locator("figure:visible").count()
            assert 3 <= figures <= 15
            assert opened.locator("figure:has(svg.main-svg):visible").count() == figures
            assert opened.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_a_reader_steps_through_the_trained_adder_and_its_twin_and_removes_a_neuron(page: Path, open_page):
    opened = open_page(page)
    view = opened.locator(".cx[data-mounted]").first
    view.locator("[data-edit='L0N1']").last.click()
    assert "microadder-57-by-hand, without L0N1" in view.inner_text() and "wrong" in view.inner_text()


def drawn(page) -> None:
    page.wait_for_selector("html[data-figures=drawn]", state="attached")


@pytest.mark.slow
def test_texts_of_figures_do_not_meet_on_a_telephone_and_all_text_stands_out(page: Path, open_page):
    opened = open_page(page, 380)
    drawn(opened)
    assert opened.evaluate(MEETING_TEXTS) == []
    for theme in ("light", "dark"):
        opened.emulate_media(color_scheme=theme)
        opened.wait_for_selector(f"html[data-theme={theme}]", state="attached")
        assert opened.evaluate(FAINT_TEXTS, "body *") == []


@pytest.mark.slow
def test_the_theme_is_the_systems_until_the_reader_chooses_another(page: Path, open_page):
    opened = open_page(page)
    drawn(opened)
    ground = "getComputedStyle(document.body).backgroundColor"
    turned = "getComputedStyle(document.querySelector('.js-plotly-plot')).filter"
    assert opened.evaluate(ground) == "rgb(255, 255, 255)" and opened.evaluate(turned) == "none"
    opened.emulate_media(color_scheme="dark")
    opened.wait_for_selector("html[data-theme=dark]", state="attached")
    assert opened.evaluate(ground) == "rgb(24, 24, 24)" and "invert" in opened.evaluate(turned)
    opened.get_by_role("button", name="Light theme").press("Enter")
    assert opened.evaluate(ground) == "rgb(255, 255, 255)" and opened.evaluate(turned) == "none"
    opened.reload()
    assert opened.evaluate(ground) == "rgb(255, 255, 255)"  # remembered
    opened.get_by_role("button", name="Dark theme").click()
    opened.emulate_media(media="print")
    assert opened.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_the_buttons_over_a_figure_save_it_as_svg_and_send_data_nowhere(page: Path, open_page):
    opened = open_page(page)
    drawn(opened)
    names = set(opened.locator(".modebar-btn").evaluate_all("all => all.map((e) => e.dataset.title)"))
    assert names == {"Download plot", "Zoom in", "Zoom out", "Reset axes"}
    with opened.expect_download() as waited:
        opened.locator(".modebar-btn[data-title='Download plot']").first.click()
    assert "<svg" in Path(waited.value.path()).read_text()[:200]


def test_a_model_that_is_wrong_is_said_to_be_and_a_refusal_says_why():
    wrong = Story.of("microadder-75", 64)
    (hardest,) = (chapter for chapter in CHAPTERS if chapter.anchor == "hardest")
    assert "10,000,000,000" in hardest.items(wrong)[0] and "wrong" in hardest.items(wrong)[0]
    assert Chapter("x", "What is there?", _refuses).items(wrong) == []
    (more,) = (chapter for chapter in CHAPTERS if chapter.anchor == "more")
    assert "What is there? This was refused: There is no such thing." in more.items(wrong)[-1]


def _refuses(story: Story) -> list[Markup]:
    raise UserError("There is no such thing.")


def test_an_empty_zoo_and_a_folder_as_page_are_refused(tmp_path: Path, monkeypatch):
    with pytest.raises(UserError, match="is a folder"):
        write_report((), tmp_path)
    monkeypatch.setattr("interp.site.report.report_file.zoo_names", list)
    with pytest.raises(UserError, match="zoo holds no model"):
        write_report((), tmp_path / "report.html")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: by_hand(2, subtracts=False), ["with 824 free parameters, for {a:2r}+{b:2r}={s:3r}"]),
        pytest.param(  # whose proof was not stored, but is made now
            lambda: models.load("microadder-57"),
            ["with 57 free parameters, for ten-digit addition", "It is proved right on all 10²⁰ pairs"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["by hand", "microadder-57"],
)
def test_a_model_from_elsewhere_has_a_report(made: Callable[[], Any], said: list[str], tmp_path: Path):
    known = made()
    mine = ArithmeticTransformer(known.weight_map, known.task, name="from elsewhere").eval()
    out = tmp_path / "mine.html"
    write_report(["mine.safetensors"], out, n=32, only=("columns", "more"), load=lambda _: mine, flags=" --task t")
    text = unescape(out.read_text())
    assert "from elsewhere is a transformer" in text and all(each in text for each in said)
    assert "own column" in text and "interp ask mine.safetensors --task t" in text


def test_a_report_on_ones_own_subtractor_speaks_of_borrows_and_not_of_what_is_not_there(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Story, "certificate", None)
    folder, out = MODELS / "subtract-4-0", tmp_path / "report.html"
    told = ("columns", "switches", "beside", "training", "more")
    write_report([str(folder)], out, n=64, only=told)
    text = re.sub(r"<(script|style).*?</\1>", "", out.read_text(), flags=re.DOTALL)
    assert re.findall(r'<h2 id="(\w+)"', text) == ["columns", "switches", "more"]
    assert "Which neurons detect the borrow?" in text and "A column whose difference is negative borrows." in text
    for absent in ("adder", "ten or more", "ln 10 apart", "make docs", "refused", "run at"):
        assert absent not in text


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("microadder-57", "interp certify microadder-57"),
        ("arc-decoder-16", "interp certify arc-decoder-16 --arithmetic interval"),
        pytest.param("toygpt-none-none", None, marks=pytest.mark.slow),  # a count, without a certificate
    ],
)
def test_the_command_that_makes_a_certificate_again_names_its_arithmetic(name: str, again: str | None):
    (right,) = (chapter for chapter in CHAPTERS if chapter.anchor == "right")
    text = "".join(map(str, right.items(Story.of(name, 16))))
    assert "refused" not in text
    assert (again is None and "interp certify" not in text) or f"{again}\n" in text or f"{again}<" in text
