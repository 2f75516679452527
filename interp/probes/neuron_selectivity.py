"""The measures of :func:`interp.carry_units`, on flat arrays: each row is a column of a problem, units are flattened.

Each function returns arrays [unit, signal] or [unit, signal, present], present in (without, with).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import stdtrit

from interp.core.stats import UPPER, clustered_proportions, unseen
from interp.core.thresholds import EMPTY, FEWEST_WITH_SIGNAL, FLAT, SQUASHED
from interp.probes.neuron_signals import RIVALS
from interp.probes.separation import aurocs, best_threshold, stratified_difference


def is_switch(gap: float, flatter_state_range: float, output_gap: float, relative_slope: float) -> bool:
    """Whether a unit's :func:`ranges` are those of a switch: two states, one of them saturated."""
    two_states = gap > 0 and flatter_state_range <= FLAT and output_gap >= EMPTY
    return two_states and relative_slope <= SQUASHED  # false where one is NaN


def smallest_over_rivals(
    marginal: np.ndarray, held: Sequence[np.ndarray], names: Sequence[str], rivals: Sequence[str] = RIVALS
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest of a measure and its values with each rival held fixed, and which rival gives it.

    A rival is another signal that correlates with this one (the carry in and a digit sum of 9, for example). It is held
    fixed by comparing rows in which it has one value, and so its own effect cannot be taken for the signal's. A signal
    is not its own rival, and a rival that leaves nothing to compare (NaN) is skipped.
    """
    values = [np.where([name == rival for name in names], np.nan, one) for rival, one in zip(rivals, held, strict=True)]
    stack = np.stack((marginal, *values))
    worst = np.where(np.isnan(stack), np.inf, stack).argmin(0)
    return np.take_along_axis(stack, worst[None], 0)[0], np.array(["none", *rivals])[worst]


def separation(
    x: Float[np.ndarray, "row unit"],
    labels: Bool[np.ndarray, "row signal"],
    names: Sequence[str],
    problem: Int[np.ndarray, " row"],
    rivals: Sequence[str] = RIVALS,
) -> dict[str, Shaped[np.ndarray, "unit signal"]]:
    """``auroc``, ``auroc_given_rivals`` (with rivals held fixed; at least 0.5 means the same direction), and the
    ``rival`` that decides it. ``auroc_given_rivals`` is NaN for a signal that too few problems have, or lack."""
    marginal, *held = aurocs(x, labels, [labels[:, names.index(rival)] for rival in rivals])
    sign = np.where(marginal >= 0.5, 1.0, -1.0)
    apart, rival = smallest_over_rivals(
        0.5 + sign * (marginal - 0.5), [0.5 + sign * (area - 0.5) for area in held], names, rivals
    )
    return {"auroc": marginal, "auroc_given_rivals": np.where(_enough(labels, problem), apart, np.nan), "rival": rival}


def _enough(labels: Bool[np.ndarray, "row signal"], problem: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " signal"]:
    """Whether at least :data:`FEWEST_WITH_SIGNAL` problems have a column with each signal, and as many one without."""
    count = lambda rows: len(np.unique(problem[rows]))  # noqa: E731
    return np.array([min(count(one), count(~one)) >= FEWEST_WITH_SIGNAL for one in labels.T])


def thresholds(
    x: Float[np.ndarray, "row unit"],
    labels: Bool[np.ndarray, "row signal"],
    problem: Int[np.ndarray, " row"],
    above: Bool[np.ndarray, "unit signal"],
) -> dict[str, Shaped[np.ndarray, "unit signal"]]:
    """The best threshold on even-numbered problems, and its accuracy on odd-numbered ones with its interval. ``above``:
    whether the signal is said to lie above it, as the AUROC has it."""
    fit, held = problem % 2 == 0, problem % 2 == 1
    shape = (x.shape[1], labels.shape[1])
    threshold = np.empty(shape)
    accuracy = np.empty((*shape, 3))
    to_fit, to_score, labels_fit = x[fit], x[held], labels[fit]
    for unit in range(shape[0]):
        threshold[unit], _ = best_threshold(to_fit[:, unit], labels_fit, above[unit])
    for signal in range(shape[1]):
        right = ((to_score > threshold[:, signal]) == above[:, signal]) == labels[held, signal, None]
        accuracy[:, signal] = clustered_proportions(right, problem[held])[:3].T
    share = labels[held].mean(0)
    names = ("accuracy", "accuracy_low", "accuracy_high")
    return {
        "threshold": threshold,
        "above": above,
        "majority": np.broadcast_to(np.maximum(share, 1 - share), shape),
        **{name: accuracy[..., i] for i, name in enumerate(names)},
    }


def ranges(
    x: Float[np.ndarray, "row unit"], y: Float[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"]
) -> dict[str, Float[np.ndarray, "unit signal ..."]]:
    """Smallest and largest unit input (pre) and output (post) with and without each signal.

    ``gap`` is the distance between the two ranges of the input, positive where they do not overlap.
    ``flatter_state_range`` is the smaller of the two states' output ranges and ``output_gap`` the distance between
    them, both as shares of the whole range. ``relative_slope`` is how far the output moves per move of the input in the
    flatter state, as a share of the same ratio over both states: 1 for a linear unit, NaN where the input does not
    move.
    """
    shape = (x.shape[1], labels.shape[1], 2)
    found = {f"{part}_{end}": np.full(shape, np.nan) for part in ("pre", "post") for end in ("min", "max")}
    # Signals have few combinations: the ends of each are found once, and those of a signal among them.
    combinations, which = np.unique(labels, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    starts = np.flatnonzero(np.diff(which.ravel()[order], prepend=-1))
    for part, values in (("pre", x[order]), ("post", y[order])):
        for end, least in (("min", np.minimum), ("max", np.maximum)):
            ends = least.reduceat(values, starts, axis=0)  # [combination, unit]
            for signal, present in np.ndindex(shape[1:]):
                if (chosen := combinations[:, signal] == bool(present)).any():
                    found[f"{part}_{end}"][:, signal, present] = least.reduce(ends[chosen], axis=0)
    low, high = found["pre_min"], found["pre_max"]
    found["gap"] = np.maximum(low[..., 1] - high[..., 0], low[..., 0] - high[..., 1])
    least, most = found["post_min"], found["post_max"]
    whole, moved = most.max(-1) - least.min(-1), high.max(-1) - low.min(-1)
    flatter = (most - least).argmin(-1)[..., None]
    state, moving = (np.take_along_axis(part, flatter, -1)[..., 0] for part in (most - least, high - low))
    with np.errstate(divide="ignore", invalid="ignore"):
        found["flatter_state_range"] = state / whole
        found["output_gap"] = np.maximum(least[..., 1] - most[..., 0], least[..., 0] - most[..., 1]) / whole
        found["relative_slope"] = np.where(moving > 0, (state / moving) / (whole / moved), np.nan)
    return found


def ablations(
    clean: Bool[np.ndarray, " row"],
    ablated: Mapping[int, Bool[np.ndarray, " row"]],
    labels: Bool[np.ndarray, "row signal"],
    names: Sequence[str],
    problem: Int[np.ndarray, " row"],
    units: int,
    rivals: Sequence[str] = RIVALS,
) -> dict[str, Float[np.ndarray, "unit signal ..."]]:
    """Token accuracy with each unit ablated, with and without each signal, and the effect on the signal.

    ``effect`` is the drop in accuracy with the signal minus the drop without it; its interval takes problems as the
    independent units. ``effect_given_rivals`` is the smallest with a rival held fixed, positive in ``effect``'s
    direction.
    """
    shape = (units, len(names))
    accuracy = np.full((*shape, 2, 3), np.nan)
    effect = np.full((4, *shape), np.nan)  # value, low, high, apart
    if ablated:
        accuracy[[*ablated]] = _accuracies(np.stack([*ablated.values()], 1), labels, problem)
    for unit, right in ablated.items():
        drop = clean.astype(float) - right
        effect[:3, unit] = effect_interval(drop, labels, problem)
        sign = np.where(effect[0, unit] >= 0, 1.0, -1.0)
        held = [sign * stratified_difference(drop[:, None], labels, labels[:, names.index(r)]) for r in rivals]
        effect[3, unit] = smallest_over_rivals((sign * effect[0, unit])[None], held, names, rivals)[0][0]
    named = {name: accuracy[..., i] for i, name in enumerate(("ablated", "ablated_low", "ablated_high"))}
    return named | dict(zip(("effect", "effect_low", "effect_high", "effect_given_rivals"), effect, strict=True))


def whole_model(
    clean: Bool[np.ndarray, " row"], labels: Bool[np.ndarray, "row signal"], problem: Int[np.ndarray, " row"]
) -> dict[str, Shaped[np.ndarray, "signal 2"]]:
    """Token accuracy (``clean``, ``clean_low``, ``clean_high``) and number of columns ``n``, without and with each
    signal."""
    (accuracy,) = _accuracies(clean[:, None], labels, problem)
    found = {name: accuracy[..., i] for i, name in enumerate(("clean", "clean_low", "clean_high"))}
    return found | {"n": np.stack([(~labels).sum(0), labels.sum(0)], 1)}


def _accuracies(
    right: Bool[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"], problem: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "unit signal 2 3"]:
    """Share right and the ends of its interval, on the rows without and with each signal."""
    found = np.full((right.shape[1], labels.shape[1], 2, 3), np.nan)
    for signal in range(labels.shape[1]):
        for present in (0, 1):
            rows = labels[:, signal] == bool(present)
            if rows.any():
                found[:, signal, present] = clustered_proportions(right[rows], problem[rows])[:3].T
    return found


def effect_interval(
    drop: Float[np.ndarray, " row"], labels: Bool[np.ndarray, "row signal"], problem: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "3 signal"]:
    """Mean drop (of 0/1 outcomes, from -1 to 1) with minus without each signal, and the ends of its 95% interval.

    A jackknife that leaves out one problem at a time, with Student's t of the fewer of the problems with such columns.
    Where even fewer have the rarer outcome (a drop, or none), t is of their number, capped by what a kind of problem
    that the sample does not have at all could change (the rule of three, for both means together by Newcombe's hybrid).
    It is NaN where no column has, or lacks, the signal. With a drop in every row of 20 problems that have the signal,
    and in none of 20 others, the effect is 1 with the interval [0.62, 1.17]: nothing varies between problems, and a
    share of 1 - 0.025^(1/20) = 0.17 may be of a kind that was not drawn. The first mean may then be 0.34 lower (some
    rows gain), the second 0.17 lower or higher; such margins are added as squares.
    """
    groups = [_Group.of(drop, present, problem) for present in (labels, ~labels)]
    value = groups[0].mean - groups[1].mean
    error = jackknife_error(*groups)
    of_all, of_few = (_half_width(error, degrees) for degrees in degrees_of_freedom(*groups))
    of_few = np.where(error > 0, of_few, np.inf)
    low, high = (np.minimum(of_few, np.maximum(of_all, margin)) for margin in unseen_margin(*groups))
    return np.stack((value, np.maximum(value - low, -2.0), np.minimum(value + high, 2.0)))


@dataclass(frozen=True)
class _Group:
    """The columns with each signal, or those without it: their number and the sum of their drops by problem."""

    count: Float[np.ndarray, "problem signal"]
    lost: Float[np.ndarray, "problem signal"]

    @classmethod
    def of(
        cls, drop: Float[np.ndarray, " row"], present: Bool[np.ndarray, "row signal"], problem: Int[np.ndarray, " row"]
    ) -> _Group:
        n = int(problem.max()) + 1
        count = np.stack([np.bincount(problem, weights=column, minlength=n) for column in present.T], 1)
        return cls(
            count, np.stack([np.bincount(problem, weights=column * drop, minlength=n) for column in present.T], 1)
        )

    @property
    def mean(self) -> Float[np.ndarray, " signal"]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.lost.sum(0) / self.count.sum(0)

    @property
    def without_each(self) -> Float[np.ndarray, "problem signal"]:
        """The mean without one problem at a time."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.lost.sum(0) - self.lost) / (self.count.sum(0) - self.count)

    @property
    def problems(self) -> Int[np.ndarray, " signal"]:
        """How many problems have such columns."""
        return (self.count > 0).sum(0)

    @property
    def rarer(self) -> Int[np.ndarray, " signal"]:
        """How many problems have the rarer outcome: some column that lost, or one that did not."""
        return np.minimum((self.lost != 0).sum(0), (self.lost != self.count).sum(0))


def jackknife_error(present: _Group, absent: _Group) -> Float[np.ndarray, " signal"]:
    """The standard error of the difference of the means, from leaving out one problem at a time."""
    without_one = present.without_each - absent.without_each
    n, spread = len(without_one), np.nan_to_num(without_one - without_one.mean(0))
    return np.sqrt((n - 1) / n * (spread**2).sum(0))


def degrees_of_freedom(
    present: _Group, absent: _Group
) -> tuple[Float[np.ndarray, " signal"], Float[np.ndarray, " signal"]]:
    """Of Student's t: by the fewer of the problems with and without the signal, and by the fewest with an outcome."""
    fewest = np.minimum(present.problems, absent.problems).astype(float)
    rarer = np.minimum(present.rarer, absent.rarer)
    return fewest - 1, np.minimum(fewest, rarer) - 1


def unseen_margin(present: _Group, absent: _Group) -> tuple[Float[np.ndarray, " signal"], Float[np.ndarray, " signal"]]:
    """How much lower, and how much higher, the difference could be because of kinds of problems that were not drawn
    (:func:`interp.core.stats.unseen`): each mean may move towards an end of -1 to 1 by that share of the way."""
    squares = np.zeros((2, present.count.shape[1]))
    for sign, group in ((1.0, present), (-1.0, absent)):
        missed = unseen(np.maximum(group.problems, 1))
        for end, side in enumerate((-sign, sign)):
            squares[end] += (missed * np.where(side > 0, 1 - group.mean, 1 + group.mean)) ** 2
    low, high = np.sqrt(squares)
    return low, high


def _half_width(error: Float[np.ndarray, " signal"], df: Float[np.ndarray, " signal"]) -> Float[np.ndarray, " signal"]:
    return np.where(df > 0, stdtrit(np.maximum(df, 1), UPPER) * error, np.inf)


def agreement(
    x: Float[np.ndarray, "row unit"],
    labels: Bool[np.ndarray, "row signal"],
    names: Sequence[str],
    problem: Int[np.ndarray, " row"],
    threshold: Float[np.ndarray, "unit signal"],
    above: Bool[np.ndarray, "unit signal"],
    rivals: Sequence[str] = RIVALS,
) -> tuple[Float[np.ndarray, "unit signal rival 3"], Int[np.ndarray, "signal rival"]]:
    """How often the unit's state (at the signal's threshold) follows the signal where the signal and a rival differ.

    Returns that share with the ends of its interval, and the number of rows on which the two differ.
    """
    found = np.full((*threshold.shape, len(rivals), 3), np.nan)
    count = np.zeros((len(names), len(rivals)), dtype=int)
    for column in range(len(names)):
        state = (x > threshold[:, column]) == above[:, column]
        for index, rival in enumerate(rivals):
            differ = labels[:, column] != labels[:, names.index(rival)]
            count[column, index] = differ.sum()
            right = state[differ] == labels[differ, column, None]
            if differ.any():
                found[:, column, index] = clustered_proportions(right, problem[differ])[:3].T
    return found, count


def activation_by_sum(
    x: Float[np.ndarray, "row unit"], digit_sum: Int[np.ndarray, " row"], carry_in: Bool[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, "unit sum 2 4"], Int[np.ndarray, " sum"]]:
    """The smallest, mean and largest input and the count for every digit sum and carry in, and the digit sums."""
    sums = np.arange(int(digit_sum.max()) + 1)
    found = np.full((x.shape[1], len(sums), 2, 4), np.nan)
    for total in sums:
        for carry in (0, 1):
            rows = x[(digit_sum == total) & (carry_in == bool(carry))]
            found[:, total, carry, 3] = len(rows)
            if len(rows):
                found[:, total, carry, :3] = np.stack((rows.min(0), rows.mean(0), rows.max(0)), -1)
    return found, sums
