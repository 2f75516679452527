"""Attribution: first-order terms are right, integrals add up, and estimates are held against exact effects."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from interp.causal.edges import EdgeExperiment, attribution_methods, edge_attribution, path_patching
from interp.causal.edges import sender_values as written_module
from interp.causal.edges.attribution_methods import SCORES, TOLERANCE, compute_attribution
from interp.causal.edges.effect_agreement import agreement
from interp.causal.edges.path_patching import compute_direct
from interp.causal.metrics import Metric
from models.errors import UserError
from tests.comparing import numbers_are_finite
from tests.conformance.table import dense
from tests.interp.causal.edges.conftest import BUILDERS, builders, made_carries, pairs_for, with_pairs
from tests.sampling import sampled

SMOOTH = [name for name in BUILDERS if name not in ("L1 scores, top-k", "hand-built", "microadder-57")]


@pytest.mark.parametrize("name", builders([*SMOOTH, "L1 scores, top-k"]))
@pytest.mark.parametrize("direction", sampled(["noise", "denoise"], "noise"))
def test_eap_is_the_derivative_of_the_exact_effect(name, direction):
    """Alternatives moved a little: estimate and effect agree to first order, for every edge and every node."""
    model = BUILDERS[name](0).double()
    experiment = EdgeExperiment(model, pairs_for(model.task), direction=direction)
    step = 1e-6
    experiment.replacement = experiment.values + step * (experiment.replacement - experiment.values)
    estimate = compute_attribution(experiment, "eap", 1) / step
    exact = (compute_direct(experiment) - experiment.full[:, None]) / step
    scale = float(exact.abs().max())
    assert scale > 1e-3
    torch.testing.assert_close(estimate, exact, rtol=1e-3, atol=1e-4 * scale)
    for column in (1, 2):
        part = experiment.graph.edge_index[:, column]
        nodes = part == torch.arange(int(part.max()) + 1)[:, None]
        exact = (experiment(~nodes) - experiment.full[:, None]) / step
        total = torch.einsum("ve,men->mvn", nodes.double(), estimate)
        torch.testing.assert_close(total, exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))


@pytest.mark.parametrize("name", sampled(["attention only", "one layer, LN", "gated, rotary"], "attention only"))
def test_integrated_gradients_add_up_to_the_difference(name):
    """Conductance by the trapezoidal rule; EAP-IG by end points, its error of order 1 / steps extrapolated away."""
    model, pairs = with_pairs(BUILDERS[name](0).double())
    found = edge_attribution(
        model, pairs, method="conductance", steps=60, exact=False, direction="noise"
    ).completeness()
    size = float(abs(EdgeExperiment(model, pairs, direction="noise").full).mean())
    assert found["out of the embeddings"] == pytest.approx(found["difference"], abs=0.01 * size)
    assert found["into the logits"] == pytest.approx(found["difference"], abs=0.01 * size)
    few, many = (
        edge_attribution(model, pairs, steps=steps, exact=False, direction="noise").completeness()[
            "out of the embeddings"
        ]
        for steps in (30, 60)
    )
    assert 2 * many - few == pytest.approx(found["difference"], abs=0.03 * size)


def test_conductance_adds_up_over_every_cut():
    """All edges that pass over a stage carry the whole difference, whichever stage is taken."""
    model, pairs = with_pairs(dense(n_layers=2)(0).double())
    result = edge_attribution(model, pairs, method="conductance", steps=100, exact=False, direction="noise")
    graph = EdgeExperiment(model, pairs, direction="noise").graph
    mean = result.estimate.isel(metric=0).mean("example").values
    difference = float((result.other - result.base).mean())
    for stage in range(graph.n_stages):
        written = set(graph.senders[: graph.senders_before(stage)])
        over = [e.sender in written and graph.stage_of[e.receiver] >= stage for e in graph.edges]
        assert mean[np.array(over)].sum() == pytest.approx(difference, rel=0.01)


def test_one_step_is_eap_and_more_steps_are_not():
    model, pairs = with_pairs(dense()(0).double())
    eap = edge_attribution(model, pairs, method="eap", exact=False, direction="noise")
    assert np.allclose(edge_attribution(model, pairs, steps=1, exact=False, direction="noise").estimate, eap.estimate)
    assert not np.allclose(
        edge_attribution(model, pairs, steps=5, exact=False, direction="noise").estimate, eap.estimate
    )
    assert eap.steps == 1


def test_edges_into_linear_logits_are_estimated_exactly():
    model, pairs = with_pairs(dense(normalization_type=None)(0).double())
    for method in ("eap", "eap-ig"):
        result = edge_attribution(model, pairs, method=method, direction="noise")
        assert result.exact is not None
        last = result.estimate.receiver.values == "logits"
        np.testing.assert_allclose(result.estimate.values[:, last], result.exact.values[:, last], atol=1e-9)


@pytest.mark.slow
def test_groups_share_an_edges_estimate_out():
    model, pairs = with_pairs(dense()(0).double())
    whole = edge_attribution(model, pairs, exact=False, direction="noise").matrix()
    split = edge_attribution(
        model, pairs, exact=False, groups={"a": [0, 1, 2], "b": [3, 4, 5]}, direction="noise"
    ).matrix()
    np.testing.assert_allclose(split.values, whole.values, atol=1e-12)


def _tool():
    module = pytest.importorskip("transformer_lens.tools.analysis.attribution_patching")
    if not hasattr(module, "enumerate_edges"):
        pytest.skip("this version of TransformerLens attributes to nodes only")
    return module


ORACLE = ["one layer, LN", "two layers, RMS", "four layers", "gated, no biases", "gated, rotary", "FIRE"]


def _ours(node) -> str:
    letters = {"q_input": "q", "k_input": "k", "v_input": "v"}
    if node.kind in letters:
        return f"L{node.layer}H{node.head}.{letters[node.kind]}"
    if node.kind == "attn_head_out":
        return f"L{node.layer}H{node.head}"
    return f"L{node.layer}.mlp" if node.kind.startswith("mlp") else node.kind


@pytest.mark.parametrize("name", builders(ORACLE))
def test_denoising_eap_is_transformer_lens_edge_attribution(name):
    tool, model = _tool(), BUILDERS[name](0).double()
    pairs = pairs_for(model.task, 2)
    result = edge_attribution(model, pairs, method="eap", direction="denoise", exact=False)
    config = tool.EdgeAttributionConfig(granularity="edge")
    for i in range(len(pairs)):
        metric = EdgeExperiment(model, pairs, direction="noise").metrics[0]
        theirs = tool.attribution_patch(
            model,
            pairs.clean_tokens[i : i + 1],
            pairs.corrupted_tokens[i : i + 1],
            lambda logits, at=i, m=metric: m(logits[:, list(m.positions)], slice(at, at + 1)).sum(),
            config,
        )
        total: dict[str, float] = {}
        for (writer, reader), score in theirs.edge_scores.items():
            edge = f"{_ours(writer)}->{_ours(reader)}"
            total[edge] = total.get(edge, 0.0) + score
        for edge, score in total.items():
            assert float(result.estimate.sel(edge=edge).values[0, i]) == pytest.approx(score, rel=1e-6, abs=1e-9)
        missing = set(result.estimate.edge.values.tolist()) - set(total)
        assert all(edge.startswith("pos_embed") for edge in missing)  # which TransformerLens does not count as a sender


@pytest.mark.parametrize("name", builders(ORACLE))
def test_cutting_an_edge_is_transformer_lens_ablation_outside_a_circuit(name):
    tool, model = _tool(), BUILDERS[name](0).double()
    if not hasattr(tool, "faithfulness"):
        pytest.skip("this version has no faithfulness")
    pairs = pairs_for(model.task, 1)
    clean, corrupted = pairs.clean_tokens, pairs.corrupted_tokens
    result = path_patching(model, pairs, direction="noise")
    metric = EdgeExperiment(model, pairs, direction="noise").metrics[0]
    config = tool.EdgeAttributionConfig(granularity="edge")
    judge = lambda logits: metric.of(logits).mean()  # noqa: E731
    every = list(tool.attribution_patch(model, clean, corrupted, judge, config).edge_scores)
    for edge in result.values.edge.values.tolist()[:: len(result.values.edge) // 6]:
        if edge.startswith("pos_embed"):
            continue
        kept = [(writer, reader) for writer, reader in every if f"{_ours(writer)}->{_ours(reader)}" != edge]
        found = tool.faithfulness(model, clean, corrupted, judge, kept)
        left = found.corrupt_metric + found.recovered * (found.full_metric - found.corrupt_metric)
        assert float(result.values.sel(edge=edge).values[0, 0]) == pytest.approx(left, rel=1e-6, abs=1e-6)


def test_batches_of_examples_do_not_matter(monkeypatch):
    model, pairs = with_pairs(dense()(0).double(), 7)
    whole = [
        edge_attribution(model, pairs, steps=2, exact=False, direction="noise").estimate,
        path_patching(model, pairs, paths="all", direction="noise").values,
    ]
    monkeypatch.setattr(written_module, "EXAMPLES_AT_ONCE", 3)
    parts = [
        edge_attribution(model, pairs, steps=2, exact=False, direction="noise").estimate,
        path_patching(model, pairs, paths="all", direction="noise").values,
    ]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other.values, one.values, rtol=1e-8, atol=1e-9)


# ---- completeness


@pytest.mark.parametrize("direction", sampled(["noise", "denoise"], "noise"))
def test_steps_are_raised_until_the_estimates_add_up_to_the_difference(direction):
    """Five steps of MicroAdder's do not: they give a sum of another size, with edges of the wrong sign."""
    model, pairs = made_carries(32)
    few, found = (edge_attribution(model, pairs, steps=k, exact=False, direction=direction) for k in (5, None))
    assert few.completeness()["error"] > 1
    sums = found.completeness()
    assert found.steps > 50 and sums["error"] <= TOLERANCE
    assert sums["out of the embeddings"] == pytest.approx(sums["difference"], rel=TOLERANCE)
    assert sums["difference"] == pytest.approx(54.0 * (1 if direction == "denoise" else -1), abs=0.1)


def test_what_is_not_complete_in_the_most_steps_says_so(monkeypatch):
    monkeypatch.setattr(attribution_methods, "MOST_STEPS", 12)
    found = edge_attribution(*made_carries(8), exact=False)
    assert found.steps == 10 and found.completeness()["error"] > TOLERANCE


def test_where_the_runs_give_the_same_metric_there_is_nothing_to_be_complete_to():
    model, pairs = made_carries(8)
    flat = Metric("flat", (model.task.query_positions[0],), lambda logits, rows: 0 * logits[..., 0, 0])
    found = edge_attribution(model, pairs, metrics=flat, steps=2, exact=False)
    assert np.isnan(found.completeness()["error"]) and numbers_are_finite(found.sentence())


# ---- agreement


def test_edges_without_an_effect_have_no_rank_and_the_correlation_has_an_interval():
    found = edge_attribution(*made_carries(64), method="eap")
    edges = found.agreements["logit_diff", "edges"]
    assert (edges.cells, edges.live, edges.ranked) == (13, 4, 5)  # and one whose estimate alone is not zero
    assert int((np.abs(found.exact.mean("example").values) > 1e-3).sum()) == 4
    assert edges.spearman_low <= edges.spearman <= edges.spearman_high and edges.spearman_low < edges.spearman_high


def test_results_say_how_far_they_can_be_trusted():
    model, pairs = with_pairs(dense()(0))
    result = edge_attribution(model, pairs, metrics=["logit_diff", "loss"], method="eap", direction="noise")
    levels = [(metric, level) for metric in ("logit_diff", "loss") for level in ("edges", "senders", "receivers")]
    assert list(result.agreements) == levels and all(-1 <= x.spearman <= 1 for x in result.agreements.values())
    edges = result.agreements["logit_diff", "edges"]
    exact = path_patching(model, pairs, direction="noise").effects.values[0].mean(-1)
    estimate = result.estimate.values[0].mean(-1)
    assert edges.worst_error == pytest.approx(np.abs(exact - estimate).max())
    assert edges.worst == np.abs(exact - estimate).argmax()
    into = result.estimate.receiver.values == "L1H0.k"
    found = result.receivers.estimate.sel(receiver="L1H0.k").values
    np.testing.assert_allclose(result.estimate.values[:, into].sum(1), found)
    rows = result.to_dataframe()
    np.testing.assert_allclose(rows.exact[: len(exact)], exact, rtol=1e-6)
    assert len([trace for trace in result.figure().data if trace.type == "heatmap"]) == 2
    unchecked = edge_attribution(model, pairs, method="eap", exact=False, direction="noise")
    assert unchecked.to_dataframe().exact.isna().all()
    assert len(unchecked.figure(metric="logit_diff").data) == 2
    assert not unchecked.agreements


@pytest.mark.parametrize("method", ["eap", "gim"])
def test_edges_that_have_an_effect_are_counted_by_the_effect(method):
    """Estimates with errors on dead edges, as exact effects do not depend on the method."""
    model, pairs = made_carries(32)
    edges = edge_attribution(model, pairs, method=method).agreements["logit_diff", "edges"]
    alone = path_patching(model, pairs).effects.sel(metric="logit_diff").values
    assert edges.live == int((np.abs(alone).max(1) > 1e-5 * np.abs(alone).max()).sum()) <= edges.ranked


def test_an_estimate_is_not_rewarded_for_effects_that_it_makes_up():
    real = np.array([[1.0], [2.0], [3.0], [0.0], [0.0]]) * np.ones(8)
    made_up = real + np.array([[0.0], [0.0], [0.0], [9.0], [0.0]])
    right, wrong = agreement(real, real), agreement(made_up, real)
    assert (right.live, right.ranked, wrong.live, wrong.ranked) == (3, 3, 3, 4)
    assert wrong.spearman < right.spearman == pytest.approx(1.0)


def test_effects_that_differ_by_rounding_alone_are_ties():
    real = np.array([[1.0], [2.0], [2.0], [2.0], [3.0], [5.0]]) * np.linspace(1, 2, 8)
    estimate = np.array([[2.0], [1.0], [4.0], [4.0], [3.0], [7.0]]) * np.linspace(1, 2, 8)
    rounded = real * (1 + 1e-7 * np.random.default_rng(0).normal(size=real.shape))
    exact, found = agreement(estimate, real), agreement(estimate, rounded)
    assert found.spearman == exact.spearman and found.spearman_low == exact.spearman_low and found.p == exact.p
    apart = real + 1e-3 * np.arange(6)[:, None]  # larger than rounding: no ties
    assert abs(agreement(estimate, apart).spearman - exact.spearman) > 1e-3


@settings(max_examples=15)
@given(arrays(float, (7, 3), elements=st.floats(-5, 5).map(lambda x: round(x, 6))), st.floats(0.1, 10))
def test_an_estimate_off_by_a_factor_has_the_right_ranks(real, factor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = agreement(real / factor, real)
    live = real[np.abs(real).max(1) > 1e-5 * max(np.abs(real).max(), 1e-300)]
    assert found.live == len(live)
    if len(live) > 1 and np.ptp(live.mean(1)) > 1e-5 * np.abs(real).max():
        assert found.spearman_low <= found.spearman <= found.spearman_high
        assert found.spearman == pytest.approx(1.0) or len(set((real / factor).mean(1))) < len(set(real.mean(1)))
    assert found.worst_error == pytest.approx(np.abs(real.mean(1) * (1 - 1 / factor)).max(), abs=1e-9)


def test_shuffled_estimates_are_not_significant():
    rng = np.random.default_rng(0)
    p = [agreement(rng.normal(size=(20, 4)), rng.normal(size=(20, 4)), seed).p for seed in range(15)]
    assert 0.3 < np.mean(p) < 0.7  # uniform
    real = rng.normal(size=(20, 4))
    assert agreement(real, real).p == pytest.approx(1 / 1001)


# ---- bad input


@pytest.mark.parametrize("method", ["eap", "eap-ig", "ends", "qk-fix", "conductance", *SCORES])
def test_only_what_estimates_an_effect_is_called_an_estimate(method):
    """A score has another scale than effects, so that it has no error; its ranks can be compared."""
    model = dense(n_layers=1)(3)
    steps = 5 if method in ("eap-ig", "conductance") else None
    found = edge_attribution(model, pairs_for(model.task), method=method, steps=steps)
    score = method in SCORES
    assert {"score", "estimate"} & {*found.to_dataframe().columns} == {"score" if score else "estimate"}
    assert found.measures[0].name == ("score" if score else "estimate")


def test_bad_input_is_one_clear_sentence():
    model, pairs = with_pairs(dense()(0))
    with pytest.raises(UserError, match="Did you mean 'eap-ig'"):
        edge_attribution(model, pairs, method="eap_ig", direction="noise")
    with pytest.raises(UserError, match="steps must be a whole number"):
        edge_attribution(model, pairs, steps=0, direction="noise")
    with pytest.raises(UserError, match="'exact_match' has no gradient"):
        edge_attribution(model, pairs, metrics="exact_match", direction="noise")
    with pytest.raises(UserError, match="is not a run"):
        edge_attribution(model, pairs, method="conductance", replacement="zero", direction="noise")
    with pytest.raises(UserError, match="must have one shape"):
        agreement(np.zeros((0, 2)), np.zeros((0, 2)))


class SoftenedGradient(torch.autograd.Function):
    """A softmax whose gradient is that of another temperature."""

    @staticmethod
    def forward(ctx, scores):
        ctx.save_for_backward(scores)
        return scores.softmax(-1)

    @staticmethod
    def backward(ctx, gradient):
        soft = (ctx.saved_tensors[0] / 2).softmax(-1)
        return soft * (gradient - (gradient * soft).sum(-1, keepdim=True))


def times(share):
    def change(x, hook):
        x = x.clone()
        x.register_hook(lambda gradient: share * gradient)
        return x

    return change


def interaction_hooks(model):
    scores = {}

    def softened(x, hook):
        return SoftenedGradient.apply(scores[hook.name.split(".")[1]])

    changes = {"attn.hook_q": times(0.25), "attn.hook_k": times(0.25), "attn.hook_v": times(0.5)}
    changes["attn.hook_attn_scores"] = lambda x, hook: scores.__setitem__(hook.name.split(".")[1], x)
    changes |= {"attn.hook_pattern": softened, "hook_scale": lambda x, hook: x.detach()}
    if model.config.gated_mlp:
        changes |= {"mlp.hook_pre": times(0.5), "mlp.hook_pre_linear": times(0.5)}
    return [(name, change) for name in model.hook_dict for end, change in changes.items() if name.endswith(end)]


def slopes_by_hooks(experiment, model, hooks):
    """The gradient with respect to what every receiver reads, [receiver, batch, pos, d_model], by the model's hooks."""
    model.set_use_split_qkv_input(True)
    model.set_use_hook_mlp_in(True)
    graph, last, read = experiment.graph, model.config.n_layers - 1, {}

    def keep(x, hook):
        x.retain_grad()
        read[hook.name] = x

    def slope_of(name):
        return torch.zeros_like(read[name]) if read[name].grad is None else read[name].grad

    names = [n for n in model.hook_dict if n.endswith(("_input", "hook_mlp_in"))] + [f"blocks.{last}.hook_resid_post"]
    logits = model.run_with_hooks(experiment.tokens, fwd_hooks=[*hooks, *((name, keep) for name in names)])
    experiment.judge(logits[:, list(graph.read)], slice(None))[0].sum().backward()
    found = []
    for name in graph.receivers:
        layer, _, letter = name.partition(".")
        if name == "logits":
            slope = slope_of(f"blocks.{last}.hook_resid_post")
        elif letter == "mlp":
            slope = slope_of(f"blocks.{layer[1:]}.hook_mlp_in")
        else:
            at, head = layer[1:].split("H")
            slope = slope_of(f"blocks.{at}.hook_{letter}_input")[:, :, int(head)]
        found.append(slope[:, : graph.n_positions])
    return torch.stack(found)


def products_by_hooks(experiment, model, hooks):
    slopes = slopes_by_hooks(experiment, model, hooks)
    change = experiment.replacement - experiment.values
    _, receivers, senders = experiment.graph.edge_index.T
    return (change[senders] * slopes[receivers]).sum((-1, -2))


@pytest.mark.parametrize("options", [{"n_layers": 2}, {"n_layers": 2, "gated_mlp": True, "normalization_type": "LN"}])
def test_gim_and_dropped_gradients_are_what_hooks_on_the_model_give(options):
    model, pairs = with_pairs(dense(**options)(0).double())
    experiment = EdgeExperiment(model, pairs, direction="noise")
    expected = products_by_hooks(experiment, dense(**options)(0).double(), interaction_hooks(model))
    torch.testing.assert_close(compute_attribution(experiment, "gim", 1)[0], expected, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(expected, compute_attribution(experiment, "eap", 1)[0], rtol=0.1)
    dropped = [(layer, out) for layer in range(2) for out in ("hook_attn_out", "hook_mlp_out")]
    total = 0
    for layer, out in dropped:
        hooks = [(f"blocks.{layer}.{out}", lambda x, hook: x.detach())]
        total = total + products_by_hooks(experiment, dense(**options)(0).double(), hooks).abs()
    found = compute_attribution(experiment, "atp-star", 1)[0]
    direct = torch.tensor([not e.receiver.endswith((".q", ".k")) for e in experiment.graph.edges])
    torch.testing.assert_close(found[direct], total[direct] / 3, rtol=1e-9, atol=1e-12)
    assert (found >= 0).all() and (found[~direct] > 0).any()
