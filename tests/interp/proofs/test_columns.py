"""The programme over columns: every class's range is attained, and contains every problem of the class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.proofs.columns import Classes, all_classes
from interp.proofs.token_layout import Layout, read_layout, sequence_of
from models.tasks.addition import DelimitedAddition, PaddedAddition, TenDigitAddition, UnendedAddition
from tests.interp.proofs.conftest import class_of

TASKS = (TenDigitAddition(), UnendedAddition(), DelimitedAddition(), PaddedAddition())


def random_terms(layout: Layout, seed: int) -> np.ndarray:
    """Random integers where a token can stand and the query sees it."""
    rng = np.random.default_rng(seed)
    n_tokens = max(max(allowed) for allowed in layout.tokens) + 1
    terms = np.zeros((len(layout.queries), layout.n_positions, n_tokens), dtype=np.int64)
    for row, query in enumerate(layout.queries):
        for j in range(query + 1):
            terms[row, j, list(layout.tokens[j])] = rng.integers(-(2**50), 2**50, len(layout.tokens[j]))
    return terms


def index_of(classes: Classes) -> dict[tuple[int, int, int, int], int]:
    keys = zip(classes.target, classes.previous, classes.carry, classes.total, strict=True)
    return {tuple(int(x) for x in key): index for index, key in enumerate(keys)}


def value_of(layout: Layout, terms: np.ndarray, a: int, b: int, target: int) -> int:
    row, _ = sequence_of(layout, a, b)
    query = layout.queries[target]
    return sum(int(terms[target, j, row[j]]) for j in range(query + 1))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_there_are_3440_classes_and_two_of_eos(task):
    layout = read_layout(task)
    classes = all_classes(layout, random_terms(layout, 0))
    assert len(classes) == (3440 if not task.delimiters[-1] else 3442)
    assert len(index_of(classes)) == len(classes)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=3)
def test_each_end_is_attained_by_its_witness_which_belongs_to_the_class(task, seed):
    layout = read_layout(task)
    terms = random_terms(layout, seed)
    classes = all_classes(layout, terms)
    for index in np.random.default_rng(seed).integers(len(classes), size=200):
        for end in (0, 1):
            a, b = classes.witnesses[index, end].tolist()
            target = int(classes.target[index])
            assert value_of(layout, terms, a, b, target) == classes.ends[index, end]
            row, answer = sequence_of(layout, a, b)
            assert answer[target] == classes.answer[index] and row[layout.queries[target]] == classes.token[index]
            key = (target, *(int(x[index]) for x in (classes.previous, classes.carry, classes.total)))
            assert class_of(a, b, target) == key


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=3)
def test_no_problem_lies_outside_the_range_of_its_class(task, seed):
    layout = read_layout(task)
    terms = random_terms(layout, seed)
    classes = all_classes(layout, terms)
    index = index_of(classes)
    rng = np.random.default_rng(seed)
    for a, b in rng.integers(10**10, size=(150, 2)).tolist():
        for target in range(len(layout.queries)):
            low, high = classes.ends[index[class_of(a, b, target)]]
            assert low <= value_of(layout, terms, a, b, target) <= high


def test_ranges_are_exact_where_all_problems_can_be_tried():
    """Only the two lowest columns differ: 10^4 problems, whose least and largest sums are found one by one."""
    layout = read_layout(TenDigitAddition())
    terms = random_terms(layout, 1)
    terms[:, layout.operands[:, 2:].reshape(-1)] = 0
    classes = all_classes(layout, terms)
    found: dict[tuple[int, ...], list[int]] = {}
    for a in range(100):
        for b in range(100):
            for target in (0, 1):
                found.setdefault(class_of(a, b, target), []).append(value_of(layout, terms, a, b, target))
    index = index_of(classes)
    assert len(found) == 380 and all(
        classes.ends[index[key]].tolist() == [min(values), max(values)] for key, values in found.items()
    )


def test_a_flipped_sign_or_a_dropped_column_is_noticed():
    """The checks above can fail: a programme on other terms gives ends that its witnesses do not attain."""
    layout = read_layout(TenDigitAddition())
    terms = random_terms(layout, 2)
    for broken in (-terms, np.where(np.arange(layout.n_positions)[:, None] == layout.operands[0, 3], 0, terms)):
        classes = all_classes(layout, broken)
        attained = [
            value_of(layout, terms, *classes.witnesses[i, 0].tolist(), int(classes.target[i])) == classes.ends[i, 0]
            for i in range(2000, 2050)
        ]
        assert not all(attained)


@pytest.mark.slow
def test_the_whole_certifier_passes_the_shape_checks():
    """Other tests switch them off, for speed."""
    import interp
    from interp.proofs import check_certificate, decision_curves
    from tests.interp.proofs.conftest import zoo

    found = interp.certify(zoo("microadder-74"), arithmetic="interval")
    assert found.status == "certified"
    check_certificate(found, zoo("microadder-74"))
    assert decision_curves(zoo("microadder-74"), 11, 1).inside == 1
