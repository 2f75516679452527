"""Two layers of attention on arrangements of different tokens: bounds of whole sets, against every string of them."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import interp
import models
from interp.proofs import check_certificate, load_certificate
from interp.proofs.attention_only import arrangement_method
from interp.proofs.attention_only.arrangement_bounds import StackedBounds, _Sets
from interp.proofs.attention_only.arrangement_method import arrangements_of, certify_arrangements, why_not_model
from interp.proofs.attention_only.attention_tables import StackedWeights
from interp.proofs.attention_only.distinct_means import CLOSE, ROUGH, largest_mean
from interp.proofs.listed import prefix_method
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.verdict.time_limit import time_limit
from models.tasks import Arrangements, induction
from models.transformer.config import TransformerConfig
from models.weight_maps import DenseWeights

LENGTH, TOKENS = 5, 5  # 360 strings in 60 sets
SLOW = [(heads, deviation) for heads in (1, 2, 3) for deviation in (0.1, 0.5, 2.0)]


def random_model(seed: int, deviation: float, task: Any = None, **fields: Any) -> models.ArithmeticTransformer:
    task = task or induction(LENGTH, TOKENS)
    plain: dict[str, Any] = {"n_layers": 2, "d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 0}
    plain |= {"normalization_type": None, "n_ctx": task.input_length}
    config = TransformerConfig(d_vocab=task.d_vocab, **{**plain, **fields})
    weights, generator = DenseWeights(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in weights.own().values():
            parameter.copy_(deviation * torch.randn(parameter.shape, generator=generator))
    return models.ArithmeticTransformer(weights, task, name="random").eval()


def bounds_of(model: models.ArithmeticTransformer, rounding: Rounding) -> StackedBounds:
    task = model.task
    weights = StackedWeights(model, model.effective_weights(), task.input_length, rounding)
    (query,) = task.query_positions
    drawn = task.encode(task.sample(300, torch.Generator().manual_seed(1)))
    return StackedBounds(weights, query, range(task.d_vocab), drawn, weights.float_errors(query))


def float_leads(model: models.ArithmeticTransformer, strings: Tensor, answer: int) -> Tensor:
    """The least lead of the right token over another, as the model itself computes it."""
    with torch.no_grad():
        logits = model(strings)[:, model.task.query_positions[0]].double()
    others = torch.arange(logits.shape[1]) != answer
    return (logits[:, answer, None] - logits[:, others]).amin(1)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 2), st.floats(0.1, 3.0), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_mean_over_different_tokens_exceeds_its_bound(seed, places, extra, spread, close):
    tokens, generator = places + extra, torch.Generator().manual_seed(seed)
    weights = (spread * torch.randn(places, tokens, generator=generator, dtype=torch.float64)).exp()
    values = torch.randn(places, tokens, generator=generator, dtype=torch.float64)
    allowed = torch.ones(places, tokens, dtype=torch.bool)
    rows = torch.tensor(list(permutations(range(tokens), places)))
    chosen = weights[torch.arange(places), rows]
    means = (chosen * values[torch.arange(places), rows]).sum(1) / chosen.sum(1)
    bound = float(largest_mean(weights[None], values[None], allowed[None], CLOSE if close else ROUGH))
    assert bound >= float(means.max())
    assert bound <= float(values.max()) + 1e-9
    if places == 1:
        assert bound == pytest.approx(float(means.max()), abs=1e-6)


def test_that_tokens_differ_makes_the_bound_of_a_mean_smaller():
    """The best token stands at one place only: the mean of 3, 2 and 1, and not of 3, 3 and 3."""
    values = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).double().expand(3, -1)
    allowed = torch.ones(1, 3, 4, dtype=torch.bool)
    assert float(largest_mean(torch.ones(1, 3, 4).double(), values[None], allowed)) == pytest.approx(2.0, abs=1e-5)


@given(st.integers(3, 6), st.integers(0, 4), st.data())
@settings(max_examples=20, deadline=None)
def test_the_sets_of_a_task_are_its_problems_each_once(tokens, cut, data):
    task = induction(data.draw(st.integers(3, min(5, tokens + 1))), tokens)
    sets = task.arrangements()
    strings = torch.cat([one.strings() for one in sets])
    assert len(strings) == sum(one.count() for one in sets) == task.size
    assert len({*map(tuple, strings.tolist())}) == task.size
    for one in sets:
        assert (task.targets(one.strings()) == one.answer).all()
        assert (one.strings()[:, one.source] == one.answer).all()
    some = sets[cut % len(sets)]
    if some.pool:
        parts = some.by_place_of(some.pool[0])
        again = torch.cat([part.strings() for part in parts])
        assert sorted(again.tolist()) == sorted(some.strings().tolist())


def test_tasks_whose_problems_are_no_arrangements_say_so():
    with pytest.raises(models.UserError):
        arrangements_of(models.tasks.function("01", 6, "parity"))


@pytest.mark.parametrize(
    ("heads", "deviation"), [(1, 0.3), (2, 1.0), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_no_lead_of_a_random_model_is_below_the_bound_of_its_set(heads, deviation):
    """Over the reals and with rounding, for whole sets, their parts, and single strings, where bounds are close."""
    model = random_model(int(100 * deviation) + heads, deviation, n_heads=heads, d_model=6, d_head=3)
    for rounding in (REAL, FLOAT32):
        bounds = bounds_of(model, rounding)
        for one in model.task.arrangements()[::20]:
            parts = one.by_place_of(one.pool[0])
            single = [last for part in parts for last in (part.by_place_of(part.pool[0]) if part.pool else [part])]
            for sets in ([one], parts, single):
                for strings, found in zip(sets, bounds.bounded(sets), strict=True):
                    rows = strings.strings()
                    exact = float(bounds.weights.leads(rows, bounds.query, strings.answer)[0].min())
                    assert found.bound <= exact
                    assert rounding is REAL or found.bound <= float(float_leads(model, rows, strings.answer).min())


@pytest.mark.parametrize("seed", range(8))
def test_no_difference_of_scores_exceeds_its_bound(seed):
    """In streams of one or two numbers all parts of a bound matter: a tenth less would often be too little."""
    task = induction(4, 4)
    model = random_model(seed, 1.0, task, d_model=1 + seed % 2, d_head=1)
    bounds = bounds_of(model, REAL)
    for one in task.arrangements()[seed % 4 :: 4]:
        sets, rows = _Sets(bounds, [one]), one.strings()
        found, there, _ = sets.differences(0)
        x = bounds.weights.first_layer(rows)
        asked = x[:, -1] @ bounds.weights.match[0] + bounds.weights.asked[0]
        exact = torch.einsum("nf,nkf->nk", asked, x)
        exact = exact - exact[:, one.source, None]
        assert float(there) >= float(exact[:, -1].max())
        for k in {*range(bounds.query)} - {one.source}:
            before = rows[:, k - 1] if k else torch.full((len(rows),), -1)
            for row, difference in zip(bounds.number[k, before, rows[:, k]], exact[:, k], strict=True):
                assert float(found[sets.context == row]) >= float(difference)


@pytest.mark.parametrize("size", [1e37, 1e38])
def test_logits_beyond_float32_prove_nothing(size):
    model = random_model(0, 0.0, d_model=2, d_head=1)
    with torch.no_grad():
        named = model.weight_map.own()
        named["embed.W_E"][:, 0] = 2.0
        named["unembed.W_U"][0] = size * torch.tensor([1.0, 1.0, 1.1, 1.0, 1.0])
    weights = StackedWeights(model, model.effective_weights(), LENGTH, FLOAT32)
    assert weights.float_errors(LENGTH - 1) == (np.inf, np.inf)


def planted(noise: float = 0.0, seed: int = 0) -> models.ArithmeticTransformer:
    """A model that does induction by construction: an exact previous-token head, and a head that matches its copy.

    The stream has the token, the place, the token before, and the answer; scores are large enough to be sharp.
    """
    n, v = LENGTH, TOKENS
    model = random_model(0, 0.0, d_model=2 * v + n + v, d_head=max(n, v))
    at = {name: slice(start, start + size) for name, start, size in
          (("token", 0, v), ("place", v, n), ("before", v + n, v), ("answer", 2 * v + n, v))}  # fmt: skip
    named, generator = model.weight_map.own(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        named["embed.W_E"][:, at["token"]] = torch.eye(v)
        named["pos_embed.W_pos"][:, at["place"]] = torch.eye(n)
        named["blocks.0.attn.W_Q"][0, at["place"], :n] = 40 * torch.eye(n)
        named["blocks.0.attn.W_K"][0, at["place"], :n] = torch.eye(n).roll(1, 1)
        named["blocks.0.attn.W_V"][0, at["token"], :v] = torch.eye(v)
        named["blocks.0.attn.W_O"][0, :v, at["before"]] = torch.eye(v)
        named["blocks.1.attn.W_Q"][0, at["token"], :v] = 30 * torch.eye(v)
        named["blocks.1.attn.W_K"][0, at["before"], :v] = torch.eye(v)
        named["blocks.1.attn.W_K"][0, v, :v] = -2  # before the first place is no token, and its head sees its own
        named["blocks.1.attn.W_V"][0, at["token"], :v] = torch.eye(v)
        named["blocks.1.attn.W_O"][0, :v, at["answer"]] = torch.eye(v)
        named["unembed.W_U"][at["answer"]] = 10 * torch.eye(v)
        for value in named.values():
            value.add_(noise * torch.randn(value.shape, generator=generator))
    return model


@pytest.mark.parametrize(("part", "without"), [("W_V", (1.0, 0.0)), ("b_K", (0.0, 1.0))])
def test_bounds_of_single_strings_include_what_float32_loses(part, without):
    """In leads, where the second layer writes nothing, and in scores, whose part that keys share is large. What the
    first layer writes is known here, and so little else is between a bound and its string."""
    model = planted() if part == "b_K" else random_model(7, 0.5, d_model=4, d_head=2)
    with torch.no_grad():
        named, generator = model.weight_map.own(), torch.Generator().manual_seed(0)
        if part == "b_K":
            named["blocks.1.attn.W_Q"].mul_(0.1)
            named["blocks.1.attn.b_K"].add_(1e6 * torch.randn(5, generator=generator))
        else:
            named["blocks.0.attn.W_V"].zero_()
            named["blocks.1.attn.W_V"].zero_()
    bounds, missed = bounds_of(model, FLOAT32), {(1.0, 1.0): 0, without: 0}
    errors = bounds.errors
    for one in model.task.arrangements()[::20]:
        parts = [last for first in one.by_place_of(one.pool[0]) for last in first.by_place_of(first.pool[0])]
        parts = [*parts, one]
        for shares in missed:
            bounds.errors = (errors[0] * shares[0], errors[1] * shares[1])
            for strings, found in zip(parts, bounds.bounded(parts), strict=True):
                missed[shares] += found.bound > float(float_leads(model, strings.strings(), strings.answer).min())
    assert missed[1.0, 1.0] == 0 < missed[without]


def truth_of(model: models.ArithmeticTransformer) -> tuple[int, float]:
    """(How many strings are answered wrongly, the least lead.)"""
    leads = torch.cat([float_leads(model, one.strings(), one.answer) for one in model.task.arrangements()])
    return int((leads <= 0).sum()), float(leads.min())


@pytest.mark.parametrize(
    ("noise", "seed"), [(0.1, 0), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0.3, 1), (0.6, 2)))]
)
def test_verdicts_and_shares_are_those_of_running_every_string(noise, seed, monkeypatch):
    """Sets are never run in full here, so that bounds alone decide; a class with a wrong answer is not proved."""
    monkeypatch.setattr(arrangement_method, "FEW", 1)
    model = planted(noise, seed)
    wrong, _ = truth_of(model)
    verdict = certify_arrangements(model)
    evidence = verdict.evidence
    assert verdict.status == ("refuted" if wrong else "certified")
    assert evidence.unproved >= wrong
    by_class = [bool((float_leads(model, one.strings(), one.answer) <= 0).any()) for one in model.task.arrangements()]
    open_ = (evidence.classes["open"] > 0).to_numpy()
    assert (open_ >= np.array(by_class)).all()
    bounds = evidence.classes["bound"].to_numpy()
    least = [float(float_leads(model, one.strings(), one.answer).min()) for one in model.task.arrangements()]
    assert (bounds[~open_] <= np.array(least)[~open_]).all()


@pytest.mark.parametrize("size", [1.0, 4.0, 16.0])
def test_what_float32_moves_is_within_what_is_allowed_for(size):
    """Scores and leads of float32, against float64, also where scores are so large that float32 loses digits."""
    model = random_model(3, 0.4, d_model=16, d_head=16)
    with torch.no_grad():
        for name, value in model.weight_map.own().items():
            if "W_Q" in name or "W_V" in name:
                value.mul_(size)
    bounds = bounds_of(model, FLOAT32)
    rows = model.task.encode(model.task.sample(2_000, torch.Generator().manual_seed(2)))
    with torch.no_grad():
        logits, cache = model.run_with_cache(rows)
        scores = cache["blocks.1.attn.hook_attn_scores"][:, 0, -1].double()
        x = bounds.weights.first_layer(rows)
        asked = x[:, -1] @ bounds.weights.match[0] + bounds.weights.asked[0]
        exact = torch.einsum("nf,nkf->nk", asked, x)
        moved = ((scores - scores[:, :1]) - (exact - exact[:, :1])).abs()
        leads, spread = bounds.weights.leads(rows, bounds.query, 0)
        off = ((logits[:, -1, :1] - logits[:, -1]).double() - leads)[:, 1:].abs()
    difference, lead = bounds.errors
    assert float(moved.max()) <= difference
    assert (off <= difference / 2 * spread[:, 1:] + lead).all()
    assert float(moved.max()) > 0  # the comparison can fail
    assert bounds_of(model, REAL).errors[0] < difference


def test_a_difference_that_is_allowed_too_little_is_noticed():
    """With weights of the first layer that are not the model's, bounds no longer hold: the exams above can fail."""
    model, other = random_model(5, 1.0), random_model(6, 1.0)
    bounds = bounds_of(other, REAL)
    broken = 0
    for one in model.task.arrangements()[::2]:
        found = bounds.bounded([one])[0]
        broken += found.bound > float(float_leads(model, one.strings(), one.answer).min())
    assert broken > 1


def test_a_proof_over_the_reals_knows_that_the_model_itself_rounds():
    """Its bound may be above the lead that float32 computes, where scores are large."""
    task = induction(3, 3)
    model = random_model(0, 0.0, task, d_model=9, d_head=3)
    named = model.weight_map.own()
    with torch.no_grad():  # the last place looks at the place before, and its token is the answer
        named["embed.W_E"][:, :3], named["pos_embed.W_pos"][:, 3:6] = torch.eye(3), torch.eye(3)
        named["blocks.0.attn.W_Q"][0, 5, 0], named["blocks.0.attn.W_K"][0, 4, 0] = 4.0, 1.0
        named["blocks.0.attn.b_K"][0, 0] = 5e6  # so that scores lose digits
        named["blocks.0.attn.W_V"][0, :3], named["blocks.0.attn.W_O"][0, :, 6:] = torch.eye(3), torch.eye(3)
        named["unembed.W_U"][6:] = 10 * torch.eye(3)
    assert truth_of(model)[0] == 0
    assert certify_arrangements(model, "interval").status == "certified"


def test_models_that_the_bounds_do_not_know_are_refused_by_name():
    assert why_not_model(random_model(0, 0.1)) is None
    for fields in (
        {"d_mlp": 8},
        {"normalization_type": "LN"},
        {"n_layers": 1},
        {"positional_embedding_type": "rotary"},
    ):
        assert why_not_model(random_model(0, 0.1, **fields)) is not None
    broken = random_model(0, 0.1)
    with torch.no_grad():
        next(iter(broken.weight_map.own().values())).view(-1)[0] = float("nan")
    with pytest.raises(models.UserError):
        certify_arrangements(broken)


def test_a_model_that_does_induction_by_construction_is_certified_and_its_verdict_survives_its_file(tmp_path):
    """The verdict is checked by proving it again."""
    model = planted()
    wrong, least = truth_of(model)
    verdict = certify_arrangements(model)
    assert (wrong, verdict.status) == (0, "certified")
    assert verdict.evidence.size == 360
    assert 0 < verdict.evidence.smallest_margin <= least
    (tmp_path / "verdict.json").write_text(json.dumps(verdict.to_dict()))
    again = load_certificate(tmp_path / "verdict.json")
    assert again.to_dict() == verdict.to_dict()
    assert check_certificate(again, model).status == "certified"
    with pytest.raises(models.UserError):
        check_certificate(again, planted(0.01, 1))


def test_the_time_is_kept_and_the_share_is_told():
    model = models.load("induction-6")
    with time_limit(1e-9):
        verdict = certify_arrangements(model)
    assert verdict.status == "undecided"
    assert verdict.evidence.unproved == verdict.evidence.size == 2_096_640


def test_sets_are_what_their_tokens_say():
    one = Arrangements((-1, 2, 3, -1, 2), (0, 1, 4), 3, 2)
    assert one.count() == 6
    assert one.strings().tolist()[0] == [0, 2, 3, 1, 2]
    assert one.by_place_of(4)[0].tokens == (4, 2, 3, -1, 2)
    drawn = one.sample(50, torch.Generator().manual_seed(0)).tolist()
    assert {*map(tuple, drawn)} <= {*map(tuple, one.strings().tolist())}


def test_a_wrong_answer_is_looked_for_before_a_proof_is_begun(monkeypatch):
    """So that a wrong model is refuted in seconds; without one the proof decides."""
    monkeypatch.setattr(arrangement_method, "FEW_PROBLEMS", 1)
    monkeypatch.setattr(prefix_method, "LARGEST_TREE", 1)
    assert interp.certify(random_model(1, 1.0)).method == "search"
    assert interp.certify(planted()).method == arrangement_method.METHOD.name


def test_sets_that_are_too_many_are_not_made():
    with pytest.raises(models.UserError):
        induction(12, 4_096).arrangements()
