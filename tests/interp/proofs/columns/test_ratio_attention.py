"""Ratio attention: what windows hold, and that what the model's attention writes lies in their boxes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import interp
from benchmarks.false_certificates import random_pairs
from interp.proofs.columns import ratio_attention
from interp.proofs.columns.adder_weights import AdderWeights, read_adder
from interp.proofs.columns.column_classes import all_classes
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.column_rule import SUMS
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.digit_layout import TokenLayout
from interp.proofs.columns.ratio_attention import RatioAttention, read_ratio_attention
from interp.proofs.columns.small_margins import attention_of, hunt, least_problems
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.verdict.method import CannotJudge
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from studies.adderboard.framed_addition import Frame, framed_addition
from studies.checkpoints import load_published
from tests.interp.proofs.conftest import dense, digits_of, two_heads, zoo
from tests.sampling import every_third, sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # some 10^6 calls
FEW = ("adder-456", "microadder-74")  # attention that reads digits, and that does not
NAMES = sampled([*FEW, "two heads", "microadder-133", "adder-582", "microadder-57"], *FEW)
TARGETS = (0, 1, 2, 6, 9, 10, 11)


#: Switches of models whose weights are drawn, on prompts of their own.
DRAWN = {
    "rotary, normed": {"positional_embedding_type": "rotary", "rotary_base": 3.0, "use_qk_norm": True},
    "rotary halves": {
        "positional_embedding_type": "rotary", "rotary_adjacent_pairs": False, "rotary_scaling_factor": 2.5,
    },
    "no norms": {"normalization_type": None},
}  # fmt: skip


@cache
def model_of(name: str) -> ArithmeticTransformer:
    if name in DRAWN:
        config = replace(zoo("adder-456").config, d_model=6, d_head=4, n_heads=2, n_ctx=34, d_vocab=10, **DRAWN[name])
        model = ArithmeticTransformer(DenseWeights(config), framed_addition(Frame((0,), (0, 0), (0,))), name=name)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        return model
    return two_heads() if name == "two heads" else zoo(name)


@cache
def read(name: str, arithmetic: Rounding = REAL) -> tuple[AdderWeights, RatioAttention]:
    adder = read_adder(model_of(name))
    return adder, read_ratio_attention(adder, arithmetic)


@cache
def query_of(attention: RatioAttention, layout: TokenLayout, target: int, token: int) -> WindowBounds:
    return WindowBounds(attention, layout, target, token)


def token_at(target: int, pairs: torch.Tensor, adder: AdderWeights) -> np.ndarray:
    return adder.model.task.encode(pairs).numpy()[:, adder.layout.queries[target]]


def leaf_of(pairs: torch.Tensor, low: int, high: int) -> Windows:
    digits, numbers = digits_of(pairs), pairs.numpy()
    carry = (numbers % 10**low).sum(1) // 10**low
    window = digits[:, :, low : high + 1]
    return Windows(SUMS, low, carry, window[:, 0] * 10 + window[:, 1])


def by_query(adder: AdderWeights, attention: RatioAttention, target: int, pairs: torch.Tensor):
    tokens = token_at(target, pairs, adder)
    for token in np.unique(tokens).tolist():
        rows = np.flatnonzero(tokens == token)
        yield query_of(attention, adder.layout, target, token), rows


def windows_of(target: int) -> list[tuple[int, int]]:
    top = min(target, 9)
    return sorted({(max(0, top - k), min(9, top + up)) for k, up in ((0, 0), (1, 2), (3, 0))})


# ---- what is read off the weights


def largest_share(model: ArithmeticTransformer, attention: RatioAttention, adder: AdderWeights, weights) -> float:
    """How far what ``model`` writes lies from the ratio, at its largest, as a share of what is allowed."""
    pairs = random_pairs(200, seed=3)
    found = {}
    with torch.no_grad():
        model.blocks[0].hook_attn_out.add_hook(lambda value, hook: found.update(out=value))
        try:
            model(model.task.encode(pairs), weights=weights)
        finally:
            model.reset_hooks()
    written = found["out"].double().numpy() - adder.b_O
    share = 0.0
    for target in [target for target in TARGETS if target < len(adder.layout.queries)]:
        for query, rows in by_query(adder, attention, target, pairs):
            _, coords = attention_of(query, digits_of(pairs[rows]))
            strayed = sum(strays(query, digits_of(pairs[rows])), np.zeros(coords.shape[-1]))
            off = np.abs(written[rows, adder.layout.queries[target]] - coords.sum(1) @ query.basis)
            share = max(share, float((off / (strayed @ np.abs(query.basis) + query.error + 1e-12)).max()))
    return share


def strays(query: WindowBounds, digits: np.ndarray) -> list[np.ndarray]:
    """By head, how far rounding of weights may take the coordinates of each problem."""
    r = query.coords.shape[-1]
    if query.sides.shape[-1] == 2 * r:
        return []
    found = attention_of(replace_coords(query, query.sides[..., 2 * r :]), digits)[1]
    return list(found.swapaxes(0, 1))


def replace_coords(query: WindowBounds, coords: np.ndarray) -> WindowBounds:
    other = copy(query)
    other.coords = coords
    return other


@pytest.mark.parametrize("arithmetic", [pytest.param(REAL, marks=pytest.mark.slow), FLOAT32], ids=["real", "float32"])
@pytest.mark.parametrize("name", sampled([*(name.values[0] for name in NAMES), *DRAWN], FEW[0], "rotary halves"))
def test_the_models_attention_is_the_ratio_up_to_its_error(name: str, arithmetic: Rounding):
    """In float64 for the reals, as it runs for float32; and a thousandth of float32's error is not enough for it."""
    adder, attention = read(name, arithmetic)
    weights = {key: value.detach() for key, value in adder.model.effective_weights().items()}
    if arithmetic is REAL:
        weights = {key: value.double() for key, value in weights.items()}
    share = largest_share(adder.model, attention, adder, weights)
    assert share <= 1 and (arithmetic is REAL or share > 1e-3)


@pytest.mark.parametrize("far", sampled([4.0, 12.0], 4.0))
def test_keys_that_are_left_out_are_within_the_error(far: float, monkeypatch):
    """Far ones weigh little in every problem, not nothing: with no error for them, attention escapes."""
    adder = read_adder(zoo("microadder-133"))
    weights = {key: value.detach().double() for key, value in adder.model.effective_weights().items()}
    whole = read_ratio_attention(adder, REAL)
    monkeypatch.setattr(ratio_attention, "FAR", far)
    fewer = read_ratio_attention(adder, REAL)
    kept = [(terms.weights > 0).sum() for terms in fewer.queries.values()]
    assert sum(kept) < sum((terms.weights > 0).sum() for terms in whole.queries.values())
    assert largest_share(adder.model, fewer, adder, weights) <= 1
    monkeypatch.setattr(ratio_attention, "_far", lambda *_: 0.0)
    assert largest_share(adder.model, read_ratio_attention(adder, REAL), adder, weights) > 1


def test_scores_far_apart_are_read(monkeypatch):
    """One query of this model has scores that differ by 1,500: what weighs nothing is left out."""
    adder = read_adder(zoo("microadder-74"))
    last = read_ratio_attention(adder, REAL).queries[11, 0]
    assert (last.weights > 0).any() and (last.weights > 0).sum() < 20
    monkeypatch.setattr(ratio_attention, "FAR", 1e9)
    assert read_ratio_attention(adder, REAL).obstacle == "attention scores are too far apart"


@pytest.mark.parametrize("name", ["adder-456", "microadder-133", "published 75"])
def test_scores_rounded_as_badly_as_allowed_stay_within_the_bounds(name: str, published_checkpoint):
    """Every query, key and score is moved by nearly what float32 may do to it, at random, in float64.

    What all keys of a query share is moved far more: it must cancel.
    """
    model = load_published(published_checkpoint("microadder_75p.pt")) if name == "published 75" else model_of(name)
    adder = read_adder(model)
    attention = read_ratio_attention(adder, FLOAT32)
    generator = torch.Generator().manual_seed(0)
    u, d, e = 2.0**-24, adder.W_Q.shape[1], adder.W_Q.shape[2]

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator, dtype=torch.float64).sub(0.5).sign() * 0.9

    def projected(value: torch.Tensor, weight: np.ndarray, normed: torch.Tensor) -> torch.Tensor:
        size = torch.einsum("bpd,hde->bphe", normed.abs(), torch.from_numpy(weight).abs())
        return value + d * u * size * noise(value)

    kept: dict[str, torch.Tensor] = {}

    def keep(value: torch.Tensor, hook) -> torch.Tensor:
        kept["x"] = value + 9 * u * value * noise(value)
        return kept["x"]

    def score(value: torch.Tensor, hook) -> torch.Tensor:
        size = torch.einsum("bphe,bqhe->bhpq", kept["q"].abs(), kept["k"].abs()) / adder.score_scale
        common = noise(value[..., :1]) * 1e-3  # of a query's scores: it must not matter
        return value + (e + 3) * u * size * noise(value) + common

    def query(value: torch.Tensor, hook) -> torch.Tensor:
        kept["q"] = projected(value, adder.W_Q, kept["x"])
        return kept["q"]

    def key(value: torch.Tensor, hook) -> torch.Tensor:
        kept["k"] = projected(value, adder.W_K, kept["x"])
        return kept["k"]

    weights = {name: value.detach().double() for name, value in model.effective_weights().items()}
    hooks = [
        ("ln1.hook_normalized", keep),
        ("attn.hook_q", query),
        ("attn.hook_k", key),
        ("attn.hook_attn_scores", score),
    ]
    for point, hook in hooks:
        model.get_submodule(f"blocks.0.{point}").add_hook(hook)
    found = {}
    pairs = random_pairs(200, seed=3)
    model.blocks[0].hook_attn_out.add_hook(lambda value, hook: found.update(out=value))
    with torch.no_grad():
        model(model.task.encode(pairs), weights=weights)
    model.reset_hooks()
    shares = []
    for target in TARGETS:
        for one, rows in by_query(adder, attention, target, pairs):
            _, coords = attention_of(one, digits_of(pairs[rows]))
            strayed = sum(strays(one, digits_of(pairs[rows])), np.zeros(coords.shape[-1]))
            off = np.abs(
                found["out"][rows, adder.layout.queries[target]].numpy() - adder.b_O - coords.sum(1) @ one.basis
            )
            shares.append(float((off / (strayed @ np.abs(one.basis) + one.error)).max()))
            # The bound of a window holds for each of its problems.
            low, high = windows_of(target)[0]
            least, most = one.box(leaf_of(pairs[rows], low, high))
            assert (most >= coords.sum(1) + strayed - 1e-9).all() and (least <= coords.sum(1) - strayed + 1e-9).all()
    assert 0.02 < max(shares) <= 1


def too_sharp() -> ArithmeticTransformer:
    def sharpen(weights):
        weights["blocks.0.attn.W_Q"] *= 1e4

    return dense("microadder-133", sharpen)


def test_scores_too_far_apart_are_refused_in_one_sentence():
    with pytest.raises(CannotJudge, match="attention scores are too far apart"):
        certify_one_layer(too_sharp(), arithmetic="interval")


@pytest.mark.slow
def test_what_one_method_cannot_judge_is_left_to_another_and_to_a_search():
    assert interp.certify(too_sharp(), arithmetic="interval", minutes=0.5).status == "refuted"


# ---- windows


@pytest.mark.parametrize("target", every_third(TARGETS))
def test_leaves_hold_every_pair_once(target: int):
    """Exact numbers: over all tokens 10^20, class by class those of the task, and a split keeps them."""
    adder, attention = read("adder-456")
    total = 0
    classes = all_classes(adder.layout)
    names = (classes.target, classes.token, classes.carry, classes.total)
    numbers = dict(zip(zip(*(x.tolist() for x in names), strict=True), classes.numbers, strict=True))
    assert sum(numbers[key] for key in numbers if key[0] == target) == 10**20
    for token in attention.tokens[target]:
        query = query_of(attention, adder.layout, target, token)
        roots = query.unsplit_windows()
        held: dict[tuple[int, ...], int] = {}
        for carry, *key in zip(roots.carry.tolist(), *(x.tolist() for x in query.class_of(roots)), strict=True):
            held[target, token, *key] = held.get((target, token, *key), 0) + query.problems(roots)[carry][0]
        assert held == {key: numbers[key] for key in numbers if key[:2] == (target, token)}
        total += sum(held.values())
        one = roots[len(roots) // 2 : len(roots) // 2 + 1]
        for split, room in ((query.below_of, one.low > 0), (query.above_of, one.high < 9)):
            if room:
                parts = split(one)
                before, after = query.problems(one)[one.carry[0]][0], query.problems(parts)
                assert sum(after[c][0] for c in parts.carry.tolist()) == before
                assert query.holds(parts).all() and len(np.unique(parts.codes())) == len(parts)
                assert (query.answer(parts) == query.answer(one)).all()
    assert total == 10**20


@pytest.mark.parametrize("target", TARGETS)
def test_a_leaf_knows_its_problems_answer(target: int):
    adder, attention = read("adder-456")
    pairs = random_pairs(300, seed=4)
    wanted = adder.model.task.targets(pairs).numpy()[:, target]
    for low, high in windows_of(target):
        for query, rows in by_query(adder, attention, target, pairs):
            windows = leaf_of(pairs[rows], low, high)
            assert query.holds(windows).all() and np.array_equal(query.answer(windows), wanted[rows])
            other = (query.token + 1) % 2 if target == 11 else (query.token + 1) % 10
            if low < target:  # the window says which token stands there
                assert target == 0 or not query_of(attention, adder.layout, target, other).holds(windows).any()


# ---- boxes


def escapes(adder: AdderWeights, attention: RatioAttention, pairs: torch.Tensor, change=lambda low, high: (low, high)):
    """How many problems lie outside the box of some window of theirs; boxes are made from ``attention``."""
    _, true = read("adder-456")
    out = 0
    for target in (0, 6, 11):
        for low, high in windows_of(target):
            for query, rows in by_query(adder, attention, target, pairs):
                least, most = change(*query.box(leaf_of(pairs[rows], low, high)))
                right = query_of(true, adder.layout, target, query.token)
                coords = attention_of(right, digits_of(pairs[rows]))[1].sum(1)
                out += int(((coords < least) | (coords > most)).any(1).sum())
    return out


@pytest.mark.parametrize("name", NAMES)
def test_problems_lie_in_the_boxes_of_their_leaves(name: str):
    adder, attention = read(name)
    pairs = random_pairs(300, seed=5)
    for target in (1, 6, 11):
        for low, high in windows_of(target):
            for query, rows in by_query(adder, attention, target, pairs):
                least, most = query.box(leaf_of(pairs[rows], low, high))
                coords = attention_of(query, digits_of(pairs[rows]))[1].sum(1)
                assert ((coords >= least) & (coords <= most)).all(), (target, low, high)


def test_boxes_that_are_wrong_are_noticed():
    adder, attention = read("adder-456")
    pairs = random_pairs(300, seed=5)
    assert escapes(adder, attention, pairs) == 0
    assert escapes(adder, attention, pairs, lambda low, high: (low, low + 0.9 * (high - low))) > 0
    assert escapes(adder, replace(attention, coords=-attention.coords), pairs) > 0
    lost = attention.coords.copy()
    lost[:, adder.layout.operands[0, 0]] = 0
    assert escapes(adder, replace(attention, coords=lost), pairs) > 0


def test_a_box_with_the_other_carry_does_not_hold_its_problems():
    """Columns below the window are bounded for one carry into it, and not for both."""
    adder, attention = read("microadder-133")
    pairs = random_pairs(300, seed=6)
    out = 0
    for query, rows in by_query(adder, attention, 5, pairs):
        windows = leaf_of(pairs[rows], 5, 5)
        least, most = query.box(replace(windows, carry=1 - windows.carry))
        coords = attention_of(query, digits_of(pairs[rows]))[1].sum(1)
        out += int(((coords < least) | (coords > most)).any(1).sum())
    assert out > 100


@pytest.mark.parametrize("name", ["adder-456", "microadder-133"])
def test_ends_of_boxes_are_attained_up_to_a_percent(name: str):
    """By the programme that finds problems: one linearisation at the end, which the bound says it cannot exceed."""
    adder, attention = read(name)
    for target, token in ((1, 3), (5, 0), (9, 7), (10, 2), (11, 1)):
        query = query_of(attention, adder.layout, target, token)
        windows = query.unsplit_windows()
        low, high = query.box(windows)
        for k in range(low.shape[1]):
            level = high[:, k, None, None]
            terms = -query.weights[0] * (query.coords[0, ..., k] - level)
            found = least_problems(query, windows, terms)
            reached = attention_of(query, found)[1].sum(1)[:, k]
            width = high[:, k] - low[:, k] + 1e-9
            assert ((reached <= high[:, k]) & (reached >= high[:, k] - 0.01 * width)).all()


def test_hunted_problems_belong_to_their_classes_and_have_the_margins_that_are_said():
    adder, attention = read("adder-456")
    classes, margins = hunt(adder, attention)
    pairs = torch.from_numpy(classes.witnesses[:, 0])
    targets = adder.model.task.targets(pairs).numpy()
    rows = np.arange(len(pairs))
    assert np.array_equal(targets[rows, classes.target], classes.answer)
    tokens = adder.model.task.encode(pairs)
    queries = np.array(adder.layout.queries)[classes.target]
    assert np.array_equal(tokens.numpy()[rows, queries], classes.token)
    with torch.no_grad():
        logits = adder.model(tokens)[rows, queries].double().numpy()
    right = logits[rows, classes.answer]
    logits[rows, classes.answer] = -np.inf
    assert np.allclose(right - logits.max(1), margins, atol=1e-2)
    tried = random_pairs(2000, seed=7)
    with torch.no_grad():
        lead = adder.model(adder.model.task.encode(tried))[:, list(adder.layout.queries)]
    wanted = adder.model.task.targets(tried)[..., None]
    others = lead.scatter(-1, wanted, -torch.inf).amax(-1)
    assert margins.min() < float((lead.gather(-1, wanted)[..., 0] - others).min())
