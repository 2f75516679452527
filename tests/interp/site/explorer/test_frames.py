"""What the explorer shows is what the model computes, with and without its components."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from interp.causal.ablation import Head, Neuron, mean_activations, run_ablations
from interp.site.explorer import Subject, frame
from interp.site.explorer.frames import describe, number, significant
from interp.site.explorer.layout import lines, step_key, truths
from interp.site.explorer.subject import MEAN_SAMPLE, component
from models.errors import UserError
from models.evaluation import predict
from tests.interp.conftest import stock_copy

CASES = {
    "microadder-57": "57+48",
    "adder-3-by-hand": "9999999999+1",
    "adder-456": "9999989999+1",
    "toygpt-learned-pre": "58+42",
    "toygpt-learned-post": "58+42",
    "addlm-adder-two-digit": "7+95",
    "position-coupling-hand-built": "57+48+96",
    "position-coupling-1l4h-small": "9999+1",
    "position-coupling-1l4h-fire-small": "57+48",  # which is wrong on it
    "position-coupling-1l4h-no-scratchpad-small": "57+48",
    "multiplication-hand-built": "57*48",
    "parity-hand-built": "01011",
    "parity-coupling-1l4h-nope-no-scratchpad-small": "0101",
}


@pytest.fixture(scope="module")
def subjects():
    kept: dict[str, Subject] = {}

    def find(name: str) -> Subject:
        if name not in kept:
            kept[name] = Subject(models.load(name))
        return kept[name]

    return find


@pytest.mark.parametrize("name", CASES)
def test_a_frame_holds_the_greedy_answer_and_the_activations_of_run_with_cache(name: str, subjects):
    subject, problem = subjects(name), CASES[name]
    shown = frame(subject, problem)
    task = shown.task
    parsed = task.as_problems([problem])
    greedy = predict(subject.model, parsed, method="greedy", task=task)[0].numpy()
    assert np.array_equal(shown.answer, greedy)
    assert shown.number == str(task.decode(torch.as_tensor(greedy)[None])[0])
    queries, layers = list(task.query_positions), range(subject.model.config.n_layers)
    tokens = torch.as_tensor(shown.tokens)[None]
    assert (
        tokens[0, task.encode_prompt(parsed).shape[1] :].tolist() == greedy[: tokens.shape[1] - queries[0] - 1].tolist()
    )
    logits, cache = subject.model.run_with_cache(tokens)
    assert np.allclose(shown.logits, logits[0, queries].numpy(force=True), atol=1e-4, rtol=1e-5)
    pattern = torch.cat([cache[f"blocks.{layer}.attn.hook_pattern"][0] for layer in layers])[:, queries]
    assert np.allclose(shown.pattern, pattern.transpose(0, 1).numpy(force=True), atol=1e-6)
    posts = torch.cat([cache[f"blocks.{layer}.mlp.hook_post"][0] for layer in layers], 1)[queries]
    assert np.allclose(shown.units, posts.numpy(force=True), atol=1e-4, rtol=1e-5)
    end = cache[f"blocks.{layers[-1]}.hook_resid_post"][0, queries]
    assert np.allclose(shown.stream[:, -1], end.numpy(force=True), atol=1e-4, rtol=1e-5)
    assert np.allclose(shown.lens[:, -1], shown.logits, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "ablated"),
    [
        ("microadder-57", ("L0U1",)),
        ("microadder-57", ("L0H0", "L0U0")),
        ("adder-456", ("L0U7",)),
        ("toygpt-learned-pre", ("L1H2", "L3U511")),
        ("position-coupling-hand-built", ("L0H1",)),
    ],
)
@pytest.mark.parametrize("method", ["zero", "mean"])
def test_an_ablated_frame_has_the_logits_of_interps_ablation(
    name: str, ablated: tuple[str, ...], method: str, subjects
):
    subject, problem = subjects(name), CASES[name]
    shown = frame(subject, problem, ablated, method)
    sample = shown.task.encode(shown.task.sample(MEAN_SAMPLE, torch.Generator().manual_seed(0)))
    hooks = [component(part).hook for part in ablated]
    means = mean_activations(subject.model, sample, hooks) if method == "mean" else {}
    acts = [
        (part.hook, lambda value, hook, part=part: part.replace(value, means.get(part.hook)))
        for part in map(component, ablated)
    ]
    tokens = torch.as_tensor(shown.tokens)[None]
    expected = subject.model.run_with_hooks(tokens, fwd_hooks=acts)[0, list(shown.task.query_positions)]
    assert np.allclose(shown.logits, expected.numpy(force=True), atol=1e-3, rtol=1e-5)
    assert np.array_equal(shown.answer, shown.logits.argmax(1))  # the answer is what these logits say: greedy
    if method == "zero" and len(ablated) == 1:  # and run_ablations finds the same on these tokens
        found = {}
        run_ablations(
            subject.model,
            tokens,
            [component(ablated[0])],
            ["zero"],
            0,
            lambda i, method, control, rows, logits: found.update({i: logits}),
            unchanged="keep",
        )
        there = found[0][0, list(shown.task.query_positions)].numpy(force=True)
        assert np.allclose(shown.logits, there, atol=1e-3, rtol=1e-5)


def test_ablating_a_carry_unit_changes_the_answer_and_the_frame_says_so(subjects):
    whole, without = (frame(subjects("microadder-57"), "57+48", ablated) for ablated in ((), ("L0U1",)))
    assert whole.number == "105" != without.number
    shown = without.to_dict()
    assert (shown["whole"], shown["right"], shown["answer"]) == ("105", "105", without.number)
    assert {step["facts"]["key"] for step in shown["steps"] if step["token"] != step["facts"]["whole"]} >= {"s2"}
    assert (without.units[:, 1] == 0).all() and (whole.units[:, 1] != 0).any()


@given(
    a=st.integers(0, 10**10 - 1),
    b=st.integers(0, 10**10 - 1),
    ablated=st.sets(st.sampled_from(["L0H0", "L0U0", "L0U1"])),
    guess=st.lists(st.integers(0, 9), min_size=12, max_size=12),
)
@settings(max_examples=6)
def test_the_answer_is_greedy_whatever_the_guess_that_it_is_searched_from(a, b, ablated, guess, subjects):
    subject = subjects("microadder-57")
    found = subject.run(f"{a}+{b}", sorted(ablated), "zero", torch.tensor(guess))
    from_right = subject.run(f"{a}+{b}", sorted(ablated), "zero")
    assert torch.equal(found.answer, from_right.answer)
    tokens = subject.task.encode_prompt([(a, b)])
    acts = [(part.hook, lambda value, hook, part=part: part.replace(value, None)) for part in map(component, ablated)]
    decoded = []
    for _ in range(12):  # token by token: the definition of greedy
        logits = subject.model.run_with_hooks(tokens, fwd_hooks=acts)
        decoded.append(int(logits[0, -1].argmax()))
        tokens = torch.cat((tokens, torch.tensor([[decoded[-1]]])), 1)
    assert found.answer.tolist() == decoded


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("position-coupling-1l4h-small", "9999+9999+9999+9999"),
        ("multiplication-coupling-2l4h-small", "99*99"),
        ("parity-coupling-1l4h-small", "0110"),
        ("toygpt-learned-pre", "99+1"),
        ("adder-456", "57+48"),
    ],
)
def test_untrained_models_answer_greedily_too_up_to_where_their_positions_end(name: str, problem: str):
    for seed in range(3):
        model = models.build(name, seed=seed)
        shown = frame(model, problem)
        parsed = shown.task.as_problems([problem])
        assert np.array_equal(shown.answer, predict(model, parsed, method="greedy", task=shown.task)[0].numpy())


def test_a_transformer_lens_model_is_explored_as_the_same_model():
    ours = models.load("toygpt-learned-pre")
    shown = frame(stock_copy(ours), "58+42", ["L1H2"], task=ours.task)
    there = frame(ours, "58+42", ["L1H2"])
    assert np.allclose(shown.logits, there.logits, atol=1e-3) and np.array_equal(shown.answer, there.answer)


def test_a_right_answer_costs_one_run(subjects):
    assert subjects("adder-456").run("9999999999+1").runs == 1


@torch.no_grad()
def test_embeddings_heads_units_and_biases_together_write_the_lead_of_the_chosen_logit(subjects):
    subject = subjects("toygpt-learned-pre")
    shown, weights = frame(subject, "58+42"), subject.all_weights
    queries = list(shown.task.query_positions)
    _, cache = subject.model.run_with_cache(torch.as_tensor(shown.tokens)[None])
    over_mean = torch.nn.functional.one_hot(torch.as_tensor(shown.answer), 10).float() - 0.1
    u = (over_mean @ weights["unembed.W_U"].T) * weights["ln_final.w"]
    u = (u - u.mean(-1, keepdim=True)) / cache["ln_final.hook_scale"][0, queries]
    rest = cache["hook_embed"][0, queries] + cache["hook_pos_embed"][0, queries]
    rest = rest + sum(weights[f"blocks.{i}.attn.b_O"] + weights[f"blocks.{i}.mlp.b_out"] for i in range(4))
    constant = over_mean @ (weights["ln_final.b"] @ weights["unembed.W_U"] + weights["unembed.b_U"])
    assert shown.head_writes is not None and shown.unit_writes is not None
    total = ((rest * u).sum(-1) + constant).numpy() + shown.head_writes.sum(1) + shown.unit_writes.sum(1)
    lead = shown.logits[range(3), shown.answer] - shown.logits.mean(1)
    assert np.allclose(total, lead, atol=1e-3, rtol=1e-4)


def test_post_norm_models_have_no_writes_and_still_rank_their_units(subjects):
    shown = frame(subjects("toygpt-learned-post"), "57+48")
    assert shown.head_writes is None and shown.unit_writes is None
    step = shown.to_dict()["steps"][0]
    assert "headWrites" not in step and "unitWrites" not in step
    assert len(step["units"]) == 16 and len(set(step["units"])) == 16
    weights = subjects("toygpt-learned-post").all_weights
    norms = torch.cat([weights[f"blocks.{layer}.mlp.W_out"].norm(dim=1) for layer in range(4)])
    written = np.abs(shown.units[0]) * norms.numpy(force=True)
    assert set(step["units"]) == set(np.argsort(-written)[:16].tolist())


def test_of_many_units_the_ablated_ones_stay_in_view(subjects):
    shown = frame(subjects("toygpt-learned-pre"), "57+48", ("L0U0",))
    assert all(0 in step["units"] for step in shown.to_dict()["steps"])


# ---- layout


@pytest.mark.parametrize("name", CASES)
def test_every_token_of_the_input_stands_in_one_line_under_its_place_value(name: str, subjects):
    task, _ = subjects(name).parse(CASES[name])
    placed = [at for line in lines(task) for at in (*line.cells, *line.extra) if at >= 0]
    assert sorted(placed) == list(range(task.input_length))
    for line in lines(task):
        for column, at in enumerate(line.cells):
            assert at < 0 or task.roles[at].column == column
    keys = [step_key(task, role) for role in task.target_roles]
    assert len(set(keys)) == len(keys)


def test_formats_that_write_numbers_in_other_orders_have_the_same_lines_and_steps(subjects):
    micro, padded = (subjects(name).task for name in ("microadder-57", "adder-456"))
    assert [line.label for line in lines(micro)] == [line.label for line in lines(padded)] == ["a", "b", "s"]
    assert lines(micro)[0].cells == tuple(range(10)) and lines(padded)[0].cells == tuple(reversed(range(10)))
    keys = [[step_key(task, role) for role in task.target_roles] for task in (micro, padded)]
    assert keys[0] == keys[1]
    many, _ = subjects("position-coupling-hand-built").parse("57+48")
    answer = [step_key(many, role) for role in many.target_roles if role.kind == "answer"]
    assert answer == ["s0", "s1", "s2"]


def test_the_truth_of_a_digit_is_the_schoolbook_sum(subjects):
    task, problem = subjects("microadder-57").parse("57+48")
    found = truths(task, problem)
    assert found[0].sentence == "7 + 8 + carry 0 = 15: write 5, carry 1."
    assert found[1].sentence == "5 + 4 + carry 1 = 10: write 0, carry 1, passed on from below."
    assert found[2].sentence == "0 + 0 + carry 1 = 1: write 1, carry 0."
    assert [truth.carry for truth in found] == [0, 1, 1, *[0] * 8, None]


@pytest.mark.parametrize("name", ["position-coupling-hand-built", "multiplication-hand-built", "parity-hand-built"])
def test_the_truth_of_every_digit_names_the_right_token(name: str, subjects):
    task, problem = subjects(name).parse(CASES[name])
    for truth, role, token in zip(truths(task, problem), task.target_roles, task.targets(problem)[0], strict=True):
        if role.column is not None:
            said = truth.sentence.partition("write ")[2] or truth.sentence.partition("digit is ")[2]
            assert said[0] == task.token_text([token])


# ---- numbers for JSON


@given(st.lists(st.floats(allow_subnormal=False), min_size=1, max_size=8), st.integers(1, 6))
def test_rounding_to_significant_digits_keeps_them(values: list[float], digits: int):
    for value, rounded in zip(values, significant(values, digits), strict=True):
        if np.isfinite(value) and 1e-200 < abs(value) < 1e200:
            assert rounded == pytest.approx(value, rel=10.0**-digits * 5.0001)
            assert float(f"{rounded:.{digits - 1}e}") == pytest.approx(rounded, rel=1e-12)
        elif np.isfinite(value):
            assert np.isfinite(rounded)
        else:
            assert np.array_equal(rounded, value, equal_nan=True)


def test_a_frame_is_json_that_keeps_what_is_drawn(subjects):
    shown = frame(subjects("adder-456"), " 57 + 48 = ")
    kept = json.loads(json.dumps(shown.to_dict(), allow_nan=False))
    assert kept["problem"] == "57+48" and kept["answer"] == "105"
    for target, step in enumerate(kept["steps"]):
        assert len(step["pattern"][0]) == step["facts"]["query"] + 1
        assert np.allclose(step["pattern"][0], shown.pattern[target, 0, : step["facts"]["query"] + 1], atol=5.1e-4)
        assert np.allclose(step["logits"], shown.logits[target], rtol=5.1e-4)
        assert int(np.argmax(step["logits"])) == step["token"]
    described = describe(subjects("adder-456"))
    assert (described["parameters"], described["units"], described["heads"]) == (456, 14, ["L0H0"])


def test_a_model_whose_logits_are_not_numbers_gives_no_number_and_no_error():
    model = models.build("microadder-57")
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    shown = frame(model, "57+48")
    assert shown.number == "no number" and (shown.answer == -1).all()
    json.dumps(shown.to_dict(), allow_nan=False)


def test_tokens_that_spell_no_number_are_no_number(subjects):
    task = subjects("adder-456").task
    assert number(task, np.array([10, *[0] * 11])) == "no number"


# ---- bad input


@pytest.mark.parametrize(
    ("name", "problem", "ablated", "method", "said"),
    [
        ("microadder-57", "57+x", (), "zero", "not an addition"),
        ("microadder-57", "10000000000+1", (), "zero", "must lie in 0..9999999999"),
        ("microadder-57", "57+48", ("L0U2",), "zero", "There is no unit 2"),
        ("microadder-57", "57+48", ("L1H0",), "zero", "There is no layer 1"),
        ("microadder-57", "57+48", ("unit 2",), "zero", "not a head or unit"),
        ("microadder-57", "57+48", (), "resample", "There is no ablation method 'resample'"),
        ("parity-hand-built", "012", (), "zero", "not a problem of parity"),
        ("position-coupling-1l4h-small", "123456789123+1", (), "zero", "fewer or shorter numbers are needed"),
        ("position-coupling-1l4h-fire-small", "+".join(["99999"] * 60), (), "zero", "at most 512"),
    ],
)
def test_bad_questions_are_one_sentence(name, problem, ablated, method, said, subjects):
    with pytest.raises(UserError, match=said):
        frame(subjects(name), problem, ablated, method)


def test_models_of_text_and_in_training_mode_are_refused():
    with pytest.raises(UserError, match="predicts text"):
        Subject(models.build("addlm-0.8m"))
    model = models.build("microadder-57").train()
    with pytest.raises(UserError, match="training mode"):
        Subject(model)


def test_components_are_read_by_name():
    assert component("L0H1") == Head(0, 1) and component("L2U13") == Neuron(2, 13)
