"""Windows made longer where they are open: the same counts as from full tables, and as the models themselves."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import interp
import models
from benchmarks.false_certificates import perturb, random_pairs
from interp.proofs.columns import window_verdicts as module
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.column_rule import SUMS
from interp.proofs.columns.column_windows import Windows
from interp.proofs.columns.pair_counting import OPEN, RIGHT, WRONG, Diagram, count, diagram_of_windows, symbols
from interp.proofs.columns.window_search import Search
from interp.proofs.columns.window_verdicts import WindowVerdicts, window_diagrams, window_verdicts
from interp.proofs.numbers.rounded_operations import REAL
from models.evaluation import predict
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.interp.proofs.conftest import broken, walk, zoo

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@cache
def nearly_right() -> ArithmeticTransformer:
    """A 456-parameter adder, whose attention depends on digits, that some noise made wrong on few pairs."""
    model = models.load("adder-456")
    perturb(model, 0.003, "none", 1)
    return model


@cache
def diagrams_of_it(most: int) -> list[Diagram]:
    """Its windows of two columns, and up to so many longer ones."""
    return window_diagrams(*_windows_of_it(), most)


@cache
def _windows_of_it() -> tuple[Search, WindowVerdicts]:
    search = Search(read_adder(nearly_right()), REAL)
    return search, window_verdicts(search, 2)


@pytest.mark.parametrize("target", [2, 5, 9])
def test_longer_windows_count_as_a_table_of_three_columns(target, monkeypatch):
    rng = np.random.default_rng(target)
    table = np.ones((2, 100, 100), dtype=np.int8)
    places = tuple(rng.integers(n, size=40) for n in (2, 100, 100))
    table[places] = 0
    table[tuple(rng.integers(n, size=40) for n in (2, 100, 100))] = -1
    deeper = rng.integers(-1, 2, (2, 100, 100, 100)).astype(np.int8)
    known = symbols()
    for carry, pair in np.ndindex(2, 100):  # a decided window decides those that it holds
        into = int(known.carry_out[carry * 100 + pair])
        deeper[carry, pair] = np.where(table[into] == 0, deeper[carry, pair], table[into])

    def looked_up(search: object, query: object, windows: Windows) -> np.ndarray:
        return deeper[(windows.carry, *windows.pairs.T)] if windows.pairs.shape[1] == 3 else np.zeros(len(windows), int)

    monkeypatch.setattr(module, "verdicts", looked_up)
    query = SimpleNamespace(holds=lambda windows: np.ones(len(windows), dtype=bool))
    search = SimpleNamespace(queries=lambda target: [query], adder=SimpleNamespace(layout=SimpleNamespace(rule=SUMS)))
    below, left = module._longer(search, target, table, target - 1, 10**4)  # pyright: ignore[reportArgumentType]
    longer = diagram_of_windows(table, target, below=below)
    assert 0 < left < 10**4 - 2000
    assert count([longer], by_chain=True) == count([diagram_of_windows(deeper, target)], by_chain=True)
    none, left = module._longer(search, target, table, target - 1, 100)  # pyright: ignore[reportArgumentType]
    assert none == [] and left == 100


@pytest.mark.slow
def test_no_pair_of_a_model_is_answered_otherwise_than_its_verdict():
    model = nearly_right()
    pairs = random_pairs(20_000, 0)
    right = (predict(model, pairs, method="teacher_forced") == model.task.targets(pairs)).numpy().T
    wrongs = 0
    for most in (0, 20_000):
        for target, diagram in enumerate(diagrams_of_it(most)):
            found = walk(diagram, pairs)
            wrongs += int((found == WRONG).sum())
            assert right[target][found == RIGHT].all() and not right[target][found == WRONG].any()
            assert (found == OPEN).mean() < 0.5
    assert wrongs > 0


@pytest.mark.slow
def test_longer_windows_leave_fewer_pairs_open():
    before, after = (count(diagrams_of_it(most)) for most in (0, 20_000))
    assert sum(after.open) < sum(before.open)
    assert sum(after.right) >= sum(before.right) and sum(after.wrong) >= sum(before.wrong)


def test_a_456_parameter_adder_is_right_on_all_pairs():
    found = interp.accuracy_bounds(zoo("adder-456"), tolerance=0)
    assert found.lower == 1 and found.reached and found.method.startswith("windows of 2 columns")


@pytest.mark.slow
def test_wrong_pairs_are_those_that_another_method_counted():
    """A method of earlier versions, for attention that writes one scalar, shared no bound with windows. To the last
    pair it found these wrong, by the length of their longest carry chain."""
    found = interp.accuracy_bounds(broken("few"), tolerance=0)
    assert sum(found.chains.open) == 0
    assert found.chains.wrong == (
        0, 142468768363500000, 68712092356500000, 5948435880000000, 509878800000000, 42173460000000, 3337200000000,
        246600000000, 10800000000, 0, 0,
    )  # fmt: skip


@pytest.mark.slow
def test_sampled_accuracy_lies_within_the_bounds_of_windows():
    model = nearly_right()
    found = interp.accuracy_bounds(model, tolerance=1e-3)
    pairs = model.task.sample(20_000, torch.Generator().manual_seed(0))
    wrong = (predict(model, pairs, method="teacher_forced") != model.task.targets(pairs)).numpy()
    share, slack = wrong.any(1).mean(), 4 * np.sqrt(0.25 / len(pairs))
    assert float(1 - found.upper) - slack < share < float(1 - found.lower) + slack
