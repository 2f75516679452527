"""What a user asks of a sweep: labels, directions, metrics, intervals, checks, and clear refusals."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import models
from interp.causal.metrics import Metric, exact_match, kl, logit_diff
from interp.causal.patching import SITES, PatchMismatch, activation_patching, patching_values
from interp.causal.patching.hooked_patching import PlainPatcher
from interp.causal.patching.patching_result import runs_differ
from models.errors import UserError
from models.run import Formulas, Variants
from models.tasks import problem_pairs
from models.tasks.paired.problem_pairs import ProblemPairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.weights import weight_shapes
from models.weight_maps.constant import ConstantWeights
from tests.comparing import numbers_are_finite
from tests.exams.subjects import carry_pairs, trained, untrained, without
from tests.interp.causal.patching.swept import labelled, swept
from tests.interp.conftest import stock_copy
from tests.sampling import every_third

MODULE = import_module("interp.causal.patching.activation_patching")  # whose function has its name
ADDER = models.load("microadder-57")
PAIRS = problem_pairs(ADDER.task, "carry", column=4, n=64, seed=0)
TOY = models.load("toygpt-learned-pre")
TOY_PAIRS = problem_pairs(TOY.task, "made carry", column=1, n=24, seed=0)


def test_the_axes_are_named_and_labelled_by_role():
    sweep = activation_patching(ADDER, PAIRS, site="v", metrics=("logit_diff", "exact_match"), direction="both")
    assert sweep.values.dims == ("direction", "metric", "layer", "head", "pos", "pair")
    assert sweep.values.pos.values.tolist()[:3] == ["a0", "a1", "a2"]
    table = sweep.to_dataframe()
    assert {"mean", "mean_low", "mean_high", "spread", "recovered"} <= set(table.columns)
    assert len(table) == 2 * 2 * 33 and ((table.mean_low <= table["mean"]) & (table["mean"] <= table.mean_high)).all()


def test_a_carry_made_below_reaches_microadder_by_the_digits_below_and_the_last_output_only():
    """MicroAdder's circuit (FACTS.md): its carry is read off x' + y' - z' of the previous column."""
    sweep = activation_patching(ADDER, PAIRS, site="resid_pre", direction="both")
    recovered = sweep.table.recovered.sel(metric="logit_diff").isel(layer=0)
    for direction in ("denoise", "noise"):
        share = recovered.sel(direction=direction)
        below = [share.sel(pos=p).item() for p in ("a3", "b3", "s3")]
        others = [share.sel(pos=p).item() for p in share.pos.values if p not in ("a3", "b3", "s3")]
        assert 0.8 < sum(below) < 1.2 and max(map(abs, others)) < 0.02


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_patching_everything_recovers_everything(direction: str):
    sweep = activation_patching(
        TOY, TOY_PAIRS, site="resid_pre", by="all", metrics=("logit_diff", "kl"), direction=direction
    )
    assert np.allclose(sweep.table.recovered.sel(layer=0), 1, atol=1e-4)
    other = sweep.other.sel(metric="logit_diff").values
    assert np.allclose(sweep.values.sel(metric="logit_diff", layer=0), other, atol=1e-3)


def test_denoising_one_way_is_noising_the_swapped_pairs():
    mine, theirs = exact_match(TOY_PAIRS, 1), exact_match(TOY_PAIRS.swapped(), 1)
    there = activation_patching(TOY, TOY_PAIRS, site="mlp_out", metrics=mine, direction="denoise")
    back = activation_patching(TOY, TOY_PAIRS.swapped(), site="mlp_out", metrics=theirs, direction="noise")
    swapped = Metric("exact_match", mine.positions, mine.compute)
    again = activation_patching(TOY, TOY_PAIRS.swapped(), site="mlp_out", metrics=swapped, direction="noise")
    assert np.array_equal(there.values.values, again.values.values)
    assert not np.array_equal(there.values.values, back.values.values)  # the clean answers are the other problems'


def test_roles_are_patched_together():
    by_role = activation_patching(ADDER, PAIRS, site="resid_pre", by="role")
    share = by_role.table.recovered.isel(direction=0, metric=0, layer=0)
    assert share.sel(role=["previous operands", "previous output"]).sum() == pytest.approx(1, abs=0.1)
    assert abs(share.sel(role="own operands")) < 1e-3


def test_a_table_of_nodes_has_every_component_with_its_interval_and_names_the_strongest():
    found = activation_patching(TOY, TOY_PAIRS, by="component", check=True)
    table = found.table.sel(direction="denoise", metric="logit_diff")
    assert table.component.values.tolist()[:4] == ["embed", "pos_embed", "L0H0", "L0H1"] and table.sizes == {
        "component": 26
    }
    assert float(table.recovered.sel(component="embed")) == pytest.approx(1, abs=1e-4)  # the whole problem
    assert abs(float(table.recovered.sel(component="pos_embed"))) < 1e-4  # the same in both runs
    assert (table.recovered_low <= table.recovered).all() and (table.recovered <= table.recovered_high).all()
    best = table.recovered.drop_sel(component="embed").idxmax().item()
    assert found.strongest()[0] == best
    assert set(found.figure().data[0].y) == set(table.component.values)
    plain = patched_through_hooks(TOY_PAIRS.select(slice(0, 4)), by="component")
    fast = activation_patching(TOY, TOY_PAIRS.select(slice(0, 4)), by="component")
    assert fast.fast and not plain.fast and np.allclose(fast.values, plain.values, atol=1e-3)
    layer = activation_patching(TOY, TOY_PAIRS, by="component", layers=[-1])
    assert layer.values.component.values.tolist() == ["L3H0", "L3H1", "L3H2", "L3H3", "L3.attn", "L3.mlp"]


def patched_through_hooks(pairs: ProblemPairs, **asked: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "_copy", lambda *of: None)
        return activation_patching(stock_copy(TOY), pairs, **asked)


def test_every_site_agrees_with_hooked_runs_and_says_what_it_found():
    few = TOY_PAIRS.select(slice(0, 4))
    for site in SITES:
        sweep = activation_patching(TOY, few, site=site, layers=[-1], metrics=("logit_diff", "kl"), check=True)
        assert sweep.fast
        assert sweep.values.layer.values.tolist() == [3]


def test_a_wrong_fast_path_is_found_out(monkeypatch: pytest.MonkeyPatch):
    original = Variants._read

    def wrong(self, parts, stream):
        emit, self.emit = self.emit, lambda p, g, logits: emit(p, g, logits.roll(1, -1))
        original(self, parts, stream)

    monkeypatch.setattr(Variants, "_read", wrong)
    with pytest.raises(PatchMismatch, match="by the fast path and .* through the model's hooks"):
        activation_patching(ADDER, PAIRS, site="resid_mid", check=True)
    activation_patching(ADDER, PAIRS, site="resid_mid")  # unasked it is not looked for


def test_hooks_that_a_user_attached_are_not_passed_by():
    sweep = activation_patching(ADDER, PAIRS, site="attn_out", layers=0)
    ADDER.add_hook("blocks.0.hook_mlp_out", lambda tensor, hook: 0.95 * tensor)
    try:
        without_mlp = activation_patching(ADDER, PAIRS, site="attn_out", layers=0)
    finally:
        ADDER.reset_hooks()
    assert sweep.fast and not without_mlp.fast
    assert not np.allclose(sweep.unpatched, without_mlp.unpatched)


# ---- refusals


def same_twice() -> ProblemPairs:
    return ProblemPairs(ADDER.task, PAIRS.clean, PAIRS.clean, PAIRS.target, "nothing")


@pytest.mark.usefixtures("without_shape_checks")
def test_what_cannot_be_patched_is_said_in_one_sentence():
    refusals = {
        "There is no site to patch 'resid_pree'.*Did you mean 'resid_pre'": lambda: activation_patching(
            ADDER, PAIRS, site="resid_pree"
        ),
        "by='component' patches every component where it is": lambda: activation_patching(
            ADDER, PAIRS, site="v", by="component"
        ),
        "adds no embeddings of positions": lambda: activation_patching(
            models.load("toygpt-rotary-pre"), TOY_PAIRS, site="pos_embed"
        ),
        "enters before layer 0, so that no other": lambda: activation_patching(TOY, TOY_PAIRS, site="embed", layers=2),
        "There is no layer 3: this model has 1": lambda: activation_patching(ADDER, PAIRS, layers=[3]),
        "There is no metric 'logitdiff'.*Did you mean 'logit_diff'": lambda: activation_patching(
            ADDER, PAIRS, metrics="logitdiff"
        ),
        "same in both runs of all 64 pairs.*changes nothing": lambda: activation_patching(ADDER, PAIRS, site="pattern"),
        "64 of 64 pairs have the same answer": lambda: activation_patching(ADDER, same_twice()),
        "nothing.*changes nothing": lambda: activation_patching(ADDER, same_twice(), metrics="probability"),
        r"must return one number per example, \[.*64\], and returned \[\]": lambda: activation_patching(
            ADDER, PAIRS, metrics=Metric("mine", (26,), lambda logits, rows: logits.mean())
        ),
        r"tokens of one shape \[n, pos\], not \[64, 33\] and \[64, 20\]": lambda: swept(
            ADDER, PAIRS.clean_tokens, PAIRS.clean_tokens[:, :20], logit_diff(PAIRS)
        ),
        "nothing to run": lambda: swept(ADDER, PAIRS.clean_tokens[:0], PAIRS.corrupted_tokens[:0], logit_diff(PAIRS)),
        "reads position 99; there are 33": lambda: swept(
            ADDER, PAIRS.clean_tokens, PAIRS.corrupted_tokens, Metric("mine", (99,), lambda x, rows: x[..., 0, 0])
        ),
        "'mine' reads position -34; there are 33": lambda: activation_patching(
            ADDER, PAIRS, metrics=Metric("mine", (-34,), lambda logits, rows: logits[..., 0, 0])
        ),
        "'mine' reads no position": lambda: activation_patching(
            ADDER, PAIRS, metrics=Metric("mine", (), lambda logits, rows: logits[..., 0, 0])
        ),
        "different names, not logit_diff, logit_diff": lambda: swept(
            ADDER, PAIRS.clean_tokens, PAIRS.corrupted_tokens, [logit_diff(PAIRS)] * 2
        ),
        "There is no metric 'exact_match'": lambda: activation_patching(ADDER, PAIRS).strongest(metric="exact_match"),
    }
    for message, call in refusals.items():
        with pytest.raises(UserError, match=message):
            call()


def test_a_sweep_that_finds_nothing_to_patch_can_be_had_on_request():
    sweep = activation_patching(ADDER, PAIRS, site="pattern", allow_equal=True)
    assert np.allclose(sweep.values, sweep.unpatched.values[:, :, None, None, None], atol=1e-2)


def test_an_attention_only_model_has_no_mlp_to_patch():
    from tests.conformance.table import ROWS

    model = next(row for row in ROWS if row.name == "attention only").build(0)
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    metric = Metric("m", (-1,), lambda logits, rows: logits[..., 0, 0])
    with pytest.raises(UserError, match="no MLPs, so that there is no neuron"):
        swept(model, tokens, tokens.flip(0), metric, site="neuron")


def test_changed_parameters_are_not_taken_for_the_old_ones():
    """The weights that a small map makes are kept from one sweep to the next while its parameters stay as they are."""
    model = models.load("microadder-57")
    before = activation_patching(model, PAIRS, site="resid_mid")
    next(iter(model.parameters())).data.mul_(1.05)
    after = activation_patching(model, PAIRS, site="resid_mid", check=True)
    assert not np.allclose(before.unpatched, after.unpatched)


def test_changed_constants_are_not_taken_for_the_old_ones():
    """Those of a model without parameters are constants, which a user may exchange as well."""
    trained = models.load("microadder-57")
    shapes = weight_shapes(trained.config)
    weights = ConstantWeights(trained.config, {k: v.detach() for k, v in trained.all_weights().items() if k in shapes})
    model = ArithmeticTransformer(weights, trained.task)
    before = activation_patching(model, PAIRS, site="resid_mid")
    for name, buffer in list(weights.named_buffers()):
        setattr(weights, name, 1.05 * buffer)
    after = activation_patching(model, PAIRS, site="resid_mid", check=True)
    assert not np.allclose(before.unpatched, after.unpatched)


# ---- odd inputs


def test_a_single_pair_has_no_spread_and_says_nothing_about_others():
    table = activation_patching(TOY, TOY_PAIRS.select(slice(0, 1)), site="head_out", check=True).table
    assert (table.spread == 0).all() and np.isneginf(table.mean_low).all() and np.isposinf(table.mean_high).all()


def test_batches_that_do_not_divide_the_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch):
    asked = {"by": "role", "metrics": ("kl", "loss"), "layers": [0, -1]}
    whole = {site: activation_patching(TOY, TOY_PAIRS, site=site, **asked) for site in ("resid_pre", "k", "head_out")}
    monkeypatch.setattr(patching_values, "ROWS_AT_ONCE", 10_000)
    assert 2 < len(patching_values._batches(24, 7, TOY)) < 24
    for site, at_once in whole.items():
        parts = activation_patching(TOY, TOY_PAIRS, site=site, **asked)
        assert np.abs(at_once.values - parts.values).max() <= 1e-4 * np.abs(at_once.values).max()


@pytest.mark.usefixtures("without_shape_checks")
def test_a_layer_is_swept_once_however_often_it_is_named():
    assert activation_patching(ADDER, PAIRS, site="v", layers=[0, -1, 0]).values.layer.values.tolist() == [0]


def test_nothing_to_recover_is_refused_or_said_and_no_number_made_up():
    """The divergence from the clean run of a clean run is rounding, and so is a share of it."""
    never = Metric("never", (26,), lambda logits, rows: 0 * logits[..., 0, 0])
    nearly = Metric("nearly", (26,), lambda logits, rows: 1e-8 * logits[..., 0, 3])
    apart, sign = logit_diff(PAIRS), (-1.0) ** torch.arange(len(PAIRS))
    either = Metric("either", apart.positions, lambda logits, rows: apart(logits, rows) * sign[rows])
    for metric in (never, nearly, either):
        with pytest.raises(UserError, match="no difference beyond its 95% interval"):
            activation_patching(ADDER, PAIRS, site="resid_pre", metrics=metric)
        asked = {"site": "resid_pre", "metrics": (metric, "logit_diff"), "direction": "both", "allow_equal": True}
        sweep = activation_patching(ADDER, PAIRS, **asked)
        assert np.isnan(sweep.table.recovered.sel(metric=metric.name)).all() and np.isnan(sweep.strongest()[1])
        assert np.isfinite(sweep.table.recovered.sel(metric="logit_diff")).all()
        assert numbers_are_finite(sweep.sentence()) and numbers_are_finite(sweep.figure().layout.title.text)


def test_a_model_that_cannot_do_the_task_is_refused_however_little_its_runs_differ():
    """The output matrix times a hundred-thousandth: the runs differ, in the sixth digit."""
    for factor in (1e-5, 0.0, -1.0):
        model = models.load("microadder-57").dense_copy().eval()
        with torch.no_grad():
            model.get_parameter("weight_map.blocks/0/attn/W_O").mul_(factor)
        for metric in ("logit_diff", "exact_match", "probability"):
            with pytest.raises(UserError):
                activation_patching(model, PAIRS, metrics=metric)


def test_a_share_of_a_metric_comes_with_the_share_of_answers():
    passed = problem_pairs(ADDER.task, "passed carry", column=4, n=64)
    sweep = activation_patching(ADDER, passed, site="resid_pre", metrics=("logit_diff", "exact_match"))
    table = sweep.table.sel(direction="denoise")
    exact = table.sel(metric="exact_match")
    assert np.allclose(exact["mean"], table.answers) and np.allclose(exact.mean_low, table.answers_low)
    assert (table.answers_low <= table.answers).all() and (table.answers_low < table.answers_high).all()
    share = table.sel(metric="logit_diff")
    assert (share.recovered_low <= share.recovered).all() and (share.recovered_low < share.recovered_high).all()
    written = table.sel(pos="s3", layer=0)
    assert float(written.recovered.sel(metric="logit_diff")) > 0.9 and float(written.answers) > 0.9


def test_one_answer_in_many_that_differs_is_no_difference_of_the_runs():
    """Differences of zeros and ones may have either sign, whatever the signs in this sample."""
    one = np.eye(64)[0]
    assert not runs_differ(np.zeros(64), one, 0) and not runs_differ(one, np.zeros(64), 0)
    assert runs_differ(np.zeros(64), (np.arange(64) < 20).astype(float), 0)


def test_divergence_counts_answers_that_have_no_probability_as_nothing():
    logits = TOY(TOY_PAIRS.clean_tokens).detach().clone()
    logits[..., -1] = float("-inf")
    assert kl(TOY_PAIRS, logits).of(logits).abs().max() < 1e-6


# ---- through the model's own hooks


def test_stacked_variants_are_those_of_single_runs_and_the_unpatched_run_is_among_them(
    monkeypatch: pytest.MonkeyPatch,
):
    few, sizes = TOY_PAIRS.select(slice(0, 4)), []
    metric, stock = logit_diff(few), stock_copy(TOY)
    original, whole = PlainPatcher.patched, PlainPatcher.logits

    def patched(self: PlainPatcher, places: Any) -> Any:
        sizes.append(len(places))
        return original(self, places)

    def unpatched(self: PlainPatcher) -> Any:
        sizes.append(0)
        return whole(self)

    monkeypatch.setattr(PlainPatcher, "patched", patched)
    monkeypatch.setattr(PlainPatcher, "logits", unpatched)
    for site in ("resid_pre", "head_out"):
        asked: Any = (few.corrupted_tokens, few.clean_tokens, metric)
        where: Any = {"site": site, "by": "position", "layers": [0, -1]}
        fast = swept(TOY, *asked, **where).found
        with monkeypatch.context() as not_copied:
            not_copied.setattr(MODULE, "_copy", lambda *of: None)
            plain = swept(stock, *asked, **where).found
            cells = plain.patched[0, 0, ..., 0].size
            assert sizes == [cells + 1, cells]  # the unpatched run is among those of the first layer
            assert np.allclose(fast.patched, plain.patched, atol=1e-3) and np.allclose(fast.base, plain.base, atol=1e-3)
            sizes.clear()
            not_copied.setattr(patching_values, "PLAIN_AT_ONCE", 1)
            single = swept(stock, *asked, **where).found
        assert sizes == [1] * (2 * cells) + [0]
        assert np.allclose(single.patched, plain.patched, atol=1e-4) and np.allclose(single.base, plain.base, atol=1e-4)
        sizes.clear()


def test_a_single_patch_of_a_model_without_the_fast_path_is_one_run_beside_those_of_the_pair(
    monkeypatch: pytest.MonkeyPatch,
):
    stock, runs = stock_copy(TOY), []
    original = stock.forward
    monkeypatch.setattr(stock, "forward", lambda *args, **options: runs.append(1) or original(*args, **options))
    monkeypatch.setattr(MODULE, "_copy", lambda model, *of: model if model is TOY else None)
    clean, corrupted, asked = TOY_PAIRS.clean_tokens, TOY_PAIRS.corrupted_tokens, {"by": "all", "layers": -1}
    plain = swept(stock, corrupted, clean, logit_diff(TOY_PAIRS), **asked)
    assert len(runs) <= 3 and not plain.fast
    fast = swept(TOY, corrupted, clean, logit_diff(TOY_PAIRS), **asked).found
    assert np.allclose(plain.found.patched, fast.patched, atol=1e-3)
    assert np.allclose(plain.found.base, fast.base, atol=1e-3)
    with pytest.raises(UserError):  # nothing changes, which is seen at the hook
        swept(stock, clean, clean, logit_diff(TOY_PAIRS), **asked)


# ---- the unpatched run as one more variant


@pytest.mark.parametrize("site", every_third(SITES))
def test_the_unpatched_run_is_that_of_the_model_whichever_variants_it_was_made_along_with(site: str):
    for model, pairs in ((ADDER, PAIRS.select(slice(0, 4))), (TOY, TOY_PAIRS.select(slice(0, 4)))):
        sweep = activation_patching(model, pairs, site=site, layers=-1, allow_equal=True)
        true = logit_diff(pairs).of(model(pairs.corrupted_tokens)).detach().double().numpy()
        assert np.abs(sweep.unpatched.values[0, 0] - true).max() <= 1e-4 * np.abs(true).max()


def test_a_wrong_attention_of_side_by_side_keys_is_found_out(monkeypatch: pytest.MonkeyPatch):
    original = Formulas.attend
    monkeypatch.setattr(Formulas, "attend", lambda *args: original(*args).roll(1, 1))
    with pytest.raises(PatchMismatch):
        activation_patching(ADDER, PAIRS.select(slice(0, 4)), site="resid_pre", check=True)


class _Counting(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **kwargs or {})


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("site", "most"), [("resid_pre", 290), ("v", 286)])
def test_a_small_sweep_of_the_last_layer_is_few_operations(site: str, most: int):
    """Which is its cost at batch 16, with both runs.

    Under a dispatch mode the weights are computed again, and many of the operations are theirs."""
    few = PAIRS.select(slice(0, 16))
    metric = Metric("mine", (26,), lambda logits, rows: logits[..., 0, 3] - logits[..., 0, 7])
    asked: Any = (ADDER, few.corrupted_tokens, few.clean_tokens, metric, site)
    swept(*asked, allow_equal=True)
    with torch.no_grad(), _Counting() as counting:
        swept(*asked, allow_equal=True)
    assert counting.calls <= most


# ---- planted truth: the carry comes from the previous column's digits


def restored(model: Any, pairs: ProblemPairs) -> tuple[float, dict[str, float]]:
    """What the two runs differ by, and what patching the values at each role makes of it; in logits."""
    found = swept(
        model, pairs.corrupted_tokens, pairs.clean_tokens, logit_diff(pairs), "v", "role", target=pairs.target
    )
    base, source = found.found.base.mean(), found.found.source.mean()
    moved = labelled(found).squeeze(drop=True).mean("pair") - base
    return float(source - base), dict(zip(moved.role.values.tolist(), moved.values.tolist(), strict=True))


@pytest.mark.parametrize("turned", [False, True])
def test_all_of_a_made_carry_comes_through_the_values_of_one_role(turned: bool):
    span, moved = restored(*carry_pairs(trained(), turned=turned, n=24))
    others = [abs(value) for role, value in moved.items() if role != "previous operands"]
    assert span > 50 and moved["previous operands"] == pytest.approx(span, rel=1e-4) and max(others) < 1e-4


@pytest.mark.parametrize("model", [lambda: without("out_A"), untrained], ids=["no head", "untrained"])
def test_a_model_that_knows_no_carry_has_nothing_to_restore(model: Any):
    span, moved = restored(*carry_pairs(model(), n=24))
    assert max(map(abs, (span, *moved.values()))) < 0.01
