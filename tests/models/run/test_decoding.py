"""Decoding with remembered keys and values says what the hooked forward says on every prefix."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from models.run import NOTHING, greedy
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import dense
from tests.models.coders import CODERS, coder
from tests.sampling import sampled

PROMPTS = ["57+48+96", "10+99+12", "31+13+77"]


def by_hand(
    model: ArithmeticTransformer, tokens: torch.Tensor, n: int, weights: dict[str, torch.Tensor] | None = None
) -> torch.Tensor:
    """The loop that decoding is, on the model's own forward."""
    with torch.no_grad():
        for _ in range(n):
            tokens = torch.cat((tokens, model(tokens, weights=weights)[:, -1:].argmax(-1)), 1)
    return tokens[:, -n:]


def untied(model: ArithmeticTransformer) -> dict[str, torch.Tensor]:
    """Weights with a random head: with its own, an untrained model mostly repeats the token that it reads."""
    weights = dict(model.effective_weights())
    weights["unembed.W_U"] = torch.randn(weights["unembed.W_U"].shape, generator=torch.Generator().manual_seed(3))
    return weights


def prompts_of(model: ArithmeticTransformer) -> torch.Tensor:
    return model.task.at(3, 2).encode_prompt(PROMPTS)


@pytest.mark.parametrize("kind", CODERS)
@pytest.mark.parametrize("layers", sampled([1, 2, 3], 2))
def test_both_ways_of_decoding_are_the_loop(kind, layers):
    model = coder(kind, layers)
    weights, prompts = untied(model), prompts_of(model)
    expected = by_hand(model, prompts, 15, weights)
    assert len(expected.unique()) > 2  # it says something
    assert torch.equal(greedy(model, prompts, 15, weights=weights), expected)
    assert torch.equal(greedy(model, prompts, 15, weights=weights, use_cache=False), expected)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"positional_embedding_type": "rotary"},
        {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False, "normalization_type": "LN"},
        {"positional_embedding_type": "coupled", "n_position_levels": 2},
        {"positional_embedding_type": "fire", "fire_L0": 3.0},
        {"norm_placement": "post"},
        {"d_mlp": 0, "normalization_type": None},
        {"attn_scores": "neg_l1", "attn_top_k": 2, "attn_scale": 1.0, "act_fn": "relu"},
        {"attn_scores": "max_plus"},
        {"attn_top_k": 3},
        {"parallel_attn_mlp": True},
    ],
    ids=str,
)
def test_switches_and_biases_are_decoded_alike(switches):
    model = dense(**switches)(0)
    prompts = model.task.encode_prompt(model.task.sample(5, torch.Generator().manual_seed(0)))
    assert torch.equal(greedy(model, prompts, 3), by_hand(model, prompts, 3))


def test_a_correct_adder_decodes_whole_responses_and_stops():
    model = models.build("position-coupling-hand-built", max_operands=4, max_digits=4)
    task = model.task.at(3, 2)
    sequences = task.sequences(PROMPTS)
    response = sequences.tokens[:, len(task.encode_prompt(PROMPTS)[0]) :]
    long = response.shape[1] + 5
    found = greedy(model, task.encode_prompt(PROMPTS), long, stop=task.special)
    assert torch.equal(found[:, : response.shape[1]], response)
    assert (found[:, response.shape[1] :] == task.special).all()


def test_rows_that_have_ended_are_filled_and_the_others_go_on():
    model = coder("-nope")
    prompts = prompts_of(model)
    free = greedy(model, prompts, 20)
    token = int(free[0, 3])
    stopped = greedy(model, prompts, 20, stop=token)
    for row, expected in zip(stopped.tolist(), free.tolist(), strict=True):
        end = expected.index(token) + 1 if token in expected else 20
        assert row == expected[:end] + [token] * (20 - end)


def test_a_row_whose_ids_leave_the_tables_says_nothing_more():
    """A model that only ever writes digits: the significance grows until the table ends."""
    model = coder("")
    weights = dict(model.effective_weights())
    weights["unembed.b_U"] = torch.zeros(model.config.d_vocab).index_fill(0, torch.tensor([7]), 1e6)
    limit = model.config.position_rows - 1
    both = [greedy(model, prompts_of(model), 60, weights=weights, use_cache=cached) for cached in (True, False)]
    assert torch.equal(*both)
    # The k-th digit has id 1 + k, and one token more is predicted from the last that fits.
    assert (both[0][:, :limit] == 7).all()
    assert (both[0][:, limit:] == NOTHING).all()


def test_a_nan_is_no_token():
    model = coder("-nope")
    weights = dict(model.effective_weights())
    weights["unembed.W_U"] = weights["unembed.W_U"] * float("nan")
    assert (greedy(model, prompts_of(model), 4, weights=weights) == NOTHING).all()


def test_other_ids_are_those_of_a_shifted_prefix():
    model = coder("")
    shifted = lambda tokens: torch.where((ids := model.task.position_ids(tokens)) > 0, ids + 9, 0)  # noqa: E731
    prompts, tokens = prompts_of(model), prompts_of(model)
    with torch.no_grad():
        for _ in range(12):
            logits = model(tokens, position_ids=shifted(tokens))
            tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), 1)
    found = greedy(model, prompts, 12, position_ids=shifted)
    assert torch.equal(found, tokens[:, prompts.shape[1] :])
    assert not torch.equal(found, greedy(model, prompts, 12))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("query", "response"), [(False, True), (True, True), (False, False)])
def test_every_format_of_a_sum_is_decoded_alike(padded, query, response):
    model = coder("")
    model.task = MultiOperandAddition(3, 2, AdditionFormat(True, padded, query, response))
    prompts = model.task.encode_prompt(["57+48+96"])
    assert torch.equal(greedy(model, prompts, 14), greedy(model, prompts, 14, use_cache=False))


def test_bad_input_is_refused():
    model = coder("")
    with pytest.raises(UserError, match="a number of tokens from 0 on"):
        greedy(model, prompts_of(model), -1)
    with pytest.raises(UserError, match="needs a prompt"):
        greedy(model, prompts_of(model)[:, :0], 2)
    absolute = dense()(0)
    with pytest.raises(UserError, match="this model has 8"):
        greedy(absolute, torch.zeros(1, 4, dtype=torch.int64), 6)
    assert greedy(model, prompts_of(model), 0).shape == (3, 0)


def test_a_model_with_a_hook_is_decoded_by_its_own_forward():
    model = dense()(0)
    prompts = model.task.encode_prompt(model.task.sample(20, torch.Generator().manual_seed(0)))
    plain = greedy(model, prompts, 3)
    with model.hooks(fwd_hooks=[("blocks.1.hook_resid_post", lambda x, hook: -x)]):
        hooked = greedy(model, prompts, 3)
        assert torch.equal(hooked, by_hand(model, prompts, 3))
    assert not torch.equal(hooked, plain)
