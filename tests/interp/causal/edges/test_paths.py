"""Path patching is TransformerLens' where both exist, and adds up where theory says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformer_lens import patching

import models
from interp.causal.edges import EdgeExperiment, edge_attribution, path_patching
from interp.causal.edges.edge_graph import part_and_input
from interp.causal.edges.path_patching import compute_all, compute_direct, compute_senders
from interp.causal.metrics import Metric, resolve_metrics
from models.errors import UserError
from models.tasks import carry_pairs, same_carry_pairs
from tests.conformance.table import dense
from tests.interp.causal.edges.conftest import BUILDERS, builders, made_carries, with_pairs
from tests.sampling import sampled

has_direct_paths = pytest.mark.skipif(
    not hasattr(patching, "get_act_patch_direct_path"), reason="this TransformerLens has no direct path patching"
)
DEEP = ["two layers, RMS", "four layers", "no norms", "gated, no biases", "gated, rotary", "rotary halves", "FIRE"]
DEEP += ["attention only", "coupled positions", "L1 scores, top-k"]


def direct_paths(model, pairs, metric, letter: str, reverse: bool = False) -> torch.Tensor:
    """TransformerLens' sweep, denoising (or with the two runs exchanged, noising): [layer, head, layer, head]."""
    tokens = (pairs.clean_tokens, pairs.corrupted_tokens)
    clean, corrupted = reversed(tokens) if reverse else tokens
    with torch.no_grad():
        caches = [model.run_with_cache(x)[1] for x in (clean, corrupted)]
        return patching.get_act_patch_direct_path_all_sources(
            model, corrupted, *caches, lambda logits: metric.of(logits).mean(), letter, verbose=False
        )


def compare(result, expected: torch.Tensor, letter: str) -> int:
    means, compared = result.values.isel(metric=0).mean("example"), 0
    for source_layer, source_head, layer, head in np.ndindex(*expected.shape):
        if layer > source_layer:
            edge = f"L{source_layer}H{source_head}->L{layer}H{head}.{letter}"
            theirs = float(expected[source_layer, source_head, layer, head])
            assert float(means.sel(edge=edge)) == pytest.approx(theirs, rel=1e-6, abs=1e-6)  # theirs is kept in float32
            compared += 1
    return compared


@pytest.mark.parametrize("groups", [None, {"first": (0, 1, 2), "rest": range(3, 40)}], ids=["whole", "by groups"])
@pytest.mark.parametrize("name", builders())
def test_single_edges_and_senders_are_those_of_masks(name, groups):
    """Every edge and every sender, as a variant of one run, is the masked model with that alone cut."""
    model, pairs = with_pairs(BUILDERS[name](0).double())
    experiment = EdgeExperiment(model, pairs, ["logit_diff", "kl"], direction="noise", groups=groups)
    graph = experiment.graph
    edges = experiment.without_each(torch.arange(len(graph)), len(graph))
    senders = experiment.without_each(graph.edge_index[:, 2], len(graph.senders))
    base = experiment.full[:, None]
    for found, wanted in ((compute_direct(experiment), edges), (compute_senders(experiment), senders)):
        scale = (wanted - base).abs().amax((1, 2), keepdim=True)
        counts = ((wanted - base).abs() > 1e-6 * scale).any(2).any(0)  # by either metric
        assert counts.double().mean().item() > 0.3
        assert bool(((found - wanted).abs() <= 1e-9 * scale.clamp(min=1)).all())


def reads(model, cache, receiver: str):
    """What a receiver reads in a run, and the hook and head at which it does."""
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    if receiver == "logits":
        return cache[last], last, None
    part, letter = part_and_input(receiver)
    if not letter:
        hook = f"blocks.{part[1]}.hook_mlp_in"
        return cache[hook], hook, None
    layer, head = (int(x) for x in part[1:].split("H"))
    return cache[f"blocks.{layer}.hook_resid_pre"], f"blocks.{layer}.hook_{letter}_input", head


@pytest.mark.parametrize("name", sampled(["gated, rotary", "parallel", "four layers", "attention only"], "parallel"))
@torch.no_grad()
def test_all_paths_are_runs_whose_receiver_reads_what_it_would(name):
    """By hooks: the sender is patched everywhere, and one receiver of the plain run then reads what it read there."""
    model, pairs = with_pairs(BUILDERS[name](0).double(), 2)
    experiment = EdgeExperiment(model, pairs, direction="noise")
    found, metric = compute_all(experiment)[0], experiment.metrics[0]
    hooked = model.dense_copy()
    hooked.set_use_split_qkv_input(True)
    hooked.set_use_hook_mlp_in(bool(model.config.d_mlp))
    tokens = experiment.tokens
    graph = experiment.graph
    change = experiment.replacement[:, : len(tokens)] - experiment.values[:, : len(tokens)]
    for i, sender in enumerate(graph.senders):
        hook = {"embed": "hook_embed", "pos_embed": "hook_pos_embed"}.get(sender)
        if hook is None:
            hook = f"blocks.{sender[1]}.hook_{'mlp' if sender.endswith('mlp') else 'attn'}_out"
        grown = lambda x, hook, i=i: torch.cat((x[:, : graph.n_positions] + change[i], x[:, graph.n_positions :]), 1)  # noqa: E731
        with hooked.hooks(fwd_hooks=[(hook, grown)]):
            patched = hooked.run_with_cache(tokens)[1]
        for edge, name in enumerate(graph.names):
            if graph.edges[edge].sender == sender:
                new, at, head = reads(hooked, patched, graph.edges[edge].receiver)

                def put(x, hook, new=new, head=head):
                    if head is None:
                        return new
                    return torch.cat((x[:, :, :head], new[:, :, None], x[:, :, head + 1 :]), 2)

                true = metric.of(hooked.run_with_hooks(tokens, fwd_hooks=[(at, put)]))
                torch.testing.assert_close(found[edge], true, rtol=1e-9, atol=1e-9, msg=name)
    assert bool(((found - experiment.full[0]).abs() > 1e-6).double().mean() > 0.5)


@has_direct_paths
@pytest.mark.parametrize("name", builders(DEEP))
def test_head_to_head_is_transformer_lens_direct_path(name):
    model, pairs = with_pairs(BUILDERS[name](0).double())
    metric = EdgeExperiment(model, pairs, direction="noise").metrics[0]
    heads, layers = model.config.n_heads, model.config.n_layers
    for direction in ("denoise", "noise"):
        result = path_patching(model, pairs, direction=direction)
        for letter in "qkv":
            expected = direct_paths(model, pairs, metric, letter, reverse=direction == "noise")
            assert compare(result, expected, letter) == heads**2 * layers * (layers - 1) // 2


def test_all_paths_into_the_logits_are_the_patch_of_the_sender(model, pairs):
    """... which is the activation patch of that head, here by a hook."""
    result = path_patching(model, pairs, paths="all", direction="noise")
    into_logits = result.effects.isel(edge=result.effects.receiver.values == "logits")
    scale = max(1.0, float(np.abs(result.base.values).max()))
    assert np.abs(into_logits.values - (result.senders - result.base).values).max() < 1e-9 * scale
    name = f"blocks.{model.config.n_layers - 1}.attn.hook_z"
    _, cache = model.run_with_cache(pairs.corrupted_tokens)

    def patch(z, hook):
        return torch.cat((cache[name][:, :, :1], z[:, :, 1:]), 2)

    with torch.no_grad():
        logits = model.run_with_hooks(pairs.clean_tokens, fwd_hooks=[(name, patch)])
    expected = EdgeExperiment(model, pairs, direction="noise").metrics[0].of(logits).numpy()
    found = result.senders.sel(sender=f"L{model.config.n_layers - 1}H0").values[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale)


def test_all_paths_take_what_lies_between_along():
    """Patching A where B reads it and B where C reads it: by hooks, B's input in a first run and C's in a second."""
    model, pairs = with_pairs(dense(n_layers=3)(0).double())
    result = path_patching(model, pairs, paths="all", direction="noise")
    model.set_use_split_qkv_input(True)
    _, cache = model.run_with_cache(pairs.corrupted_tokens)
    source, reader = "blocks.0.attn.hook_z", "blocks.2.hook_k_input"
    kept = {}

    def patch(z, hook):
        return torch.cat((cache[source][:, :, :1], z[:, :, 1:]), 2)

    def keep(x, hook):
        kept["x"] = x[:, :, 1].clone()

    def put(x, hook):
        return torch.stack((x[:, :, 0], kept["x"]), 2)

    with torch.no_grad():
        model.run_with_hooks(pairs.clean_tokens, fwd_hooks=[(source, patch), (reader, keep)])
        logits = model.run_with_hooks(pairs.clean_tokens, fwd_hooks=[(reader, put)])
    expected = EdgeExperiment(model, pairs, direction="noise").metrics[0].of(logits).numpy()
    np.testing.assert_allclose(result.values.sel(edge="L0H0->L2H1.k").values[0], expected, rtol=1e-9)
    direct = path_patching(model, pairs, direction="noise").values.sel(edge="L0H0->L2H1.k").values[0]
    assert np.abs(direct - expected).max() > 1e-6  # the way through layer 1 makes a difference


def test_without_norms_what_reaches_the_logits_directly_adds_up():
    model, pairs = with_pairs(dense(normalization_type=None)(0).double())
    result = path_patching(model, pairs, direction="noise")
    into = result.effects.isel(edge=result.effects.receiver.values == "logits").sum("edge")
    np.testing.assert_allclose(into.values, (result.other - result.base).values, rtol=1e-9)


def test_groups_of_positions_split_an_edge():
    """Without norms the logits are linear in their parts; and all positions' worth is the whole edge's."""
    model, pairs = with_pairs(dense(n_layers=1, normalization_type=None)(0).double())
    query = pairs.task.query_positions[pairs.target]
    split = path_patching(model, pairs, groups={"before": range(query), "query": [query]}, direction="noise")
    whole = path_patching(model, pairs, direction="noise")
    assert split.matrix(split=True).sizes["receiver"] == 2 * (2 + 2) + 2 + 1 + 1  # k and v of two heads twice
    np.testing.assert_allclose(split.matrix(group="query").sel(receiver="logits").values, whole.matrix()[:, -1].values)
    values = whole.matrix().sel(sender="embed")  # values enter the head's output linearly
    np.testing.assert_allclose(split.matrix().sel(sender="embed", receiver="L0.mlp"), values.sel(receiver="L0.mlp"))


@pytest.mark.parametrize("kind", ["made", "passed", "control"])
@pytest.mark.parametrize("name", sampled(["microadder-57", "microadder-74"], "microadder-57"))
def test_microadders_carry_goes_by_the_column_below_and_its_answer_and_by_nothing_else(name, kind):
    """The chained rule, seen in single edges: c = (10 (x + y) + x' + y' - z') / 10 needs the previous operands' values
    where a carry is made, the previous answer where one is passed on, and no digit below."""
    model = models.load(name)
    pairs = (
        same_carry_pairs(model.task, 5, 64, way="made")
        if kind == "control"
        else carry_pairs(model.task, 5, 64, way=kind)
    )
    result = path_patching(model, pairs, metrics="exact_match", groups=model.task.relative_roles(5), direction="noise")
    effect = result.effects.isel(metric=0).mean("example")
    by_value = {
        group: float(effect.sel(edge=f"embed->L0H0.v@{group}"))
        for group in ("own operands", "previous operands", "previous output", "rest", "delimiters")
    }
    decisive = {"made": "previous operands", "passed": "previous output", "control": None}[kind]
    assert float(result.base.mean()) == 1.0 and float(result.other.mean()) == float(kind == "control")
    for group, found in by_value.items():
        assert found <= -0.9 if group == decisive else found == 0.0


def test_an_effect_that_is_zero_in_every_pair_has_no_interval_and_one_of_a_share_has():
    """Neither that of the largest other edge, nor one without a width; where the values are bounded, n bounds it."""
    model = models.load("microadder-57")
    pairs = carry_pairs(model.task, 4, 64, way="made")
    result = path_patching(model, pairs, metrics=["logit_diff", "exact_match"])
    table, values = result.to_dataframe(), result.effects.sel(metric="logit_diff")
    size = np.abs(values).max("example")
    dead = (size <= 1e-5 * size.max()).values
    leads, matches = (table[table.metric == name] for name in ("logit_diff", "exact_match"))
    assert dead.any() and not dead.all()
    assert leads.effect_low.isna().tolist() == leads.effect_high.isna().tolist() == dead.tolist()
    assert matches.effect_low.notna().all()
    assert (matches[dead].effect_high >= 1 - 0.025 ** (1 / 64) - 1e-9).all()
    assert not leads[dead].moves.any()


def test_results_say_what_they_found():
    model, pairs = with_pairs(dense()(0))
    result = path_patching(model, pairs, metrics=["logit_diff", "exact_match"], direction="noise")
    table = result.to_dataframe()
    known = table.dropna(subset=["effect_low", "effect_high"])
    assert len(table) == 2 * len(result.values.edge) and (known.effect_low <= known.effect + 1e-9).all()
    assert (table.n == len(pairs)).all() and str(len(pairs)) in str(result.provenance)
    size = table[table.metric == "logit_diff"].set_index("edge").effect.abs()
    assert result.strongest().index[0] == size.idxmax() and len(result.strongest()) == len(result.values.edge) == 61
    assert result.strongest("exact_match").abs().is_monotonic_decreasing
    matrix = result.matrix()
    assert float(matrix.sel(sender="embed", receiver="L0.mlp")) == pytest.approx(
        result.cell("effect", metric="logit_diff", edge="embed->L0.mlp").value
    )
    assert np.isnan(matrix.sel(sender="L1.mlp", receiver="L0.mlp"))
    drawn = result.figure()
    lines = drawn.layout.title.text.split("<br>")
    assert max(map(len, lines)) - len("<b></b>") <= (drawn.layout.width - 120) / 7.8  # none runs off a narrow figure
    figure = result.figure(metric="exact_match")
    assert np.array_equal(figure.data[0].z, result.matrix("exact_match").values, equal_nan=True)


def test_no_path_is_named_that_has_no_effect():
    model, pairs = made_carries(24)
    moving = path_patching(model, pairs).table.query("moves")
    assert (moving.effect != 0).all() and "embed->L0H0.v" in set(moving.edge)
    deaf = model.dense_copy().eval()  # what the head writes is zero: the carry arrives nowhere
    with torch.no_grad():
        deaf.get_parameter("weight_map.blocks/0/attn/W_O").zero_()
    silent = path_patching(deaf, pairs)
    assert not silent.table.moves.any()
    one = path_patching(model, pairs.select(slice(0, 1)))
    assert 0 < one.table.moves.sum() < 8


def test_which_paths_move_a_metric_does_not_depend_on_the_other_metrics():
    """Neither on their size, nor on effects of theirs that a guess of bounds would read."""
    model, pairs = made_carries(24)
    logit_diff, large = resolve_metrics(model, pairs, "logit_diff")[0], 1e12
    big = Metric("big", logit_diff.positions, lambda logits, rows: large * logit_diff(logits, rows))
    for name in ("logit_diff", "exact_match"):
        alone, among = path_patching(model, pairs, metrics=name), path_patching(model, pairs, metrics=[name, big])
        one, other = (each.rows_at(metric=name)[["edge", "effect", "moves"]] for each in (alone, among))
        assert one["moves"].any() and one.reset_index(drop=True).equals(other.reset_index(drop=True))


def test_an_effect_on_answers_that_is_never_negative_in_the_sample_has_an_interval_for_differences():
    found = path_patching(*made_carries(24), metrics="exact_match")
    table = found.to_dataframe()
    still = table[table.effect == 0]
    assert len(still) and (still.effect_low < 0).all() and (still.effect_high > 0).all()


def test_bad_input_is_one_clear_sentence():
    model, pairs = with_pairs(dense()(0))
    with pytest.raises(UserError, match="no kind of paths"):
        path_patching(model, pairs, paths="indirect", direction="noise")
    with pytest.raises(UserError, match="none to split"):
        path_patching(model, pairs, paths="all", groups={"all": range(6)}, direction="noise")
    result = path_patching(model, pairs, direction="noise")
    with pytest.raises(UserError, match="no metric"):
        result.matrix("loss")
    with pytest.raises(UserError, match="no group of positions"):
        result.matrix(group="operands")


def test_clean_values_go_into_the_corrupted_run_unless_what_is_cut_carries_another_replacement():
    model, pairs = with_pairs(BUILDERS["no norms"](0))
    default, given = path_patching(model, pairs), path_patching(model, pairs, direction="denoise")
    assert default.direction == "denoise" and np.array_equal(default.values, given.values)
    assert edge_attribution(model, pairs, exact=False).direction == "denoise"
    assert path_patching(model, pairs, replacement="zero").direction == "noise"
