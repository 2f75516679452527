"""The report is one page that needs nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import models
from interp.core.parameters import parameter_table
from interp.site.report import write_report
from models.errors import UserError
from tests.shape_checks import unchecked_shapes

NAMES = ("microadder-57", "microadder-67", "adder-456")


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks_here() -> Iterator[None]:
    """Everything on the page has its own tests, which check shapes."""
    with unchecked_shapes():
        yield


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report on three models, with small samples."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(NAMES, out, n=256)
    return out


def test_the_page_has_no_outside_references(page: Path):
    text = page.read_text()
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", markup)
    assert "@import" not in markup and "url(" not in markup
    assert not re.findall(r"<script[^>]+src=", text)
    assert text.count("* plotly.js v") == 1


def test_every_model_is_on_it_with_score_interval_and_rung(page: Path):
    text = page.read_text()
    assert all(f"<td>{name}</td>" in text for name in NAMES)
    assert text.count("10,010 of 10,010") >= 2
    assert "(sampled)" in text


@pytest.mark.slow
def test_by_default_every_small_ten_digit_adder_of_the_zoo_is_on_it(tmp_path: Path):
    write_report((), tmp_path / "report.html", n=256)
    text = (tmp_path / "report.html").read_text()
    names = [name for name in models.zoo_names() if name.startswith("microadder")]
    assert set(names) >= {"microadder-57", "microadder-67", "microadder-74"}
    assert all(f"<td>{name}</td>" in text for name in names)


def test_models_stand_beside_their_hand_built_twins_and_beside_each_other(page: Path):
    section = page.read_text().split('<h2 id="beside">')[1].split('<h2 id="training">')[0]
    for size in (57, 67):
        assert f"<h3>microadder-{size} beside microadder-{size}-by-hand</h3>" in section
        assert f"<td>microadder-{size}-by-hand</td>" in section
    assert "<td>adder-456</td>" in section and "taking the carry from the digit that was written before" in section


def test_the_parameter_table_lists_every_number():
    model = models.load("microadder-57")
    table = parameter_table(model)
    assert len(table) == 57
    value = table[(table.parameter == "W_qk") & (table["index"] == "2,1")].value.item()
    assert value == pytest.approx(model.weight_map.W_qk[2, 1].item())


def test_in_a_browser_every_figure_is_drawn_and_the_console_stays_clean(page: Path, open_page):
    figures = page.read_text().count("<figure>")
    assert figures >= 6 * 3
    for width in (1400, 380):
        opened = open_page(page, width)
        assert opened.locator("figure:has(svg.main-svg)").count() == figures
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_a_reader_steps_through_the_trained_adder_and_its_twin_and_ablates_a_unit(page: Path, open_page):
    opened = open_page(page)
    assert opened.locator("#steps + p + h3").inner_text() == "microadder-57 beside microadder-57-by-hand"
    views = opened.locator(".cx[data-mounted]")
    assert views.count() == 2
    views.first.locator("[data-edit='L0U1']").last.click()
    assert "microadder-57-by-hand, without L0U1" in views.first.inner_text() and "wrong" in views.first.inner_text()
    views.last.locator("[data-example]").select_option("9999989999+1")
    assert "9999990000, right" in views.last.inner_text()


def test_the_explorers_add_less_than_two_megabytes(page: Path):
    data = re.findall(r'<script type="application/json">.*?</script>', page.read_text(), re.DOTALL)
    assert len(data) == 2 and sum(map(len, data)) < 2_000_000


def test_an_empty_zoo_and_a_folder_as_page_are_refused(tmp_path: Path, monkeypatch):
    with pytest.raises(UserError, match="is a folder"):
        write_report((), tmp_path)
    monkeypatch.setattr(models, "zoo_names", list)
    with pytest.raises(UserError, match="zoo holds no model"):
        write_report((), tmp_path / "report.html")
    assert not any(tmp_path.iterdir())
