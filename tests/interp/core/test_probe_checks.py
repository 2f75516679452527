"""check_probe holds for every registered probe, and finds each planted fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import torch

import interp
import models
from interp.core.exam import Case, Exam
from interp.core.probe import probe
from interp.core.probe_checks import CHECKS
from interp.core.results import Provenance, Result
from interp.core.samples import draw
from interp.core.stats import mean_interval
from interp.core.table_result import TableResult
from models.calls import Count, Seed
from models.errors import UserError
from models.tasks import TaskLike
from models.transformer.hooked import HookedModel
from tests.exams import BRIEFLY
from tests.exams.asking import asked_of_models, kind_of, model_of, options_of
from tests.sampling import sampled

ADDER = "microadder-57"


def failed(table: pd.DataFrame) -> dict[str, str]:
    return dict(table[~table.passed][["check", "why"]].itertuples(index=False))


NAMES = asked_of_models()
QUICK = [name for name in NAMES if not BRIEFLY[name].slow]


@pytest.mark.parametrize("name", sampled(NAMES, *QUICK[1::6]))
def test_every_check_holds_for_a_registered_probe_asked_by_name(name: str) -> None:
    model = model_of(kind_of(name))
    assert failed(interp.check_probe(name, model, **options_of(name, model))) == {}


# ---- planted faults


def means(model: Any, task: Any, n: int, seed: int) -> pd.DataFrame:
    values = model(draw(task or model.task, None, n, seed).tokens).detach()[:, -1].amax(-1)
    return pd.DataFrame([mean_interval(values.numpy())], columns=["value", "value_low", "value_high"]).assign(of="all")


def largest_logit(model: HookedModel, *, task=None, n: Count = 2048, seed: Seed = 0) -> TableResult:
    """The mean of the largest logit."""
    table = means(model, task, n, seed)
    return TableResult(f"It is {table['value'][0]:.3f}.", table, Provenance(n, seed, "problems"))


def draws(model: HookedModel, *, task=None, n: Count = 2048, seed: Seed = 0) -> TableResult:
    """A number that the program's own generator gives."""
    return TableResult(f"{torch.rand(()):.6f}", means(model, task, n, seed), Provenance(n, seed, "problems"))


def forgets(model: HookedModel, *, task=None, n: Count = 2048, seed: Seed = 0) -> TableResult:
    """Another number each time."""
    return TableResult(f"{random.random():.6f}", means(model, task, n, seed), Provenance(n, seed, "problems"))


def writes(model: HookedModel, *, task=None, n: Count = 2048, seed: Seed = 0) -> TableResult:
    """The mean, of a model that it changes."""
    found = largest_logit(model, task=task, n=n, seed=seed)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    return found


def leaves(model: HookedModel, *, task=None, n: Count = 2048, seed: Seed = 0) -> TableResult:
    """The mean, of a model that keeps a hook."""
    found = largest_logit(model, task=task, n=n, seed=seed)
    model.add_hook("hook_embed", lambda value, hook: None)
    return found


def reordered(model: HookedModel, *, seed: Seed = 0, n: Count = 2048, task=None) -> TableResult:
    """The mean, asked for in another order."""
    return largest_logit(model, task=task, n=n, seed=seed)


def few(model: HookedModel, *, task=None, n: Count = 16, seed: Seed = 0) -> TableResult:
    """The mean, of few problems."""
    return largest_logit(model, task=task, n=n, seed=seed)


def a_number(model: HookedModel, *, task: TaskLike | None = None, n: Count = 2048, seed: Seed = 0) -> float:
    """The mean alone."""
    return float(means(model, task, n, seed)["value"][0])


@dataclass(frozen=True, eq=False)
class Lossy(Result):
    """A result whose file says less than it does."""

    table: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        return "It is so."

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"table": {"columns": [["value", {"dtype": "int64", "shape": [1], "data": [0]}]]}}


def loses(model: HookedModel, *, task: TaskLike | None = None, n: Count = 2048, seed: Seed = 0) -> Lossy:
    """A table that is not stored."""
    return Lossy(means(model, task, n, seed), Provenance(n, seed, "problems"))


FAULTS: dict[Callable[..., Any], str] = {
    draws: "the same again, and no traces",
    forgets: "the same again, and no traces",
    writes: "the same again, and no traces",
    leaves: "the same again, and no traces",
    reordered: "signature",
    few: "signature",
    a_number: "result",
    loses: "result after JSON",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_planted_fault_is_found(fault: Callable[..., Any], own_registry: None) -> None:
    probe("How large is the largest logit?")(fault)
    assert FAULTS[fault] in failed(interp.check_probe(fault, models.load(ADDER), n=32))


def test_a_sound_probe_of_ones_own_passes_with_its_exam(own_registry: None) -> None:
    ask = probe("How large is the largest logit?")(largest_logit)

    def scaled(factor: float) -> Any:
        model = models.load(ADDER)
        model.add_perma_hook("unembed.hook_out", lambda logits, hook: factor * logits)
        return model

    def sat(absence: Callable[[float], bool]) -> dict[str, str]:
        cases = [Case(lambda: scaled(1), lambda got: got > 1), Case(lambda: scaled(0), absence)]
        exam = Exam(
            "largest_logit",
            ask,
            lambda found: found.table["value"][0],
            *cases,
            "Largest has no other way round.",
            "Any copy has one.",
        )
        return failed(interp.check_probe(ask, exam=exam, n=32))

    assert sat(lambda got: got == 0) == {}
    assert set(sat(lambda got: got == 1)) == {"exam"}  # it reports 0
    assert set(sat(lambda got: True)) == {"exam"}  # which would hold of presence as well


@pytest.mark.parametrize("bad", ["no_such_probe", largest_logit, 3])
def test_what_is_not_registered_is_refused(bad: Any) -> None:
    with pytest.raises(UserError):
        interp.check_probe(bad)


def test_a_model_that_it_cannot_be_asked_of_is_refused() -> None:
    with pytest.raises(UserError, match="does not apply"):
        interp.check_probe("key_attention", models.load(ADDER))


def test_a_probe_of_a_table_is_checked_for_its_words() -> None:
    assert list(interp.check_probe("learning_curves")["check"]) == list(CHECKS)[:2]
    assert interp.check_probe("learning_curves").passed.all()


def test_a_probe_of_ones_own_owes_an_exam(own_registry: None) -> None:
    ask = probe("How large is the largest logit?")(largest_logit)
    assert set(failed(interp.check_probe(ask, n=32))) == {"exam"}


NO_REASONS = {"none": None, "empty": "", "a word": "none", "n/a": "n/a", "a number": 3, "true": True, "code": len}


@pytest.mark.parametrize("kind", ["presence", "absence", "inversion", "untrained"])
@pytest.mark.parametrize("given", NO_REASONS.values(), ids=list(NO_REASONS))
def test_an_exam_has_a_case_of_each_kind_or_the_reason_why_not(kind: str, given: Any) -> None:
    case = Case(lambda: None, 0)
    whole: Any = dict.fromkeys(("presence", "absence", "inversion", "untrained"), case)
    with pytest.raises(UserError):
        Exam("margins", print, print, **whole | {kind: given})
    if kind in ("inversion", "untrained"):
        assert kind not in Exam("margins", print, print, **whole | {kind: "A norm has no sign."}).kinds()
