"""The explorer in Jupyter: the models go to the view with the widget; and what it says where it cannot."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import interp
import models
from models.errors import UserError
from tests.other_tasks import column_addition, exact_adder

pytest.importorskip("anywidget")


def cell(shown: Any, path: Path) -> Path:
    """A page that draws the widget as anywidget does: its module's export draws into an element, with a model."""
    state = shown.get_state()
    start = json.dumps(state["start"], allow_nan=False).replace("<", "\\u003c")
    assert "export default { render }" in state["_esm"]
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>{state["_css"]}</style>'
        f'<div id="cell"></div><script type="module">{state["_esm"].replace("export default { render };", "")}\n'
        f"const start = {start}, model = {{ get: () => start, off() {{}}, send: (said) => (window.asked = said),\n"
        "  on: (kind, receive) => (window.tell = receive) };\n"
        'render({ model, el: document.getElementById("cell") });</script>'
    )
    return path


def test_the_widget_holds_both_models_and_its_view_runs_them(open_page, tmp_path: Path):
    shown = interp.explore("microadder-57", models.load("adder-456"), problem="99+1", method="mean")
    opened = open_page(cell(shown, tmp_path / "cell.html"))
    assert opened.locator(".cx-verdict b:last-of-type").all_inner_texts() == ["100", "100"]
    assert opened.locator("[data-method]").input_value() == "mean"
    assert opened.locator("[data-link]").count() == 0  # a notebook's address is not the view's


@pytest.mark.slow
def test_of_a_task_that_the_page_does_not_know_the_kernel_reads_what_is_typed(open_page, tmp_path: Path, monkeypatch):
    task: Any = column_addition(7, python=True)
    shown = interp.explore(exact_adder(task))
    rows = shown.start["models"][0]["task"]["rows"]
    new = next(text for a in range(49) if (text := f"{a} 40") not in rows)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(shown, "send", lambda content, buffers=None: sent.append(content))
    opened = open_page(cell(shown, tmp_path / "cell.html"))
    verdict = opened.locator(".cx-verdict")
    for problem, kept in ((new, True), ("1234+x", False)):
        before = verdict.inner_text()
        opened.locator("[data-problem]").fill(problem)
        opened.keyboard.press("Enter")
        asked = opened.evaluate("window.asked")
        assert asked["problem"] == problem and verdict.inner_text() == before
        shown._handle_custom_msg(asked, [])  # as the kernel does with what a view sends
        opened.evaluate("(reply) => window.tell(reply)", sent[-1])
        assert (problem in verdict.inner_text()) == kept == ("error" not in sent[-1])
        assert opened.locator(".cx-alert").is_visible() == (not kept) and ", right" in verdict.inner_text()


@pytest.mark.slow
def test_a_view_is_saved_as_a_page_that_takes_any_problem_of_a_task_that_is_text(open_page, tmp_path: Path):
    shown = interp.explore(exact_adder(column_addition(7)), problem="12 30", method="mean")
    shown.save(tmp_path / "view.html")
    opened = open_page(tmp_path / "view.html")
    assert ", right" in opened.locator(".cx-verdict").inner_text()
    assert opened.locator("[data-method]").input_value() == "mean"
    for problem in ("31 17", "48 48", "0 0"):
        opened.locator("[data-problem]").fill(problem)
        opened.keyboard.press("Enter")
        opened.wait_for_function(
            "(text) => document.querySelector('.cx-verdict').innerText.includes(text)", arg=problem
        )
        assert ", right" in opened.locator(".cx-verdict").inner_text()
    with pytest.raises(UserError):
        shown.save(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("microader-57",),
        ("microadder-57", "addlm-0.8m"),
        ("microadder-57", None, "57-48"),
        ("microadder-57", None, None, "noise"),
    ],
)
def test_what_cannot_be_explored_is_refused(arguments):
    with pytest.raises(UserError):
        interp.explore(*arguments)


def test_without_anywidget_explore_says_how_to_get_it(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.partition(".")[0] == "anywidget":
            raise ModuleNotFoundError("No module named 'anywidget'", name="anywidget")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "interp.site.explorer.widget", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'carrylens\[lab\]'"):
        interp.explore("microadder-57")
