"""The explorer's page: what it holds, and what a reader can do with it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import models
from interp.cli import main
from interp.figures.theme import BLUE, VERMILION
from interp.site.explorer import ExploredModel, static_view, view_data, write_explorer
from interp.site.pages import document
from models.errors import UserError
from tests.interp.site.looks import FAINT_TEXTS

EXAMPLES = [("57+48", "two carries"), ("1234+5432", "no carry"), ("9999999999+1", "a long carry")]
HERE = Path(__file__).parents[4] / "interp" / "site" / "explorer"


@pytest.fixture(scope="module")
def subjects() -> list[ExploredModel]:
    return [ExploredModel(models.load(name)) for name in ("microadder-57", "microadder-57-by-hand")]


@pytest.fixture(scope="module")
def page(subjects, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    write_explorer(path, subjects, EXAMPLES)
    return path


@pytest.fixture(scope="module")
def deep_page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "deep.html"
    write_explorer(path, [models.load("toygpt-learned-pre")])
    return path


# ---- what is stored


def test_the_page_of_microadder_and_its_twin_is_small_and_holds_moments_of_its_training(page):
    assert page.stat().st_size < 200_000
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    trained, by_hand = json.loads(data)["models"]
    assert 3 <= len(trained["data"]) == len(trained["steps"]) <= 13 and trained["steps"][-1] == "trained"
    assert trained["steps"][:-1] == sorted(trained["steps"][:-1]) and trained["parameters"] == 57
    assert by_hand["steps"] == ["trained"]


def test_a_changed_copy_of_a_zoo_model_has_no_training_and_its_own_weights():
    model: Any = models.load("microadder-57")
    whole = ExploredModel(model).to_dict()
    model.weight_map.W_head.data.mul_(1.5)
    changed = ExploredModel(model).to_dict()
    assert changed["steps"] == ["trained"] and changed["data"][-1] != whole["data"][-1]


def test_the_page_has_no_outside_references_and_its_colours_are_the_themes(page):
    text = page.read_text()
    assert not re.findall(
        r"""(?:src|href)\s*=\s*["'](?!#|data:)""", re.sub(r"<script type='module'>.*", "", text, flags=re.DOTALL)
    )
    assert "@import" not in text and "https://" not in text and "fetch(" not in text
    css = (HERE / "view.css").read_text()
    assert BLUE.lower() in css and VERMILION.lower() in css


def test_what_a_problem_shows_cannot_end_the_script_that_holds_it(subjects):
    shows = "</script><script>alert(1)</script>"
    view = static_view(subjects[:1], [("57+48", shows)], with_assets=False)
    assert view.count("</script>") == 1 and "<script>alert" not in view


@pytest.mark.parametrize(
    ("names", "problems", "method"),
    [
        ([], None, "zero"),
        (["microadder-57"] * 3, None, "zero"),
        (["microadder-57"], [], "zero"),
        (["microadder-57"], ["57-48"], "zero"),
        (["microadder-57"], None, "resample"),
        (["microadder-57", "parity-hand-built"], None, "zero"),
    ],
)
def test_bad_views_are_refused(names, problems, method):
    with pytest.raises(UserError):
        static_view([models.load(name) for name in names], problems, method)


def test_what_would_show_another_model_is_refused():
    hooked = models.load("microadder-57")
    hooked.add_perma_hook("blocks.0.hook_mlp_out", lambda tensor, hook: 0 * tensor)
    with pytest.raises(UserError):
        ExploredModel(hooked)
    with pytest.raises(UserError):
        ExploredModel(models.load("addlm-0.8m"))
    assert ExploredModel(models.load("addlm-adder-two-digit")) is not None


def test_examples_suit_both_models():
    found = view_data([models.load("toygpt-learned-pre"), models.load("microadder-57")])["examples"]
    assert "99+1" in dict(found) and all(len(text) <= 5 for text, _ in found)


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


def ask(opened, problem: str) -> None:
    opened.locator("[data-problem]").fill(problem)
    opened.keyboard.press("Enter")


def test_any_problem_is_answered_and_both_models_move_together(page, open_page):
    opened = open_page(page)
    assert current(opened) == "s0" and answers(opened) == ["105", "105"]
    assert opened.locator(".cx-truth").inner_text().startswith("s0: 7 + 8 + carry 0 = 15")
    ask(opened, "4711 + 815")
    assert answers(opened) == ["5526", "5526"] and current(opened) == "s0"
    opened.get_by_role("button", name="next").click()
    assert current(opened) == "s1"
    assert opened.locator(".cx-what:has-text('from s0')").count() >= 2  # where both models read the digit before
    ask(opened, "4711+x")
    assert opened.locator(".cx-alert").is_visible() and answers(opened) == ["5526", "5526"]
    assert opened.locator("[data-problem]").get_attribute("aria-invalid") == "true"
    opened.locator("[data-example]").select_option("9999999999+1")
    assert answers(opened) == ["10000000000", "10000000000"] and not opened.locator(".cx-alert").is_visible()


@pytest.mark.slow
def test_any_combination_of_parts_is_removed_scaled_and_put_back(page, open_page):
    opened = open_page(page)
    for name in ("L0N1", "L0H0"):
        opened.locator(f"[data-model='0'][data-edit='{name}']").click()
    wrong, right = answers(opened)
    assert wrong != "105" == right and "without L0N1, L0H0 (zero)" in opened.locator(".cx-verdict").first.inner_text()
    for name in ("L0N1", "L0H0"):
        slider = opened.locator(f"[data-model='0'][data-scale='{name}']")
        slider.fill("1")
        slider.dispatch_event("change")
    assert answers(opened) == ["105", "105"]
    opened.locator("[data-method]").evaluate("(x) => { x.closest('details').open = true; }")
    opened.locator("[data-method]").select_option("mean")
    slider = opened.locator("[data-model='0'][data-scale='L0N1']")
    slider.fill("0")
    slider.dispatch_event("change")
    opened.wait_for_selector("[aria-busy]", state="detached")
    assert answers(opened)[0] != "105"
    opened.get_by_role("button", name="Put all back").click()
    opened.wait_for_selector(".cx-off", state="detached")
    assert answers(opened) == ["105", "105"]


def test_a_written_digit_is_changed_and_a_second_problem_is_patched_in(page, open_page):
    opened = open_page(page)
    opened.locator("[data-step='0']").click()
    whole = opened.locator(".cx-steps button").all_inner_texts()
    opened.keyboard.press("9")  # the sum's units are a 5: what follows must say no carry or another one
    assert "s0 was changed to 9" in opened.locator(".cx-verdict").first.inner_text()
    changed = opened.locator(".cx-steps button").all_inner_texts()
    assert "9" in changed[0] and changed != whole
    opened.keyboard.press("Backspace")
    assert opened.locator(".cx-steps button").all_inner_texts() == whole
    opened.locator(".cx-options summary").click()
    opened.locator("[data-second]").fill("51+43")
    opened.locator("[data-second]").press("Tab")
    opened.locator("[data-click]").select_option("patch")
    opened.locator("[data-model='0'][data-edit='L0H0']").click()
    verdict = opened.locator(".cx-verdict").first.inner_text()
    assert "with L0H0 from 51+43" in verdict and answers(opened)[0] != "105"
    opened.locator("[data-second]").fill("5+43+1")
    opened.locator("[data-second]").press("Tab")
    assert opened.locator(".cx-alert").is_visible()


@pytest.mark.slow
def test_the_address_restores_the_state(page, open_page):
    opened = open_page(page)
    assert "#" not in opened.url
    ask(opened, "999+1")
    opened.locator("[data-step='2']").click()
    opened.locator("[data-model='1'][data-edit='L0N0']").click()
    opened.keyboard.press("l")
    opened.locator("[data-step='2']").click()
    opened.keyboard.press("7")
    before = opened.locator(".cx-verdict").all_inner_texts()
    assert "#x0=" in opened.url
    again = open_page(page)
    again.goto("about:blank")
    again.goto(opened.url)
    assert again.locator(".cx-verdict").all_inner_texts() == before and current(again) == "s2"
    assert "log scale" in again.locator(".cx-body").first.inner_text()
    again.keyboard.press("Escape")
    again.get_by_role("button", name="Put all back").click()
    assert answers(again) == ["1000", "1000"]
    broken = open_page(page)
    broken.goto("about:blank")
    broken.goto(page.as_uri() + "#x0=%7B%22problem%22%3A%22a%22%7D&x0=%7B")
    assert answers(broken) == ["105", "105"]


@pytest.mark.slow
def test_the_drawings_and_the_data_are_saved(page, open_page, tmp_path: Path):
    opened = open_page(page)
    opened.locator("[data-step='1']").click()
    opened.locator(".cx-options summary").click()
    with opened.expect_download() as saved:
        opened.locator("[data-svg]").click()
    drawing = ElementTree.parse(saved.value.path())
    assert drawing.getroot().tag.endswith("svg") and "var(" not in Path(saved.value.path()).read_text()
    assert len(drawing.getroot().findall("{http://www.w3.org/2000/svg}svg")) == 6  # three a model
    with opened.expect_download() as saved:
        opened.locator("[data-json]").click()
    data = json.loads(Path(saved.value.path()).read_text())
    one = data["models"][0]["steps"][1]
    assert data["problem"] == "57+48" and one["target"] == "s1" and one["token"] == 0 and len(one["logits"]) == 10
    assert {"hook_embed", "blocks.0.attn.hook_z", "unembed.hook_out"} <= set(one["activations"])


@pytest.mark.slow
def test_training_is_a_slider(page, open_page):
    opened = open_page(page)
    slider = opened.locator("[data-snapshot]")
    assert slider.count() == 1
    slider.fill("0")
    slider.dispatch_event("change")
    assert "at training step" in opened.locator(".cx-verdict").first.inner_text() and answers(opened)[0] != "105"
    slider.fill(slider.get_attribute("max"))
    slider.dispatch_event("change")
    assert answers(opened) == ["105", "105"]


@pytest.mark.slow
def test_arcs_follow_the_token_under_the_pointer_and_the_arrow_keys(page, open_page):
    opened = open_page(page)
    opened.locator("[data-step='3']").click()
    words = opened.locator(".cx-arcs small").first
    assert "from s2 " in words.inner_text()
    opened.locator("article").first.locator("svg[data-arcs] [data-at='23']").hover()
    assert "from s1 " in words.inner_text()
    opened.locator("svg[data-arcs]").first.focus()
    opened.keyboard.press("ArrowUp")
    assert "from s0 " in words.inner_text()


@pytest.mark.slow
def test_everything_is_reached_by_keyboard(page, open_page):
    opened = open_page(page)
    opened.locator("[data-step='0']").focus()
    opened.keyboard.press("ArrowRight")
    assert current(opened) == "s1"
    assert opened.evaluate("document.activeElement.getAttribute('aria-current')") == "step"  # focus moves with it
    opened.keyboard.press("ArrowLeft")
    assert current(opened) == "s0"
    reached = []
    for _ in range(24):
        opened.keyboard.press("Tab")
        reached.append(opened.evaluate("document.activeElement.dataset.edit ?? ''"))
        if reached[-1] == "L0N0":
            break
    assert "L0H0" in reached and reached[-1] == "L0N0"
    before = answers(opened)
    opened.keyboard.press("Enter")
    assert answers(opened) != before
    assert opened.evaluate("document.activeElement.dataset.edit") == "L0N0"  # focus stays
    opened.keyboard.press("r")
    assert answers(opened) == before
    opened.keyboard.press("c")
    assert "the mean of all tokens" in opened.locator(".cx-flow").first.inner_text()
    opened.keyboard.press("/")
    assert opened.evaluate("'problem' in document.activeElement.dataset")


@pytest.mark.slow
def test_of_many_heads_there_is_a_grid_of_layer_by_head_and_of_many_units_those_that_write_most(deep_page, open_page):
    opened = open_page(deep_page)
    heads = opened.locator(".cx-head")
    boxes = [heads.nth(i).bounding_box() for i in range(16)]
    assert len({round(box["y"]) for box in boxes}) == 4 and len({round(box["x"]) for box in boxes}) == 4
    assert opened.locator(".cx-unit").count() == 16
    opened.locator("[data-add]").select_option("L2.mlp")
    assert "without L2.mlp" in opened.locator(".cx-verdict").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (380, "dark")])
def test_nothing_overflows_the_page(page, deep_page, open_page, width: int, scheme: Any):
    for path in (page, deep_page):
        opened = open_page(path, width)
        opened.emulate_media(color_scheme=scheme)
        opened.locator(".cx-options summary").click()
        for step in range(opened.locator("[data-step]").count()):
            opened.locator(f"[data-step='{step}']").click()
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
        wide = opened.evaluate(
            "[...document.querySelectorAll('.cx article, .cx-steps, .cx-line, .cx-unit')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.className)"
        )
        assert wide == []
        assert opened.evaluate(
            "[...document.querySelectorAll('.cx-flow .cx-scroll')].every(e => e.scrollWidth <= e.clientWidth)"
        )
        ink, paper = opened.evaluate(
            "(({ color, backgroundColor }) => [color, backgroundColor])"
            "(getComputedStyle(document.querySelector('.cx')))"
        )
        light = [sum(map(int, re.findall(r"\d+", shade)[:3])) for shade in (ink, paper)]
        assert (light[0] < light[1]) == (scheme == "light") and abs(light[0] - light[1]) > 400
        assert opened.evaluate(FAINT_TEXTS, ".cx *") == []


@pytest.mark.slow
def test_two_views_of_one_page_share_their_script_and_do_not_disturb_each_other(subjects, open_page, tmp_path: Path):
    views = [static_view(subjects[i : i + 1], EXAMPLES[:1], with_assets=not i) for i in (0, 1)]
    path = tmp_path / "two.html"
    path.write_text('<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">' + "".join(views))
    opened = open_page(path)
    assert opened.locator("[data-mounted]").count() == 2
    opened.locator("[data-edit='L0H0']").last.click()
    whole, ablated = answers(opened)
    assert whole == "105" != ablated and "#x1=" in opened.url


# ---- what comes with the address

BAD = "<img src=x onerror='window.ran=1'>"
HOSTILE = {
    "scale": {"edits": [{"L0H0": {"scale": BAD}}]},
    "patch": {"second": "1+1", "edits": [{"L0H0": {"scale": 1, "patch": [BAD]}}]},
    "patch as text": {"second": "1+1", "edits": [{"L0H0": {"scale": 1, "patch": BAD}}]},
    "component": {"edits": [{f"L0H0{BAD}": {"scale": 0}}]},
    "neuron": {"edits": [{f"L0N{BAD}": {"scale": 0}}]},
    "edits of no model": {"edits": [{"L0H0": {"scale": BAD}}, {"L0H0": {"scale": BAD}}]},
    "prototype": {"edits": [{"__proto__": {"scale": BAD}}], "forced": {"__proto__": BAD}},
    "problem": {"problem": BAD},
    "second": {"second": BAD},
    "forced": {"forced": {"s0": BAD, BAD: 1}},
    "method": {"method": BAD, "click": BAD, "against": BAD, "log": BAD},
    "snapshot": {"snapshot": [BAD]},
    "numbers": {"snapshot": [1e9], "edits": [{"L0H0": {"scale": 1e400}}], "forced": {"s0": -1}},
    "step": {"step": BAD},
    "no object": [BAD],
}
FEW = ["scale", "prototype"]


@pytest.mark.parametrize("names", [FEW, pytest.param([*HOSTILE], marks=pytest.mark.slow)], ids=["few", "all"])
def test_an_address_runs_no_script_and_leaves_the_page_whole(names: list[str], page: Path, open_page: Any) -> None:
    """What it says in another form than the page's is left out; the policy would complain about any handler."""
    opened = open_page(page)
    for name, state in ((name, HOSTILE[name]) for name in names):
        opened.goto(f"{page.as_uri()}#x0={quote(json.dumps(state))}")
        opened.reload()
        opened.wait_for_selector(".cx-verdict")
        assert opened.evaluate("window.ran") is None, name
        assert opened.locator("img, [onerror]").count() == 0, name
        assert "57" in opened.locator(".cx-verdict").first.inner_text(), name


@pytest.mark.slow
def test_an_address_of_the_page_itself_is_followed(page: Path, open_page: Any) -> None:
    state = {"edits": [{"L0H0": {"scale": 0.5, "patch": False}}, {}], "log": True}
    opened = open_page(page)
    opened.goto(f"{page.as_uri()}#x0={quote(json.dumps(state))}")
    opened.reload()
    opened.wait_for_selector(".cx-edits input")
    assert opened.locator(".cx-edits input[data-scale]").first.input_value() == "0.5"


def test_a_handler_that_gets_into_the_page_does_not_run(page: Path, chromium: Any) -> None:
    opened = chromium.new_page()
    opened.goto(page.as_uri())
    opened.evaluate("document.body.insertAdjacentHTML('beforeend', `<img src=x onerror='window.ran=1'>`)")
    opened.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran=1'}))")
    opened.wait_for_timeout(300)
    assert opened.evaluate("window.ran") is None
    opened.close()


def test_every_page_has_a_policy(page: Path, tmp_path: Path) -> None:
    kinds = {
        "explorer": page.read_text(),
        "page": document("title", "<p>text</p>", {}, "interp"),
    }
    for kind, text in kinds.items():
        assert text.count("Content-Security-Policy") == 1 and "default-src 'none'" in text, kind
        assert text.index("Content-Security-Policy") < text.index("<script"), kind
        assert "unsafe-inline' 'self' file:; img" in text and "script-src 'unsafe-inline'" not in text, kind
