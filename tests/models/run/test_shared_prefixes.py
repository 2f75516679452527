"""Sequences that begin alike are run once up to where they part, with the logits of the hooked forward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from interp.proofs.listed import exhaustive
from models.errors import UserError
from models.run import shared_prefixes
from models.run.shared_prefixes import beginnings, logits_by_prefix, numbers_kept, shares_prefixes
from models.tasks import function, induction
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.parity.switches import SWITCHES
from tests.sampling import every_third, sampled

SHARED = {name: switches for name, switches in SWITCHES.items() if shares_prefixes(dense(**switches)(0).eval())}


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=40))
def test_a_beginning_is_new_exactly_where_no_row_before_has_it(rows: list[tuple[int, ...]]):
    tokens = torch.tensor(sorted(rows))
    which = beginnings(tokens)
    for place in range(4):
        _, expected = tokens[:, : place + 1].unique(dim=0, return_inverse=True)
        assert torch.equal(which[:, place], expected)


@pytest.mark.parametrize("name", every_third(SHARED))
@torch.no_grad()
def test_logits_are_the_hooked_forwards(name: str):
    model = dense(**SHARED[name])(0).eval()
    n = model.config.d_vocab
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(n, (3, 7), generator=generator).repeat_interleave(20, 0)
    tokens[:, 4:] = torch.randint(2, (60, 3), generator=generator)
    tokens = tokens.unique(dim=0)
    assert int(beginnings(tokens)[-1, 3]) + 1 <= 3  # shared
    found = logits_by_prefix(model, tokens, [3, 6], model.effective_weights())
    assert_same(found, model(tokens)[:, [3, 6]], 1e-5)


def test_what_depends_on_more_than_the_beginning_or_on_rounding_is_refused():
    coupled = dense(positional_embedding_type="coupled")(0).eval()
    hooked = dense()(0).eval()
    hooked.add_perma_hook("blocks.0.hook_resid_post", lambda x, hook: 2 * x)
    for model in (
        coupled,
        hooked,
        dense(attn_top_k=1)(0).eval(),
        dense()(0).eval().half(),
        dense()(0).eval().bfloat16(),
    ):
        assert not shares_prefixes(model)
        with pytest.raises(UserError):
            logits_by_prefix(model, torch.zeros(1, 3, dtype=torch.int64), [2], model.effective_weights())


@pytest.mark.parametrize("length, tokens", [(3, 4), (4, 5), (5, 5)])
def test_every_problem_of_induction_has_one_number(length: int, tokens: int):
    task = induction(length, tokens)
    domain, found = task.domain, task.domain.every()
    assert len(found.unique(dim=0)) == domain.size == task.size and task.allowed(found).all()
    every = torch.cartesian_prod(*[torch.arange(tokens)] * length)
    assert int(task.allowed(every).sum()) == domain.size
    shared = beginnings(found)[:, length - 2]
    assert int(shared[-1]) + 1 == domain.size // (length - 2)  # neighbours begin alike


@settings(deadline=None)
@given(st.integers(0, 9))
def test_a_verdict_is_the_same_by_either_forward(seed: int):
    task = induction(4, 5)
    config = models.TransformerConfig(
        n_layers=2, d_model=8, n_heads=1, d_head=8, d_mlp=0, d_vocab=5, n_ctx=4, normalization_type=None
    )
    weights = models.weight_maps.DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(seed))
    model = models.ArithmeticTransformer(weights, task, "random").eval()
    verdicts = []
    for faster in (-1, 1):  # with which the shared forward is chosen, and is not
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exhaustive._Run, "_seconds", lambda self, forward, rows, faster=faster: faster * rows)
            verdicts.append(exhaustive.certify_exhaustively(model, batch_size=16))
    one, other = verdicts
    assert one.status == other.status and one.score.correct == other.score.correct
    margins = [torch.from_numpy(each.smallest.margin.values) for each in verdicts]
    assert torch.allclose(*margins, rtol=0, atol=1e-4, equal_nan=True)
    assert 0 < one.noise < 1e-4 or other.noise == 0


@pytest.mark.parametrize("rows, kept", [(32, 32), (10**6, exhaustive.SHARED * 16), (16, 16)])
def test_no_more_rows_are_run_at_once_than_a_number_of_keys_and_values(
    rows: int, kept: int, monkeypatch: pytest.MonkeyPatch
):
    model, task = dense(d_vocab=8, n_ctx=4)(0).eval(), induction(4, 8)
    monkeypatch.setattr(exhaustive, "KEPT", rows * numbers_kept(model, 4, 1))
    monkeypatch.setattr(exhaustive._Run, "_seconds", lambda self, forward, rows: -rows)
    run = exhaustive._Run(model, task, task.domain, 16)
    with models.evaluation.teacher_forcing(model, task) as run.alone:
        run.choose_forward(task.domain.size)
    assert run.rows == kept


@pytest.mark.parametrize("seed", sampled(range(2), 0))
def test_a_model_is_not_certified_on_answers_that_only_another_order_of_summation_gives(seed: int):
    """Its answers on all strings as a run of every beginning once has them, which is not how it runs."""
    config = models.TransformerConfig(
        n_layers=2, d_model=32, n_heads=2, d_head=16, d_mlp=32, d_vocab=6, n_ctx=5, attn_top_k=1
    )
    weights = models.weight_maps.DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(seed))
    digits, worth = "012345", 6 ** torch.arange(4, -1, -1)
    first = function(digits, 5, lambda x: x[:, 0], answers=digits)
    model = models.ArithmeticTransformer(weights, first, "random").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.half()
    every = first.encode(first.domain.every())
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(shared_prefixes, "shares_prefixes", lambda model: True)
        read = [logits_by_prefix(model, part, [4], model.effective_weights()) for part in every.split(8192)]
        own = torch.cat([model(part)[:, 4].argmax(-1) for part in every.split(512)])
    shared = torch.cat(read)[:, 0].argmax(-1)
    task = function(digits, 5, lambda x: shared[(x * worth).sum(1)], answers=digits)
    found = exhaustive.certify_exhaustively(model, task)
    wrong = int((own != shared).sum())  # 3 and 15, where this was written
    assert found.score.n - found.score.correct == wrong
    assert found.status == ("refuted" if wrong else "certified")
