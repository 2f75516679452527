"""Position Coupling's headline numbers: trained models, at the small size that two CPU cores train.

The construction of Theorem 4.1 is in :mod:`interp.papers.position_coupling.theorem_headlines`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch

from interp.core.results import Provenance
from interp.papers.headlines.counts import Finder, parameters
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.rules import AtLeast, AtMost, Digits, Inside, Ours, counted, share
from interp.papers.headlines.store import NotStored, Store
from interp.papers.position_coupling.theorem_headlines import HEADLINES as THEOREM
from interp.probes.heatmaps.panels import GridPanel
from models.tasks.multi_addition import MultiOperandAddition

SMALL, WIDE = "position-coupling-1l4h-small", "position-coupling-1l4h-s10x10-ids40-small"
TWO_LAYERS = "position-coupling-2l2h-small"
FIG_1 = "position-coupling-fig1-small"
GRID = ("position-coupling-grid-small", "1 layer, 4 heads")
MULTIPLIED = ("position-coupling-grid-multiplication-small", "2 layers, 4 heads")
SHOWN = "interp headlines --paper position-coupling"
SIZE = "one layer of four heads, d 128, trained for minutes"
FROM_4 = f"{SIZE} on up to 4 operands of 4 digits"
SMALL_SIZES = "models of d 128, trained for minutes on up to 4 or 10 operands"
OTHERS = "a small size of each, trained for minutes on few operands of few digits"
FROM_10 = f"{SIZE} on up to 10 operands of 10 digits"
FROM_5 = "two layers of four heads, d 128, trained for minutes on factors of up to 5 digits"
FROM_3 = "two layers of four heads, d 128, trained for minutes on factors of up to 3 digits"
PC = "Position Coupling, scratchpad"
BITS = f"{SIZE} on up to 20 bits"
GPU = "63 million parameters and 50,000 steps want a GPU"
NO_BASELINE = "no other method is right in its training range here, so a comparison with it shows nothing"
_line = partial(Headline, "position-coupling")
_count = partial(Headline, "position-coupling", kind="count")
_trained = partial(Headline, "position-coupling", kind="training")


def figure(name: str) -> str:
    return f"interp reproduce position-coupling:{name} --size small"


def on_gpu(name: str) -> str:
    return f"interp reproduce position-coupling:{name} --size paper"


# ---- scores of stored models


def at(name: str, *shape: int) -> Finder:
    """Whole responses right at one size of an entry's score, the chosen seed's."""

    def found(store: Store) -> Ours:
        score = store.entry(name)["score"]
        cell = next((cell for cell in score["shapes"] if cell["shape"] == list(shape)), None)
        if cell is None:
            raise NotStored(f"{name} was not scored at {shape}.")
        what = f"problems of size {' x '.join(map(str, shape))}"
        return share(cell["correct"], cell["n"], what, score["rung"], score["seed"], name)

    return found


# ---- stored grids


def panel(store: Store, what: str, label: str) -> GridPanel:
    panels = store.grids(what).panels
    for one in panels:
        if one.label == label:
            return one
    raise NotStored(f"{what} has no panel {label!r}.")


def cell(what: str, label: str, **size: int) -> Finder:
    """Whole responses right at one size of a stored grid."""

    def found(store: Store) -> Ours:
        (grid,) = panel(store, what, label).grids
        rate = grid.cell(**size)
        shown = ", ".join(f"{value} {axis.replace('_', ' ')}" for axis, value in size.items())
        return share(rate.correct, rate.n, f"problems of {shown}", "sampled", grid.seed, grid.model)

    return found


def farthest(what: str, label: str, trained: int) -> Finder:
    """The largest equal size of both kinds up to which at least 90% are right, over the longest trained."""

    def found(store: Store) -> Ours:
        (grid,) = panel(store, what, label).grids
        one, other = (grid.table[axis].values.tolist() for axis in grid.accuracy.dims)
        square = {
            size: float(grid.accuracy.sel(dict.fromkeys(grid.accuracy.dims, size))) for size in one if size in other
        }
        far = max((size for size in square if all(square[k] >= 0.9 for k in square if k <= size)), default=0)
        remark = f"90% right up to {far}, trained up to {trained}"
        return Ours(far / trained, grid.provenance, model=grid.model, remark=remark)

    return found


def best_outside(store: Store) -> Ours:
    """What the best of the methods without scratchpad reaches outside the training range."""
    panels = store.grids(FIG_1)
    outside = zip(panels.panels, panels.means(), strict=True)
    means = {one.label: mean for one, (_, mean) in outside if "no scratchpad" in one.label}
    source = replace(panels.provenance, source="problems; mean over sizes outside the training range")
    best = max(means, key=lambda label: means[label])
    return Ours(means[best], source, remark=f"the best of three: {best}")


def parity(label: str, bits: int) -> Finder:
    """The answer bit by greedy decoding; in the remark given the true scratchpad, as the paper's script measures it."""

    def found(store: Store) -> Ours:
        (grid,) = panel(store, "position-coupling-fig3-small", label).grids
        cell = grid.table.sel(bits=bits)
        forced, greedy, n = int(cell["answer_forced"]), int(cell["answer"]), int(cell.n)
        ours = share(greedy, n, f"problems of {bits} bits, decoded greedily", "sampled", grid.seed, grid.model)
        return replace(ours, remark="" if forced == greedy else f"given the true scratchpad {forced} of {n}")

    return found


def longest_parity(label: str) -> Finder:
    """The most bits up to which at least 95% of answers are right at every length, by greedy decoding."""

    def found(store: Store) -> Ours:
        (grid,) = panel(store, "position-coupling-fig3-small", label).grids
        right = (grid.table["answer"] / grid.table["n"]).to_series() >= 0.95
        longest = int(right.index[right.cumprod().astype(bool)].max()) if right.iloc[0] else 0
        return Ours(float(longest), grid.provenance, model=grid.model, remark="95% right at every length up to it")

    return found


def whole(one: GridPanel) -> float:
    """Mean exact match over all sizes of a panel."""
    return float(one.median().mean())


def compared(name: str, measure: Callable[[list[float]], float]) -> Finder:
    """A measure of the panels' means, in the order of the figure."""

    def found(store: Store) -> Ours:
        panels = store.grids(f"position-coupling-{name}-small")
        if panels.planned and len(panels.panels) < panels.planned:
            raise NotStored(f"{len(panels.panels)} of {panels.planned} panels of {name} are stored.")
        means = [whole(one) for one in panels.panels]
        shown = ", ".join(f"{one.label} {mean:.3f}" for one, mean in zip(panels.panels, means, strict=True))
        return Ours(measure(means), panels.provenance, remark=shown)

    return found


def least_rise(means: list[float]) -> float:
    return min(b - a for a, b in pairwise(means))


def spread(means: list[float]) -> float:
    return max(means) - min(means)


def below_the_rest(means: list[float]) -> float:
    """How far the first is below the lowest of the others."""
    return min(means[1:]) - means[0]


def padding_gain(store: Store) -> Ours:
    """Mean exact match with zero padding less that without."""
    with_padding = panel(store, FIG_1, PC)
    without = store.grids("position-coupling-fig6-small")
    return Ours(whole(with_padding) - whole(without.panels[0]), without.provenance)


def products_without_scratchpad(store: Store) -> Ours:
    """The best mean exact match in the training range of three methods without scratchpad."""
    panels = store.grids("position-coupling-fig9-small")
    inside = zip(panels.panels, panels.means(), strict=True)
    means = {one.label: mean for one, (mean, _) in inside if "no scratchpad" in one.label}
    best = max(means, key=lambda label: means[label])
    return Ours(means[best], panels.provenance, remark=f"the best of three: {best}")


def of_the_papers_size(name: str, label: str, **size: int) -> Finder:
    """The median over seeds at one size, of models of the paper's size."""

    def found(store: Store) -> Ours:
        one = panel(store, f"position-coupling-{name}-paper", label)
        value = float(one.median().sel({key.replace("_", " "): at for key, at in size.items()}))
        return Ours(value, Provenance(len(one.grids), None, f"seeds of {one.grids[0].model}"))

    return found


def lowest_of_the_papers_size(label: str) -> Finder:
    def found(store: Store) -> Ours:
        one = panel(store, "position-coupling-fig10-paper", label)
        return Ours(float(one.median().min()), Provenance(len(one.grids), None, f"seeds of {one.grids[0].model}"))

    return found


# ---- what heads attend to


def growth(store: Store) -> Ours:
    """Tokens that all heads together attend to (above 0.01, BOS apart), a slope over two to six operands.

    Of the models that add in their training range, the one in which it is steepest.
    """
    from interp.papers.position_coupling.growth import attended_growth

    found = {name: attended_growth(store.model(name), n=32) for name in (SMALL, WIDE, TWO_LAYERS)}
    rows = {name: result.slopes.sel(unit="any head", measure="keys") for name, result in found.items()}
    steepest = max(rows, key=lambda name: float(rows[name].slope))
    value, low, high = (float(rows[steepest][name]) for name in ("slope", "low", "high"))
    remark = "tokens an operand more: " + ", ".join(f"{float(row.slope):.2f} {name}" for name, row in rows.items())
    return Ours(value, found[steepest].provenance, low, high, model=steepest, remark=remark)


def on_needed(store: Store) -> Ours:
    """The share of its attention that the least faithful head gives to tokens that its constructed counterpart does.

    Of the models with the construction's one layer and four heads that add in their training range, the least.
    """
    from interp.papers.position_coupling.attention import needed_attention

    shares, source = {}, None
    for name, size in ((SMALL, (6, 5)), (WIDE, (10, 10))):
        model = store.model(name)
        result = needed_attention(model, task=model.task.at(*size), n=32, untrained=[])
        shares[name], source = result.to_dataframe().groupby("head")["share"].max().tolist(), result.provenance
    assert source is not None
    least = min(shares, key=lambda name: min(shares[name]))
    remark = "; ".join(f"{name} {', '.join(f'{x:.2f}' for x in heads)}" for name, heads in shares.items())
    return Ours(min(shares[least]), source, model=least, remark=remark)


def response(operands: int, digits: int) -> Finder:
    """Tokens that must be predicted one after the other."""

    def found(store: Store) -> Ours:
        task = MultiOperandAddition(operands, digits, max_operands=operands, max_digits=digits)
        mask = task.sequences(torch.zeros(1, operands, digits, dtype=torch.int64)).mask
        return counted(int(mask.sum()), "predicted tokens of one problem")

    return found


HEADLINES: tuple[Headline, ...] = (
    _line("abstract", "Sums generalise to two or three times the trained sizes, trained on 4 by 4.", "2–3",
          AtLeast(of="the largest size over the trained"), figure("fig1"), farthest(FIG_1, PC, 4), "times",
          "approximately 2–3× length generalization", FROM_4),
    _line("abstract", "Sums generalise to two or three times the trained sizes, trained on 10 by 10.", "2–3",
          AtLeast(of="the largest size over the trained"), figure("grid"), farthest(*GRID, 10), "times",
          "approximately 2–3× length generalization", FROM_10),
    _line("abstract", "Products generalise to two or three times the trained sizes.", "2–3",
          AtLeast(of="the largest size over the trained"), figure("grid-multiplication"), farthest(*MULTIPLIED, 5),
          "times", "approximately 2–3× length generalization", FROM_5),
    _line("1.1, Figure 1", "Median exact match at 30 operands of 30 digits, the paper's model.", "90.0%", AtLeast(),
          on_gpu("fig1"), of_the_papers_size("fig1", PC, operands=30, digits=30), "%",
          "median exact-match accuracy ≥ 90.0%", why=GPU),
    _line("1.1, Figure 1", "Exact match at 30 operands of 30 digits, a small model.", "90.0%", AtLeast(),
          figure("grid"), cell(*GRID, operands=30, digits=30), "%", "median exact-match accuracy ≥ 90.0%", FROM_10),
    _line("1.1, Figure 1", "With scratchpad, NoPE fails at 13 operands of 13 digits.", "completely fail to solve",
          why=NO_BASELINE),
    _line("1.1, Figure 1", "With scratchpad, NoPE is right in its training range.",
          "can only generalize to in-distribution", AtLeast(0.9, "exact match at 4 operands of 4 digits"),
          figure("fig1"), cell(FIG_1, "NoPE, scratchpad", operands=4, digits=4), "%", scale=FROM_4),
    _line("1.1, Figure 1", "With scratchpad, FIRE fails at 13 operands of 13 digits.", "completely fail to solve",
          why=NO_BASELINE),
    _line("1.1, Figure 1", "With scratchpad, FIRE is right in its training range.",
          "can only generalize to in-distribution", AtLeast(0.9, "exact match at 4 operands of 4 digits"),
          figure("fig1"), cell(FIG_1, "FIRE, scratchpad", operands=4, digits=4), "%", scale=FROM_4),
    _line("Figure 1", "Position Coupling with scratchpad generalises farther than any other method to sums.",
          "superior to all other methods", why=NO_BASELINE),
    _line("4.3, Figure 1", "Without scratchpads, exact match outside the training range is near zero.",
          "near-zero exact-match accuracy", AtMost(0.05, "the best of three methods"), figure("fig1"),
          best_outside, "%", scale=FROM_4),
    _count("4.3", "Tokens to predict in a row for 30 operands of 30 digits.", "1023", Digits(), SHOWN, response(30, 30),
          "tokens", "predict a total of 1023 consecutive tokens"),
    _line("1.1, Figure 9", "Median exact match at products of 20 by 15 digits, the paper's model.", "78.55%", AtLeast(),
          on_gpu("fig9"), of_the_papers_size("fig9", PC, first_digits=20, second_digits=15), "%", why=GPU),
    _line("1.1, Figure 9", "Exact match at products of 10 by 8 digits, a small model trained on 5 by 5.", "78.55%",
          AtLeast(), figure("grid-multiplication"), cell(*MULTIPLIED, first_digits=10, second_digits=8), "%",
          scale=FROM_5),
    _line("5.3, Figure 9", "Without scratchpad no method learns products, even in the training range.",
          "none of the models manage to generalize", AtMost(0.1, "the best of three methods"), figure("fig9"),
          products_without_scratchpad, "%", scale=FROM_3),
    _line("3.2, Figure 3", "Position Coupling with scratchpad gives the parity of 100 bits.", "100",
          AtLeast(0.95, "the share of right answers at 100 bits"), figure("fig3"),
          parity("Position Coupling, scratchpad", 100), "%", "queries up to 100 bits", BITS),
    _line("3.2, Figure 3", "Bits up to which Position Coupling with scratchpad gives the parity.", "100",
          AtLeast(of="the longest"), figure("fig3"), longest_parity("Position Coupling, scratchpad"), "bits",
          "queries up to 100 bits", BITS),
    *(
        _line("3.2, Figure 3", f"{kind} without scratchpad gives the parity of 20 bits, in its training range.",
              "generalize well to in-distribution", AtLeast(0.95, "the share of right answers at 20 bits"),
              figure("fig3"), parity(f"{kind}, no scratchpad", 20), "%", scale=BITS)
        for kind in ("NoPE", "RoPE", "FIRE")
    ),
    *(
        _line("3.2, Figure 3", f"{kind} with scratchpad gives the parity of 35 bits.", "35-bit",
              AtLeast(0.95, "the share of right answers at 35 bits"), figure("fig3"), parity(f"{kind}, scratchpad", 35),
              "%", "strong generalization up to 35-bit queries", BITS)
        for kind in ("NoPE", "FIRE")
    ),
    *(
        _line("3.2, Figure 3", f"{kind} without scratchpad guesses the parity of 30 bits.", "50%", Inside(),
              figure("fig3"), parity(f"{kind}, no scratchpad", 30), "%", "sharply drops to 50% accuracy", BITS)
        for kind in ("NoPE", "RoPE", "FIRE")
    ),
    _count("Table 1", "Parameters of the parity models.", "25M", Digits(), SHOWN, parameters("parity-coupling-6l8h"),
          "parameters", "Trainable Parameter Count 25M"),
    _count("Table 2", "Parameters of the addition models.", "63M", Digits(), SHOWN,
          parameters("position-coupling-6l8h"),
          "parameters", "Trainable Parameter Count 63M"),
    _count("Table 3", "Parameters of the multiplication models.", "63M", Digits(), SHOWN,
          parameters("multiplication-coupling-6l8h"), "parameters", "Trainable Parameter Count 63M"),
    _trained("Tables 2 and 3", "Hours of training on an RTX A6000.", "12", quote="12 hours", why=GPU),
    _line("Figure 7", "Each step attends to a fixed number of tokens, however many operands there are.",
          "each attention head focuses on at most a", AtMost(0.25, "the steepest growth an operand"), SHOWN, growth,
          "tokens", scale=SMALL_SIZES),
    _line("Figure 7", "Trained heads look where the construction looks.", "strikingly similar",
          AtLeast(0.75, "the least share of a head's attention on the constructed tokens"), SHOWN, on_needed, "%",
          "strikingly similar", SMALL_SIZES),
    _line("Figure 7b", "Without scratchpad a FIRE model looks at every operand at once.", "eleven anti-diagonal lines",
          why="it needs a FIRE model without scratchpad that is right where it was trained"),
    _line("Figure 5", "Longer training lengths generalise farther.", "improves as the training data",
          AtLeast(0, "the least gain from one length to the next"), figure("fig5"), compared("fig5", least_rise), "%",
          scale=OTHERS),
    _line("Figure 6", "Without zero padding it generalises moderately worse.", "moderate degradation",
          AtLeast(0, "what padding gains"), figure("fig6"), padding_gain, "%", scale=FROM_4),
    _line("4.3, Figure 10", "Exact match of two layers of two heads at any size.", "90.0%", AtLeast(of="at 8 x 8"),
          "interp train position-coupling-2l2h-small", at("position-coupling-2l2h-small", 8, 8), "%",
          "achieve at least 90.0% exact-match", OTHERS),
    _line("4.3, Figure 10", "Exact match of six layers of eight heads at any size.", "67.8%", AtLeast(),
          on_gpu("fig10"), lowest_of_the_papers_size("6 layers, 8 heads"), "%", "achieve 67.8% or above", why=GPU),
    _line("4.3, Figure 10", "One layer of two heads fails at longer digits, alone of twelve.",
          "1-layer 2-head models perform the worst", AtLeast(0, "what the others have at least above it"),
          figure("fig10"), compared("fig10", below_the_rest), "%", scale=OTHERS),
    _line("Figure 11", "Wider heads are crucial in shallow models.", "larger dimension per head is crucial",
          AtLeast(0, "what eight heads gain by width"), figure("fig11"), compared("fig11", lambda m: m[3] - m[2]), "%",
          scale=OTHERS),
    _line("Figure 12", "Wider embeddings generalise farther.", "larger embedding",
          AtLeast(0, "the least gain from one width to the next"), figure("fig12"), compared("fig12", least_rise), "%",
          scale=OTHERS),
    _line("Figure 13", "The size of the training set does not matter.", "the training set size has no",
          AtMost(0.1, "the spread over five sizes"), figure("fig13"), compared("fig13", spread), "%", scale=OTHERS),
    _line("Figure 14", "The format used is the best of six.", "our baseline format",
          AtLeast(0, "the difference to the best of the others"), figure("fig14"),
          compared("fig14", lambda means: means[0] - max(means[1:])), "%", scale=OTHERS,
          note="the paper draws the six without a number"),
    *THEOREM,
)  # fmt: skip
