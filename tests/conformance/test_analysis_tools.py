"""TransformerLens' analysis tools, each against a short computation of what it promises.

Tools that this environment's version does not have are skipped. The Jacobian and backward lenses take
TransformerLens' own classes only, and therefore an export.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from transformer_lens import SVDInterpreter
from transformer_lens.head_detector import HEAD_NAMES, detect_head

from models.errors import UserError
from tests.comparing import assert_same
from tests.conformance.table import STOCK_CLASS

pytestmark = [pytest.mark.transformer_lens, pytest.mark.usefixtures("without_shape_checks")]
RIGHT, WRONG = 3, 1
adds_up = pytest.mark.rows(lambda row: row.config.residual_stream_adds_up)
post_norm = pytest.mark.rows(lambda row: not row.config.residual_stream_adds_up)
has_mlps = pytest.mark.rows(lambda row: row.config.d_mlp)


def tool(name: str) -> ModuleType:
    return pytest.importorskip(f"transformer_lens.tools.analysis.{name}", reason=f"this version has no {name}")


def metric(logits: torch.Tensor) -> torch.Tensor:
    """Logit difference at the last position."""
    return (logits[:, -1, RIGHT] - logits[:, -1, WRONG]).mean()


def folded(model):
    """The stock model with the final norm's gain folded into W_U, as TransformerLens' attributions expect."""
    if STOCK_CLASS == "HookedTransformer":
        hooked = model.to_hooked_transformer()
        keep = {"center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}
        hooked.load_and_process_state_dict(hooked.state_dict(), fold_ln=True, **keep)
        return hooked
    bridge = model.to_transformer_bridge()
    bridge.enable_compatibility_mode(center_writing_weights=False, center_unembed=False, fold_value_biases=False)
    return bridge


# ---- reading out


@adds_up
@torch.no_grad()
@pytest.mark.parametrize("unit", ["component", "head"])
def test_direct_logit_attributions_sum_to_the_logit_difference(model, tokens, unit):
    attribute = tool("direct_logit_attribution").direct_logit_attribution
    model = model.fold_layer_norm()
    result = attribute(model, tokens, answer_tokens=RIGHT, incorrect_tokens=WRONG, unit=unit)
    logits = model(tokens)[:, -1]
    constant = model.b_U[RIGHT] - model.b_U[WRONG]
    assert_same(result.attribution.sum(0), logits[:, RIGHT] - logits[:, WRONG] - constant)
    assert len(result.labels) == len(result.attribution)


@torch.no_grad()
@has_mlps  # a stock model without MLPs has no "layer" unit
@pytest.mark.parametrize("unit", ["component", "head", "layer"])
def test_direct_logit_attributions_equal_those_of_a_stock_model_with_folded_norms(model, tokens, twin, unit):
    attribute = tool("direct_logit_attribution").direct_logit_attribution
    ours = attribute(model.fold_layer_norm(), tokens, answer_tokens=RIGHT, incorrect_tokens=WRONG, unit=unit)
    theirs = attribute(folded(model), tokens, answer_tokens=RIGHT, incorrect_tokens=WRONG, unit=unit)
    kept = [theirs.labels.index(label) for label in ours.labels]  # a twin of a model without positions has zeros
    assert_same(ours.attribution, theirs.attribution[kept])


@post_norm
@torch.no_grad()
def test_direct_logit_attribution_and_the_logit_lens_are_refused_under_post_norm(model, tokens):
    attribute = tool("direct_logit_attribution").direct_logit_attribution
    with pytest.raises(UserError, match="cannot be decomposed"):
        attribute(model, tokens, answer_tokens=RIGHT)
    with pytest.raises(UserError, match="cannot be decomposed"):
        tool("logit_lens").logit_lens(model, tokens)


@adds_up
@torch.no_grad()
def test_the_logit_lens_ends_at_the_models_logits(model, tokens):
    lens = tool("logit_lens")
    logits, cache = model.run_with_cache(tokens)
    for result in (lens.logit_lens(model, tokens, positions=None), cache.logit_lens(positions=None)):
        assert result.values.shape == (model.config.n_layers + 1, *logits.shape)
        assert_same(result.values[-1], logits)
    start = cache["resid_pre", 0]
    start = model.ln_final(start) if model.config.has_final_norm else start
    assert_same(result.values[0], model.unembed(start))
    assert_same(lens.logit_readout(model, cache["resid_post", -1]).values, logits)
    ranks = lens.logit_lens(model, tokens, targets=[model.to_string(RIGHT)]).rank_trajectory(model.to_string(RIGHT))
    assert torch.equal(ranks[-1], (logits[:, -1] > logits[:, -1, RIGHT, None]).sum(-1))


# ---- attribution patching


@has_mlps
def test_node_attributions_are_activation_difference_times_gradient(model, tokens, corrupted):
    attribution = tool("attribution_patching")
    result = attribution.attribution_patch(model, tokens[:1], corrupted[:1], metric)
    kept = {}

    def keep(value, hook):
        value.retain_grad()
        kept[hook.name] = value

    hooks = [(name, keep) for name in ("hook_embed", "blocks.0.attn.hook_z", "blocks.0.hook_mlp_out")]
    metric(model.run_with_hooks(corrupted[:1], fwd_hooks=hooks)).backward()
    _, clean = model.run_with_cache(tokens[:1])
    scores = {name: ((clean[name] - value.detach()) * value.grad).sum(-1)[0] for name, value in kept.items()}
    for node, score in result.node_scores.items():
        if node.hook_name not in scores:
            continue
        expected = scores[node.hook_name][node.position]
        expected = expected if node.head is None else expected[node.head]
        assert score == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
    writers = 1 + model.config.n_layers * (model.config.n_heads + 1)
    assert len(result.node_scores) == tokens.shape[1] * writers


@has_mlps
@adds_up
def test_edge_attributions_of_a_writer_sum_to_its_node_attribution(model, tokens, corrupted):
    attribution = tool("attribution_patching")
    if not hasattr(attribution, "enumerate_edges"):
        pytest.skip("this version scores nodes only")
    nodes = attribution.attribution_patch(model, tokens[:1], corrupted[:1], metric).node_scores
    config = attribution.EdgeAttributionConfig(granularity="edge")
    edges = attribution.attribution_patch(model, tokens[:1], corrupted[:1], metric, config)
    scale = max(abs(score) for score in nodes.values())
    for node, score in nodes.items():
        assert edges.node_scores[node] == pytest.approx(score, abs=1e-4 * scale)
    assert edges.edge_scores and not model.cfg.use_attn_result and not model.cfg.use_split_qkv_input


@has_mlps
@adds_up
def test_the_whole_circuit_is_faithful_and_the_empty_one_is_not(model, tokens, corrupted):
    attribution = tool("attribution_patching")
    if not hasattr(attribution, "faithfulness"):
        pytest.skip("this version has no faithfulness")
    config = attribution.EdgeAttributionConfig(granularity="edge")
    clean, other = tokens[:1, :4], corrupted[:1, :4]
    edges = attribution.attribution_patch(model, clean, other, metric, config).top_edges(k=10**6)
    assert attribution.faithfulness(model, clean, other, metric, edges).recovered == pytest.approx(1.0, abs=1e-3)
    assert attribution.faithfulness(model, clean, other, metric, []).recovered == pytest.approx(0.0, abs=1e-3)


@post_norm
def test_edge_attribution_is_refused_under_post_norm(model, tokens, corrupted):
    attribution = tool("attribution_patching")
    if not hasattr(attribution, "enumerate_edges"):
        pytest.skip("this version scores nodes only")
    config = attribution.EdgeAttributionConfig(granularity="edge")
    with pytest.raises(ValueError, match="ln1_post"):
        attribution.attribution_patch(model, tokens[:1], corrupted[:1], metric, config)
    with pytest.raises(ValueError, match="ln1_post"):
        attribution.faithfulness(model, tokens[:1], corrupted[:1], metric, [])


# ---- heads and weights


@torch.no_grad()
def test_detected_heads_score_the_share_of_their_attention_on_the_pattern(model, tokens):
    tokens = tokens[:, : model.cfg.n_ctx - 1]  # the tool wants sequences strictly shorter than the context
    _, cache = model.run_with_cache(tokens[:1])
    pos = tokens.shape[1]
    previous = torch.eye(pos).roll(1, 0).tril()
    for name in HEAD_NAMES:
        assert detect_head(model, tokens[:1], name).shape == (model.config.n_layers, model.config.n_heads)
    scores = detect_head(model, tokens[:1], "previous_token_head")
    expected = torch.stack([(cache["pattern", i][0] * previous).sum((-1, -2)) / pos for i in range(len(scores))])
    assert_same(scores, expected)
    assert_same(detect_head(model, tokens[:1], previous), expected)


@pytest.mark.rows(lambda row: row.name.startswith("microadder"))  # the toy task does not read text
def test_detect_head_takes_problem_text(model):
    assert torch.equal(
        detect_head(model, "57+48", "previous_token_head"),
        detect_head(model, model.task.encode([(57, 48)]), "previous_token_head"),
    )


@torch.no_grad()
def test_singular_vectors_are_those_of_the_effective_weights(model):
    interpreter = SVDInterpreter(model)
    first = {"OV": model.OV.AB[0, 0]}
    if model.config.d_mlp:
        gain = model.tl_parameters().get("blocks.0.ln2.w", 1.0)
        first |= {"w_in": model.W_in[0].T * gain, "w_out": model.W_out[0]}
    for name, matrix in first.items():
        vectors = interpreter.get_singular_vectors(name, 0, num_vectors=1, head_index=0 if name == "OV" else None)
        assert vectors.shape == (model.config.d_vocab, 1, 1)
        leading = torch.linalg.svd(matrix).Vh[0]
        seen = (model.W_U.T @ leading).abs()
        assert_same(vectors[:, 0, 0].abs(), seen, tolerance=1e-3, what=name)


@torch.no_grad()
def test_head_affinities_compare_output_and_query_subspaces(model):
    affinity = tool("projection_kernel").attention_head_subspace_affinity
    result = affinity(model, target_role="Q", layer_order="all", rank=1)

    def direction(matrix: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(matrix).U[:, 0]

    outputs = direction(model.W_O[0, 0].T.double())
    queries = direction(model.W_Q[-1, -1].double())
    expected = (outputs @ queries).square()
    assert_same(result.scores[0, 0, -1, -1], expected, tolerance=1e-3)


def test_factored_heads_decompose_into_singular_directions(model):
    decompose = tool("svd_circuits").decompose_head
    found = decompose(model, layer=0, head=0)
    assert_same(found.OV.S[0], torch.linalg.svdvals(model.OV.AB[0, 0])[0], tolerance=1e-4)


# ---- interchange interventions


def at_the_end(model):
    return lambda inputs: model(inputs)[:, -1]


@torch.no_grad()
def test_interchanging_the_whole_stream_gives_the_sources_answer(model, tokens, corrupted):
    interchange = tool("interchange")
    end = torch.full((len(tokens),), tokens.shape[1] - 1)
    hook = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    source = interchange.collect_activations(model, hook, corrupted, at_the_end(model), positions=end)
    _, cache = model.run_with_cache(corrupted)
    assert_same(source, cache[hook][:, -1])
    everything = interchange.SubspaceInterchange(torch.eye(model.config.d_model))
    swapped = interchange.intervened_logits(model, hook, everything, tokens, source, at_the_end(model), positions=end)
    assert_same(swapped, model(corrupted)[:, -1])
    basis = interchange.random_basis(model.config.d_model, 1, seed=0)
    part = interchange.intervened_logits(
        model, hook, interchange.SubspaceInterchange(basis), tokens, source, at_the_end(model), positions=end
    )
    moved = model.run_with_cache(tokens)[1][hook][:, -1]
    moved = moved + (source - moved) @ basis @ basis.T
    moved = model.ln_final(moved[:, None]) if model.config.has_final_norm else moved[:, None]
    assert_same(part, model.unembed(moved)[:, 0])


def test_an_alignment_search_leaves_the_model_as_it_was(model, tokens, corrupted):
    interchange = tool("interchange")
    end = torch.full((len(tokens),), tokens.shape[1] - 1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = interchange.fit_das(
        model,
        "blocks.0.hook_resid_pre",
        tokens,
        corrupted,
        torch.tensor([RIGHT] * len(tokens)),
        at_the_end(model),
        rank=1,
        base_positions=end,
        source_positions=end,
        epochs=2,
        batch_size=len(tokens),
    )
    assert result.basis.shape == (model.config.d_model, 1) and len(result.losses) == 2
    assert_same(model.state_dict(), before, tolerance=0.0)
    assert all(parameter.requires_grad for parameter in model.parameters())
