"""The statistics behind the probes, against brute force and scipy."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats as scipy_stats
from scipy.spatial.distance import jensenshannon

from interp.causal.circuits.faithfulness import compute_faithfulness
from interp.core import bootstrap_draws, stats
from interp.core.recovered_share import recovered_share
from interp.core.significance import permutation_p
from interp.core.stats import (
    bootstrap_interval,
    bootstrap_ratio,
    clopper_pearson,
    clustered_proportion,
    clustered_proportions,
    js_distance,
    mean_interval,
    proportion,
    widened,
)
from interp.probes.neuron_selectivity import effect_interval
from interp.probes.separation import auroc, aurocs, best_threshold, stratified_difference
from models.errors import UserError
from models.number_format import in_percent, in_percent_with
from models.text_scores import TextLoss
from studies.claims import differences
from tests.sampling import sampled


@st.composite
def labelled_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values with ties, labels, strata."""
    n = draw(st.integers(2, 25))
    values = draw(arrays(np.float64, n, elements=st.integers(-4, 4).map(float)))
    labels, stratum = (draw(arrays(np.bool_, n)) for _ in range(2))
    return values, labels, stratum


def brute_force_auroc(values: np.ndarray, labels: np.ndarray) -> float:
    pairs = [(p > q) + 0.5 * (p == q) for p in values[labels] for q in values[~labels]]
    return float(np.mean(pairs)) if pairs else float("nan")


@given(labelled_rows())
def test_auroc_is_the_share_of_pairs_in_order(rows):
    values, labels, _ = rows
    assert auroc(values[:, None], labels[:, None])[0, 0] == pytest.approx(
        brute_force_auroc(values, labels), nan_ok=True
    )


@given(labelled_rows())
def test_stratified_auroc_compares_pairs_of_the_same_stratum_only(rows):
    values, labels, stratum = rows
    pairs = [
        (values[i] > values[j]) + 0.5 * (values[i] == values[j])
        for i in np.flatnonzero(labels)
        for j in np.flatnonzero(~labels)
        if stratum[i] == stratum[j]
    ]
    expected = float(np.mean(pairs)) if pairs else float("nan")
    assert aurocs(values[:, None], labels[:, None], [stratum])[1][0, 0] == pytest.approx(expected, nan_ok=True)


@given(labelled_rows())
def test_stratified_difference_of_a_single_stratum_is_the_plain_difference(rows):
    values, labels, _ = rows
    found = stratified_difference(values[:, None], labels[:, None], np.zeros(len(values), dtype=bool))[0, 0]
    both = labels.any() and not labels.all()
    expected = values[labels].mean() - values[~labels].mean() if both else float("nan")
    assert found == pytest.approx(expected, nan_ok=True)


def test_stratified_difference_removes_a_confounder_that_the_plain_difference_shows():
    rng = np.random.default_rng(0)
    cause = rng.random(20_000) < 0.5
    label = np.where(rng.random(20_000) < 0.8, cause, ~cause)  # agrees with the cause in four of five rows
    outcome = cause.astype(float)[:, None]
    plain = outcome[label].mean() - outcome[~label].mean()
    held = stratified_difference(outcome, label[:, None], cause)[0, 0]
    assert plain == pytest.approx(0.6, abs=0.03)
    assert held == 0.0


@given(labelled_rows(), st.booleans())
def test_no_threshold_on_the_signals_side_classifies_better_than_the_best_threshold(rows, above):
    values, labels, _ = rows
    cuts = np.concatenate(([-np.inf], np.unique(values), [np.inf]))
    best = max((((values > cut) == above) == labels).mean() for cut in cuts)
    threshold, accuracy = best_threshold(values, labels[:, None], np.array([above]))
    assert accuracy[0] == pytest.approx(best)
    assert (((values > threshold[0]) == above) == labels).mean() == pytest.approx(best)


@given(st.integers(1, 400), st.data())
def test_clopper_pearson_is_scipys_exact_interval(n, data):
    k = data.draw(st.integers(0, n))
    exact = scipy_stats.binomtest(k, n).proportion_ci(method="exact")
    assert clopper_pearson(k, n) == pytest.approx((exact.low, exact.high))


def test_no_error_in_10010_bounds_the_error_rate_only_below_three_in_ten_thousand():
    low, high = clopper_pearson(10_010, 10_010, confidence=0.90)  # one-sided 95%
    assert high == 1.0
    assert 1 - low == pytest.approx(3.0e-4, rel=0.01)


@pytest.mark.parametrize(("k", "n", "confidence"), [(5, 4, 0.95), (-1, 4, 0.95), (1, 4, 1.0), (1, 4, 0.0)])
def test_impossible_proportions_are_refused(k, n, confidence):
    with pytest.raises(UserError):
        clopper_pearson(k, n, confidence)


def test_independent_rows_get_the_plain_exact_interval_or_a_slightly_wider_one():
    rng = np.random.default_rng(1)
    success, cluster = rng.random(4000) < 0.3, np.repeat(np.arange(400), 10)
    found = clustered_proportion(success, cluster)
    low, high = clopper_pearson(int(success.sum()), 4000)
    assert found.high - found.low == pytest.approx(high - low, rel=0.15)


def test_rows_that_copy_their_cluster_count_once_per_cluster():
    rng = np.random.default_rng(2)
    success, cluster = np.repeat(rng.random(400) < 0.3, 10), np.repeat(np.arange(400), 10)
    found = clustered_proportion(success, cluster)
    assert found.n_effective == pytest.approx(400, rel=0.01)
    assert found.low < found.value < found.high


def test_rows_that_all_agree_count_once_per_cluster():
    found = clustered_proportion(np.ones(4000, dtype=bool), np.repeat(np.arange(400), 10))
    assert (found.low, found.high) == clopper_pearson(400, 400)
    assert found.n_effective == 400


def test_clustered_intervals_cover_the_truth_at_their_level():
    """Rows that half-follow their cluster: the interval misses in about 5% of draws, and a naive one in far more."""
    rng = np.random.default_rng(3)
    missed = naive = 0
    for _ in range(400):
        own, shared = rng.random((60, 10)) < 0.4, np.repeat(rng.random((60, 1)) < 0.4, 10, 1)
        success = np.where(rng.random((60, 10)) < 0.5, own, shared).ravel()
        found = clustered_proportion(success, np.repeat(np.arange(60), 10))
        missed += not found.low <= 0.4 <= found.high
        low, high = clopper_pearson(int(success.sum()), 600)
        naive += not low <= 0.4 <= high
    assert missed / 400 < 0.09
    assert naive / 400 > 0.12


SIZES = {
    "doubling": 2 ** np.arange(10),
    "one giant": np.array([100, *[1] * 20]),
    "a long tail": np.maximum(1, np.random.default_rng(0).lognormal(1.5, 1.5, 200).astype(int)),
    "1 to 10": np.random.default_rng(0).integers(1, 11, 40),
    "alike": np.full(30, 10),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("share", sampled([0.5, 0.8], 0.8))
@pytest.mark.parametrize("follow", [0.0, 0.5, 1.0])
def test_clusters_of_unequal_size_are_covered(sizes, share, follow):
    """Rows follow their cluster with this chance. With the clip at the number of clusters 0.0 to 0.8 of "doubling",
    "one giant" and "a long tail" were covered where all rows follow. Ten clusters that double are as good as three."""
    least = 0.7 if sizes == "doubling" and follow == 0.5 else 0.9
    rng = np.random.default_rng(7)
    cluster = np.repeat(np.arange(len(SIZES[sizes])), SIZES[sizes])
    covered = 0
    for _ in range(300):
        shared = (rng.random(len(SIZES[sizes])) < share)[cluster]
        success = np.where(rng.random(len(cluster)) < follow, shared, rng.random(len(cluster)) < share)
        found = clustered_proportion(success, cluster)
        assert found.n_effective <= len(cluster) + 1e-9
        covered += found.low <= share <= found.high
    assert covered / 300 >= least


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_rows_that_are_clusters_of_their_own_get_the_exact_interval(success):
    found = clustered_proportion(np.array(success), np.arange(len(success)))
    assert (found.low, found.high) == pytest.approx(clopper_pearson(sum(success), len(success)))


def test_a_permutation_p_value_is_never_zero_and_counts_ties():
    assert permutation_p(2.0, np.zeros(99)) == 0.01
    assert permutation_p(0.0, np.zeros(99)) == 1.0


def test_the_interval_of_a_mean_is_students():
    values = np.array([2.1, 2.3, 2.4, 2.2])
    _, low, high = mean_interval(values)
    expected = scipy_stats.t.interval(0.95, 3, loc=values.mean(), scale=scipy_stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert mean_interval(values[:1])[1:] == (-np.inf, np.inf)


def test_a_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    values = rng.exponential(size=(400, 60))  # 400 experiments of 60 examples with mean 1
    low, high = bootstrap_interval(values, seed=0)
    covered = ((low <= 1) & (high >= 1)).mean()
    assert 0.88 < covered < 0.98
    again = bootstrap_interval(values[:3], seed=0)
    assert (again[0] == low[:3]).all() and (again[1] == high[:3]).all()


DRAWS = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "uniform": (lambda rng, shape: rng.random(shape), 0.5),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
}


@pytest.mark.parametrize(
    ("name", "n", "least"),
    [
        *(("normal", n, 0.93) for n in (3, 5, 10, 40)),
        *(("uniform", n, 0.92) for n in (5, 10, 40)),
        ("exponential", 5, 0.86),  # a long tail: 95% takes more examples than these
        ("exponential", 40, 0.91),
    ],
)
def test_bootstrap_intervals_of_few_examples_cover_the_mean(name, n, least):
    """Plain percentiles cover 0.83 (normal) and 0.77 (exponential) with 5 examples."""
    draw, mean = DRAWS[name]
    low, high = bootstrap_interval(draw(np.random.default_rng(n), (3000, n)), seed=0)
    assert ((low <= mean) & (mean <= high)).mean() >= least
    assert ((low <= mean) & (mean <= high)).mean() <= 0.975


def test_the_bootstrap_of_normal_values_is_students_interval():
    values = np.random.default_rng(0).normal(size=(50, 8))
    low, high = bootstrap_interval(values, seed=1, resamples=20_000)
    students = np.array([mean_interval(row)[1:] for row in values])
    width = students[:, 1] - students[:, 0]
    assert (high - low) / width == pytest.approx(np.ones(50), abs=0.12)
    assert ((high - low) / width).mean() == pytest.approx(1.0, abs=0.03)


@pytest.mark.slow
def test_large_samples_are_resampled_block_by_block_within_the_budget(monkeypatch):
    """The same distribution from other random numbers: ends agree to the noise of 2,000 resamples."""
    values = np.random.default_rng(2).exponential(size=(3, 4000))
    whole = np.stack(bootstrap_interval(values, seed=0, resamples=2000))
    asked = []
    real = np.random.Generator.multinomial

    class Watched(np.random.Generator):
        def multinomial(self, n, pvals, size=None):
            drawn = real(self, n, pvals, size=size)
            asked.append(drawn.size)
            return drawn

    monkeypatch.setattr(bootstrap_draws, "NUMBERS_AT_ONCE", 2**20)
    monkeypatch.setattr(stats.np.random, "default_rng", lambda seed: Watched(np.random.PCG64(seed)))
    blocks = np.stack(bootstrap_interval(values, seed=0, resamples=2000))
    assert len(asked) > 5 and max(asked) <= 2**20
    assert blocks == pytest.approx(whole, abs=0.006) and not np.array_equal(blocks, whole)


def test_one_example_has_no_interval_and_many_are_left_as_they_were():
    low, high = bootstrap_interval(np.array([[3.0]]), seed=0)
    assert (low[0], high[0]) == (-np.inf, np.inf)
    assert widened(1.0, 0.9, 1.2, 4096) == pytest.approx((0.9, 1.2), abs=2e-4)


@given(
    st.floats(-50, 50).filter(lambda c: c not in (-1, 0, 1) and abs(c) > 1e-3),
    st.floats(-1e3, 1e3),
    st.integers(2, 60),
)
def test_a_constants_interval_has_two_equal_sides_and_hangs_on_no_other_cell(c: float, other: float, n: int):
    """As examples that n do not show may have none of it, or of a ratio all of it."""
    rest = other + np.linspace(0, 9, n)
    missed, below = 1 - 0.025 ** (1 / n), np.linspace(1, 2, n)
    for above, divisor, far in (
        (np.full(n, c), np.ones(n), abs(c)),
        (c * below, below, max(abs(c), abs(1 - c))),
    ):
        half = missed * far
        for cells in (above[None], np.stack((above, rest))):
            value, low, high = (each[0] for each in stats.ratio_interval(cells, divisor, seed=0, resamples=20))
            assert (value, low, high) == pytest.approx((c, c - half, c + half))


def test_no_example_is_an_error():
    with pytest.raises(UserError, match="needs examples"):
        bootstrap_interval(np.empty((2, 0)), seed=0)


# ---- the coverage of every interval that is printed


def _first_lost(rng, n, p):
    """Drops of n problems of ten digits: digits with a signal are lost with probability p, others hardly ever."""
    labels = rng.random((n, 10)) < 0.45
    together = np.where(rng.random((n, 10)) < 0.3, rng.random((n, 1)), rng.random((n, 10)))
    drop = (together < np.where(labels, p, 0.02)).astype(float)
    return effect_interval(drop.ravel(), labels.reshape(-1, 1), np.repeat(np.arange(n), 10))[1:, 0]


def _clustered(rng, n, p):
    shared = np.repeat(rng.random((n, 1)) < p, 10, 1)
    rows = np.where(rng.random((n, 10)) < 0.55, shared, rng.random((n, 10)) < p).ravel()
    found = clustered_proportion(rows, np.repeat(np.arange(n), 10))
    return found.low, found.high


def _share_of_loss(rng, n, p):
    clean, room = rng.random(n), 5 + rng.random(n)
    back = np.where(rng.random(n) < p, 1.0, 0.0)
    return recovered_share(clean + (1 - back) * room, clean + room, clean, seed=0)[1:]


def _faithfulness(rng, n, p):
    full = torch.tensor(rng.normal(10, 2, n))
    kept = torch.tensor(np.where(rng.random(n) < p, 1.0, 0.0)) * full
    return [float(end[0]) for end in compute_faithfulness(kept[None], full, 0 * full)[1:]]


def _text(rng, n, p):
    means = rng.normal(p, 0.1, n)
    return TextLoss(means.mean(), means.std(ddof=1) / n**0.5, 128 * n, 0, n).interval


#: Interval -> (rng, n, p) -> its two ends, for a sample of n whose true value is p.
MORE = [pytest.param(n, p, marks=pytest.mark.slow) for n, p in ((8, 0.9), (20, 0.5), (64, 0.99))]
INTERVALS = {
    "proportion": lambda rng, n, p: astuple(stats.proportion(rng.random(n) < p))[2:4],
    "bootstrap_interval, counted": lambda rng, n, p: stats.bootstrap_interval(1.0 * (rng.random(n) < p), 0),
    "bootstrap_interval, lost": lambda rng, n, p: -np.flip(
        stats.bootstrap_interval(np.where(rng.random(n) < p, -1.0, 0.0), 0, bounds=(-1.0, 1.0))
    ),
    "ratio_interval": lambda rng, n, p: stats.ratio_interval(rng.normal(p, 0.3, n) * 2, np.full(n, 2.0), 0)[1:],
    "bootstrap_ratio": lambda rng, n, p: bootstrap_ratio(
        np.repeat(rng.random((n, 1)) < p, 4, 1) * 1.0, rng.random((n, 4)) < 0.9, 0
    )[1:],
    "mean_interval": lambda rng, n, p: stats.mean_interval(1.0 * (rng.random(n) < p), (0.0, 1.0))[1:],
    "mean_intervals": lambda rng, n, p: np.stack(stats.mean_intervals(rng.normal(p, 1, (n, 1))))[1:, 0],
    "mean_difference": lambda rng, n, p: differences.mean_difference(
        1.0 * (rng.random(n) < p), 0 * rng.random(n), bounds=(0.0, 1.0)
    )[1:],
    "rate_difference": lambda rng, n, p: differences.rate_difference(rng.binomial(n, p), n, 0, n)[1:],
    "clustered_proportion": _clustered,
    "effect_interval": lambda rng, n, p: _first_lost(rng, n, p) + 0.02,
    "recovered_share": _share_of_loss,
    "compute_faithfulness": _faithfulness,
    "TextLoss": _text,
}  # fmt: skip


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize(("n", "p"), [(4, 0.5), (20, 0.97), *MORE])
def test_every_interval_covers_the_truth_and_has_a_width(name, n, p):
    rng, covered, runs = np.random.default_rng(n), 0, 120
    for _ in range(runs):
        low, high = map(float, INTERVALS[name](rng, n, p))
        assert low < high, "no sample shows what all examples are like"
        covered += low - 1e-9 <= p <= high + 1e-9
    assert covered / runs >= 0.9


def test_every_function_of_the_module_that_gives_an_interval_is_among_those():
    asked = {name.partition(",")[0] for name in INTERVALS}
    given = {name for name in vars(stats) if name.endswith(("interval", "intervals", "proportion", "difference"))}
    assert given - asked == {"percentile_interval"}  # which the bootstraps use


def test_the_difference_of_two_shares_has_newcombes_interval():
    """The examples of Newcombe (1998), Table II, method 10."""
    for counts, expected in (
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 20), (0.6791, 1.0000)),
    ):
        value, low, high = differences.rate_difference(*counts)
        assert value == pytest.approx(counts[0] / counts[1] - counts[2] / counts[3])
        assert (round(low, 4), round(high, 4)) == expected
    with pytest.raises(UserError):
        differences.rate_difference(3, 2, 0, 1)


def test_shares_in_sentences_are_never_rounded_to_all_or_none() -> None:
    assert [in_percent(share) for share in (0.0, 1.0, 0.9999, 0.0001, 0.4, -0.0001, 1.005)] == [
        "0%", "100%", "over 99.9%", "under 0.1%", "40.0%", "0.0%", "100.5%",
    ]  # fmt: skip
    assert [in_percent(share) for share in (1 - 3e-6, 1 + 3e-6, 3e-6)] == ["100%", "100%", "0%"]
    assert [in_percent(share, counted=True) for share in (1 - 3e-6, 3e-6)] == ["over 99.9%", "under 0.1%"]
    assert in_percent_with(0.5, float("nan"), float("nan")) == "50.0%"
    assert str(proportion(np.array([True, False]))) == "50.0% [1.3%, 98.7%]"


@pytest.mark.parametrize("largest", [2, 5, 60])
def test_intervals_of_many_columns_are_those_of_each_whatever_the_order_of_the_rows(largest: int):
    rng = np.random.default_rng(largest)
    cluster = np.repeat(np.arange(40), rng.integers(0, largest + 1, 40))
    success = rng.random((len(cluster), 5)) < np.array([0.0, 0.02, 0.5, 0.98, 1.0])
    found = clustered_proportions(success, cluster)
    assert np.array_equal(found[0], success.mean(0))
    order = rng.permutation(len(cluster))
    assert np.allclose(clustered_proportions(success[order], cluster[order]), found, rtol=1e-9)
    for column in range(5):
        one = clustered_proportion(success[:, column], cluster)
        assert found[:, column] == pytest.approx([one.value, one.low, one.high, one.n_effective], rel=1e-9)


# ---- divergences


@given(st.integers(0, 2**31 - 1))
def test_the_jensen_shannon_distance_is_scipys_in_bits(seed: int):
    p, q = np.random.default_rng(seed).dirichlet(np.full(5, 0.3), (2, 4))
    p[0, :2], q[1, 3:] = 0, 0
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    expected = [jensenshannon(*rows, base=2) for rows in zip(p, q, strict=True)]
    assert js_distance(p, q) == pytest.approx(expected, abs=1e-7)


def test_disjoint_rows_are_at_one_and_equal_rows_at_zero():
    p, q = np.array([[0.25, 0.75, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.5, 0.5]])
    assert js_distance(p, q) == pytest.approx(1)
    assert js_distance(p, p) == 0


def test_an_effect_that_no_problem_contradicts_is_as_wide_as_what_was_not_drawn():
    problem = np.arange(40)
    with_signal = problem < 20
    value, low, high = effect_interval(with_signal.astype(float), with_signal[:, None], problem)[:, 0]
    missed = 1 - 0.025 ** (1 / 20)
    assert value == 1 and low == pytest.approx(1 - np.hypot(2 * missed, missed)) and high == pytest.approx(1 + missed)
