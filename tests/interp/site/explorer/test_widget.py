"""The explorer in Jupyter: questions in, frames out; and what it says where it cannot."""

from __future__ import annotations

import builtins
import json
import sys

import pytest

import interp
import models
from interp.site.explorer import Session, Subject, frame
from models.errors import UserError

pytest.importorskip("anywidget")


@pytest.fixture
def widget(monkeypatch):
    """A widget of two models of different formats, and what it sends."""
    shown = interp.explore("microadder-57", models.load("adder-456"))
    sent: list[dict] = []
    monkeypatch.setattr(shown, "send", lambda content, buffers=None: sent.append(json.loads(json.dumps(content))))
    return shown, sent


def test_a_question_is_answered_with_a_frame_of_each_model(widget):
    shown, sent = widget
    question = {"id": "v-1", "problem": "99 + 1", "ablated": [["L0U1"], []], "method": "mean"}
    shown._handle_custom_msg(question, [])  # as the kernel does with what a view sends
    (reply,) = sent
    assert reply["id"] == "v-1" and "error" not in reply
    for found, name, ablated in zip(reply["frames"], ("microadder-57", "adder-456"), question["ablated"], strict=True):
        made = frame(models.load(name), "99+1", ablated, "mean" if ablated else "zero").to_dict()
        assert found == json.loads(json.dumps(made))
    assert reply["frames"][1]["answer"] == "100" != reply["frames"][0]["answer"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"problem": "57+x"}, "'57+x' is not an addition"),
        ({"problem": "  "}, "Type a problem such as 57+48"),
        ({"problem": 57}, "Type a problem"),
        ({"problem": "57+48", "ablated": [["L0U1"]]}, "each of the 2 models"),
        ({"problem": "57+48", "ablated": [["L0U9"], []]}, "microadder-57: There is no unit 9"),
        ({"problem": "57+48", "ablated": [["L0U1"], []], "method": "noise"}, "no ablation method 'noise'"),
        ("a word", "Type a problem"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence_and_the_next_question_is_answered(widget, question, said):
    shown, sent = widget
    shown.answer(shown, question)
    assert said in sent[0]["error"] and "frames" not in sent[0]
    shown.answer(shown, {"id": 2, "problem": "57+48"})
    assert [found["answer"] for found in sent[1]["frames"]] == ["105", "105"]


def test_the_first_picture_comes_with_the_widget(widget):
    shown, _ = widget
    assert [model["name"] for model in shown.start["models"]] == ["microadder-57", "adder-456"]
    assert [found["answer"] for found in shown.start["frames"]] == ["105", "105"]
    state = shown.get_state()
    json.dumps(state["start"], allow_nan=False)
    assert "export default" in state["_esm"] and ".cx" in state["_css"]


def test_examples_suit_both_models_and_pairs_without_any_are_refused():
    session = Session([Subject(models.load("toygpt-learned-pre")), Subject(models.load("microadder-57"))])
    assert ("99+1" in dict(session.examples)) and all(len(text) <= 5 for text, _ in session.examples)
    with pytest.raises(UserError, match="about different tasks"):
        Session([Subject(models.build("parity-hand-built")), Subject(models.load("microadder-57"))])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("microader-57",), "Did you mean 'microadder-57'"),
        (("microadder-57", "addlm-0.8m"), "predicts text"),
        (("microadder-57", None, "57-48"), "not an addition"),
        (("microadder-57", None, None, "noise"), "no ablation method 'noise'"),
    ],
)
def test_what_cannot_be_explored_is_one_sentence(arguments, said):
    with pytest.raises(UserError, match=said):
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
