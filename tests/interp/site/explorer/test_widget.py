"""The explorer in Jupyter: the models go to the view with the widget; and what it says where it cannot."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path

import pytest

import interp
import models
from models.errors import UserError

pytest.importorskip("anywidget")


def test_the_widget_holds_both_models_and_its_view_runs_them(open_page, tmp_path: Path):
    """As anywidget does it: the module's default export draws into an element."""
    shown = interp.explore("microadder-57", models.load("adder-456"), problem="99+1", method="mean")
    state = shown.get_state()
    start = json.dumps(state["start"], allow_nan=False)
    module = state["_esm"].replace("export default { render };", "")
    path = tmp_path / "cell.html"
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>{state["_css"]}</style>'
        f'<div id="cell"></div><script type="module">{module}\nconst start = {start.replace("<", chr(92) + "u003c")};\n'
        'render({ model: { get: (name) => ({ start })[name] }, el: document.getElementById("cell") });</script>'
    )
    opened = open_page(path)
    assert opened.locator(".cx-verdict b:last-of-type").all_inner_texts() == ["100", "100"]
    assert opened.locator("[data-method]").input_value() == "mean" and "export default" in state["_esm"]
    assert opened.locator("[data-link]").count() == 0  # a notebook's address is not the view's


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
