"""MicroAdder's other numbers: how right, how trained, and what the weights look like inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

import models
from interp.core.results import Provenance
from interp.papers.headlines.counts import Finder, certified, cosine, minutes, score
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.rules import AtLeast, AtMost, Digits, Near, Ours, Rule, SameRate, counted
from interp.papers.headlines.store import NotStored, Store
from interp.papers.microadder.headline_counts import HEADLINES as COUNTS
from interp.papers.microadder.headline_counts import MODEL, SHOWN, TRAINED, smallest_perfect

SAMPLE = 256
OTHER_SEED = "another seed's weights"
_line = partial(Headline, "microadder")
_count = partial(Headline, "microadder", kind="count")
_trained = partial(Headline, "microadder", kind="training")


# ---- what trained weights look like


def weights(name: str, measure: Any, what: str = "free numbers of the stored weights", remark: str = "") -> Finder:
    """A number from a stored model's free parameters."""

    def found(store: Store) -> Ours:
        numbers = store.numbers(name)
        n = sum(x.size for x in numbers.values())
        return Ours(float(measure(numbers)), Provenance(n, None, what, "exhaustive"), model=name, remark=remark)

    return found


def arc_degrees(w: dict[str, np.ndarray]) -> float:
    """From digit 0 to digit 9."""
    return abs(math.degrees(9 * float(w["arc_stride"])))


def weakest_key_row(w: dict[str, np.ndarray]) -> float:
    """Length of the shortest row of the key matrix over that of the longest."""
    rows = np.linalg.norm(w["W_qk"], axis=1)
    return rows.min() / rows.max()


def values_against_head(w: dict[str, np.ndarray]) -> float:
    """Cosine similarity of the value matrix and the head's, as flat vectors."""
    return cosine(w["W_v"].ravel().tolist(), w["W_head"].T.ravel().tolist())


def share_in_tokens(w: dict[str, np.ndarray]) -> float:
    """Share of the squared length of what attention writes that lies in the two token dimensions."""
    squares = w["out_B"] ** 2
    return squares[:2].sum() / squares.sum()


def least_alike_norms(w: dict[str, np.ndarray]) -> float:
    """Smallest cosine similarity among three norms' gains."""
    gains = [w[name].tolist() for name in ("norm1_w", "norm2_w", "norm_f_w")]
    return min(cosine(gains[i], gains[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def gain_ratio(w: dict[str, np.ndarray]) -> float:
    return w["norm_w"].max() / w["norm_w"].min()


def untrained(name: str, measure: Any, copies: int = 20) -> Callable[[Store], list[Ours]]:
    """The same number from freshly drawn models, seeds 0, 1, ...: with 20, none that passes is p < 0.05."""

    def found(store: Store) -> list[Ours]:
        values = []
        for seed in range(copies):
            drawn = models.build(name, seed=seed).weight_map.named_parameters()
            with np.errstate(all="ignore"):
                values.append(float(measure({key: p.detach().double().numpy() for key, p in drawn})))
        source = Provenance(copies, 0, f"untrained {name}")
        return [Ours(value, source, model=name) for value in values]

    return found


def measured(
    where: str, claim: str, printed: str, rule: Rule, name: str, measure: Any, *rest: Any, **more: Any
) -> Headline:
    """A row on the stored weights, with untrained models as its control."""
    control = untrained(name, measure)
    row = _line(where, claim, printed, rule, SHOWN, weights(name, measure), *rest, **more)
    return replace(row, control=control)


# ---- what it does


@cache
def _attention(folder: str) -> tuple[np.ndarray, float, int]:
    """Gaps of targets 1 to 9 (nats), largest spread over problems of any weight, weight of an own digit times 10^6."""
    from interp.core.problems import draw
    from interp.probes.attention import OWN, compute_attention_by_role, visible_roles

    model = models.load(folder)
    task = model.task
    sample = draw(task, None, SAMPLE, 0)
    queries = list(task.query_positions)
    _, cache_ = model.run_with_cache(sample.tokens, names_filter="blocks.0.attn.hook_pattern")
    pattern = cache_["pattern", 0][:, None, :, queries].detach().numpy()
    found = compute_attention_by_role(
        [pattern],
        [visible_roles(task.relative_roles(target), query) for target, query in enumerate(queries)],
        [role.label for role in task.target_roles],
        [role.label for role in task.roles][: sample.tokens.shape[1]],
        sample.provenance,
        permutations=1,
    )
    gaps = found.gap.values.ravel()
    kept = ~np.isnan(gaps)
    own = float(found.table.per_key.sel(role=OWN).values.ravel()[kept].mean())
    return gaps[kept], found.max_spread, round(own * 1e6)


def attention(what: str) -> Finder:
    """ "gap" in nats, "own" the weight of an operand digit of the own column, "spread" over problems."""

    def found(store: Store) -> Ours:
        gaps, spread, own = _attention(store.folder(MODEL))
        source = Provenance(SAMPLE, 0, "uniform problems")
        if what == "spread":
            return Ours(spread, source, model=MODEL, remark="largest standard deviation of a weight over problems")
        if what == "own":
            return Ours(own / 1e6, source, model=MODEL, remark="mean over s1 to s9")
        value = float(gaps.mean())
        return Ours(value, source, model=MODEL, remark=f"mean over s1 to s9; ln 10 is {math.log(10):.3f}")

    return found


def carry_out_switches(store: Store) -> Ours:
    """The share of columns whose carry out a threshold on a unit tells, for the worse unit."""
    from interp.probes.carry import carry_units

    result = carry_units(store.model(MODEL), n=SAMPLE)
    right = result.table.accuracy
    remark = f"the carry out of a digit's own column; its carry in {float(right.sel(signal='carry_in').max()):.1%}"
    return Ours(float(right.sel(signal="carry_out").min()), result.provenance, model=MODEL, remark=remark)


def follows_chained(store: Store) -> Ours:
    """The share of answers that follow a plausible wrong digit before them, as an adder chained through its outputs."""
    quantity = f"{MODEL}: answers of the chained algorithm after a plausible wrong digit"
    for fact in store.experiment("microadder-causal")["facts"]:
        if fact["quantity"] == quantity:
            source = Provenance(fact["n"], fact["seed"], "problems with a plausible wrong digit written before")
            counts = (round(fact["value"] * fact["n"]), fact["n"])
            return Ours(fact["value"], source, fact["low"], fact["high"], counts=counts, model=MODEL)
    raise NotStored(f"microadder-causal.json does not say how often {MODEL} follows its own outputs.")


# ---- training


def first_perfect(store: Store) -> Ours:
    step = store.entry(MODEL)["training"]["first_perfect_step"]
    return counted(1, f"the seed of {MODEL} that grokked; validated every 500 steps").with_value(step)


def _chosen_curve(store: Store) -> tuple[np.ndarray, np.ndarray]:
    from interp.probes.dynamics import grokking_curves

    curves = grokking_curves(store.folder(MODEL))
    exact = curves.table.exact.sel(seed=curves.chosen).dropna("step")
    return exact.step.values, exact.values


def steps_to_ninety(store: Store) -> Ours:
    """Steps from the last validation below 1% to the first at 90% or above."""
    step, exact = _chosen_curve(store)
    end = int((exact >= 0.9).argmax())
    start = int(np.nonzero(exact[:end] < 0.01)[0].max())
    return counted(1, f"the seed of {MODEL} that grokked").with_value(int(step[end] - step[start]))


def exact_at_20k(store: Store) -> Ours:
    step, exact = _chosen_curve(store)
    return counted(1, f"the seed of {MODEL} that grokked").with_value(float(exact[np.searchsorted(step, 20_000)]))


# ---- by hand


def gap_rows(store: Store) -> list[dict[str, Any]]:
    return [row for row in store.experiment("microadder-gap")["gap"] if row["rung"].startswith("certified")]


def fewest(*kinds: str) -> Finder:
    """The fewest numbers of a certified adder that was made so."""

    def found(store: Store) -> Ours:
        rows = [row for row in gap_rows(store) if row["made"] in kinds]
        if not rows:
            raise NotStored(f"No certified adder {' or '.join(kinds)} is stored.")
        least = min(rows, key=lambda row: row["numbers"])
        source = Provenance(10**20, None, "pairs of ten-digit numbers", least["rung"])
        return Ours(float(least["numbers"]), source, model=least["model"])

    return found


def overhead(trained: str) -> Finder:
    """Numbers of a trained model over those of the smallest certified one by hand."""

    def found(store: Store) -> Ours:
        by_hand = fewest("by hand")(store)
        own = next((row for row in gap_rows(store) if row["model"] == trained), None)
        if own is None:
            raise NotStored(f"No certificate of {trained} is stored.")
        return by_hand.with_value(own["numbers"] / by_hand.value, f"by hand: {by_hand.value:g} ({by_hand.model})")

    return found


GAP = "interp reproduce microadder:gap"
HEADLINES: tuple[Headline, ...] = (
    _line("abstract", "57 parameters answer all of AdderBoard.", "10,010/10,010", SameRate(),
          "interp score microadder-57", score(MODEL), "%", "100% accuracy (10,010/10,010 on the AdderBoard benchmark)"),
    _line("abstract", "57 parameters add all pairs of ten-digit numbers.", "100%", AtLeast(),
          "interp certify microadder-57", certified(MODEL), "%", "performs 10-digit addition with 100% accuracy",
          note="the paper's 100% is 10,010 sums; proved here on every pair, rounding included"),
    *(
        _line("4.1", f"{n} parameters add all pairs of ten-digit numbers.", "100%", AtLeast(),
              f"interp certify microadder-{n}", certified(f"microadder-{n}"), "%",
              "Each step was validated at 100% accuracy")
        for n in TRAINED
    ),
    _line("1", "One layer cannot chain carries through previous outputs.",
          "cannot chain carries through previous outputs", AtMost(0.05, "the share of answers that follow them"),
          "interp reproduce microadder:causal", follows_chained, "%",
          note="it is what the model does; section 6 says so itself"),
    _line("6", "57 parameters find autoregressive carry propagation.", "autoregressive carry propagation",
          AtLeast(0.95, "the share of answers that follow the digit before"), "interp reproduce microadder:causal",
          follows_chained, "%"),
    _count("2", "Attention depends on positions alone.", "route purely based on position", AtMost(1e-5), SHOWN,
          attention("spread")),
    _line("not in the paper; on its weights", "Score gap between a digit of the own column and of the previous one.",
          "2.296", Near(0.05), SHOWN, attention("gap"), "nats", "a score gap of ln 10\n  (mean 2.296;"),
    _line("not in the paper; on its weights", "Attention on each operand digit of the own column.", "0.435", Near(0.05),
          SHOWN, attention("own"), quote="about 0.435 on each of X_i, Y_i"),
    _line("2.7", "The two MLP units are threshold functions that detect the carry.", "the carry detection mechanism",
          AtLeast(0.99, "the share of columns that the worse unit tells"), SHOWN, carry_out_switches, "%"),
    measured("2.1", "Radius of the circle that the digits lie on, 57 parameters.", "11.07", Near(0.1), MODEL,
          lambda w: abs(float(w["arc_A"])), quote="of a circle with radius 11.07", note=OTHER_SEED),
    measured("2.1", "Arc that the ten digits span, 57 parameters.", "69.3", Near(0.1), MODEL, arc_degrees,
          "degrees", "on a 69.3° arc", note=f"{OTHER_SEED}; the same number as 7.7 degrees a digit"),
    measured("2.1", "A learned ellipse of digits comes out as a circle: ratio of its axes.", "1.005", Near(0.1),
          "microadder-100", lambda w: float(w["arc_A"] / w["arc_B"]), quote="the trained A/B ratio was 1.005",
          scale="100 parameters instead of 75"),
    measured("2.2", "Radius that learned positions come to, 74 parameters.", "3.56", Near(0.1), "microadder-74",
          lambda w: float(w["spiral_amp"]), quote="converging to amp=3.56"),
    measured("2.2", "Phase that learned positions come to, 74 parameters.", "-25.3", Near(0.1), "microadder-74",
          lambda w: math.degrees(float(w["spiral_phase"])), "degrees", "phase=-25.3°",
          note="keys absorb any turn of the circle"),
    measured("2.2", "Slope that learned positions come to, 74 parameters.", "0.17", Near(0.1), "microadder-74",
          lambda w: float(w["spiral_slope"]), quote="slope=0.17"),
    measured("2.2", "Offset that learned positions come to, 74 parameters.", "-2.55", Near(0.1), "microadder-74",
          lambda w: float(w["spiral_offset"]), quote="offset=-2.55"),
    measured("2.3", "Angle by which queries are turned against keys, 57 parameters.", "+28.0", Near(0.1), MODEL,
          lambda w: math.degrees(float(w["q_angle"])), "degrees", "trained to θ = +28.0° at 57p"),
    measured("2.3", "Angle by which queries are turned against keys, 67 parameters.", "-29.4", Near(0.1),
          "microadder-67", lambda w: math.degrees(float(w["q_angle"])), "degrees", "-29.4° at 67p"),
    measured("2.3", "At 74 parameters the fifth key dimension is dead.", "all near-zero weights", AtMost(0.05,
          "its length over the longest's"), "microadder-74", weakest_key_row,
          quote="dead 5th row (all near-zero weights)"),
    measured("2.4", "Untied, values and output are not alike.", "-0.30", Near(0.1), "microadder-100",
          values_against_head, quote="(cosine similarity = -0.30)",
          note="the paper does not say of which model"),
    measured("2.5", "Effective gain of attention's rank-1 output, 57 parameters.", "2.27", Near(0.1), MODEL,
          lambda w: float(w["out_A"] @ w["out_B"]), quote="an effective gain of 2.27"),
    measured("2.5", "Attention writes primarily to the token dimensions.", "dominated by tok dims 0,1", AtLeast(0.9,
          "their share of the squared length"), MODEL, share_in_tokens, "%"),
    measured("2.6", "Largest norm gain over the smallest, 57 parameters.", "4.7", Near(0.1), MODEL, gain_ratio,
          "times", "by 4.7× relative to other dims", note=OTHER_SEED),
    measured("2.6", "Largest norm gain over the smallest, 67 parameters.", "16", Near(0.1), "microadder-67",
          gain_ratio, "times", "amplified dim 1 by 16×",
          note="another seed's weights; the published checkpoint has other gains than these"),
    measured("2.6", "At d_model 5, three separate norms converge to identical gains.", "converge to identical values",
          AtLeast(0.95, "the smallest cosine similarity of two"), "microadder-100", least_alike_norms),
    _line("2.6", "At d_model 6 the three norms' gains differ: their similarities.", "0.45-0.67",
          quote="pairwise similarity 0.45-0.67", why="weights of the seeds of 170 parameters are not kept"),
    _trained("3.3", "Step at which 57 parameters grok.", "44K", Near(0.1), "interp train microadder-57 --seeds 128",
          first_perfect, "steps", "with grokking at step 44K"),
    _trained("3.1", "Exact match rises from 0% to 90% within a few thousand steps.", "in a few thousand steps",
          AtMost(9_999), SHOWN, steps_to_ninety, "steps"),
    _trained("3.1", "Exact match stays near zero up to step 20,000.", "exact match stays near 0%",
          AtMost(0.05, "at step 20,000"), SHOWN, exact_at_20k, "%",
          note="on validation problems half of which are rich in carries"),
    _trained("8", "Minutes to train 57 parameters, on a GPU there.", "5", AtMost(of="the whole run"),
             "interp train microadder-57 --seeds 128", minutes(MODEL), "minutes", "60K steps (~5 minutes)"),
    _line("6", "36 to 40 parameters set by hand are enough.", "36-40", AtMost(40, "the fewest that are proved"), GAP,
          fewest("by hand"), "parameters", "prove that 36-40 parameters suffice"),
    _line("7.4", "36 parameters are the floor of what can be set by hand.", "36",
          AtLeast(of="the fewest that are proved"), GAP, fewest("by hand"), "parameters",
          "The representational floor is ~36p", note="constants of a fixed scheme are not counted, here or there"),
    _trained("6", "Fewest parameters that training from scratch needs.", "57", Digits(),
             "interp reproduce microadder:below-57", smallest_perfect, "parameters", "Trained from scratch 57p",
             note="57 is the fewest with a certificate"),
    _line("6", "57 trained parameters over those set by hand.", "1.43", Near(0.05), GAP, overhead(MODEL), "times",
          "a 1.43× overhead"),
    _line("6", "67 trained parameters over those set by hand.", "1.68", Near(0.05), GAP, overhead("microadder-67"),
          "times", "1.68× at 67p"),
    _line("6", "74 trained parameters over those set by hand.", "1.85", Near(0.05), GAP, overhead("microadder-74"),
          "times", "1.85× at 74p"),
    *COUNTS,
)  # fmt: skip
