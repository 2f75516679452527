"""Adders of two layers whose scores depend on positions: planted models, right and broken, against all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import interp
from interp.proofs import check_certificate
from interp.proofs.certify import method_for
from interp.proofs.columns import two_layer_adders
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.ratio_attention import of_positions, read_ratio_attention
from interp.proofs.columns.two_layer_adders import TwoLayerAdder, hulls, read_columns
from interp.proofs.columns.window_search import Search
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from interp.proofs.verdict.verdict import ArithmeticName
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import weight_shapes
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.columns.columns_by_hand import Weights, column_task
from tests.interp.proofs.columns.test_subtraction import all_pairs, leads
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

DIGIT, CONSTANT, BELOW, CARRY, OWN, PLACE = range(6)  # dimensions of the stream; from PLACE on: a position each
LARGE = 300.0  # the constant, next to which all else changes a norm by little
SHARP = 12.0  # scores of the keys that are read are this much above those of any other


def by_hand(digits: int = 2, normed: bool = True, change: Callable[[Weights], None] | None = None):
    """An adder: layer 0 reads the column below, and its MLP makes the carry out of it from the digit that is written
    there; layer 1 reads the query's own column, and its MLP takes ten off. ``normed``: with RMS norms, norms of queries
    and keys, and gated units; else plain units without norms."""
    task = column_task(digits, False)
    n, queries = task.input_length, task.query_positions
    d = PLACE + n
    gated = {"act_fn": "silu", "gated_mlp": True, "use_qk_norm": True, "normalization_type": "RMS", "eps": 1e-6}
    config = TransformerConfig(
        n_layers=2, d_model=d, n_heads=2, d_head=n, d_mlp=2, d_vocab=task.d_vocab, n_ctx=n, attn_scale=1.0,
        **(gated if normed else {"act_fn": "relu", "normalization_type": None}),
    )  # fmt: skip
    z = {name: torch.zeros(shape) for name, shape in weight_shapes(config).items()}
    z["embed.W_E"][:10, DIGIT] = torch.arange(10.0)
    z["pos_embed.W_pos"][:, CONSTANT] = LARGE
    z["pos_embed.W_pos"][:, PLACE:] = torch.eye(n)
    scale = LARGE / math.sqrt(d) if normed else 1.0  # what norms divide by, nearly
    place = {(role.index, role.column): at for at, role in enumerate(task.roles[:n]) if role.kind == "operand"}
    delimiter = next(at for at, role in enumerate(task.roles) if role.kind == "delimiter")
    for layer in (0, 1):
        block = f"blocks.{layer}"
        for head in (0, 1):
            for target, query in enumerate(queries):
                key = place.get((head, target - 1 + layer), delimiter)
                z[f"{block}.attn.W_Q"][head, PLACE + query, key] = 1.0 if normed else SHARP
            z[f"{block}.attn.W_K"][head, PLACE:] = torch.eye(n)
            z[f"{block}.attn.W_V"][head, DIGIT, 0] = scale
            z[f"{block}.attn.W_O"][head, 0, OWN if layer else BELOW] = 1.0
        units = torch.zeros(d, 2)
        if layer:  # the sum with the carry, from 9.4 to 9.6
            units[[OWN, CARRY]], units[CONSTANT] = scale, -torch.tensor([9.4, 9.6]) * scale / LARGE
            z[f"{block}.mlp.W_out"][:, OWN] = torch.tensor([-50.0, 50.0])
        else:  # x' + y' - w is 9 or 10 with a carry, else -1 or 0
            units[BELOW], units[DIGIT] = scale, -scale
            units[CONSTANT] = -torch.tensor([4.0, 5.0]) * scale / LARGE
            z[f"{block}.mlp.W_out"][:, CARRY] = torch.tensor([1.0, -1.0])
        if normed:
            z[f"{block}.mlp.W_gate"][:], z[f"{block}.mlp.W_in"][CONSTANT] = 100 * units, scale / LARGE / 100
            for name in ("attn.q_norm", "attn.k_norm"):
                z[f"{block}.{name}.w"][:] = math.sqrt(SHARP / n)
            for name in ("ln1", "ln2"):
                z[f"{block}.{name}.w"][:] = 1
        else:
            z[f"{block}.mlp.W_in"][:] = units
    if normed:
        z["ln_final.w"][:] = scale
    digit = torch.arange(10.0)
    z["unembed.W_U"][[OWN, CARRY], :10] = 2 * digit
    z["unembed.W_U"][CONSTANT, :10], z["unembed.W_U"][CONSTANT, 10:] = -(digit**2) / LARGE, -1000 / LARGE
    if change is not None:
        change(z)
    return ArithmeticTransformer(DenseWeights.holding(config, z), task, name="two layers by hand")


def without_carry(z: Weights) -> None:
    """The first MLP sees a carry out of a column only where none came into it."""
    z["blocks.0.mlp.W_gate"][CONSTANT] *= torch.tensor([9.2 / 4.0, 10.2 / 5.0])


def noisy(seed: int, normed: bool, noise: float) -> ArithmeticTransformer:
    def change(weights: Weights) -> None:
        generator = torch.Generator().manual_seed(seed)
        for value in weights.values():
            value.mul_(1 + noise * torch.randn(value.shape, generator=generator))

    return by_hand(2, normed, change)


@cache
def read(normed: bool, arithmetic: str) -> tuple[ArithmeticTransformer, TwoLayerAdder, Search]:
    model = noisy(3, normed, 0.01)
    adder = read_columns(model)
    assert isinstance(adder, TwoLayerAdder)
    return model, adder, Search(adder, {"interval": REAL, "float32": FLOAT32}[arithmetic])


@pytest.fixture
def few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are a little wider, in a fraction of the time."""
    monkeypatch.setattr(two_layer_adders, "PIECES", 32)


# ---- verdicts


@pytest.mark.parametrize("digits", sampled([1, 2], 1))
@pytest.mark.parametrize(("normed", "arithmetic"), [(False, "float32"), (True, "interval")])
def test_a_right_model_is_certified_and_its_bound_is_below_every_margin(
    normed: bool, arithmetic: ArithmeticName, digits: int, few_pieces: None
):
    model = by_hand(digits, normed)
    found = certify_one_layer(model, arithmetic)
    assert found.status == "certified" and (found.shares()["certified"] == 1).all()
    least = float(leads(model, all_pairs(digits, False)).min())
    assert 0.2 < found.lower_bound < least + 1e-4 and least <= found.smallest_margin + 1e-4
    check_certificate(found, model)
    claimed = found.classes.copy(deep=True)
    claimed.proved.values[:] = 2 * least
    with pytest.raises(UserError, match="does not hold"):
        check_certificate(found.replace(classes=claimed), model)


def test_a_wrong_model_is_refuted_by_a_pair_that_needs_the_carry(few_pieces: None):
    model = by_hand(2, True, without_carry)
    wrong = (leads(model, all_pairs(2, False)) <= 0).any(1)
    carries = (all_pairs(2, False) % 10).sum(1) >= 10
    assert wrong.any() and carries[wrong].all()
    found = certify_one_layer(model, "interval")
    ((a, b),) = model.task.as_problems([found.counterexample.problem]).tolist()
    assert found.status == "refuted" and found.counterexample.predicted != str(a + b) and a % 10 + b % 10 >= 10
    assert found.accuracy.lower <= 1 - Fraction(int(wrong.sum()), 10**4) <= found.accuracy.upper


@pytest.mark.parametrize("seed", sampled(range(6), 1, 2, 5))
def test_no_perturbed_model_gets_a_wrong_verdict(seed: int, few_pieces: None):
    """With more or less noise, and against all pairs: a proof is of a right model, and its counts are those of runs."""
    model = noisy(seed, seed % 2 == 1, (0.01, 0.03, 0.1)[seed // 2])
    found = certify_one_layer(model, "interval", tolerance=None)
    least = leads(model, all_pairs(2, False))
    assert (found.status == "certified") <= bool((least > 0).all())
    assert (found.status == "refuted") <= bool((least <= 0).any())
    for target, share in found.shares().iterrows():
        right = int((least[:, target] > 0).sum())
        assert share["certified"] * 10**4 <= right <= (1 - share["refuted"]) * 10**4


def test_long_numbers_are_judged_by_this_method_and_short_ones_are_run():
    names = [method_for(model, model.task).name for model in (by_hand(3), by_hand(4))]
    assert names[0] != "branch and bound over columns" == names[1]


@pytest.mark.slow
def test_all_pairs_of_four_digits_are_certified(few_pieces: None):
    assert interp.certify(by_hand(4)).status == "certified"


def test_scores_that_depend_on_digits_are_refused():
    def change(z: Weights) -> None:
        z["blocks.1.attn.W_K"][:, CARRY] = 100.0
        z["blocks.1.attn.k_norm.w"] *= 3

    with pytest.raises(UserError, match="cannot judge"):
        certify_one_layer(by_hand(2, True, change))


# ---- bounds

each_reading = pytest.mark.parametrize(
    ("normed", "arithmetic"),
    sampled(product((False, True), ("interval", "float32")), (False, "interval"), (True, "float32")),
)


@given(seed=st.integers(0, 10**6), sharp=st.floats(0.1, 20))
def test_what_attention_writes_by_position_is_within_the_widths_of_shares(seed: int, sharp: float):
    """Weights that each grow or shrink within their spread, whatever the tokens are."""
    rng = np.random.default_rng(seed)
    n, tokens = 6, 4
    weights = np.exp(-sharp * rng.random((n, 1)) - 0.1 * rng.random((n, tokens)) * rng.integers(0, 2))
    spread, coords = rng.random((n, tokens)) * rng.choice([1e-6, 1e-2, 0.3]), rng.normal(size=(n, tokens, 2))
    bound, _ = of_positions(weights, spread, coords, [list(range(tokens))] * n)
    at = np.arange(n), rng.integers(0, tokens, (200, n))
    w, c = weights[at], coords[at]
    moved = w * (1 + spread[at] * rng.choice([-1, 1], w.shape))
    before, after = ((x[..., None] * c).sum(1) / x.sum(1)[:, None] for x in (w, moved))
    assert (np.abs(after - before) <= bound).all()


@each_reading
def test_what_the_second_layer_reads_lies_in_its_hull_in_every_problem(normed: bool, arithmetic: str):
    model, adder, search = read(normed, arithmetic)
    first = replace(adder.first, layout=replace(adder.layout, queries=tuple(range(model.task.input_length))))
    below = read_ratio_attention(first, search.downstream.arithmetic)
    cells = list(below.queries)
    queries, keys, values, _ = hulls(adder, search.downstream.arithmetic, first, below)
    tokens = model.task.encode(all_pairs(2, False)[::7])
    exact = arithmetic == "interval"
    weights = {name: value.double() if exact else value for name, value in adder.stored.items()}
    _, cache = model.run_with_cache(tokens, weights=weights)
    inside = 0
    for name, (low, high) in (("q", queries), ("k", keys), ("v", values)):
        seen = cache[f"blocks.1.attn.hook_{name}"].double()
        if normed and name != "v":  # the hook comes before the head's norm
            rms = (seen.square().mean(-1, keepdim=True) + adder.model.config.eps).sqrt()
            seen = seen / rms * adder.stored[f"blocks.1.attn.{name}_norm.w"].double()
        seen = seen.numpy()
        for n, (position, token) in enumerate(cells):
            here = seen[tokens[:, position].numpy() == token, position]
            slack = 1e-9 * (1 + np.abs(high[n])) if exact else 0.0
            assert ((here >= low[n] - slack) & (here <= high[n] + slack)).all()
            inside += len(here)
    assert inside > 10_000


@each_reading
def test_what_both_attentions_write_lies_in_the_box_of_its_window(normed: bool, arithmetic: str):
    model, adder, search = read(normed, arithmetic)
    pairs, target = all_pairs(2, False), 1
    exact = arithmetic == "interval"
    weights = {name: value.double() if exact else value for name, value in adder.stored.items()}
    tokens = model.task.encode(pairs)
    _, cache = model.run_with_cache(tokens, weights=weights)
    written = [cache[f"blocks.{layer}.hook_attn_out"][:, adder.layout.queries[target]].double() for layer in (0, 1)]
    both, digits = torch.cat(written, 1).numpy(), (pairs[:, :, None] // torch.tensor([1, 10]) % 10).numpy()
    for token in (0, 7):
        query = search.query(target, token)
        windows = query.below_of(query.unsplit_windows())
        low, high = query.box(windows)
        center, radius = (low + high) / 2 @ query.basis, (high - low) / 2 @ np.abs(query.basis) + query.error
        row = {tuple(pair): n for n, pair in enumerate(windows.pairs.tolist())}
        own = [n for n in range(len(pairs)) if (digits[n, :, 0].sum() % 10) == token]
        at = np.array([row[tuple((digits[n, 0] * 10 + digits[n, 1]).tolist())] for n in own])
        slack = 1e-9 if exact else 1e-12
        assert (np.abs(both[own] - center[at]) <= radius[at] + slack).all()
