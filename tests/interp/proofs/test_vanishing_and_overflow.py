"""Numbers that vanish or overflow, in float32 or in the proof's own float64, are known of nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
import models
from interp.proofs.attacks.first_look import look
from interp.proofs.attention_only.distinct_means import CLOSE, ROUGH, largest_mean
from interp.proofs.listed.exhaustive import certify_exhaustively
from interp.proofs.machine.machine_method import certify_by_machine
from interp.proofs.machine.ratio_extremes import Nodes
from interp.proofs.numbers.enclosure import Enclosure, TrimmedMatrix
from interp.proofs.numbers.rounded_operations import FLOAT32
from interp.proofs.verdict.subject import Subject
from models.evaluation import predict
from models.tasks import formatted
from models.transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import rotate
from models.weight_maps import DenseWeights
from tests.interp.proofs.machine.machine_exam import TASKS, Truth, random_model
from tests.interp.proofs.machine.test_machine_method import bounds_hold_of, proof_of

pytestmark = pytest.mark.usefixtures("without_shape_checks")


# ---- weights of a softmax that vanish beside others


def with_scores_of(size: float, seed: int, **fields: Any) -> ArithmeticTransformer:
    """A random model whose scores are about so large."""
    model = random_model(formatted(**TASKS[seed % 2]), seed, 0.7, **fields)
    with torch.no_grad():
        weights = model.weight_map.own()
        (_, cache) = model.run_with_cache(Truth(model.task).tokens)
        scores = cache["blocks.0.attn.hook_attn_scores"]
        weights["blocks.0.attn.W_K"].mul_(size / float(scores[scores.isfinite()].std()))
    return model


@pytest.mark.parametrize("size", [30.0, 300.0, 1000.0, 4000.0])
@pytest.mark.parametrize("softmax", ["softmax", "softmax1"])
def test_no_mean_of_a_node_exceeds_its_bound_however_far_scores_lie_apart(size: float, softmax: str) -> None:
    generator = torch.Generator().manual_seed(int(size))
    for seed in (0, 1):
        model = with_scores_of(size, seed, attn_softmax=softmax)
        proof = proof_of(model, model.task, "interval", seconds=1e-3)
        for one in proof.classes[:: max(1, len(proof.classes) // 12)]:
            masks = [mask[[one.label]] for mask in one.paths.roots]
            nodes = Nodes(one.paths, one.reading, masks)
            along = torch.randn(1, 6, len(one.reading.base), dtype=torch.float64, generator=generator)
            samples = one.paths.sample(masks, 16, generator)
            bound = nodes.largest(along, nodes.written(samples))[0]
            every = one.paths.all_paths([mask[0] for mask in masks])[None]
            letters = torch.cat(
                [
                    torch.tensor([one.reading.number[letter] for letter in one.paths.fixed]).expand(every.shape[1], -1),
                    *(one.reading.placed_of(step)[every[0, :, k]] for k, step in enumerate(one.paths.steps)),
                ],
                1,
            )
            exponents = one.reading.exponents[:, letters]  # each path on the scale of its own largest score
            weights = (
                exponents - torch.maximum(exponents.amax(-1, keepdim=True), one.reading.sink[:, None, None])
            ).exp()
            sink = (one.reading.sink[:, None] - torch.maximum(exponents.amax(-1), one.reading.sink[:, None])).exp()
            z = (weights[..., None] * one.reading.values[:, letters]).sum(2) / (weights.sum(-1) + sink)[..., None]
            y = torch.einsum("hpe,hed->pd", z, one.reading.W_O)
            assert bool((bound >= (y @ along[0].T).amax(0) - 1e-9 * y.abs().max()).all())


def test_no_lead_is_below_its_bound_however_far_scores_lie_apart() -> None:
    assert sum(bounds_hold_of(with_scores_of(size, seed), seed) for size in (300.0, 2000.0) for seed in (2, 3)) > 10


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 2), st.floats(100.0, 3000.0), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_mean_over_different_tokens_exceeds_its_bound_however_far_scores_lie_apart(
    seed, places, extra, spread, close
):
    tokens, generator = places + extra, torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(places, tokens, generator=generator, dtype=torch.float64)
    values = torch.randn(places, tokens, generator=generator, dtype=torch.float64)
    rows = torch.tensor(list(permutations(range(tokens), places)))
    at = torch.arange(places)
    means = (scores[at, rows].softmax(-1) * values[at, rows]).sum(-1)
    weights = (scores - scores.max()).exp()
    bound = largest_mean(weights[None], values[None], torch.ones(1, places, tokens) > 0, CLOSE if close else ROUGH)
    assert float(bound) >= float(means.max())


# ---- overflow of float32


SIZES = st.sampled_from([1e-30, 1e-8, 1.0, 1e8, 1e18, 1e25, 1e37])


def numbers(size: float, *shape: int, seed: int) -> torch.Tensor:
    found = size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return found.clamp(-3e38, 3e38).float()


@given(SIZES, SIZES, st.integers(0, 10**6), st.booleans())
@settings(max_examples=80, deadline=None)
def test_what_overflows_in_float32_has_no_finite_radius(size: float, other: float, seed: int, zeros: bool) -> None:
    """Also where what overflowed meets a zero: its product is NaN."""
    n = 6
    x, w, y = numbers(size, 3, n, seed=seed), numbers(other, n, 4, seed=seed + 1), numbers(other, 3, n, seed=seed + 2)
    if zeros:
        w[-2:] = 0.0
    ball, with_y = Enclosure.exact(x), Enclosure.exact(y)
    keys = FLOAT32.keys(Enclosure.exact(torch.stack((y, y.flip(0)))))
    config = TransformerConfig(1, n, 1, n, 1, 10, 4, normalization_type="RMS", eps=1e-5)
    norm = Norm(config)
    norm.name = "n"
    scores = (x @ y.T).double()
    pairs = [
        (FLOAT32.linear(ball, TrimmedMatrix.of(w)), x @ w),
        (FLOAT32.linear(FLOAT32.times(ball, with_y), TrimmedMatrix.of(w)), (x * y) @ w),
        (FLOAT32.add(ball, with_y), x + y),
        (FLOAT32.times(ball, with_y), x * y),
        (FLOAT32.scaled(ball, 1 / other), x / (1 / other)),
        (FLOAT32.normed(ball, w[:, 0], None, 1e-5, False, False).whole, norm(x, {"n.w": w[:, 0]})),
        (FLOAT32.scores_of_one(ball[None, :1], with_y[None], 1 / other), (x[:1] @ y.T) / (1 / other)),
        (FLOAT32.scores(ball[:2], keys, "dot"), (x[:2, None] * torch.stack((y, y.flip(0)))).sum(-1)),
        (FLOAT32.scores(ball[:2], keys, "l1"), -(x[:2, None] - torch.stack((y, y.flip(0)))).abs().sum(-1)),
    ]
    assert scores.shape == (3, 3)
    for number, (found, computed) in enumerate(pairs):
        lost = ~computed.isfinite()
        assert bool((~(found.rad[lost.expand_as(found.rad)] < torch.inf)).all()), number


@pytest.fixture(scope="module")
def no_norm() -> ArithmeticTransformer:
    return models.load("benchmarks/provability/models/add-3-no-norm-relu-0")


def copy_of(model: ArithmeticTransformer, **by: float) -> ArithmeticTransformer:
    weights = {name: value.detach().clone() for name, value in model.effective_weights().items()}
    for name, factor in by.items():
        full = next(key for key in weights if key.endswith(f".{name}"))
        weights[full] = weights[full] * factor
    return ArithmeticTransformer(DenseWeights.holding(model.config, weights), model.task, name="copy").eval()


@pytest.mark.parametrize(
    "by", [{"W_U": 1e35}, {"W_U": 3e36}, {"W_out": 1e38, "W_O": 1e38}, {"W_in": 1e38, "W_out": 1e-38}]
)
def test_a_model_without_norms_whose_numbers_may_overflow_is_not_proved(
    no_norm: ArithmeticTransformer, by: dict[str, float]
) -> None:
    found = interp.certify(copy_of(no_norm, **by), minutes=0.02)
    assert found.status != "certified"


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("eps", [1e30, 3.5e38, 1e45])
def test_a_norm_whose_eps_may_overflow_has_no_finite_radius(eps: float, outside: bool) -> None:
    """In float32 it divides by infinity, which is 0."""
    x, gain = numbers(1e10, 3, 6, seed=0), torch.full((6,), 1e17)
    found = FLOAT32.normed(Enclosure.exact(x), gain, None, eps, outside, False).whole
    assert not bool(found.rad.isfinite().any())


@pytest.mark.parametrize("factor", [1.0, 1e-39, 1e39])
@pytest.mark.parametrize("base", [1e-300, 1e-46, 1e-40, 1e4, 1e39, 1e300])
def test_rotary_angles_of_float32_are_enclosed_whatever_their_base_is(base: float, factor: float) -> None:
    """Some bases and factors are none in float32: powers of infinity are 0, and cosines of infinity NaN."""
    half, ones = 100, torch.zeros(1, 6, 1, 200)
    ones[..., ::2] = 1.0
    config = TransformerConfig(1, 4, 1, 2 * half, 0, 2, 6, normalization_type=None, positional_embedding_type="rotary")
    config = replace(config, rotary_base=base, rotary_scaling_factor=factor, rotary_adjacent_pairs=True)
    turned = rotate(ones, config)[0, :, 0].double()
    for computed, found in zip((turned[:, ::2], turned[:, 1::2]), FLOAT32.angles(6, base, half, factor), strict=True):
        assert bool(((computed - found.mid).abs() <= found.rad).logical_or(~found.rad.isfinite()).all())
        assert bool(found.rad.isfinite().any()) == (base == 1e4 and factor == 1.0)


def always_one(without_norms: bool = True, **fields: Any) -> tuple[ArithmeticTransformer, dict[str, torch.Tensor]]:
    """A model of six bits whose weights are all 0, the right answer being 1; and its weights."""
    task = models.tasks.function("01", 6, lambda bits: torch.ones_like(bits[:, :1]), name="always-one")
    plain: dict[str, Any] = {"normalization_type": None} if without_norms else {"norm_placement": "none"}
    model = ArithmeticTransformer(DenseWeights(TransformerConfig(1, 4, 1, 2, 0, 2, 6, **plain | fields)), task, "one")
    weights = model.weight_map.own()
    with torch.no_grad():
        for value in weights.values():
            value.zero_()
    return model.eval(), weights


@torch.no_grad()
@pytest.mark.parametrize(
    ("embedded", "gain", "unembedded", "right"),
    [(1.0, 1.0, 1.0, True), (100.0, 3e37, 3e-40, False), (2.0**-52, 2.0**-100, 2.0**126, False)],
)
def test_a_product_with_a_final_gain_that_overflows_or_vanishes_proves_nothing(
    embedded: float, gain: float, unembedded: float, right: bool
) -> None:
    """Over the reals the lead is what embedding, gain and unembedding multiply to, in half."""
    model, weights = always_one(final_gain=True)
    weights["embed.W_E"][:, 0], weights["ln_final.w"][:] = embedded, gain
    weights["unembed.W_U"][0, 1], weights["unembed.b_U"][0] = unembedded, embedded * gain * unembedded / 2
    assert bool((predict(model, model.task.domain.every()) == 1).all()) == right
    assert (certify_by_machine(model).status == "certified") == right


@torch.no_grad()
def test_the_scale_of_a_norm_that_overflows_proves_nothing() -> None:
    model, weights = always_one(without_norms=False, eps=1e45, norm_eps_outside=True)
    weights["embed.W_E"][:, 0], weights["ln_final.w"][:] = 1e10, 1e17
    weights["unembed.W_U"][0, 1], weights["unembed.b_U"][0] = 1.0, 5e-19
    assert not bool((predict(model, model.task.domain.every()) == 1).any())
    assert interp.certify(model).status == certify_by_machine(model).status.replace("undecided", "refuted") == "refuted"


@torch.no_grad()
@pytest.mark.parametrize(("size", "right"), [(0.0, True), (4e11, False)])
def test_a_hidden_key_that_overflows_proves_nothing(size: float, right: bool) -> None:
    """Infinity and the bias of -inf that hides it are NaN, so that the head writes nothing."""
    model, weights = always_one(attn_bias=True, attn_scale=1.0)
    weights["pos_embed.W_pos"][5, 1] = weights["pos_embed.W_pos"][:5, 2] = 1e10
    attn = {name.rsplit(".", 1)[1]: value for name, value in weights.items() if ".attn." in name}
    attn["W_Q"][0, 1, 0], attn["W_K"][0, 2, 0], attn["b_V"][0, 0], attn["W_O"][0, 0, 3] = 1e7, size, 1.0, 1.0
    attn["bias"][0, 5, :5] = -torch.inf
    weights["unembed.W_U"][3, 1], weights["unembed.b_U"][0] = 1.0, 0.5
    assert bool((predict(model, model.task.domain.every()) == 1).all()) == right
    found = certify_by_machine(model)
    assert (found.status == "certified") == right
    assert bool((found.evidence.classes["open"] > 0).any()) != right


def test_nothing_is_proved_where_small_numbers_count_as_zero(no_norm: ArithmeticTransformer) -> None:
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(models.UserError):
            interp.certify(no_norm)
    finally:
        torch.set_flush_denormal(False)


def test_right_answers_with_logits_that_are_not_finite_are_open_in_a_run_of_all_problems() -> None:
    """The first of several infinite logits is the answer, which is right by chance."""
    task = formatted("{a:1}+{b:1}={s:1}", "(a + b) % 2", base=2)
    config = TransformerConfig(1, 4, 1, 4, 0, task.d_vocab, task.input_length, normalization_type=None)
    model = ArithmeticTransformer(DenseWeights(config), task, name="infinite")
    with torch.no_grad():
        for name, value in model.weight_map.own().items():
            value.zero_()
            if name == "unembed.b_U":
                value.fill_(torch.inf)
    found = certify_exhaustively(model)
    assert found.status != "certified"
    assert found.open == found.score.correct > 0


def test_a_spectral_norm_whose_squares_vanish_is_not_zero() -> None:
    values = torch.full((3, 2), 1e-200, dtype=torch.float64)
    assert float(TrimmedMatrix.of(values).stretch[0]) >= 1e-200 * 6**0.5


# ---- models that get little right


@pytest.mark.parametrize("value", [0.0, 1e-42])
def test_a_model_of_zeros_or_denormal_numbers_is_refuted_at_once(no_norm: ArithmeticTransformer, value: float) -> None:
    weights = {name: torch.full_like(one, value) for name, one in no_norm.effective_weights().items()}
    model = ArithmeticTransformer(DenseWeights.holding(no_norm.config, weights), no_norm.task, name="zeros").eval()
    found = interp.certify(model)
    assert (found.status, found.method, found.wrong, found.n) == ("refuted", "random problems", 64, 64)
    assert found.constant
    assert type(found).from_dict(found.to_dict()).to_dict() == found.to_dict()
    assert interp.proofs.check_certificate(found, model).status == "refuted"


def test_a_model_that_gets_most_of_it_right_is_not_refuted_by_a_sample(no_norm: ArithmeticTransformer) -> None:
    assert look(Subject(no_norm)) is None
