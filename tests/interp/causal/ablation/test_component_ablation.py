"""Ablation of components: equal to editing the weights, to the definitions, and on TransformerLens' own models."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import models
from interp.causal.ablation import (
    AttentionEdges,
    Direction,
    Head,
    Neuron,
    Sublayer,
    Together,
    carry_strata,
    component_ablation,
    compute_component_ablation,
    neurons,
    role_edges,
    run_ablations,
    sublayers,
)
from interp.causal.ablation.ablated_runs import as_far
from interp.causal.ablation.component_ablation import default_components
from interp.causal.ablation.components import check_components
from interp.causal.metrics import Metric, exact_match, kl, logit_diff
from interp.core.batches import derangement
from interp.core.results import Provenance
from interp.core.stats import bootstrap_interval, bootstrap_ratio, clopper_pearson, masked_proportions
from models.errors import UserError
from models.tasks import function, problem_pairs
from models.tasks.named.addition import TenDigitAddition
from models.tasks.paired.problem_pairs import ProblemPairs
from models.tasks.roles import OWN, REST
from tests.conformance.table import dense
from tests.toy_task import ToyAddition

VARIANTS = {
    "LN": {"normalization_type": "LN"},
    "no norm, ReLU": {"normalization_type": None, "act_fn": "relu"},
    "gated": {"gated_mlp": True, "act_fn": "silu"},
    "rotary": {"positional_embedding_type": "rotary"},
    "4 layers": {"n_layers": 4},
    "post-norm": {"norm_placement": "post", "normalization_type": "LN"},
}
TOY = ToyAddition()
PROBLEMS = TOY.sample(40, torch.Generator().manual_seed(0))
TOKENS = TOY.encode(PROBLEMS)


@pytest.fixture(params=VARIANTS, scope="module")
def model(request):
    return dense(**VARIANTS[request.param])(0).double()


@cache
def microadder():
    return models.load("microadder-57")


def ablated_logits(model, component, method="zero", tokens=TOKENS, seed=0):
    """Logits of the sample with a component ablated."""
    found = torch.zeros(())

    def receive(index, _, control, rows, logits):
        nonlocal found
        found = logits if index == 0 else found

    run_ablations(model, tokens, [component], [method], seed, receive)
    return found


def edited(model, *changes):
    """Logits with effective weights changed: (key, change) each."""
    weights = dict(model.effective_weights())
    for key, change in changes:
        weights[key] = change(weights[key].clone())
    with torch.no_grad():
        return model(TOKENS, weights=weights)


@torch.no_grad()
def hooked(model, *hooks):
    """Logits with these hooks."""
    return model.run_with_hooks(TOKENS, fwd_hooks=list(hooks))


def table_of(ablated, clean, masks, names, replacement=("zero",)):
    """The table of "accuracy" with every component changed."""
    changed, provenance = np.ones((len(names), len(replacement)), dtype=bool), Provenance(len(clean), 0, "problems")
    values = {"accuracy": ablated}, {"accuracy": clean}, {"accuracy": masks}
    return compute_component_ablation(*values, names, list(replacement), changed, provenance)


def without(index, axis=0):
    return lambda weight: weight.index_fill(axis, torch.tensor(index), 0.0)


# Zero ablation is an edit of the weights.


@pytest.mark.parametrize("head", [0, 1])
def test_a_head_at_zero_is_a_head_without_output_matrix(model, head):
    layer = model.cfg.n_layers - 1
    expected = edited(model, (f"blocks.{layer}.attn.W_O", without(head)))
    torch.testing.assert_close(ablated_logits(model, Head(layer, head)), expected)


def test_a_neuron_at_zero_is_a_neuron_without_output_weights(model):
    expected = edited(model, ("blocks.0.mlp.W_out", without(3)))
    torch.testing.assert_close(ablated_logits(model, Neuron(0, 3)), expected)


def test_several_at_once_are_both_edits(model):
    gone = (("blocks.0.mlp.W_out", 3), ("blocks.1.attn.W_O", 1), ("blocks.1.attn.W_O", 0))
    expected = edited(model, *((key, without(index)) for key, index in gone))
    both = Together((Neuron(0, 3), Together((Head(1, 0), Head(1, 1)))))
    torch.testing.assert_close(ablated_logits(model, both), expected)
    assert both.label == "L0N3 + L1H0 + L1H1"


def test_a_sublayer_at_zero_writes_nothing(model):
    expected = edited(model, *((f"blocks.1.mlp.{name}", torch.zeros_like) for name in ("W_out", "b_out")))
    torch.testing.assert_close(ablated_logits(model, Sublayer(1, "mlp")), expected)


def test_removed_edges_with_renormalisation_are_scores_of_minus_infinity(model):
    pairs = ((3, 0), (3, 2), (4, 1))

    def forbid(scores, hook):
        dest, src = torch.tensor(pairs).T
        mask = torch.zeros(scores.shape[-2:], dtype=torch.bool).index_put((dest, src), torch.tensor(True))
        return torch.cat((scores[:, :1], scores[:, 1:].masked_fill(mask, float("-inf"))), 1)

    expected = hooked(model, ("blocks.0.attn.hook_attn_scores", forbid))
    found = ablated_logits(model, AttentionEdges(0, 1, pairs, renormalise=True))
    torch.testing.assert_close(found, expected)


def test_edges_without_renormalisation_take_their_values_away_and_nothing_else(model):
    _, cache = model.run_with_cache(TOKENS)
    taken = cache["blocks.0.attn.hook_pattern"][:, 0, 3, 1, None] * cache["blocks.0.attn.hook_v"][:, 1, 0]
    z = {}
    edge = AttentionEdges(0, 0, ((3, 1),))
    hooked(
        model,
        (edge.hook, lambda x, hook: edge.take(x, None)),
        ("blocks.0.attn.hook_z", lambda x, hook: z.update(new=x)),
    )
    difference = cache["blocks.0.attn.hook_z"] - z["new"]
    torch.testing.assert_close(difference[:, 3, 0], taken)
    assert float(difference.abs().sum()) == pytest.approx(float(taken.abs().sum()))


def test_a_removed_direction_leaves_no_component_along_it(model):
    vectors = torch.randn(2, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    direction = Direction("blocks.0.hook_resid_post", vectors, "plane", positions=(2, 3))
    seen = {}
    steps = (lambda x: seen.update(old=x), lambda x: direction.take(x, None), lambda x: seen.update(new=x))
    hooked(model, *((direction.hook, lambda x, hook, step=step: step(x)) for step in steps))
    projector = vectors.T @ torch.linalg.inv(vectors @ vectors.T) @ vectors
    torch.testing.assert_close(seen["new"][:, 2:4], seen["old"][:, 2:4] @ (torch.eye(12).double() - projector))
    torch.testing.assert_close(seen["new"][:, [0, 1, 4, 5]], seen["old"][:, [0, 1, 4, 5]], rtol=0, atol=0)


def test_edges_by_role_are_those_that_causal_attention_allows():
    by_role = role_edges(dense()(0), TOY, per_head=False)
    assert [edge.label for edge in by_role] == [f"L{i}.attn {place}" for i in (0, 1) for place in (OWN, REST)]
    assert by_role[0].edges == ((3, 1), (3, 3), (4, 0), (4, 2))


# Mean and resample are their definitions.


def test_mean_and_resample_are_their_definitions_and_a_dose_goes_so_much_of_the_way(model):
    z, order = model.run_with_cache(TOKENS)[1]["blocks.1.attn.hook_z"], derangement(len(TOKENS), 5)
    mean = z.mean(0, keepdim=True).expand_as(z)
    doses = {f"mean:{dose}": z + dose * (mean - z) for dose in (0.3, 2.0)}
    for method, other in ({"mean": mean, "resample": z[order]} | doses).items():
        swapped = torch.cat((other[:, :, :1], z[:, :, 1:]), 2)
        expected = hooked(model, ("blocks.1.attn.hook_z", lambda x, hook, s=swapped: s))
        torch.testing.assert_close(ablated_logits(model, Head(1, 0), method, seed=5), expected)


def test_a_sham_changes_nothing(model):
    with torch.no_grad():
        for sham in ("zero:0", "mean:0", "resample:0"):
            torch.testing.assert_close(ablated_logits(model, Head(1, 0), sham), model(TOKENS))
    torch.testing.assert_close(ablated_logits(model, Head(1, 0), "zero:1"), ablated_logits(model, Head(1, 0), "zero"))


def test_a_curve_of_doses_begins_at_the_whole_model_and_ends_at_the_ablation():
    adder, doses = models.load("microadder-57"), ("mean:0", "mean:0.5", "mean")
    found = component_ablation(adder, components=Head(0, 0), replacement=doses, n=64)
    drop = found.table["drop"].sel(metric="accuracy", stratum="all", component="L0H0")
    assert drop.replacement.values.tolist() == list(doses)
    assert drop[0] == 0 and 0 < drop[1] <= drop[2] and not found.table.changed.sel(replacement="mean:0").any()
    whole = component_ablation(adder, components=Head(0, 0), replacement="mean", n=64).table["drop"]
    assert float(whole.sel(metric="accuracy", stratum="all").squeeze()) == float(drop[2])
    assert np.allclose(np.asarray(found.figure().data[0].z, dtype=float)[:, 0], drop.values)
    for wrong in ("mean:half", "mean:-1", "mean:", "mean:nan", "means:1"):
        with pytest.raises(UserError):
            component_ablation(adder, components=Head(0, 0), replacement=wrong, n=8)


def test_resampling_everything_at_the_last_stream_is_answering_the_other_problem(model):
    basis = Direction(f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", torch.eye(12), "all of it")
    order = derangement(len(TOKENS), 3)
    with torch.no_grad():
        torch.testing.assert_close(ablated_logits(model, basis, "resample", seed=3), model(TOKENS[order]))


def test_a_sample_longer_than_a_batch_is_resampled_across_batches(monkeypatch, model):
    whole = {method: ablated_logits(model, Sublayer(0, "mlp"), method) for method in ("mean", "resample")}
    monkeypatch.setattr("interp.core.batches.WEIGHTS_AT_ONCE", 7 * model.cfg.n_heads * TOKENS.shape[1] ** 2)
    for method, expected in whole.items():
        parts: dict[int, torch.Tensor] = {}

        def receive(index, _, control, rows, logits, parts=parts):
            if index == 0:
                parts[rows.start] = logits

        run_ablations(model, TOKENS, [Sublayer(0, "mlp")], [method], 0, receive)
        assert len(parts) == 6
        torch.testing.assert_close(torch.cat(list(parts.values())), expected)


PLANE = torch.tensor([[1.0, 2, 0, 0], [0, 1, 1, 0]])
COMPONENTS = {
    "head": (Head(0, 1), (5, 6, 2, 4)),
    "head at positions": (Head(0, 0, (2,)), (5, 6, 2, 4)),
    "neuron": (Neuron(0, 2, (0, 5)), (5, 6, 8)),
    "sublayer": (Sublayer(0, "attention", (1,)), (5, 6, 7)),
    "direction": (Direction("blocks.0.attn.hook_z", PLANE, "plane", (3,)), (5, 6, 2, 4)),
    "edges": (AttentionEdges(0, 1, ((3, 1), (5, 5))), (5, 2, 6, 6)),
    "edges of all heads": (AttentionEdges(0, None, ((3, 1),)), (5, 2, 6, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_part_is_a_projection_and_only_it_is_replaced(name):
    component, shape = COMPONENTS[name]
    x, y = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = lambda x: component.take(torch.zeros_like(x), x)  # noqa: E731
    part = share(x)
    torch.testing.assert_close(share(part), part)
    assert 0 < float(part.abs().sum()) < float(x.abs().sum()) * 2
    new = component.take(x, y)
    torch.testing.assert_close(share(new), share(y))
    torch.testing.assert_close(new - share(new), x - part)
    torch.testing.assert_close(component.take(x, x), x)


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_control_moves_every_position_as_far_as_the_ablation_in_another_direction(name):
    component, shape = COMPONENTS[name]
    old, other = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    new = component.take(old, other)
    drawn = [as_far(component, old, new, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    axes = (-2, -1) if component.axes == "head" else (-1,)
    steps = [(x - old).square().sum(axes).sqrt() for x in (new, drawn[0])]
    torch.testing.assert_close(*steps)
    assert float(steps[0].max()) > 0 and not torch.allclose(drawn[0], new)
    if component.axes == "key":
        assert float((drawn[0] - old).triu(1).abs().max()) == 0  # nothing is seen of what comes later


def test_controls_are_runs_of_their_own_and_may_be_left_out():
    model = microadder()
    one = component_ablation(model, components=neurons(model), replacement="zero", n=60, seed=2)
    again = component_ablation(model, components=neurons(model), replacement="zero", n=60, seed=2)
    plain = component_ablation(model, components=neurons(model), replacement="zero", n=60, seed=2, control=False)
    assert (one.table.value_random == again.table.value_random).all() and plain.table.value_random.isnull().all()
    assert (one.values["accuracy"] == plain.values["accuracy"]).all()
    row = one.table.sel(metric="accuracy", stratum="all")
    assert (row.value_random_low <= row.value_random).all() and (row.value_random < 1).all()
    assert (row.value_random != row.value).all()


# The table is what the values of every example give.


@pytest.mark.parametrize("n", [60])
def test_the_table_counts_every_example_in_its_strata(n):
    model = microadder()
    task, chosen = model.task, [Neuron(0, 0), Head(0, 0)]
    result = component_ablation(model, components=chosen, replacement=["zero", "resample"], n=n, seed=4)
    problems = component_problems(task, n, 4)
    logits = ablated_logits(model, Neuron(0, 0), "resample", task.encode(problems), 4)
    right = (logits[:, task.query_positions].argmax(-1) == task.targets(problems)).numpy()
    values = result.values["accuracy"].sel(component="L0N0", replacement="resample").values
    assert (values == right).all()
    for stratum, mask in carry_strata(task, problems).items():
        row = result.table.sel(metric="accuracy", component="L0N0", replacement="resample", stratum=stratum)
        assert float(row.value) == pytest.approx(right[mask.numpy()].mean())
        assert float(row["drop"]) == pytest.approx(float(row.clean - row.value))
        assert (int(row.entries), int(row.n)) == (int(mask.sum()), int(mask.any(1).sum()))
        assert float(row.value_low) <= float(row.value) <= float(row.value_high)


def component_problems(task, n, seed):
    from interp.core.samples import draw

    return draw(task, None, n, seed, 0.5).problems


def test_strata_are_the_schoolbook_algorithm_s_columns():
    task = TenDigitAddition()
    problems = component_problems(task, 200, 0)
    strata = {name: mask.numpy() for name, mask in carry_strata(task, problems).items()}
    chains = [mask for name, mask in strata.items() if name.startswith("chain")]
    assert (np.sum(chains, 0) == 1).all()
    digits = lambda number: [int(number) // 10**k % 10 for k in range(11)]  # noqa: E731
    for row, (a, b) in enumerate(problems.tolist()):
        carry = 0
        for k, (x, y) in enumerate(zip(digits(a), digits(b), strict=True)):
            out = int(x + y + carry >= 10)
            assert strata["carry in"][row, k] == (carry == 1) and strata["no carry in"][row, k] == (carry == 0)
            if k < 10:
                assert strata["carry out"][row, k] == (out == 1)
                assert strata["sum 9, carry in"][row, k] == (x + y == 9 and carry == 1)
            carry = out
    assert not strata["carry out"][:, 10:].any() and not strata["carry in"][:, 11:].any()  # s10 and EOS


def test_problems_of_one_chain_length_are_no_stratum_of_their_own():
    """As those of a task without chains, or of sums that carry nothing."""
    task = TenDigitAddition()
    for problems in ([(10, 20), (30, 40)], [(1, 9), (2, 8)]):
        assert not any(name.startswith("chain") for name in carry_strata(task, task.as_problems(problems)))
    unsorted = function("01", 3, "sorted")
    assert list(carry_strata(unsorted, unsorted.sample(8, torch.Generator().manual_seed(0)))) == ["all"]


def test_intervals_over_one_entry_a_problem_are_the_shared_ones():
    rng = np.random.default_rng(0)
    values, mask = rng.normal(size=(3, 50)), np.ones((50, 1), dtype=bool)
    low, high = bootstrap_interval(values, 7)
    found = bootstrap_ratio(values[..., None], mask, 7)
    assert found[:, 0] == pytest.approx(values.mean(1))
    assert pytest.approx(np.stack((low, high))) == found[:, 1:].T
    right = rng.random((1, 50, 1)) < 0.7
    assert masked_proportions(right, mask)[0, 1:] == pytest.approx(clopper_pearson(int(right.sum()), 50))
    assert np.isnan(bootstrap_ratio(values[..., None], ~mask, 7)).all()


@pytest.mark.parametrize("ones", [0, 1, 3])
def test_the_interval_of_a_component_does_not_depend_on_the_others_in_the_sweep(ones):
    """A drop can have either sign, also where no component of the sweep gains anything."""
    clean = np.ones((20, 2), dtype=bool)
    clean[0] = False
    ablated = np.repeat(clean[None, None], 3, 0)
    ablated[0, 0, 1 : 1 + ones] = False
    ablated[1, 0, 0] = True  # this one gains

    def drop(chosen):
        found = table_of(ablated[chosen], clean, {"all": np.ones_like(clean)}, [str(i) for i in chosen])
        table = found.table.sel(component="0")
        return [float(table[key].squeeze()) for key in ("drop", "drop_low", "drop_high")]

    assert drop([0]) == drop([0, 1]) == drop([0, 1, 2]) and drop([0])[1] < drop([0])[0] < drop([0])[2]


def test_a_stratum_where_nothing_is_lost_has_a_drop_of_none():
    clean = np.ones((20, 2), dtype=bool)
    ablated = np.stack([clean, clean & (np.arange(2) == 0)])[:, None]
    result = table_of(ablated, clean, {"all": clean, "first": clean & (np.arange(2) == 0)}, ["a", "b"])
    assert result.table["drop"].squeeze().values.tolist() == [[0, 0], [0.5, 0]]
    assert result.largest("drop", stratum="all").name == "accuracy, zero, b"


# Every model with TransformerLens' hooks.


def test_pairs_bring_the_metrics_of_the_causal_toolkit():
    model = microadder()
    task = model.task
    clean = component_problems(task, 30, 1)
    corrupted = clean + torch.tensor([1, 0])
    keep = (task.targets(clean)[:, 0] != task.targets(corrupted)[:, 0]) & (corrupted.max(1).values < 10**10)
    pairs = ProblemPairs(task, clean[keep], corrupted[keep], 0, "the units digit of a")
    result = component_ablation(
        model,
        components=[Head(0, 0), Neuron(0, 1)],
        replacement="mean",
        pairs=pairs,
        metrics=["logit_diff", "kl", "exact_match", "accuracy"],
    )
    logits = ablated_logits(model, Head(0, 0), "mean", pairs.clean_tokens)
    with torch.no_grad():
        whole = model(pairs.clean_tokens)
    for metric in (logit_diff(pairs), kl(pairs, whole), exact_match(pairs)):
        found = result.values[metric.name].sel(component="L0H0").values.squeeze()
        assert found == pytest.approx(metric.of(logits).numpy(), abs=1e-4)
    row = result.table.sel(metric="kl", component="L0H0", replacement="mean", stratum="all")
    assert float(row.clean) == pytest.approx(0, abs=1e-6) and float(row["drop"]) < 0
    assert result.table.n.sel(metric="kl", stratum="all") == len(pairs)
    assert "pairs that differ in the units digit of a" in str(result.provenance) and result.provenance.seed == 0


def test_a_metric_of_one_s_own_is_judged_on_whole_problems():
    model = dense()(0)
    spread = Metric("spread", (3, 4), lambda logits, rows: logits.std((-1, -2)))
    result = component_ablation(model, components=Head(0, 0), replacement="zero", problems=PROBLEMS, metrics=spread)
    assert set(result.table.stratum.values) == {"all", "chain 0", "chain 1"}
    expected = spread.of(ablated_logits(model, Head(0, 0))).mean()
    assert float(result.table.value.sel(stratum="all").squeeze()) == pytest.approx(float(expected), rel=1e-5)


# MicroAdder, as measured.


def test_microadder_attends_by_position_so_that_only_zero_changes_its_pattern():
    model = microadder()
    roles = role_edges(model, model.task)
    result = component_ablation(model, components=roles, n=200, unchanged="keep")
    changed = result.table.changed
    assert changed.sel(replacement="zero").all()
    assert not changed.sel(replacement=["mean", "resample"]).any()
    left = result.table.sel(metric="accuracy", stratum="all", replacement="zero")
    assert float(left.value.sel(component="L0H0 own operands")) < 0.3
    assert float(left["drop"].sel(component="L0H0 rest")) < 0.01


@pytest.mark.parametrize("method", ["mean", "resample"])
def test_an_ablation_that_changes_nothing_is_an_error_that_says_so(method):
    model = microadder()
    with pytest.raises(UserError, match="own operands changes nothing in any of 50 examples: it is the same in all"):
        component_ablation(model, components=role_edges(model, model.task, ["own operands"]), replacement=method, n=50)


def test_a_part_that_is_zero_already_is_an_error():
    model = dense(act_fn="relu", normalization_type=None)(0)
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            if name.endswith(("W_in", "b_in")):
                parameter.zero_()
    for component in (Neuron(0, 0), Direction("blocks.1.mlp.hook_post", torch.eye(10)[4])):
        with pytest.raises(UserError, match="changes nothing .* it is zero already"):
            component_ablation(model, components=component, replacement="zero", problems=PROBLEMS, metrics=LARGEST)


# Bad input.


class Backwards(ToyAddition):
    """The same problems in the opposite order of tokens."""

    def encode(self, problems):
        return super().encode(problems).flip(1)


#: A random model answers nothing, so that only a metric that compares it with itself is asked of it.
LARGEST = Metric("largest", (5,), lambda logits, rows: logits[..., 0, :].amax(-1))


def along(hook):
    return Direction(hook, torch.ones(12))


BAD = {
    "There is no head 7: each layer has 2": lambda m: component_ablation(m, components=Head(0, 7)),
    "There is no layer 5": lambda m: component_ablation(m, components=Head(5, 0)),
    "counts from 0; there is no layer -1": lambda m: component_ablation(m, components=Neuron(-1, 0)),
    "There is no neuron 10": lambda m: component_ablation(m, components=Neuron(1, 10)),
    "at position 6": lambda m: component_ablation(m, components=Head(0, 0, (6,))),
    "Did you mean 'blocks.0.hook_resid_mid'": lambda m: (
        component_ablation(m, components=along("blocks.0.hook_residmid"))
    ),
    "has 3 entries and the activation": lambda m: (
        component_ablation(m, components=Direction("hook_embed", torch.ones(3)), metrics=LARGEST)
    ),
    "independent of each other": lambda m: Direction("hook_embed", torch.ones(2, 12)),
    "made of finite numbers": lambda m: Direction("hook_embed", torch.full((12,), float("nan"))),
    "blocks.0.attn.hook_result": lambda m: (
        component_ablation(m, components=along("blocks.0.attn.hook_result"), replacement="zero", metrics=LARGEST)
    ),
    "cannot attend to the later position 4": lambda m: (
        component_ablation(m, components=AttentionEdges(0, 0, ((3, 4),)))
    ),
    "Did you mean 'own operands'": lambda m: role_edges(m, TOY, ["own operand"]),
    "There is no target 2": lambda m: role_edges(m, TOY, targets=[2]),
    "Did you mean 'resample'": lambda m: component_ablation(m, replacement="resampled"),
    "one or more different replacements": lambda m: component_ablation(m, replacement=[]),
    "list of components is empty": lambda m: component_ablation(m, components=[]),
    "Two components are called 'L0H0'": lambda m: component_ablation(m, components=[Head(0, 0), Head(0, 0)]),
    "A component is a Head": lambda m: check_components(m, ["L0H0"], 6),
    "'attention' or 'mlp'": lambda m: component_ablation(m, components=Sublayer(0, "heads")),
    "compares two problems": lambda m: component_ablation(m, metrics="logit_diff"),
    "more than 50% must be right": lambda m: component_ablation(m),
    "There is no target 9": lambda m: component_ablation(m, targets=[9]),
    "at least one target": lambda m: component_ablation(m, targets=[]),
    "unchanged is 'error' or 'keep'": lambda m: component_ablation(m, unchanged="ignore"),
    "together: the list": lambda m: Together(()),
    "are not finite": lambda m: component_ablation(
        m, components=Direction("blocks.0.attn.hook_attn_scores", torch.ones(6)), replacement="zero",
        metrics=LARGEST),
    "is this table's own metric": lambda m: component_ablation(m, metrics=Metric("accuracy", None, lambda x, rows: x)),
    "0 or 1 in every example": lambda m: component_ablation(
        m, components=Head(0, 0), metrics=Metric("exact_match", (5,), lambda x, rows: x[..., 0, 0])),
    "does not begin with its prompt": lambda m: component_ablation(
        m, pairs=ProblemPairs(Backwards(), PROBLEMS[:4], PROBLEMS[4:8], 0, "all"), task=TOY),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_sentence(message):
    with pytest.raises(UserError) as error:
        BAD[message](dense()(0))
    assert message in str(error.value)


def test_what_a_model_gets_wrong_cannot_be_lost():
    """A metric of one's own, and the divergence, compare the model with itself."""
    untrained = models.build("microadder-57", seed=1).eval()
    pairs = problem_pairs(untrained.task, "carry", column=3, n=8)
    for ask in (
        lambda **own: component_ablation(untrained, n=16, **own),
        lambda **own: component_ablation(untrained, pairs=pairs, **own),
    ):
        with pytest.raises(UserError, match="more than 50% must be right"):
            ask()
    assert component_ablation(untrained, pairs=pairs, metrics="kl", components=Head(0, 0)).sentence()


def test_neurons_that_a_default_sweep_leaves_out_are_said_to_be():
    model = models.load("toygpt-learned-pre")
    few = component_ablation(model, n=16, replacement="zero", control=False)
    assert model.cfg.n_layers * model.cfg.d_mlp > 64
    named = [each.label for each in default_components(model)]
    assert few.table.component.values.tolist() == named and not {each.label for each in neurons(model)} & {*named}


def test_what_changes_nothing_by_more_than_chance_has_no_effect():
    kept, rng = np.ones((3, 1, 40, 4), dtype=bool), np.random.default_rng(0)
    kept[1, 0, rng.integers(40)] = False
    kept[2, 0, :, 2] = False
    every = np.ones((40, 4), dtype=bool)
    result = table_of(kept, every, {"all": every}, ["a part", "another", "the third"])
    assert result.table.has_effect.squeeze().values.tolist() == [False, False, True]
    assert result.largest_change()["component"] == "the third"


@pytest.mark.parametrize(
    ("lost", "by_chance", "named"),
    [
        ((30, 20, 0), (30, 0, 0), "b"),  # the largest effect is one that any change of its length has
        ((30, 20, 0), (32, 19, 0), None),
        ((30, 20, 0), (2, 20, 0), "a"),
        ((30, 20, 0), None, "a"),
        ((0, 0, 0), (20, 20, 20), None),
    ],
)
def test_a_component_is_named_whose_effect_exceeds_its_own_control(lost, by_chance, named):
    def after(counts):
        kept = np.ones((3, 1, 40, 1), dtype=bool)
        for i, count in enumerate(counts):
            kept[i, 0, :count] = False
        return kept

    every = np.ones((40, 1), dtype=bool)
    halves = {"all": every, "x": every & (np.arange(40) < 20)[:, None], "y": every & (np.arange(40) >= 20)[:, None]}
    found = compute_component_ablation(
        {"accuracy": after(lost)}, {"accuracy": every}, {"accuracy": halves}, ["a", "b", "c"], ["zero"],
        np.ones((3, 1), dtype=bool), Provenance(40, 0, "problems"),
        controls=None if by_chance is None else {"accuracy": after(by_chance)},
    )  # fmt: skip
    row = found.largest_change()
    assert (row["component"] if row["has_effect"] else None) == named


def test_a_model_without_mlp_has_no_neurons():
    model = dense(d_mlp=0)(0)
    assert neurons(model) == [] and [s.label for s in sublayers(model)] == ["L0.attn", "L1.attn"]
    with pytest.raises(UserError, match="no MLP"):
        component_ablation(model, components=Neuron(0, 0))


# What a result shows.
