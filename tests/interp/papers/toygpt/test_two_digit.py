"""What is asked of two-digit adders: errors by kind, attention maps, carry probes and the carry's path."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import models
from interp.causal.patching.sites import get_site
from interp.core import runs
from interp.core.sites import Site
from interp.core.stats import clopper_pearson
from interp.papers.toygpt.attention import attention_maps, compute_attention_maps
from interp.papers.toygpt.carry import CarryPath, _Patched, carry_pairs, carry_path, sites, written_digits
from interp.papers.toygpt.errors import compute_carry_errors
from interp.papers.toygpt.problems import EVERY_PAIR
from interp.probes.lens.ridge import held_out_predictions
from models.errors import UserError
from models.tasks.two_digit import TwoDigitAddition, all_problems, held_out_problems
from models.transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights
from tests.interp.conftest import stock_copy

TASK = TwoDigitAddition()
TRAINED = "toygpt-learned-pre"


@cache
def small(layers: int = 2) -> ArithmeticTransformer:
    """An untrained decoder on the task, small enough to ask everything of it."""
    config = models.TransformerConfig(
        n_layers=layers, d_model=16, n_heads=2, d_head=8, d_mlp=16, d_vocab=10, n_ctx=6,
        act_fn="gelu_new", normalization_type="LN",
    )  # fmt: skip
    weights = DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(0))
    for parameter in weights.parameters():
        parameter.data *= 10
    return ArithmeticTransformer(weights, TASK, name="small")


def logits_of(digits: Tensor) -> Tensor:
    """Logits that are 2 for the given digits and 0 elsewhere."""
    return 2.0 * torch.nn.functional.one_hot(digits, 10).float()


# ---- errors


def test_a_perfect_adder_has_no_error_and_its_margin_everywhere():
    problems = all_problems()
    found = compute_carry_errors(logits_of(TASK.targets(problems)), problems, held_out_problems(), "x", EVERY_PAIR)
    assert [found.about[part].correct for part in ("all", "test", "train")] == [10_000, 500, 9_500]
    assert found.wrong == 0 and not found.about["failures"]
    assert found.table["n"].sum() == 10_000 and (found.table["lowest"] == 2.0).all()
    assert found.table["n"].sel(units_sum=9) == 1_000 and found.about["with_carry"] == 4_500


def test_wrong_tens_digits_are_sorted_by_the_carry_they_forget_or_invent():
    problems = torch.tensor([[17, 3], [12, 34], [12, 34], [77, 99], [50, 50]])
    digits = TASK.targets(problems)
    digits[0, 1] = 1  # 20 called 10: the carry is missed
    digits[1, 1] = 5  # 46 called 56: one is invented
    digits[2, 1] = 9  # 46 called 96: neither
    digits[3, 0] = 0  # a wrong unit
    found = compute_carry_errors(logits_of(digits), problems, held_out_problems(), "x", EVERY_PAIR)
    assert found.about["kinds"] == {"missed": 1, "spurious": 1, "other": 1}
    assert found.about["first_wrong"] == {"units": 1, "tens": 3, "hundreds": 0}
    assert found.about["digits"] == {"units": 4, "tens": 2, "hundreds": 5}
    assert found.about["failures"][0] == (17, 3, 10)
    assert float(found.table.lowest.sel(units_sum=10)) == -2.0  # the twin is preferred by as much


def test_a_tens_digit_of_nine_has_zero_as_its_twin():
    problems = torch.tensor([[45, 45], [45, 50]])  # 90 with a carry, 95 without
    digits = torch.tensor([[0, 8, 0], [5, 0, 0]])
    found = compute_carry_errors(logits_of(digits), problems, held_out_problems(), "x", EVERY_PAIR)
    assert found.about["kinds"] == {"missed": 1, "spurious": 1, "other": 0}


def test_a_nan_is_a_wrong_digit_of_no_kind_of_carry():
    problems = torch.tensor([[12, 34]])
    logits = logits_of(TASK.targets(problems))
    logits[0, 1, 3] = float("nan")
    found = compute_carry_errors(logits, problems, held_out_problems(), "x", EVERY_PAIR)
    assert found.about["kinds"]["other"] == 1 and found.about["all"].correct == 0


def test_errors_want_logits_of_the_same_problems():
    with pytest.raises(UserError, match="do not fit"):
        compute_carry_errors(torch.zeros(2, 3, 10), all_problems(), held_out_problems(), "x", EVERY_PAIR)


# ---- attention


def test_uniform_attention_counts_every_visible_key_and_all_heads_overlap():
    n, layers, heads = 3, 2, 2
    rows = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    patterns = np.broadcast_to(rows, (n, layers, heads, 6, 6)).copy()
    found = compute_attention_maps(patterns, np.array([0.0, 1.0, 1.0]), [(1, 2)], patterns[:1], 3, "x", EVERY_PAIR)
    np.testing.assert_allclose(found.keys, 5.0)  # 4, 5 and 6 keys, on average
    np.testing.assert_allclose(found.overlap, 1.0)
    assert found.visible == 5.0 and found.pattern.isnull().sum() == 15 * layers * heads * 4


def test_heads_on_different_keys_do_not_overlap_and_attend_to_one_key_each():
    patterns = np.zeros((2, 1, 2, 6, 6))
    patterns[:, 0, 0, :, 0] = 1
    patterns[:, 0, 1] = np.eye(6)
    found = compute_attention_maps(patterns, np.array([0.0, 1.0]), [], patterns[:0], 3, "x", EVERY_PAIR)
    np.testing.assert_allclose(found.keys, 1.0)
    assert found.overlap.values[0, 1] == 0.0


def test_maps_of_a_stock_copy_are_the_models():
    ours = attention_maps(small())
    theirs = attention_maps(stock_copy(small()), task=TASK)
    np.testing.assert_allclose(ours.pattern, theirs.pattern, atol=1e-5)
    np.testing.assert_allclose(ours.pattern.fillna(0).sum("key"), 1.0, atol=1e-5)
    weights = np.array([4_500, 5_500]) / 10_000
    carry, none = (ours.pattern.sel(view=f"mean {x} carry").values for x in ("with", "without"))
    np.testing.assert_allclose(ours.pattern[0], weights[0] * carry + weights[1] * none, atol=1e-6)


# ---- probes


def test_a_probe_finds_a_threshold_on_units_pairs_it_never_saw_and_nothing_in_dealt_labels():
    cell = np.repeat(np.arange(100), 10)
    rng = np.random.default_rng(0)
    total = cell // 10 + cell % 10
    x = np.stack([cell // 10, cell % 10], 1) + 0.01 * rng.standard_normal((1000, 2))
    dealt = rng.permutation(np.arange(100) % 2 == 0)[cell]
    labels = np.stack([total >= 10, dealt], 1)
    right = (held_out_predictions(x, np.where(labels, 1.0, -1.0), (cell % 7 + cell // 7) % 5) > 0) == labels
    assert right[:, 0].mean() > 0.93
    assert right[:, 1].mean() < 0.65


def test_a_probe_does_not_learn_the_table_of_pairs_by_heart():
    cell = np.repeat(np.arange(100), 5)
    labels = np.random.default_rng(1).random(100)[cell] < 0.5
    predicted = held_out_predictions(np.eye(100)[cell], np.where(labels, 1.0, -1.0)[:, None], cell % 5)
    assert ((predicted[:, 0] > 0) == labels).mean() < 0.65


# ---- the carry's path


def test_sources_differ_from_their_bases_in_the_carry_and_in_nothing_else():
    pairs = carry_pairs(3)
    base, source, control = (TASK.variables(x) for x in (pairs.base, pairs.source, pairs.control))
    assert len(pairs.base) == 9_000
    for name in ("a", "b"):
        for other in (source, control):
            assert torch.equal(base[name][:, 1], other[name][:, 1])
    assert torch.equal(base["s"][:, 0], source["s"][:, 0])
    assert ((base["carry_out"] + source["carry_out"])[:, 0] == 1).all()
    assert torch.equal(base["carry_out"][:, 0], control["carry_out"][:, 0])
    assert (pairs.base != pairs.control).any(1).all()
    assert torch.equal(carry_pairs(3).source, pairs.source) and not torch.equal(carry_pairs(4).source, pairs.source)


@pytest.mark.parametrize("opposite", [True, False])
def test_a_written_digit_is_wrong_and_says_one_carry_by_either_operand(opposite: bool):
    problems = all_problems()
    digit = written_digits(problems, opposite, torch.Generator().manual_seed(0))
    units, carry = problems % 10, (problems % 10).sum(1) >= 10
    given = digit >= 0
    assert (digit != units.sum(1) % 10).all()
    for i in (0, 1):
        assert torch.equal((digit < units[:, i])[given], (carry != opposite)[given])
    assert given.any() and (~given).any()


@cache
def trained_path() -> CarryPath:
    if TRAINED not in models.zoo_names():
        pytest.skip(f"needs {TRAINED} in the zoo")
    return carry_path(models.load(TRAINED), bases=60)


def test_the_stream_that_the_head_reads_takes_the_carry_along_and_no_other_does():
    path = trained_path()
    last = path.table[(path.table.site == "L3")].set_index("position")
    assert last.follows["s0"] == last.n["s0"] > 0
    assert last.stays["b0"] == last.stays["a0"] == last.n["b0"]
    assert path.stream("s0").follows[0] == 0  # base and source have the same token there


def test_every_outcome_is_counted_once_with_its_interval():
    table = trained_path().table
    assert (table.follows + table.stays + table.other == table.n).all()
    for row in table.head(5).itertuples():
        assert (row.low, row.high) == clopper_pearson(row.follows, row.n)
    assert table.control_changed.notna().equals(table.kind != "head")


def test_a_model_that_has_nothing_right_has_no_path():
    path = carry_path(small(), bases=50)
    assert path.provenance.n == 0


def test_every_site_is_an_activation_that_fires():
    model = small()
    found = list(sites(2, 2))
    _, cache_ = model.run_with_cache(TASK.encode([(1, 2)]))
    assert all(get_site(site, model.cfg).hook_name(layer) in cache_ for _, _, layer, site, _ in found)
    assert len({label for _, label, *_ in found}) == len(found) == 11


def test_what_is_counted_is_what_the_model_says_with_the_piece_of_the_other_run():
    """Against runs of the model's own hooks, pair by pair, of a model whose answers are all counted as right."""
    pairs = carry_pairs(0)
    base, source = pairs.base[:300], pairs.source[:300]
    model, s0 = small(), 4
    found = _Patched(model, TASK, base, source, 0, ["resid_post", "head_out"])
    digits = [TASK.targets(problems)[:, 1] for problems in (base, source)]
    for site, name, head in (
        (Site("blocks.0.hook_resid_post", (s0,)), "resid_post", None),
        (Site("blocks.0.attn.hook_z", (s0,), head=1), "head_out", 1),
    ):
        (held,), _ = runs.read(model, TASK.encode(source), [site])
        said = runs.run(model, TASK.encode(base), [site.put(lambda _, rows, held=held: held[rows])], [s0])
        counts = [int((said[:, 0].argmax(-1) == digit).sum()) for digit in digits]
        assert [found.count(metric, name, 0, head, s0) for metric in ("stays", "follows")] == counts


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: carry_path(small(), bases=0), "9,000 bases"),
        (lambda: carry_path(models.build("microadder-57")), "two-digit addition"),
        (lambda: attention_maps(small(), examples=[(100, 1)]), r"0\.\.99"),
        (lambda: attention_maps("toygpt"), "not a model"),
        (lambda: trained_path().stream("b9"), "b9"),
    ],
)
def test_bad_input_brings_one_clear_sentence(ask, message: str):
    with pytest.raises(UserError, match=message):
        ask()
