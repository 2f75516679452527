"""Classes of inputs: every problem is in exactly one class of each target."""

from __future__ import annotations

import numpy as np
import pytest

from interp.proofs.columns.column_classes import all_classes
from interp.proofs.columns.digit_layout import read_layout, sequence_of
from models.tasks.named.addition import DelimitedAddition, PaddedAddition, TenDigitAddition, UnendedAddition
from tests.interp.proofs.conftest import class_of

TASKS = (TenDigitAddition(), UnendedAddition(), DelimitedAddition(), PaddedAddition())


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_there_are_3440_classes_and_two_of_eos(task):
    classes = all_classes(read_layout(task))
    assert len(classes) == (3440 if not task.parsed.delimiters[-1] else 3442)
    keys = zip(classes.target, classes.previous, classes.carry, classes.total, strict=True)
    assert len(set(keys)) == len(classes)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_problem_is_in_one_class_of_each_target_which_has_its_tokens(task):
    layout = read_layout(task)
    classes = all_classes(layout)
    pairs = np.random.default_rng(0).integers(10**10, size=(40, 2))
    held = classes.hold(np.broadcast_to(pairs, (len(classes), *pairs.shape)))
    for (a, b), own in zip(pairs.tolist(), held.T, strict=True):
        row, answer = sequence_of(layout, a, b)
        assert classes.target[own].tolist() == list(range(len(layout.queries)))
        for index in np.flatnonzero(own):
            target = int(classes.target[index])
            assert answer[target] == classes.answer[index] and row[layout.queries[target]] == classes.token[index]
            key = (target, *(int(x[index]) for x in (classes.previous, classes.carry, classes.total)))
            assert class_of(a, b, target) == key


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
