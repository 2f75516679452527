"""The masked forward is the model, the other run, or exactly what hooks on every reader would make of both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from interp.causal.circuits.edge_space import unchanged_embeddings
from interp.causal.edges import Edge, EdgeExperiment, EdgeGraph, MaskedModel, edge_attribution, path_patching
from interp.causal.edges import edge_experiment as experiment_module
from interp.causal.edges import masked_model as masked_module
from interp.causal.edges import sender_values as written_module
from interp.causal.edges.path_patching import PATHS
from models.errors import UserError
from models.tasks.paired.problem_pairs import ProblemPairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import dense
from tests.interp.causal.edges.conftest import POST_NORM, pairs_for, with_pairs
from tests.interp.conftest import stock_copy
from tests.sampling import sampled

GROUPS = {"odd": range(1, 60, 2), "even": range(0, 60, 2)}


def random_masks(graph: EdgeGraph, n: int = 12, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(n, 1, generator=generator)  # from nearly nothing to nearly everything kept
    return torch.rand(n, len(graph), generator=generator) < share


def by_hooks(model: ArithmeticTransformer, tokens, mask, graph: EdgeGraph, replacement) -> torch.Tensor:
    """Logits of one mask by hooks of the model itself: every reader's input is put together from what senders wrote.

    [batch, read, d_vocab]. Written without the masked forward's table, stages and shortcuts.
    """
    cut = {edge for edge, keep in zip(graph.edges, mask.tolist(), strict=True) if not keep}
    n, written = graph.n_positions, {}
    where = {None: torch.ones(n, dtype=torch.bool)}
    for name, group in (graph.groups or {}).items():
        where[name] = torch.zeros(n, dtype=torch.bool)
        where[name][list(group)] = True

    def corrected(x, receiver):
        """``x`` plus, for every edge into ``receiver`` that is cut, the replacement minus what was written."""
        x = x.clone()
        for edge in cut:
            if edge.receiver == receiver:
                change = replacement[graph.senders.index(edge.sender)] - written[edge.sender][:, :n]
                x[:, :n] += change * where[edge.group][:, None]
        return x

    def keep(name):
        return lambda x, hook: written.__setitem__(name, x.detach().clone())

    def keep_heads(layer):
        def hook_fn(x, hook):
            for head in range(graph.n_heads):
                written[f"L{layer}H{head}"] = x[:, :, head].detach().clone()

        return hook_fn

    def heads_read(layer, letter):
        def hook_fn(x, hook):
            parts = [corrected(x[:, :, head], f"L{layer}H{head}.{letter}") for head in range(graph.n_heads)]
            return torch.stack(parts, 2)

        return hook_fn

    hooks = [("hook_embed", keep("embed"))] + [("hook_pos_embed", keep("pos_embed"))] * graph.has_positions
    for layer in range(graph.n_layers):
        block = f"blocks.{layer}"
        hooks += [(f"{block}.hook_{letter}_input", heads_read(layer, letter)) for letter in "qkv"]
        hooks.append((f"{block}.attn.hook_result", keep_heads(layer)))
        if graph.has_mlp:
            hooks.append((f"{block}.hook_mlp_in", lambda x, hook, name=f"L{layer}.mlp": corrected(x, name)))
            hooks.append((f"{block}.hook_mlp_out", keep(f"L{layer}.mlp")))
    last = f"blocks.{graph.n_layers - 1}.hook_resid_post"
    hooks.append((last, lambda x, hook: corrected(x, "logits")))
    switches = ["set_use_attn_result", "set_use_split_qkv_input"] + ["set_use_hook_mlp_in"] * graph.has_mlp
    for switch in switches:
        getattr(model, switch)(True)
    with torch.no_grad():
        return model.run_with_hooks(tokens, fwd_hooks=hooks)[:, list(graph.read)]


@pytest.mark.parametrize(
    ("read", "groups"), [(None, GROUPS), ((-2,), None), ((1, 3), GROUPS)], ids=["all, groups", "one", "two, groups"]
)
def test_all_edges_kept_is_the_model_and_all_cut_the_other_run(model, pairs, read, groups):
    masked = MaskedModel(model, read, groups)
    masks = torch.stack([torch.ones(len(masked.graph)), torch.zeros(len(masked.graph))]).bool()
    found = masked.run(pairs.clean_tokens, masks, masked.values(pairs.corrupted_tokens))
    places = list(masked.graph.read)
    for logits, tokens in zip(found, (pairs.clean_tokens, pairs.corrupted_tokens), strict=True):
        expected = model(tokens)[:, places]
        torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9 * float(expected.detach().abs().max()))


@pytest.mark.parametrize("name", ["microadder-57", "microadder-67", "microadder-74", "adder-456", "toygpt-learned-pre"])
def test_trained_models_too_in_float32(name):
    model = models.load(name)
    experiment = EdgeExperiment(model, pairs_for(model.task, 8), ["logit_diff", "exact_match"], direction="noise")
    for values, tokens in ((experiment.full, "clean_tokens"), (experiment.empty, "corrupted_tokens")):
        logits = model(getattr(experiment.pairs, tokens)).detach()
        for metric, found in zip(experiment.metrics, values, strict=True):
            torch.testing.assert_close(found, metric.of(logits), rtol=1e-4, atol=1e-5 * float(logits.abs().max()))
    assert float(experiment.full[1].mean()) == 1.0 and float(experiment.empty[1].mean()) == 0.0


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["whole", "groups"])
def test_any_mask_is_what_hooks_on_every_reader_give(model, pairs, groups):
    experiment = EdgeExperiment(model, pairs, groups=groups, direction="noise")
    masked, graph = experiment.masked, experiment.graph
    masks = random_masks(graph)
    found = masked.run(pairs.clean_tokens, masks, experiment.replacement)
    expected = torch.stack([by_hooks(model, pairs.clean_tokens, m, graph, experiment.replacement) for m in masks])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9 * float(expected.abs().max()))
    assert float((found[1:] - found[:1]).abs().max()) > 1e-6  # and masks matter


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_other_replacements_too(kind):
    model, pairs = with_pairs(dense()(0).double())
    experiment = EdgeExperiment(model, pairs, replacement=kind, direction="noise")
    masks = random_masks(experiment.graph, 6)
    found = experiment.masked.run(pairs.clean_tokens, masks, experiment.replacement)
    for logits, mask in zip(found, masks, strict=True):
        expected = by_hooks(model, pairs.clean_tokens, mask, experiment.graph, experiment.replacement)
        torch.testing.assert_close(logits, expected, rtol=1e-8, atol=1e-9)


def test_what_senders_write_sums_to_the_residual_stream(model, pairs):
    masked = MaskedModel(model)
    _, cache = model.run_with_cache(pairs.clean_tokens)
    written = masked.values(pairs.clean_tokens).sum(0)
    biases = sum(model.all_weights()[f"blocks.{i}.attn.b_O"] for i in range(model.config.n_layers))
    last = cache[f"blocks.{model.config.n_layers - 1}.hook_resid_post"]
    torch.testing.assert_close(written + biases, last, rtol=1e-9, atol=1e-9 * float(last.abs().max()))


def test_chunks_do_not_matter(monkeypatch):
    model, pairs = with_pairs(dense(n_layers=3)(0).double(), 7)
    experiment = EdgeExperiment(model, pairs, ["logit_diff", "loss"], direction="noise")
    masks = random_masks(experiment.graph, 9)
    whole = experiment(masks)
    monkeypatch.setattr(masked_module, "NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr(written_module, "EXAMPLES_AT_ONCE", 3)
    torch.testing.assert_close(experiment(masks), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", sampled(["corrupted", "resample", "mean", "zero"], "corrupted"))
@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_written_may_be_computed_batch_by_batch(monkeypatch, kind, layers):
    """As it is where it cannot all be held: for effects, nodes and estimates, and for what is inert."""
    model, pairs = with_pairs(dense(n_layers=layers)(0).double(), 4)

    def found():
        experiment = EdgeExperiment(model, pairs, replacement=kind, direction="noise")
        paths = [path_patching(model, pairs, paths=p, replacement=kind, direction="noise") for p in PATHS]
        estimate = edge_attribution(model, pairs, steps=2, replacement=kind, direction="noise")
        values = [x for p in paths for x in (p.values, p.senders)]
        values += [estimate.estimate, estimate.exact, *estimate.senders.values(), *estimate.receivers.values()]
        inert = unchanged_embeddings(experiment.masked, experiment.values, experiment.replacement)
        return type(experiment.values), inert, [x.values for x in values]

    held, inert, whole = found()
    monkeypatch.setattr(written_module, "NUMBERS_HELD", 1000)
    monkeypatch.setattr(experiment_module, "MASKS_AT_ONCE", 100)
    by_batches, again, parts = found()
    assert held is torch.Tensor and by_batches is written_module.SenderWrites and torch.equal(inert, again)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)


def test_metrics_of_all_kept_are_those_of_the_run():
    model, pairs = with_pairs(dense()(0).double())
    experiment = EdgeExperiment(
        model, pairs, ["logit_diff", "probability", "exact_match", "kl", "loss"], direction="noise"
    )
    for metric, values in zip(experiment.metrics, experiment.full, strict=True):
        torch.testing.assert_close(values, metric.of(model(pairs.clean_tokens)).detach())
    denoise = EdgeExperiment(model, pairs, direction="denoise")
    torch.testing.assert_close(denoise.full, EdgeExperiment(model, pairs, direction="noise").empty)
    torch.testing.assert_close(denoise.empty, EdgeExperiment(model, pairs, direction="noise").full)


def reaching_the_logits(graph: EdgeGraph, mask: torch.Tensor) -> torch.Tensor:
    """The kept edges from which a path of kept edges leads on to the logits."""
    alive, live = {"logits"}, torch.zeros_like(mask)
    for i in sorted(mask.nonzero()[:, 0].tolist(), key=lambda i: -int(graph.stages[i])):
        edge = graph.edges[i]
        if edge.receiver in alive:
            live[i] = True
            head = "H" in edge.sender
            alive |= {f"{edge.sender}.{letter}" for letter in "qkv"} if head else {edge.sender}
    return live


def test_an_edge_without_a_way_to_the_logits_has_no_effect(model, pairs):
    experiment = EdgeExperiment(model, pairs, replacement="zero", direction="noise")
    masks = random_masks(experiment.graph, 8, seed=3)
    live = torch.stack([reaching_the_logits(experiment.graph, mask) for mask in masks])
    assert not (live & ~masks).any()
    before, after = experiment(masks), experiment(live)
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))


def test_an_embedding_that_does_not_change_has_exactly_no_effect():
    model = dense()(0)
    experiment = EdgeExperiment(model, pairs_for(model.task), direction="noise")
    edges = experiment.graph.edge_index[:, 2] == experiment.graph.senders.index("pos_embed")
    values = experiment(~torch.eye(len(edges), dtype=torch.bool))
    assert torch.equal(values[:, edges], experiment.full[:, None].expand_as(values[:, edges]))
    assert not torch.equal(values, experiment.full[:, None].expand_as(values))


# ---- the graph


def test_edges_are_named_and_counted():
    graph = EdgeGraph.of(dense()(0).config, [4])
    assert graph.senders == ("embed", "pos_embed", "L0H0", "L0H1", "L0.mlp", "L1H0", "L1H1", "L1.mlp")
    assert graph.receivers[:4] == ("L0H0.q", "L0H1.q", "L0H0.k", "L0H1.k") and graph.receivers[-1] == "logits"
    assert len(graph) == 6 * 2 + 4 + 6 * 5 + 7 + 8
    edge = graph.edges[graph.index("L0H1->L1H0.v")]
    assert edge == Edge("L0H1", "L1H0.v") and graph.kept(graph.mask([edge])) == (edge,)
    assert "L0H0->L0H1.q" not in graph.names and "L0.mlp->L0H0.q" not in graph.names


def test_groups_split_edges_where_they_bear_on_what_is_read():
    graph = EdgeGraph.of(dense(n_layers=1)(0).config, [3], {"a": [0, 1], "b": [2, 3], "later": [4, 5]})
    assert "embed->L0H0.v@a" in graph.names and "embed->L0H0.q@b" in graph.names
    assert "embed->L0H0.q@a" not in graph.names  # the only query is at position 3
    assert not any("later" in name for name in graph.names)


# ---- bad input


def test_effects_on_what_is_not_a_number_are_refused():
    model = dense()(0)
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "W_U" in name).fill_(float("nan"))
    pairs = pairs_for(model.task)
    with pytest.raises(UserError, match="not finite numbers"):
        path_patching(model, pairs, direction="noise")
    with pytest.raises(UserError, match="not finite numbers"):
        edge_attribution(model, pairs, direction="noise")


def test_bad_input_is_one_clear_sentence():
    model, pairs = with_pairs(dense()(0))
    experiment = EdgeExperiment(model, pairs, direction="noise")
    with pytest.raises(UserError, match="Did you mean 'embed->L0H0.q'"):
        experiment.graph.mask(["embed->L0H0q"])
    with pytest.raises(UserError, match="no metric"):
        EdgeExperiment(model, pairs, "logits_diff", direction="noise")
    with pytest.raises(UserError, match="one for each edge"):
        experiment(torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(UserError, match="Did you mean 'resample'"):
        EdgeExperiment(model, pairs, replacement="resampled", direction="noise")
    with pytest.raises(UserError, match="no direction"):
        EdgeExperiment(model, pairs, direction="denoised")
    with pytest.raises(UserError, match="belongs to noise"):
        EdgeExperiment(model, pairs, replacement="mean", direction="denoise")
    with pytest.raises(UserError, match="changes nothing"):
        EdgeExperiment(
            model, ProblemPairs(pairs.task, pairs.clean, pairs.clean, 0, "nothing"), "probability", direction="noise"
        )
    with pytest.raises(UserError, match="needs at least two"):
        EdgeExperiment(model, pairs_for(model.task, 1), replacement="resample", direction="noise")
    with pytest.raises(UserError, match="position 1 is in none"):
        EdgeExperiment(model, pairs, groups={"a": [0, 2, 3, 4]}, direction="noise")
    with pytest.raises(UserError, match="in two of them"):
        EdgeExperiment(model, pairs, groups={"a": [0, 1, 2, 3, 4], "b": [4]}, direction="noise")
    with pytest.raises(UserError, match="between 0 and 5"):
        MaskedModel(model, [6])
    with pytest.raises(UserError, match="Replacements have shape"):
        experiment.masked.run(pairs.clean_tokens, torch.ones(1, len(experiment.graph)).bool(), experiment.values[:2])
    with pytest.raises(UserError, match="needs sequences and masks, not 5 and 0"):
        experiment.masked.run(pairs.clean_tokens, torch.ones(0, len(experiment.graph)).bool(), experiment.values)
    with pytest.raises(UserError, match="needs its task"):
        MaskedModel(stock_copy(model))
    with pytest.raises(UserError, match="training mode"):
        MaskedModel(dense()(0).train())
    with pytest.raises(UserError, match="norms come after"):
        MaskedModel(POST_NORM(0))
