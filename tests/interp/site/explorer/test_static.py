"""Recorded views: what is stored, and that a reader can step and ablate without a kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import models
from interp.cli import main
from interp.figures.theme import BLUE, VERMILION
from interp.site.explorer import Subject, frame, static_view, write_explorer
from interp.site.explorer.static import FEW_COMPONENTS, pack, record
from models.errors import UserError
from tests.shape_checks import unchecked_shapes

EXAMPLES = [("57+48", "two carries"), ("1234+5432", "no carry"), ("9999999999+1", "a long carry")]
HERE = Path(__file__).parents[4] / "interp" / "site" / "explorer"


def unpacked(text: str) -> Any:
    """What view.js makes of :func:`pack`'s text, again."""
    kept = json.loads(text)

    def follow(part: Any) -> Any:
        if isinstance(part, list):
            return [follow(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$" in part:
            return follow(kept["pool"][part["$"]])
        if "#" in part:
            which, *values = part["#"]
            return dict(zip(kept["keys"][which], map(follow, values), strict=True))
        return {key: follow(item) for key, item in part.items()}

    return follow(kept["value"])


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks_here() -> Iterator[None]:
    """Hundreds of runs; test_frames.py checks the shapes of what they do."""
    with unchecked_shapes():
        yield


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return [Subject(models.load(name)) for name in ("microadder-57", "microadder-57-by-hand")]


@pytest.fixture(scope="module")
def page(subjects, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    write_explorer(path, subjects, EXAMPLES)
    return path


# ---- what is stored


def test_every_combination_of_few_components_is_recorded_with_the_frame_that_it_has(subjects, page):
    (packed,) = re.findall(r'<script type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    kept = unpacked(packed)
    assert [model["name"] for model in kept["models"]] == ["microadder-57", "microadder-57-by-hand"]
    for subject, recorded in zip(subjects, kept["recorded"], strict=True):
        assert len(recorded) == len(EXAMPLES) * (1 + 2 * 7)  # nothing, or a head and two units in 7 ways, 2 methods
        for key in ("57+48||", "57+48|zero|L0U1", "9999999999+1|mean|L0H0,L0U0"):
            problem, method, ablated = key.split("|")
            made = frame(subject, problem, [name for name in ablated.split(",") if name], method or "zero")
            assert recorded[key] == json.loads(json.dumps(made.to_dict()))


def test_packing_loses_nothing_and_stores_nothing_twice(subjects):
    made = record(subjects[:1], ["57+48"], ["zero"])
    text = pack(made)
    assert unpacked(text) == json.loads(json.dumps(made))
    assert len(text) < 0.5 * len(json.dumps(made, separators=(",", ":")))


def test_of_a_model_with_many_components_single_heads_and_the_units_that_write_most_are_recorded():
    subject = Subject(models.load("toygpt-learned-pre"))
    (recorded,) = record([subject], ["58+42"], ["zero"])["recorded"]
    names = {key.split("|")[2] for key in recorded} - {""}
    assert not any("," in name for name in names)
    assert {name for name in names if "H" in name} == {f"L{i}H{j}" for i in range(4) for j in range(4)}
    assert len(names) == 16 + 16 > FEW_COMPONENTS


def test_the_page_of_microadder_and_its_twin_weighs_less_than_a_quarter_of_a_megabyte(page):
    assert page.stat().st_size < 250_000


def test_the_page_has_no_outside_references_and_its_colours_are_the_themes(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", text)
    assert "@import" not in text and "url(" not in text and "https://" not in text
    css, code = ((HERE / name).read_text() for name in ("view.css", "view.js"))
    for colour in (BLUE, VERMILION):
        assert colour.lower() in css
        assert str([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) in code


def test_what_a_problem_shows_cannot_end_the_script_that_holds_it(subjects):
    shows = "</script><script>alert(1)</script>"
    view = static_view(subjects[:1], [("57+48", shows)], ["zero"], with_assets=False)
    assert view.count("</script>") == 1 and "<script>alert" not in view


@pytest.mark.parametrize(
    ("names", "problems", "methods", "said"),
    [
        ([], None, ["zero"], "one model or two, not 0"),
        (["microadder-57"] * 3, None, ["zero"], "one model or two, not 3"),
        (["microadder-57"], [], ["zero"], "list is empty"),
        (["microadder-57"], ["57-48"], ["zero"], "not an addition"),
        (["microadder-57"], None, ["resample"], "no ablation method 'resample'"),
        (["microadder-57", "parity-hand-built"], None, ["zero"], "about different tasks"),
    ],
)
def test_bad_views_are_one_sentence(names, problems, methods, said):
    with pytest.raises(UserError, match=said):
        static_view([models.load(name) for name in names], problems, methods)


def test_the_command_writes_a_page_and_refuses_what_it_cannot_show(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for wrong in ([], ["microadder-57"] * 3, ["microader-57"], ["microadder-57", "--problems", "57+x"], ["addlm-0.8m"]):
        assert main(["explore", *wrong]) == 2
    assert main(["explore", "microadder-57", "--out", "."]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 6
    assert not any(tmp_path.iterdir())
    assert main(["explore", "adder-3-by-hand", "--problems", "57+48", "--out", "one.html"]) == 0
    assert "57+48" in (tmp_path / "one.html").read_text()


# ---- in a browser


def current(opened) -> str:
    return opened.locator("[aria-current='step'] .cx-small").inner_text()


def answers(opened) -> list[str]:
    return opened.locator(".cx-verdict b:last-of-type").all_inner_texts()


def test_stepping_moves_both_models_and_a_click_on_a_unit_changes_the_answer(page, open_page):
    opened = open_page(page)
    assert current(opened) == "s0" and answers(opened) == ["105", "105"]
    assert opened.locator(".cx-truth").inner_text().startswith("s0: 7 + 8 + carry 0 = 15")
    opened.get_by_role("button", name="next").click()
    assert current(opened) == "s1"
    assert opened.locator(".cx-what:has-text('from s0')").count() == 2  # where both models read the digit before
    opened.locator("[data-model='0'][data-ablate='L0U1']").click()
    wrong, right = answers(opened)
    assert wrong != "105" == right
    assert opened.locator("[data-model='0'][data-ablate='L0U1']").get_attribute("aria-pressed") == "true"
    assert current(opened) == "s1"
    opened.get_by_role("button", name="Put all back").click()
    assert answers(opened) == ["105", "105"]
    opened.locator("[data-example]").select_option("9999999999+1")
    assert answers(opened) == ["10000000000", "10000000000"] and current(opened) == "s1"


def test_everything_is_reached_by_keyboard(page, open_page):
    opened = open_page(page)
    opened.locator("[data-example]").focus()
    for key, problem in (("ArrowRight", "1234+5432"), ("ArrowLeft", "57+48")):  # are the chooser's own
        opened.keyboard.press(key)
        assert problem in opened.locator(".cx-verdict").first.inner_text() and current(opened) == "s0"
    for _ in range(12):
        opened.keyboard.press("Tab")
        if opened.evaluate("document.activeElement.dataset.step !== undefined"):
            break
    at = current(opened)
    opened.keyboard.press("ArrowRight")
    assert (at, current(opened)) == ("s0", "s1")
    assert opened.evaluate("document.activeElement.getAttribute('aria-current')") == "step"  # focus moves with it
    opened.keyboard.press("ArrowLeft")
    assert current(opened) == "s0"
    reached = []
    for _ in range(12):
        opened.keyboard.press("Tab")
        reached.append(opened.evaluate("document.activeElement.dataset.ablate ?? ''"))
        if reached[-1] == "L0U0":
            break
    assert "L0H0" in reached and reached[-1] == "L0U0"
    before = answers(opened)
    opened.keyboard.press("Enter")
    assert answers(opened) != before
    assert opened.evaluate("document.activeElement.dataset.ablate") == "L0U0"  # focus stays
    opened.keyboard.press("Enter")
    assert answers(opened) == before


@pytest.mark.parametrize("width", [1400, 380])
def test_nothing_overflows_the_page(page, open_page, width):
    opened = open_page(page, width)
    for step in range(12):
        opened.locator(f"[data-step='{step}']").click()
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    wide = opened.evaluate(
        "[...document.querySelectorAll('.cx article, .cx-steps, .cx-line, .cx-unit')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className)"
    )
    assert wide == []


def test_the_numbers_drawn_are_those_of_the_frame(page, open_page, subjects):
    opened = open_page(page)
    opened.locator("[data-step='1']").click()
    shown = frame(subjects[0], "57+48")
    cells = (
        opened.locator("article").first.locator(".cx-line i[title]").evaluate_all("cells => cells.map(c => c.title)")
    )
    found = {title.split(" = ")[0]: float(title.split("attention ")[1]) for title in cells}
    assert len(found) == shown.task.query_positions[1] + 1
    for position, label in enumerate(role.label for role in shown.task.roles[: len(found)]):
        assert found[label] == pytest.approx(shown.pattern[1, 0, position], abs=6e-4)
    assert found["a1"] > 0.4 and found["b1"] > 0.4
    chosen = opened.locator("article").first.locator(".cx-chosen").get_attribute("title")
    assert chosen.startswith(f"{shown.answer[1]}: logit")


def test_two_views_of_one_page_share_their_script_and_do_not_disturb_each_other(subjects, open_page, tmp_path: Path):
    views = [static_view(subjects[i : i + 1], EXAMPLES[:1], ["zero"], with_assets=not i) for i in (0, 1)]
    path = tmp_path / "two.html"
    path.write_text('<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">' + "".join(views))
    opened = open_page(path)
    assert opened.locator("[data-mounted]").count() == 2
    opened.locator("[data-ablate='L0H0']").last.click()
    whole, ablated = answers(opened)
    assert whole == "105" != ablated


def test_what_is_not_recorded_says_so_and_cannot_be_clicked(open_page, tmp_path: Path):
    path = tmp_path / "many.html"
    write_explorer(path, [models.load("toygpt-learned-pre")], ["58+42"], ["zero"])
    for width in (1400, 380):
        opened = open_page(path, width)
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        disabled = opened.locator("[data-ablate][aria-disabled='true']")
        assert disabled.count() > 0
        disabled.first.click(force=True)
        assert opened.locator(".cx-off").count() == 0
        for name in ("L0H1", "L1H0"):  # one at a time
            opened.locator(f"[data-ablate='{name}']").click()
        assert opened.locator(".cx-off").count() == 1
    assert "dotted frame" in opened.locator(".cx-help").inner_text()
