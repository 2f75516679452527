"""Bounds on the accuracy over all 10^20 pairs: pair by pair and in total they agree with the models themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import interp
import models
from benchmarks.false_certificates import random_pairs
from interp.cli import main
from interp.proofs import AccuracyBounds, check_certificate, load_certificate
from interp.proofs.columns import half_spaces
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.half_spaces import half_space_diagrams
from interp.proofs.columns.pair_counting import RIGHT, WRONG, Counts, count, symbols
from interp.proofs.columns.small_margins import hunt
from interp.proofs.columns.window_search import Search
from interp.proofs.numbers.rounded_operations import REAL
from models.errors import UserError
from models.evaluation import predict
from models.number_format import shown
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.checkpoints import load_published
from tests.interp.proofs.conftest import broken, walk, zoo

PAIRS = 10**20

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # a proof is some 10^6 calls


@cache
def bounds_of_few() -> AccuracyBounds:
    return interp.accuracy_bounds(broken("few"))


@pytest.fixture
def few(without_shape_checks) -> AccuracyBounds:
    return bounds_of_few()


# ---- half-spaces of attention, where it depends on tokens


def seen(model: ArithmeticTransformer, search: Search, target: int) -> tuple[torch.Tensor, np.ndarray]:
    """Pairs, half of which share some digits with hunted ones of small margin, and their margins over the reals."""
    classes, smallest = hunt(search.adder, search.attention)
    rows = np.flatnonzero(classes.target == target)
    worst = classes.witnesses[rows[smallest[rows].argsort()[:20]], 0]
    rng, n = np.random.default_rng(0), 6000
    own, other = worst[rng.integers(len(worst), size=n)], random_pairs(n, 1).numpy()
    place, keep = 10 ** np.arange(10), rng.random((n, 1, 10)) < rng.random((n, 1, 1))
    mixed = (np.where(keep, own[..., None] // place % 10, other[..., None] // place % 10) * place).sum(-1)
    pairs = torch.from_numpy(np.concatenate((mixed, other)))
    weights = {name: value.detach().double() for name, value in model.effective_weights().items()}
    margins = []
    for batch in pairs.split(1000):
        with torch.no_grad():
            logits = model(model.task.encode(batch), weights=weights)[:, model.task.query_positions[target]]
        right = model.task.targets(batch)[:, target, None]
        margins.append((logits.gather(1, right) - logits.scatter(1, right, -torch.inf).amax(1, keepdim=True))[:, 0])
    return pairs, torch.cat(margins).numpy()


@pytest.mark.parametrize(
    ("target", "apart", "most"), [(10, False, 1e-3), (8, True, 1e-3), (2, False, 1e-4), (1, False, 1e-3)]
)
def test_half_spaces_say_what_the_model_says_and_leave_little_open(target, apart, most, published_checkpoint):
    """The published 512, sampled at 1.2e-4 wrong; windows of two columns leave 13% open at s10, 0.3% at s8."""
    model = load_published(published_checkpoint("adder512_s42.pt"))
    search = Search(read_adder(model), REAL)
    right, wrong = half_space_diagrams(search, target, apart)
    pairs, margins = seen(model, search, target)
    assert (margins[walk(right, pairs) == RIGHT] > 0).all() and (margins[walk(wrong, pairs) == WRONG] < 0).all()
    counts = count([right, wrong])
    assert counts.open[0] < most * PAIRS and counts.total == PAIRS
    assert (walk(right, pairs) == RIGHT).mean() > 0.5
    if target in (2, 8):
        assert counts.wrong[0] > 0 and (walk(wrong, pairs) == WRONG).any()


def test_half_spaces_that_are_wrong_are_noticed(published_checkpoint, monkeypatch):
    model = load_published(published_checkpoint("adder512_s42.pt"))
    search = Search(read_adder(model), REAL)
    pairs, margins = seen(model, search, 10)
    level = half_spaces._level
    monkeypatch.setattr(half_spaces, "_level", lambda *args, **more: level(*args, **more) - 0.02)
    right, _ = half_space_diagrams(search, 10)
    assert not (margins[walk(right, pairs) == RIGHT] > 0).all()


def test_a_model_that_depends_on_tokens_is_bounded_near_its_sampled_accuracy(published_checkpoint):
    found = interp.accuracy_bounds(load_published(published_checkpoint("adder512_s42.pt")))
    assert 0 < 1 - found.upper < 1.2e-4 < 1 - found.lower < 2e-3


# ---- in total


@pytest.mark.parametrize("name", ["few", pytest.param("last digit", marks=pytest.mark.slow)])
def test_sampled_accuracy_lies_within_the_bounds(name):
    """Uniform pairs, 10^4 of them: overall, by digit and by chain (Clopper-Pearson 99.99% each)."""
    model = broken(name)
    found = bounds_of_few() if name == "few" else interp.accuracy_bounds(model)
    pairs = model.task.sample(10_000, torch.Generator().manual_seed(0))
    wrong = (predict(model, pairs, method="teacher_forced") != model.task.targets(pairs)).numpy()
    chain = np.asarray(model.task.chain_length(pairs))
    table, anywhere = found.to_dataframe(), np.asarray(wrong.any(1))
    sampled = [anywhere, *wrong.T, *(anywhere[chain == length] for length in range(11))]
    assert len(table) == len(sampled)
    for row, errors in zip(table.itertuples(), sampled, strict=True):
        if len(errors):
            inside = binomtest(int(errors.sum()), len(errors)).proportion_ci(0.9999)
            assert inside.low <= row.error_high and row.error_low <= inside.high, row.name


def test_parts_add_up_and_no_pair_is_lost(few):
    table = few.to_dataframe()
    assert replace(few, seconds=few.seconds + 1e3).sentence() == few.sentence()
    assert few.chains.total == PAIRS and all(c.total == PAIRS for c in few.targets.values())
    chains = table[table.part == "carry chain"]
    for name in ("pairs", "right", "open", "wrong"):
        assert sum(chains[name]) == table[name][0]
    targets = table[table.part == "target"]
    assert max(targets.wrong) <= table.wrong[0] <= sum(targets.wrong)
    assert list(few.targets) == [*(f"s{i}" for i in range(11)), "EOS"]


def test_a_model_wrong_on_few_pairs_is_bounded_to_the_requested_width(few):
    assert few.reached and few.width <= Fraction(1, 10**6)
    assert 5e-5 < 1 - few.upper < 5e-3
    assert few.lower <= few.upper


@pytest.mark.slow
def test_a_certified_model_is_right_on_all_pairs_exactly():
    found = interp.accuracy_bounds(zoo("microadder-74"), tolerance=0)
    assert found.lower == found.upper == 1 and found.reached


@pytest.mark.slow
def test_rounding_leaves_pairs_open():
    """In float32 some margins of this model are within the rounding."""
    found = interp.accuracy_bounds(broken("last digit"), tolerance=1e-9, arithmetic="float32")
    assert not found.reached and found.width < 0.01
    exact = interp.accuracy_bounds(broken("last digit"))
    assert found.lower <= exact.upper and exact.lower <= found.upper
    assert found.provenance.strength == "certified with rounding"


# ---- in certificates, as text and as a picture


@pytest.mark.slow
def test_a_refuted_certificate_says_on_how_many_pairs_and_can_be_checked(tmp_path, capsys):
    model = broken("few")
    found = interp.certify(model, arithmetic="interval")
    assert found.status == "refuted" and found.accuracy is not None
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(found.to_dict()))
    kept = load_certificate(path)
    assert kept.accuracy is not None and kept.accuracy.to_dict() == found.accuracy.to_dict()
    narrow = replace(kept.accuracy.chains, right=tuple(x + (x > 0) for x in kept.accuracy.chains.right))
    tampered = kept.replace(accuracy=replace(kept.accuracy, chains=narrow))
    with pytest.raises(UserError, match="bounds on the accuracy do not follow"):
        check_certificate(tampered, model)


@pytest.mark.slow
def test_without_a_width_no_bounds_are_computed():
    assert interp.certify(broken("few"), arithmetic="interval", tolerance=None).accuracy is None
    assert interp.certify(broken("few"), arithmetic="float").accuracy is None


def test_bounds_survive_their_file_to_the_last_pair(few, tmp_path):
    (tmp_path / "bounds.json").write_text(json.dumps(few.to_dict()))
    value = json.loads((tmp_path / "bounds.json").read_text())
    kept = AccuracyBounds.from_dict(value)
    assert kept.chains == few.chains and kept.targets == few.targets and kept.to_dict() == few.to_dict()
    for broken_value in (value | {"arithmetic": "exact"}, {}, value | {"chains": None}):
        with pytest.raises(UserError):
            AccuracyBounds.from_dict(broken_value)


def test_the_picture_shows_each_digit_and_each_chain(few):
    figure = few.figure()
    names = {str(x) for trace in figure.data for x in trace.text}
    assert names == {*few.targets, *(str(length) for length in range(11))}
    wrongs = {name for name, counts in few.targets.items() if counts.wrong[0]}
    between = next(trace for trace in figure.data if trace.name == "between")
    assert set(between.text) == wrongs and all(y > 0 for y in between.y)


def test_shares_are_rounded_outwards():
    share = Fraction(123456, 10**9)
    assert (shown(share, 3), shown(share, 3, up=True)) == ("1.23 x 10^-4", "1.24 x 10^-4")
    assert (shown(Fraction(1, 3), 3), shown(Fraction(2, 3), 3, up=True)) == ("0.333", "0.667")
    assert shown(Fraction(0), 3) == "0"


def bounds(right: int, open_: int, wrong: int) -> AccuracyBounds:
    counts = Counts((right,), (open_,), (wrong,))
    return AccuracyBounds("m", "f", "interval", "windows", 1e-6, counts, {"s0": counts}, 0.0)


@pytest.mark.parametrize(
    ("open_", "wrong", "words"),
    [
        (0, 0, "right on all pairs"),
        (10**16, 5 * 10**15, "wrong on between 5.00 x 10^-5 and 1.50 x 10^-4 of all pairs"),
        (10**11, 5 * 10**15, "wrong on between 5.000000 x 10^-5 and 5.000100 x 10^-5 of all pairs"),
        (10**16, 0, "wrong on at most 1.0 x 10^-4 of all pairs"),
        (0, 5 * 10**15, "wrong on exactly 0.00005 of all pairs"),
    ],
)
def test_the_sentence_says_as_much_as_is_known(open_, wrong, words):
    found = bounds(PAIRS - open_ - wrong, open_, wrong)
    assert found.wrong() == words


# ---- pieces


def test_symbols_of_a_window_are_read_as_the_diagram_says():
    known = symbols()
    assert known.x[157] == 5 and known.y[157] == 7 and known.carry_in[157] == 1 and known.written[157] == 3


# ---- bad input


@pytest.mark.parametrize("tolerance", [-1e-9, 1.5, float("nan"), True, "small"])
def test_a_tolerance_that_is_no_share_is_refused(tolerance):
    with pytest.raises(UserError):
        interp.accuracy_bounds(zoo("microadder-57"), tolerance=tolerance)


def test_a_grid_in_floats_bounds_nothing():
    with pytest.raises(UserError, match="proves no bound"):
        interp.accuracy_bounds(zoo("microadder-57"), arithmetic="float")


def test_the_command_takes_a_width(capsys):
    assert main(["certify", "microadder-57", "--tolerance", "2"]) == 2
    assert "tolerance is a share" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_whose_attention_writes_nothing_is_refuted_and_bounded():
    model = models.load("microadder-57")
    with torch.no_grad():
        model.weight_map.W_head.zero_()
    verdict = interp.certify(model)
    assert verdict.status == "refuted" and verdict.counterexample is not None
    assert verdict.accuracy is not None and sum(verdict.accuracy.chains.right) == 0
