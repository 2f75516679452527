"""Functions that find Position Coupling's headline numbers: small trained models, and Theorem 4.1's construction.

Rows in ``headlines.toml`` name these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from scipy.stats import linregress

import models
from interp.core.results import Provenance
from interp.core.stats import UPPER, mean_difference, mean_interval
from interp.probes.attention import attention_by_role
from interp.probes.key_sets import read_patterns
from interp.probes.score_result import GridPanel, GridPanels
from models.families.hand_built.position_coupling_addition import NAME
from models.numerals import shown
from studies.claims.rules import Ours, counted, share
from studies.claims.store import NotStored, Store, pick

SMALL, WIDE = "position-coupling-1l4h-small", "position-coupling-1l4h-s10x10-ids40-small"
TWO_LAYERS = "position-coupling-2l2h-small"


# ---- scores and stored grids


def size(store: Store, model: str, shape: list[int]) -> Ours:
    """The share of whole responses right at one size, from the score of an entry's chosen seed."""
    score = store.entry(model)["score"]
    cell = pick(score["shapes"], f"{model} was not scored at {tuple(shape)}.", shape=shape)
    what = f"problems of size {' x '.join(map(str, shape))}"
    return share(cell["correct"], cell["n"], what, score["rung"], score["seed"], model)


def _panel(store: Store, grids: str, label: str) -> GridPanel:
    for one in store.grids(grids).panels:
        if one.label == label:
            return one
    raise NotStored(f"{grids} has no panel {label!r}.")


def _complete(store: Store, figure: str) -> GridPanels:
    """All panels of a figure. Raises NotStored if some are missing."""
    panels = store.grids(f"position-coupling-{figure}-small")
    if panels.planned and len(panels.panels) < panels.planned:
        raise NotStored(f"{len(panels.panels)} of {panels.planned} panels of {figure} are stored.")
    return panels


def cell(store: Store, grids: str, panel: str, **size: int) -> Ours:
    """The share of whole responses right at one size of a stored grid."""
    (grid,) = _panel(store, grids, panel).grids
    rate = grid.rate(**size)
    of = ", ".join(f"{value} {axis.replace('_', ' ')}" for axis, value in size.items())
    return share(rate.correct, rate.n, f"problems of {of}", "sampled", grid.about["seed"], grid.model)


def farthest(store: Store, grids: str, panel: str, trained: int) -> Ours:
    """The largest square size up to which at least 90% are right, divided by the longest size in training."""
    (grid,) = _panel(store, grids, panel).grids
    one, other = (grid.table[axis].values.tolist() for axis in grid.accuracy.dims)
    square = {size: float(grid.accuracy.sel(dict.fromkeys(grid.accuracy.dims, size))) for size in one if size in other}
    far = max((size for size in square if all(square[k] >= 0.9 for k in square if k <= size)), default=0)
    remark = f"90% right up to {far}, trained up to {trained}"
    return Ours(far / trained, grid.provenance, model=grid.model, remark=remark)


def without_scratchpad(store: Store, grids: str, sizes: str, which: str) -> Ours:
    """The "best" or "least" mean exact match of three methods without scratchpad, "inside" or "outside" the training
    range."""
    panels = store.grids(grids)
    means = {
        one.label: inside if sizes == "inside" else outside
        for one, (inside, outside) in zip(panels.panels, panels.means(), strict=True)
        if "no scratchpad" in one.label
    }
    pick_one = {"best": max, "least": min}[which]
    best, source = pick_one(means, key=lambda label: means[label]), panels.provenance
    if sizes == "outside":
        source = replace(source, source="problems; mean over sizes outside the training range")
    return Ours(means[best], source, remark=f"the {which} of three: {best}")


def parity(store: Store, panel: str, bits: int) -> Ours:
    """The accuracy of the answer bit by greedy decoding; the remark has it given the true scratchpad, as in the paper's
    script."""
    (grid,) = _panel(store, "position-coupling-fig3-small", panel).grids
    cell = grid.table.sel(bits=bits)
    forced, greedy, n = int(cell["answer_forced"]), int(cell["answer"]), int(cell.n)
    ours = share(greedy, n, f"problems of {bits} bits, decoded greedily", "sampled", grid.about["seed"], grid.model)
    return replace(ours, remark="" if forced == greedy else f"given the true scratchpad {forced} of {n}")


def least_parity(store: Store, panels: list[str], bits: int) -> Ours:
    """The least :func:`parity` of several methods."""
    found = {panel: parity(store, panel, bits) for panel in panels}
    least = min(found, key=lambda panel: found[panel].value)
    said = ", ".join(f"{panel} {one.value:.1%}" for panel, one in found.items())
    return replace(found[least], remark=said)


def one_factor_short(store: Store) -> Ours:
    """The mean exact match of Position Coupling without scratchpad on products beyond its training range (3 digits) of
    which one factor has one digit; every seed's is in the remark."""
    one = _panel(store, "position-coupling-fig9-small", "Position Coupling, no scratchpad")
    shares = []
    for grid in one.grids:
        cells = grid.accuracy.stack(size=grid.accuracy.dims)
        digits = np.array(cells["size"].values.tolist())
        shares.append(float(cells.values[(digits.min(1) == 1) & (digits.max(1) > 3)].mean()))
    value, low, high = mean_interval(np.array(shares), (0.0, 1.0))
    remark = "by seed " + ", ".join(f"{value:.1%}" for value in shares)
    return Ours(value, Provenance(len(shares), None, f"seeds of {one.grids[0].model}"), low, high, remark=remark)


def longest_parity(store: Store, panel: str) -> Ours:
    """The most bits up to which at least 95% of answers are right at every length, by greedy decoding."""
    (grid,) = _panel(store, "position-coupling-fig3-small", panel).grids
    right = (grid.table["answer"] / grid.table["n"]).to_series() >= 0.95
    longest = int(right.index[right.cumprod().astype(bool)].max()) if right.iloc[0] else 0
    return Ours(float(longest), grid.provenance, model=grid.model, remark="95% right at every length up to it")


def _means(one: GridPanel) -> np.ndarray:
    """The mean exact match over all sizes, for each seed of a panel."""
    return np.array([float(grid.accuracy.mean()) for grid in one.grids])


#: Which panels' means are compared, as pairs (higher, lower) of n panels in the order of the figure. The least of these
#: differences counts; for the spread, the largest.
MEASURES: dict[str, Callable[[int], Iterable[tuple[int, int]]]] = {
    "least_rise": lambda n: ((i + 1, i) for i in range(n - 1)),
    "spread": lambda n: permutations(range(n), 2),
    "first_below_the_rest": lambda n: ((i, 0) for i in range(1, n)),
    "first_above_the_rest": lambda n: ((0, i) for i in range(1, n)),
    "fourth_above_third": lambda n: ((3, 2),),
    "second_above_third": lambda n: ((1, 2),),
    "four_heads_above_six_layers": lambda n: ((1, n - 1), (3, n - 1)),
}


def compared(store: Store, figure: str, measure: str) -> Ours:
    """One of :data:`MEASURES` with an interval over seeds; each difference has its own interval (95%).

    The interval is Newcombe's hybrid of the two means', which allows for seeds that are not among so few (see
    :func:`interp.core.stats.mean_difference`), so that three or four seeds of a panel are rarely sure of anything.

    That all differences are positive is confirmed if all intervals lie above zero, and refuted if one lies below. So
    the ends are the least of all lower and the least of all upper ends (for the spread, the largest).
    """
    panels = _complete(store, figure)
    means = [_means(one) for one in panels.panels]
    found = np.array([mean_difference(means[a], means[b], bounds=(0.0, 1.0)) for a, b in MEASURES[measure](len(means))])
    value, low, high = (found.max(0) if measure == "spread" else found.min(0)).tolist()
    said = zip(panels.panels, means, strict=True)
    remark = ", ".join(f"{one.label} {mean.mean():.3f} ({one.said_of('mean')})" for one, mean in said)
    return Ours(value, panels.provenance, low, high, remark=remark)


def trend_with_layers(store: Store) -> Ours:
    """The slope of the mean exact match with log2 of the number of layers, over all seeds of figure 10's decoders.

    Ordinary least squares with one intercept per number of heads; 95% interval of Student's t over seeds.
    """
    panels = _complete(store, "fig10")
    rows = [
        (layers, heads, value)
        for one in panels.panels
        for layers, heads in [[int(word) for word in one.label.split() if word.isdigit()]]
        for value in _means(one)
    ]
    depth, heads, y = (np.array(column, float) for column in zip(*rows, strict=True))
    design = np.column_stack([np.log2(depth), *(heads == each for each in np.unique(heads))])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    squares, free = float(((y - design @ beta) ** 2).sum()), len(y) - design.shape[1]
    error = float(np.sqrt(squares / free * np.linalg.inv(design.T @ design)[0, 0]))
    half = float(stdtrit(free, UPPER)) * error
    slope = float(beta[0])
    source = Provenance(len(y), None, f"seeds of {len(panels.panels)} decoders")
    return Ours(slope, source, slope - half, slope + half)


def padding_gain(store: Store) -> Ours:
    """The mean exact match with zero padding minus that without, with its interval; no seed is selected."""
    (without,) = store.grids("position-coupling-fig6-small").panels
    padded = _panel(store, "position-coupling-fig5-small", "S_A(4, 4)")
    GridPanel("of the same sizes", (*padded.grids, *without.grids))
    with_it, without_it = _means(padded), _means(without)
    value, low, high = mean_difference(with_it, without_it, bounds=(0.0, 1.0))
    remark = f"{with_it.mean():.3f} with, {without_it.mean():.3f} without ({without.said_of('mean')} each)"
    return Ours(value, store.grids("position-coupling-fig6-small").provenance, low, high, remark=remark)


def of_the_papers_size(store: Store, figure: str, panel: str, **size: int) -> Ours:
    """The median over seeds at one size, for models of the paper's size; without ``size``, the lowest of all sizes."""
    one = _panel(store, f"position-coupling-{figure}-paper", panel)
    value = float(one.median().sel({axis.replace("_", " "): at for axis, at in size.items()}).min())
    return Ours(value, Provenance(len(one.grids), None, f"seeds of {one.grids[0].model}"))


# ---- what heads attend to


def growth(store: Store, n: int = 32) -> Ours:
    """The slope, over two to six operands, of the tokens that all heads together attend to (above 0.01, without BOS).

    It is the steepest slope among the models that add in their training range.
    """
    operands = range(2, 7)
    fits = {}
    for name in (SMALL, WIDE, TWO_LAYERS):
        model = store.model(name)
        fits[name] = linregress(operands, [_attended(model, m, n) for m in operands])
    steepest = max(fits, key=lambda name: float(fits[name].slope))
    slope, digits = float(fits[steepest].slope), store.model(steepest).task.n_digits
    half = float(stdtrit(len(operands) - 2, UPPER) * fits[steepest].stderr)
    remark = "tokens an operand more: " + ", ".join(f"{float(fit.slope):.2f} {name}" for name, fit in fits.items())
    source = Provenance(n, 0, f"problems of T_A({digits}, m) for each m")
    return Ours(slope, source, slope - half, slope + half, model=steepest, remark=remark)


def _attended(model: Any, operands: int, n: int) -> float:
    """Tokens that all heads together attend to in one step, mean over ``n`` problems."""
    from interp.probes.coupled_keys import key_sets
    from interp.probes.key_attention import count_attended

    task = model.task.at(operands, model.task.n_digits)
    keys, problems = key_sets(task), task.sample(n, torch.Generator().manual_seed(operands))
    rows = read_patterns(model, task.encode(problems), keys.queries)
    return float(np.concatenate([count_attended(chunk, keys) for chunk in rows])[:, -1].mean())


def on_needed(store: Store) -> Ours:
    """The share of its attention that the least faithful head gives to the tokens of its constructed counterpart.

    It is the least among the models with one layer and four heads, as constructed, that add in their training range.
    """
    from interp.probes.key_attention import key_attention

    shares, source = {}, None
    for name, size in ((SMALL, (6, 5)), (WIDE, (10, 10))):
        model = store.model(name)
        result = key_attention(model, task=model.task.at(*size), n=32, untrained=[])
        shares[name] = result.table.weight.sel(role=["sum", "carry"]).max("role").values.ravel().tolist()
        source = result.provenance
    assert source is not None
    least = min(shares, key=lambda name: min(shares[name]))
    remark = "; ".join(f"{name} {', '.join(f'{x:.2f}' for x in heads)}" for name, heads in shares.items())
    return Ours(min(shares[least]), source, model=least, remark=remark)


def lines(store: Store, model: str, operands: int, digits: int) -> Ours:
    """Figure 7b: the share of operands that some head reads along their anti-diagonal."""
    return _lines(store.model(model), operands, digits)


def untrained_lines(store: Store, model: str, operands: int, digits: int, copies: int = 20) -> list[Ours]:
    """The same for freshly drawn copies."""
    return [_lines(models.build(model, seed=seed), operands, digits) for seed in range(copies)]


def _lines(model: Any, operands: int, digits: int, n: int = 64, of_columns: float = 0.75) -> Ours:
    """The share of operands with a line. An operand has a line in a head if, for the share ``of_columns`` of columns,
    no other digit of the operand has more weight than the column's own, in the mean over problems."""
    task = model.task.at(operands, digits)
    pattern = attention_by_role(model, task=task, n=n).pattern.values
    pattern = pattern.reshape(-1, *pattern.shape[2:])  # [head, target, key]
    own = [task.relative_roles(target)["own operand"] for target in range(len(task.query_positions))]
    columns = [target for target, keys in enumerate(own) if len(keys) == operands]
    hits = np.zeros((len(pattern), operands, len(columns)), dtype=bool)
    for i in range(operands):
        places = [own[target][i] for target in columns]
        for j, target in enumerate(columns):
            hits[:, i, j] = pattern[:, target, places].argmax(1) == j
    read = (hits.mean(2) >= of_columns).any(0)
    source = Provenance(n, 0, f"uniform problems of {operands} operands of {digits} digits")
    name = str(model.name_or_path)
    return Ours(float(read.mean()), source, model=name, remark=f"{int(read.sum())} of {operands} operands have a line")


# ---- Theorem 4.1: the construction, its size, its limits and its proofs


def _built(**options: Any) -> Any:
    return models.build(NAME, **options)


def stated_width(operands: int, digits: int) -> int:
    """The paper's sufficient embedding dimension, 2 ceil log2(n + 1 + floor log10 m) + 2 ceil log2(m + 1) + 19."""
    length = digits + 1 + math.floor(math.log10(operands))
    return 2 * math.ceil(math.log2(length)) + 2 * math.ceil(math.log2(operands + 1)) + 19


def wider(store: Store, operands: int, digits: int) -> Ours:
    """How many dimensions the construction needs beyond the stated ones."""
    width = _built(max_operands=operands, max_digits=digits).config.d_model
    stated = stated_width(operands, digits)
    source = f"the construction for {operands} operands of {digits} digits"
    return counted(1, source).with_value(width - stated, f"{width} dimensions, by the formula {stated}")


def certified_sizes(store: Store) -> Ours:
    """The share of sizes on which the construction is proved right on all problems, float32 rounding included."""
    rows = store.read("hand_built_certificates")["margins"]["float32"]
    margins = [margin for row in rows for margin in row]
    proved = sum(margin > 0 for margin in margins)
    source = Provenance(len(margins), None, "sizes, all problems of each", "certified with rounding")
    remark = f"the right token leads by at least {shown(min(margins), 3)}"
    return Ours(proved / len(margins), source, counts=(proved, len(margins)), model=NAME, remark=remark)


def right_on_large(store: Store) -> Ours:
    """The share of large problems that it answers rightly (at the largest sizes, a sample of positions)."""
    sizes = store.read("hand_built_grid")["sizes"]
    if not sizes:
        raise NotStored("No large size is stored.")
    # The same problems in two dtypes are one check: it counts as right if both are.
    distinct: dict[tuple[int, int], list[int]] = {}
    for size in sizes:
        correct, n_of_size = distinct.setdefault((size["operands"], size["digits"]), [size["problems"], 0])
        distinct[size["operands"], size["digits"]] = [min(correct, size["correct"]), max(n_of_size, size["problems"])]
    right, n = (sum(column) for column in zip(*distinct.values(), strict=True))
    longest, most = (max(size[key] for size in sizes) for key in ("digits", "operands"))
    what = f"problems of {len(distinct)} sizes, up to {longest:,} digits and {most:,} operands"
    return share(right, n, what, "sampled", 0, NAME)


def right_when(store: Store, max_operands: int, max_digits: int, **options: Any) -> Ours:
    """The share of 100 problems of its largest size that a variant of the construction answers rightly."""
    from interp.core.operand_problems import grid_problems
    from studies.position_coupling.hand_built import run_cell

    model = _built(max_operands=max_operands, max_digits=max_digits, **options)
    cell = run_cell(model, grid_problems(max_operands, max_digits, 100, 0))
    what = f"problems of {max_operands} operands of {max_digits} digits"
    return share(cell.correct, cell.problems, what, "sampled", 0)
