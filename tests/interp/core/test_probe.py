"""The registry of probes: what is in it, whom it suits, and what one more registration brings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

import interp
import models
from interp.core import probe as registry
from interp.core.probe import Probe, find_probe, probe, probes, registered
from interp.core.results import Findings, Result
from models.errors import UserError

#: A question asked of the same thing has the same name everywhere, and means the same.
SAME = {"seed": 0, "task": None, "problems": None}


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    registered()
    monkeypatch.setattr(registry, "_PROBES", dict(registry._PROBES))
    yield


@pytest.mark.parametrize("each", registered().values(), ids=lambda each: each.name)
def test_every_probe_asks_in_the_same_words(each: Probe) -> None:
    parameters = inspect.signature(each.ask).parameters
    for name, default in SAME.items():
        assert name not in parameters or parameters[name].default == default or name in each.subjects
    assert each.question[0].isupper() and "\n" not in each.question and len(each.question) < 80
    assert inspect.getdoc(each.ask)
    behind = list(parameters.values())[len(each.subjects) :]
    assert all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in behind)
    if each.name != "compare":  # which is a room that can be called
        assert getattr(interp, each.name) is each.ask


@pytest.mark.parametrize("name", ["microadder-57", "toygpt-learned-pre", "parity-coupling-1l4h-small"])
def test_what_does_not_apply_says_why_and_is_not_listed(name: str) -> None:
    model, listed = models.load(name), probes(models.load(name))
    for each in registered().values():
        assert (each.why_not(model) == "") == (each.name in listed.index)


def test_a_probe_of_ones_own_is_a_name_of_the_package(own_registry: None) -> None:
    @probe("How many parameters are there?")
    def parameters_counted(model, *, n: int = 1) -> Findings:
        """Free numbers."""
        raise AssertionError("asked")

    assert "parameters_counted" in interp.probes(models.load("microadder-57")).index
    with pytest.raises(AssertionError, match="asked"):
        interp.parameters_counted(models.load("microadder-57"))  # type: ignore[attr-defined]
    with pytest.raises(UserError):  # arguments are checked like those of every question
        interp.parameters_counted(models.load("microadder-57"), n=-1)  # type: ignore[attr-defined]
    with pytest.raises(UserError):
        find_probe("parameters_count")


def test_two_probes_cannot_have_one_name(own_registry: None) -> None:
    def certify(model) -> Result:
        """Another one."""
        raise NotImplementedError

    with pytest.raises(UserError):
        probe("Is it right?")(certify)


def test_an_answer_takes_the_options_that_the_probe_has(own_registry: None) -> None:
    @probe("What was it asked with?")
    def asked_with(model, *, n: int = 1) -> int:
        """The number."""
        return n

    model = models.load("microadder-57")
    assert find_probe("asked_with").answer(model, n=3, seed=5, task=model.task) == 3
    assert [find_probe("asked_with").takes(name) for name in ("n", "seed")] == [True, False]


def test_the_names_that_type_checkers_see_are_those_that_are_imported_when_asked_for() -> None:
    assert {"score", "certify", "compare_models", "Result", "probe"} <= set(interp.__all__)
    assert all(getattr(interp, name) is not None for name in interp.__all__)


def test_what_is_no_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        interp.atention_by_role  # noqa: B018
