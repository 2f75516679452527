"""The search over classes: nothing is proved that was not looked at, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.proofs.listed import exhaustive, prefix_method
from interp.proofs.machine import machine_method, path_search
from interp.proofs.machine.machine_method import certify_by_machine
from interp.proofs.machine.path_projection import query_paths
from interp.proofs.verdict.method import METHODS
from interp.proofs.verdict.time_limit import TimeUp
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import ArithmeticTransformer
from models.errors import UserError
from models.tasks import Machine, formatted
from models.tasks.machines.machine import Layer
from tests.interp.proofs.machine.machine_exam import TASKS, random_model, trained

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def right() -> ArithmeticTransformer:
    return trained(formatted(**TASKS[0]), 0, rate=5e-3, d_model=16, d_head=8, d_mlp=32)


def until(n: int, function: Callable[..., Any], ends: type[BaseException]) -> Callable[..., Any]:
    """The function, which ends in this way when it is called for the n-th time."""
    calls = count(1)

    def called(*all: Any) -> Any:
        if next(calls) == n:
            raise ends
        return function(*all)

    return called


@pytest.mark.slow
@pytest.mark.parametrize("ends", [KeyboardInterrupt, TimeUp])
def test_a_search_that_is_ended_anywhere_proves_only_what_it_bounded(ends, right, monkeypatch) -> None:
    """Ended in the middle of the n-th batch, for every n: nothing is lost that was open, and what was proved stays so.
    Once all is proved, an end takes nothing away but the larger bounds that were still looked for."""
    bound, calls = path_search.margin_bounds, []
    monkeypatch.setattr(path_search, "margin_bounds", lambda *all: (calls.append(1), bound(*all))[1])
    whole = certify_by_machine(right, "interval")
    assert whole.status == "certified"
    seen = []
    for n in range(1, len(calls) + 1):
        monkeypatch.setattr(path_search, "margin_bounds", until(n, bound, ends))
        found = certify_by_machine(right, "interval")
        seen.append(found)
        assert (found.status == "certified") == (found.unproved == 0) == (found.proved == len(found.classes))
        if found.status == "certified":
            assert 0 < found.smallest_margin <= whole.smallest_margin * (1 + 1e-9)
        else:
            assert found.unproved >= int((found.classes["open"] > 0).sum()) > 0
    assert seen[0].proved == 0 and seen[0].share == 0
    proved = [found.proved for found in seen]
    assert proved == sorted(proved)


def test_where_the_time_is_over_a_wrong_answer_is_searched(monkeypatch) -> None:
    task = formatted(**TASKS[0])
    model = random_model(task, 0, 0.5)
    monkeypatch.setattr(machine_method, "FEW_PROBLEMS", 1)
    monkeypatch.setattr(prefix_method, "LARGEST_TREE", 10)
    monkeypatch.setattr(path_search, "margin_bounds", until(1, path_search.margin_bounds, TimeUp))
    found = interp.certify(model, arithmetic="interval")
    assert (found.method, found.status, found.proved) == ("finite machine", "refuted", 0)
    assert wrong_answer(model, task, task.as_problems([found.counterexample.problem])) == found.counterexample


def test_what_a_proof_leaves_open_is_run_if_half_of_the_time_is_enough_however_many_problems_there_are(monkeypatch):
    """A right model whose proof is said to be incomplete; 81 problems count as many here."""
    model = trained(formatted(**TASKS[0]), 0, rate=5e-3, d_model=16, d_head=8, d_mlp=32)
    monkeypatch.setattr(machine_method, "FEW_PROBLEMS", 1)
    monkeypatch.setattr(prefix_method, "LARGEST_TREE", 10)
    monkeypatch.setattr(exhaustive, "LARGEST_SPACE", 10)
    own = machine_method.METHOD
    left_open = replace(own, run=lambda *given: replace(own.run(*given), status="undecided", counterexample=None))
    monkeypatch.setitem(METHODS, own.name, left_open)
    found = interp.certify(model, minutes=1)
    assert (found.method, found.status) == ("exhaustive", "certified")
    monkeypatch.setattr(exhaustive, "LARGEST_RUN", 10)
    assert interp.certify(model, minutes=1).status == "undecided"


def test_a_query_that_sees_the_same_in_all_problems_has_one_path() -> None:
    zeros, digits = np.zeros(4, np.int64), np.arange(4)
    step = Layer((1,), digits[:, None], zeros, zeros, digits[:, None])
    machine = Machine((step,), (1, 1), {0: 5, 2: 1}, "", 2, 1, origin=torch.zeros(1, dtype=torch.int64))
    (paths,) = query_paths(machine, 0, 0)
    masks = paths.roots
    assert (paths.token, [label.answer for label in paths.labels], len(paths.all_paths([m[0] for m in masks]))) == (
        5, [1], 1,
    )  # fmt: skip
    assert paths.fixed == ((0, 5),) and paths.count([mask[0] for mask in masks]) == 4


def test_margins_in_floats_are_asked_of_the_method_that_has_them() -> None:
    """A model whose heads write along 16 directions is proved by its task's machine, which knows no other question."""
    task = formatted("{a:3}+{b:3}={s:4r}", "a + b", variables="addition")
    model = random_model(task, 0, 0.4, d_model=16, d_head=16, d_mlp=32)
    assert interp.certify(model, arithmetic="float").method == "branch and bound over columns"
    assert interp.certify(model, minutes=0.02, exact_share=True).method == "finite machine"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_bias_of_scores_that_is_no_number_is_refused(value: float) -> None:
    task = formatted(**TASKS[0])
    model = random_model(task, 0, 0.4, attn_bias=True)
    with torch.no_grad():
        dict(model.weight_map.own())["blocks.0.attn.bias"][0, 1, 0] = value
    with pytest.raises(UserError):
        certify_by_machine(model)
