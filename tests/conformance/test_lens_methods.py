"""TransformerLens' methods beside the forward: what has a meaning here works, what has none says so."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import models
from models.errors import UserError
from models.transformer.config import TransformerConfig
from tests.comparing import assert_same
from tests.conformance.table import STOCK_CLASS

pytestmark = pytest.mark.transformer_lens

SMALL = ("LN, 1 layer", "RMS, unscaled scores", "gated with biases", "attention only", "rotary, neighbours")


def test_both_is_a_named_tuple(model, tokens):
    both = model(tokens, return_type="both")
    assert torch.equal(both.logits, model(tokens)) and torch.equal(both.loss, model(tokens, return_type="loss"))
    logits, loss = both
    assert torch.equal(logits, both.logits) and torch.equal(loss, both.loss)


def test_text_of_tokens_is_read_back(model, tokens):
    assert torch.equal(model.to_tokens(model.to_string(tokens)), tokens)
    assert torch.equal(model.to_tokens(model.to_string(tokens[1])), tokens[1:2])
    assert torch.equal(model(model.to_string(tokens)), model(tokens))


def test_labels_of_a_list_are_a_list_each(row, model):
    each = model.to_str_tokens(list(row.problems))
    assert [len(labels) for labels in each] == [model.to_tokens(list(row.problems)).shape[1]] * len(each)
    assert model.to_str_tokens([row.problems[0]]) == [model.to_str_tokens(row.problems[0])]
    assert ["".join(labels) for labels in each] == model.to_string(model.to_tokens(list(row.problems)))


def test_text_that_is_neither_problem_nor_tokens_is_refused(model):
    for text in ("~", ["~"], "", [""]):
        with pytest.raises(UserError):
            model.to_tokens(text)


def test_a_shallow_copy_shares_the_weights_and_has_switches_of_its_own(model, tokens):
    model.set_use_attn_result(True)
    twin = copy.copy(model)
    assert torch.equal(twin(tokens), model(tokens))
    assert twin.weight_map is model.weight_map and twin.cfg is not model.cfg and twin.cfg.use_attn_result
    twin.set_use_attn_result(False)
    assert model.cfg.use_attn_result and "blocks.0.attn.hook_result" in model.run_with_cache(tokens)[1]
    assert "blocks.0.attn.hook_result" not in twin.run_with_cache(tokens)[1]
    twin.double()
    assert twin.cfg.dtype == torch.float64
    with model.hooks(fwd_hooks=[("hook_embed", lambda value, hook: value * 0)]), pytest.raises(UserError):
        copy.copy(model)


def test_double_precision_is_the_same_function(model, tokens):
    """MicroAdder's logits reach a thousand and its norms enlarge what float32 rounds: 1e-4 of the largest logit."""
    single, double = model(tokens), copy.deepcopy(model).double()(tokens)
    assert double.dtype == torch.float64
    assert float((single - double).abs().max() / double.abs().max()) < 1e-4


def test_what_single_precision_loses_in_microadder_is_rounding_and_no_more_than_in_a_stock_model():
    """Its weights are right to two units in the last place, and a stock model with them loses as much."""
    model = models.load("microadder-57")
    tokens = model.task.encode(model.task.sample(500, torch.Generator().manual_seed(0)))
    with torch.no_grad():
        exact, rounded = copy.deepcopy(model).double().effective_weights(), model.effective_weights()
        for key, weight in exact.items():
            worst = float((rounded[key].double() - weight).abs().max() / weight.abs().max())
            assert worst <= 4 * 2**-24, key
        dense = model.dense_copy()
        reference = copy.deepcopy(dense).double()(tokens)
        scale = reference.abs().max()
        lost = float((dense(tokens) - reference).abs().max() / scale)
        assert 0 < lost < 1e-4
        if STOCK_CLASS == "HookedTransformer":  # a bridge's norms compute in float32 whatever its dtype
            twin = model.to_hooked_transformer()
            theirs = float((twin(tokens) - reference).abs().max() / scale)
            assert lost < 2 * theirs
            twin.double().cfg.dtype = torch.float64
            assert_same(reference, twin(tokens), tolerance=1e-12)


def test_the_config_has_transformer_lens_fields(model):
    fields = model.cfg.to_dict()
    for name in ("attn_only", "d_vocab_out", "device", "n_params", "seed", "initializer_range", "dtype", "act_fn"):
        assert fields[name] == getattr(model.cfg, name)
    assert set(model.config.to_dict()) <= set(fields) and fields["use_attn_result"] is False
    assert fields["attn_only"] is (model.config.d_mlp == 0)
    with pytest.raises(UserError):
        model.cfg.seed = 3
    assert not hasattr(model.cfg, "no_such_field")


@pytest.mark.skipif(STOCK_CLASS != "HookedTransformer", reason="HookedTransformerConfig ends with transformer-lens 3")
@pytest.mark.rows(lambda row: "HookedTransformer" in row.twins)
def test_the_config_agrees_with_a_hooked_transformers(model):
    stock = model.to_hooked_transformer().cfg.to_dict()
    ours = model.cfg.to_dict()
    missing = [name for name in stock if name not in ours and not name.startswith(("NTK", "yarn"))]
    assert not missing
    for name in (
        "n_params",
        "d_vocab_out",
        "attn_only",
        "n_ctx",
        "d_mlp",
        "gated_mlp",
        "n_heads",
        "normalization_type",
    ):
        assert ours[name] == stock[name], name


def test_a_mask_of_padding_on_the_right_leaves_the_rest_as_it_is(model, tokens):
    mask = torch.ones_like(tokens)
    mask[0, -2:] = 0
    kept = mask.bool()
    assert_same(model(tokens, attention_mask=mask)[kept], model(tokens)[kept])
    each = model(tokens, return_type="loss", loss_per_token=True)
    counted = (mask[:, 1:] & mask[:, :-1]).bool()
    masked = model(tokens, return_type="loss", loss_per_token=True, attention_mask=mask)
    assert_same(masked, each * counted)
    assert_same(model(tokens, return_type="loss", attention_mask=mask), each[counted].mean())
    assert_same(model.loss_fn(model(tokens), tokens, mask, per_token=True), masked)
    for wrong in (mask.flip(1), mask[:, 1:], mask[:, None, None]):
        with pytest.raises(UserError):
            model(tokens, attention_mask=wrong)
        with pytest.raises(UserError):
            model.loss_fn(model(tokens), tokens, wrong)


def test_input_to_embed(model, tokens):
    residual, read, none, mask = model.input_to_embed(tokens, attention_mask=torch.ones_like(tokens))
    assert torch.equal(residual, model(tokens, stop_at_layer=0)) and torch.equal(read, tokens)
    assert none is None and mask.all()
    assert_same(model(residual, start_at_layer=0), model(tokens))


@pytest.mark.parametrize("option", ["past_kv_cache", "prepend_bos", "shortformer_pos_embed"])
def test_options_without_a_meaning_are_refused(option):
    model = models.build("microadder-57")
    tokens = model.to_tokens("57+48")
    with pytest.raises(UserError):
        model(tokens, **{option: True})
    assert torch.equal(model(tokens, **{option: None}), model(tokens))
    if option == "prepend_bos":
        for method in (model.to_tokens, model.to_str_tokens, model.input_to_embed, model.generate):
            with pytest.raises(UserError):
                method("57+48", prepend_bos=True)


def test_to_takes_print_details(model, tokens):
    assert model.to("cpu", print_details=False) is model
    assert model.to(torch.float64, print_details=True).dtype == torch.float64


# A random model of multiplication writes rows of numbers that have no position ids.
@pytest.mark.rows(lambda row: row.name != "multiplication-hand-built")
def test_generation_greedy_and_drawn(row, model):
    problem = row.problems[0]
    task = model.task.for_problems([problem])
    prompt, n = task.encode_prompt([problem]), len(task.query_positions)
    long = prompt
    for _ in range(n):
        long = torch.cat((long, model(long)[:, -1].argmax(-1)[:, None]), 1)
    for cache in (True, False):
        found = model.generate(problem, do_sample=False, return_type="tokens", use_past_kv_cache=cache)
        assert torch.equal(found, long)
    assert model.generate([problem], do_sample=False) == [model.to_string(long[0])]
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(model.generate(prompt, max_new_tokens=1, temperature=5.0))
    assert torch.equal(*drawn) and drawn[0].shape == (1, prompt.shape[1] + 1)
    assert torch.equal(model.generate(prompt, 1, top_k=1), long[:, : prompt.shape[1] + 1])
    first = int(long[0, prompt.shape[1]])
    stopped = model.generate(prompt, min(3, n), do_sample=False, eos_token_id=first)
    assert (stopped[0, prompt.shape[1] :] == first).all()
    with pytest.raises(UserError):
        model.generate(prompt, 1, return_type="tensor")


def test_generation_stops_at_strings_streams_and_returns_what_was_read():
    model = models.load("microadder-57")
    whole = model.generate("57+48", do_sample=False)
    seen: list[torch.Tensor] = []
    stopped = model.generate("57+48", do_sample=False, stop_strings=["50", "xyz"], callback=seen.append)
    new = whole[22:]
    assert stopped == whole[:22] + new[: new.index("50") + 2] and len(stopped) < len(whole)
    assert [tokens.shape[1] for tokens in seen] == list(range(23, len(stopped) + 1))
    assert model.to_string(seen[-1][0]) == stopped
    both = model.generate(["57+48", "1+1"], do_sample=False, stop_strings="5", return_type="str")
    assert both[0].endswith("5") and len(both[1]) == len(whole)  # the second has no 5, and goes on
    tokens = model.generate(["57+48", "1+1"], do_sample=False, stop_strings="5", eos_token_id=9, return_type="tokens")
    assert set(tokens[0, len(both[0]) :].tolist()) == {9}
    text, cache = model.generate("57+48", do_sample=False, return_cache=True)
    assert text == whole
    expected = model.run_with_cache(model.generate("57+48", do_sample=False, return_type="tokens")[:, :-1])[1]
    assert all(torch.equal(cache[name], expected[name]) for name in expected)
    text, _, prompt = model.generate("57+48", do_sample=False, return_cache=True, return_input_tokens=True)
    assert text == whole and torch.equal(prompt, model.task.encode_prompt(["57+48"]))
    for cached in (True, False):
        again = model.generate("57+48", do_sample=False, stop_strings="5", use_past_kv_cache=cached)
        assert again == both[0]
    for bad in ("", [""], 3, [3]):
        with pytest.raises(UserError):
            model.generate("57+48", stop_strings=bad)


def test_generation_runs_what_hooks_make_of_the_model():
    model = models.build("microadder-57")
    whole = model.generate("57+48", do_sample=False)
    with model.hooks(fwd_hooks=[("unembed.hook_out", lambda value, hook: torch.roll(value, 1, -1))]):
        assert model.generate("57+48", do_sample=False) != whole


#: What an option of drawing may not be, by its name.
REFUSED = {
    "top_k": (0, -1, 2.5, True, "3", float("nan")),
    "top_p": (0, 1.5, -0.1, float("nan"), True, "all"),
    "temperature": (-1, float("nan"), float("inf"), 1e-300, "hot", None),
    "freq_penalty": (-1.0, float("nan"), float("inf"), "no", None),
    "eos_token_id": (-1, 99, 1.5, True),
    "max_new_tokens": (-1, 2.5, True),
    "do_sample": (2, "no", None),
    "stop_at_eos": (2, "no", None),
    "use_past_kv_cache": ("no", None),
    "padding_side": ("up", 1),
    "return_type": ("tensor", 1),
}


@pytest.mark.parametrize("option", REFUSED)
def test_every_option_of_generation_is_checked_whether_it_is_used_or_not(option):
    model = models.build("microadder-57")
    for value in REFUSED[option]:
        for do_sample in (True, False):
            options = {"do_sample": do_sample, "max_new_tokens": 1, option: value}
            with pytest.raises(UserError):
                model.generate("57+48", **options)
    with pytest.raises(UserError):
        model.generate("57+48", top_k=2, top_p=0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_options_at_their_bounds_draw_tokens(dtype):
    model = models.build("microadder-57").to(dtype)
    likeliest = model.generate("57+48", do_sample=False)
    for options in ({"temperature": 1e-6}, {"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}):
        assert model.generate("57+48", **options) == likeliest
    for options in ({"temperature": 1e6}, {"top_k": 10**6}, {"top_p": 1.0}, {"freq_penalty": 1e6}):
        assert len(model.generate("57+48", **options)) == len(likeliest)


@pytest.mark.parametrize("other", [0.5, 2, -1, float("nan"), float("-inf"), -3.4e38])
def test_a_mask_is_of_ones_and_zeros(other):
    model = models.build("microadder-57")
    tokens = model.to_tokens("57+48")
    mask = torch.ones(tokens.shape, dtype=torch.float32 if isinstance(other, float) else torch.int64)
    mask[0, -1] = other
    for call in (model, model.input_to_embed):
        with pytest.raises(UserError):
            call(tokens, attention_mask=mask)
    for kind in (torch.float32, torch.int64, torch.bool):
        assert torch.equal(model(tokens, attention_mask=torch.ones(tokens.shape, dtype=kind)), model(tokens))


def test_frequent_tokens_can_be_drawn_less():
    model = models.build("microadder-57")
    torch.manual_seed(0)
    tokens = model.generate("57+48", freq_penalty=100.0, return_type="tokens")
    answer = tokens[0, -12:].bincount(minlength=10)
    prompt = tokens[0, :-12].bincount(minlength=10)
    assert answer[prompt.argmax()] == 0


# ---- weights by TransformerLens' names


def test_a_state_dict_by_transformer_lens_names_goes_into_a_dense_copy(row, model, tokens):
    other = row.build(5)
    dense = model.dense_copy()
    dense.load_state_dict(other.tl_state_dict())
    assert_same(dense(tokens), other(tokens))
    assert set(other.tl_state_dict()) == set(other.all_weights())
    if not isinstance(model.weight_map, models.weight_maps.DenseWeights):
        with pytest.raises(UserError):
            model.load_state_dict(other.tl_state_dict())
    broken = other.tl_state_dict()
    broken["unembed.W_U"] = broken["unembed.W_U"][:, 1:]
    with pytest.raises(UserError):
        dense.load_state_dict(broken)
    del broken["unembed.W_U"]
    with pytest.raises(UserError):
        dense.load_state_dict(broken)


@pytest.mark.skipif(STOCK_CLASS != "HookedTransformer", reason="transformer-lens 4 has no HookedTransformer")
def test_a_hooked_transformers_state_dict_is_taken_both_ways(model, twin, tokens):
    moved = model.dense_copy()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.1)
    moved.load_state_dict(twin.state_dict())
    assert_same(moved(tokens), twin(tokens), tolerance=1e-4)
    twin.load_state_dict(model.tl_state_dict(), strict=False)
    assert_same(model(tokens), twin(tokens), tolerance=1e-4)


@pytest.mark.rows(lambda row: row.name in SMALL)
def test_processing_keeps_the_log_probabilities(model, tokens):
    expected = model(tokens).log_softmax(-1)
    processed = model.dense_copy()
    processed.process_weights_()
    assert_same(processed(tokens).log_softmax(-1), expected, tolerance=1e-5)
    assert float(processed.W_U.mean(-1).abs().max()) < 1e-6 < float(model.W_U.mean(-1).abs().max())
    assert float(processed.b_V.abs().max()) == 0
    assert not torch.equal(processed.W_U, model.W_U)
    loaded = model.dense_copy()
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.zero_()
    loaded.load_and_process_state_dict(model.tl_state_dict())
    assert torch.equal(loaded(tokens), processed(tokens))
    assert_same(model.center_unembed()(tokens).log_softmax(-1), expected, tolerance=1e-5)
    assert_same(model.fold_value_biases()(tokens).log_softmax(-1), expected, tolerance=1e-5)
    state = model.fold_value_biases(model.tl_state_dict())
    assert float(state["blocks.0.attn.b_V"].abs().max()) == 0 and float(model.b_V.abs().max()) > 0
    if model.config.normalization_type == "LN":
        centred = model.center_writing_weights()
        assert_same(centred(tokens).log_softmax(-1), expected, tolerance=1e-5)
        assert float(centred.W_E.mean(-1).abs().max()) < 1e-6
    else:
        with pytest.raises(UserError):
            model.center_writing_weights()


def test_processing_in_place_is_for_free_weights():
    with pytest.raises(UserError):
        models.build("microadder-57").process_weights_()
    with pytest.raises(UserError):
        models.build("toygpt-learned-pre").process_weights_(refactor_factored_attn_matrices=True)
    model = models.build("toygpt-learned-pre")
    tokens = model.to_tokens(["57+48", "1+2"])
    expected = model(tokens).log_softmax(-1)
    model.process_weights_()
    assert_same(model(tokens).log_softmax(-1), expected, tolerance=1e-5)


def test_composition_scores_are_the_formula(model):
    n, heads = model.config.n_layers, model.config.n_heads
    QK, OV = model.QK.AB, model.OV.AB
    for mode, right in (("Q", QK), ("K", QK.transpose(-2, -1)), ("V", OV)):
        scores = model.all_composition_scores(mode)
        assert scores.shape == (n, heads, n, heads)
        for a in range(n):
            for b in range(n):
                expected = (OV[a, -1] @ right[b, 0]).norm() / (OV[a, -1].norm() * right[b, 0].norm()) if a < b else 0.0
                assert_same(scores[a, -1, b, 0], torch.as_tensor(expected), tolerance=1e-4)
    with pytest.raises(UserError):
        model.all_composition_scores("O")


def test_attention_has_mask_and_circuits(model):
    attn = model.blocks[0].attn
    n = model.config.n_ctx
    assert attn.mask.shape == (n, n) and bool((attn.mask == torch.ones(n, n).tril().bool()).all())
    assert_same(attn.QK.AB, model.QK[0].AB)
    assert_same(attn.OV.AB, model.OV[0].AB)


def test_free_numbers_are_counted(model):
    assert model.n_params_total == sum(p.numel() for p in model.parameters())
    assert models.build("microadder-57").n_params_total == 57


class Halves(nn.Module):
    """What SAELens' autoencoders look like from outside."""

    def __init__(self, hook_name: str, nested: bool):
        super().__init__()
        place = SimpleNamespace(hook_name=hook_name)
        self.cfg = SimpleNamespace(metadata=place) if nested else place
        self.use_error_term = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.use_error_term else x / 2


@pytest.mark.parametrize("nested", [False, True])
def test_autoencoders_stand_for_activations(nested):
    model = models.build("toygpt-learned-pre")
    tokens = model.to_tokens("57+48")
    name = "blocks.1.hook_resid_post"
    sae = Halves(name, nested)
    expected = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: value / 2)])
    assert torch.equal(model.run_with_saes(tokens, saes=[sae]), expected)
    assert torch.equal(model.run_with_saes(tokens, saes=sae, use_error_term=True), model(tokens))
    assert sae.use_error_term is False and torch.equal(model(tokens), model(tokens))
    with pytest.raises(UserError):
        model.run_with_saes(tokens, saes=[Halves("blocks.9.hook_z", nested)])
    with pytest.raises(UserError):
        model.run_with_saes(tokens, saes=[sae], reset_saes_end=False)


@pytest.mark.parametrize(
    "said",
    [
        {"hook_name_out": "blocks.1.hook_mlp_out"},
        {"metadata": SimpleNamespace(hook_name="blocks.1.hook_mlp_in", hook_name_out="blocks.1.hook_mlp_out")},
        {"architecture": lambda: "skip_transcoder"},
        {"architecture": "transcoder"},
        {"d_in": 4, "d_out": 8},
    ],
)
def test_what_writes_elsewhere_than_it_reads_is_no_autoencoder(said):
    model = models.build("toygpt-learned-pre")
    sae = Halves("blocks.1.hook_resid_post", nested=False)
    same = {"hook_name_out": "blocks.1.hook_resid_post", "architecture": "topk", "d_in": 4, "d_out": 4}
    vars(sae.cfg).update(same)  # what an autoencoder may say
    model.run_with_saes(model.to_tokens("57+48"), saes=[sae])
    vars(sae.cfg).update(said)
    with pytest.raises(UserError):
        model.run_with_saes(model.to_tokens("57+48"), saes=[sae])


def test_unknown_config_fields_stay_unknown():
    config = TransformerConfig(n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=4, d_vocab=5, n_ctx=6)
    assert not hasattr(config, "seed")
