"""Branch and bound: verdicts against the models themselves, and bounds that were broken."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import interp
from benchmarks.false_certificates import perturb, random_pairs, rounded
from interp.proofs import check_certificate, load_certificate
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.class_prover import ClassProver
from interp.proofs.columns.column_classes import all_classes
from interp.proofs.columns.column_windows import WindowBounds
from interp.proofs.columns.window_search import ClassProof, Search, prove_query, split_codes
from interp.proofs.columns.window_verdicts import table_of, window_verdicts
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from models.errors import UserError
from models.evaluation import predict
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.checkpoints import load_published
from tests.interp.proofs.conftest import dense, digits_of, two_heads, zoo
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@cache
def search_of(name: str, arithmetic: Rounding = REAL) -> Search:
    return Search(read_adder(two_heads() if name == "two heads" else zoo(name)), arithmetic)


@cache
def in_bfloat16() -> ArithmeticTransformer:
    """microadder-57 with free weights in fewer bits: wrong on some pairs."""
    model = dense("microadder-57")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(rounded(parameter.detach(), "bfloat16"))
    return model


@cache
def perturbed() -> ArithmeticTransformer:
    model = dense("adder-456")
    perturb(model, 0.01, "none", seed=1)
    return model


def shares(found: dict[tuple[int, int], ClassProof]) -> np.ndarray:
    return np.array([[p.certified, p.refuted, p.open] for p in found.values()], dtype=object).sum(0)


# ---- verdicts


@pytest.mark.parametrize(
    ("name", "target", "arithmetic"),
    sampled(
        [("adder-456", 9, REAL), ("adder-456", 0, FLOAT32), ("two heads", 0, REAL), ("adder-582", 10, REAL)],
        ("two heads", 0, REAL),
    ),
)
def test_every_pair_of_a_target_is_certified(name: str, target: int, arithmetic: Rounding):
    search = search_of(name, arithmetic)
    total = sum(shares(prove_query(search, query)) for query in search.queries(target))
    assert total.tolist() == [10**20, 0, 0]


@pytest.mark.parametrize(
    ("make", "depth", "targets"),
    [
        pytest.param(in_bfloat16, 1, (0, 2, 10), id="57 in bfloat16, one column", marks=pytest.mark.slow),
        pytest.param(in_bfloat16, 2, (1, 2, 10), id="57 in bfloat16, two columns"),
        pytest.param(perturbed, 1, (0, 9, 10), id="456 with noise", marks=pytest.mark.slow),
    ],
)
def test_verdicts_on_windows_agree_with_the_model(make, depth: int, targets: tuple[int, ...]):
    model = make()
    search = Search(read_adder(model), REAL)
    found = {target: table_of(search, target, depth) for target in targets}
    pairs = random_pairs(20_000, seed=8)
    right = (predict(model, pairs) == model.task.targets(pairs)).numpy()
    digits, numbers = digits_of(pairs), pairs.numpy()
    seen = set()
    for target, table in found.items():
        top = min(target, 9)
        low = max(0, top - depth + 1)
        carry = (numbers % 10**low).sum(1) // 10**low
        pair = digits[:, 0] * 10 + digits[:, 1]
        said = table[(carry, *(pair[:, column] for column in range(low, top + 1)))]
        assert right[said == 1, target].all() and not right[said == -1, target].any()
        assert low > 0 or not table[1].any()
        seen |= set(np.unique(said).tolist())
    assert depth == 1 or seen >= {1, -1}


def test_all_tables_have_their_axes():
    found = window_verdicts(search_of("microadder-133"), 1)
    assert [table.shape for table in found.tables] == [(2, 100)] * 12
    assert [list(found.columns(target)) for target in (0, 5, 9, 10, 11)] == [[0], [5], [9], [9], [9]]
    assert all((table[0] == 1).all() for table in found.tables) and (found.tables[5][1] == 1).all()


# ---- wrong weights


@pytest.mark.slow
def test_problems_of_refuted_leaves_are_wrong_in_the_model():
    """Every class with a refuted window names one problem; the model answers it wrongly. What is certified is right."""
    model = in_bfloat16()
    search = Search(read_adder(model), REAL)
    pairs = random_pairs(20_000, seed=9)
    right = (predict(model, pairs) == model.task.targets(pairs)).numpy()
    refuted = 0
    for target in (2, 10):
        wrong, tally = [], np.zeros(3, dtype=object)
        for query in search.queries(target):
            found = prove_query(search, query, most=1_000)
            tally += shares(found)
            wrong += [p.wrong for p in found.values() if p.wrong is not None]
        assert tally.sum() == 10**20
        if wrong:
            assert (predict(model, wrong)[:, target] != model.task.targets(wrong)[:, target]).all()
        sampled = 1 - right[: len(right) // 2, target].mean()  # the uniform half
        lower, upper = tally[1] / 10**20, (tally[1] + tally[2]) / 10**20
        assert lower - 0.02 <= sampled <= upper + 0.02  # five standard errors
        refuted += tally[1]
    assert refuted > 0
    assert interp.certify(model, arithmetic="interval").status == "refuted"


def test_a_proof_is_checked_by_its_splits_alone():
    """The same splits find the same, without search; without one of them, its problems are open."""
    search = Search(read_adder(in_bfloat16()), REAL)
    query = search.query(2, 0)
    found = prove_query(search, query, most=1_000)
    splits = np.array(sorted(code for p in found.values() for code in p.splits))
    assert len(splits) > 1 and shares(found)[1] > 0
    again = prove_query(search, query, splits)
    assert {key: replace(p, splits=()) for key, p in again.items()} == {
        key: replace(p, splits=()) for key, p in found.items()
    }
    fewer = prove_query(search, query, splits[1:])
    assert shares(fewer)[2] > shares(found)[2] and sum(shares(fewer)) == sum(shares(found))


@pytest.mark.parametrize(("target", "token", "up"), [(1, 5, False), (9, 4, True)])
def test_no_window_is_split_beyond_the_last_column(target: int, token: int, up: bool):
    """A file may ask for it; there is nothing to split off, and the window is judged as it is."""
    search = search_of("adder-456")
    query = search.query(target, token)
    windows = query.unsplit_windows() if up else query.below_of(query.unsplit_windows())
    assert (windows.high == 9) if up else (windows.low == 0)
    beyond = split_codes(windows, np.full(len(windows), up))
    above = (
        np.zeros(0, dtype=np.int64)
        if up
        else split_codes(query.unsplit_windows(), np.full(len(query.unsplit_windows()), False))
    )
    found = prove_query(search, query, np.concatenate((beyond, above)))
    assert shares(found).tolist() == shares(prove_query(search, query, above)).tolist()


@pytest.mark.slow
def test_windows_that_are_lost_are_not_certified(monkeypatch):
    """Should a window ever be dropped, its class's problems no longer add up: no proof."""
    whole, parts = (ClassProver(read_adder(zoo("adder-456")), REAL) for _ in range(2))
    rows = np.flatnonzero((whole.classes.target == 3) & (whole.classes.token == 4))
    assert all(whole.prove_class(int(row), 0.0).proved for row in rows)
    roots = WindowBounds.unsplit_windows
    monkeypatch.setattr(WindowBounds, "unsplit_windows", lambda self: roots(self)[np.arange(len(roots(self))) != 45])
    assert sum(not parts.prove_class(int(row), 0.0).proved for row in rows) == 1


def test_boxes_of_the_wrong_place_prove_nothing(monkeypatch):
    """A flipped sign, or another answer: what was certified is not."""
    search = search_of("adder-456")
    query = search.query(3, 4)
    assert shares(prove_query(search, query))[1:].tolist() == [0, 0]
    box, answer = WindowBounds.box, WindowBounds.answer
    monkeypatch.setattr(WindowBounds, "box", lambda self, windows: tuple(-x for x in reversed(box(self, windows))))
    assert shares(prove_query(search, query, most=1))[1:].sum() > 0
    monkeypatch.setattr(WindowBounds, "box", box)
    monkeypatch.setattr(WindowBounds, "answer", lambda self, windows: (answer(self, windows) + 1) % 10)
    assert shares(prove_query(search, query, most=1))[0] == 0


# ---- certificates


def test_numbers_of_problems_add_up():
    adder = read_adder(zoo("microadder-57"))
    classes = all_classes(adder.layout)
    numbers = np.array(classes.numbers, dtype=object)
    assert [numbers[classes.target == target].sum() for target in range(12)] == [10**20] * 12


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_adder_456_is_certified_on_all_pairs(arithmetic, tmp_path):
    model = zoo("adder-456")
    found = interp.certify(model, arithmetic=arithmetic)
    assert (found.status, found.method) == ("certified", "branch and bound over columns")
    assert 1 < found.lower_bound <= found.smallest_margin < 1.31
    assert (found.shares()["certified"] == 1).all()
    (tmp_path / "certificate.json").write_text(json.dumps(found.to_dict()))
    again = load_certificate(tmp_path / "certificate.json")
    assert again.to_dict() == found.to_dict()
    check_certificate(again, model)
    classes = found.classes.copy(deep=True)
    classes.proved.values[1234] = classes.hunted.values[1234] + 0.5  # more than a problem of it has
    with pytest.raises(UserError, match="class 1234 is not proved"):
        check_certificate(found.replace(classes=classes), model)
    with pytest.raises(UserError, match="does not hold"):
        dropped = found.classes.isel(input_class=slice(1, None))
        check_certificate(found.replace(classes=dropped, cuts=found.cuts[1:]), model)


@pytest.mark.slow
def test_the_published_456_is_certified_with_rounding(published_checkpoint):
    found = interp.certify(load_published(published_checkpoint("adder456_s43.pt")))
    assert found.status == "certified" and 0.5 < found.smallest_margin < 0.52
