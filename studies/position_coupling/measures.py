"""What the claims of Position Coupling's paper measure: small trained models, and Theorem 4.1's construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from scipy.stats import linregress

import models
from interp.compare.construction.key_attention import count_attended, key_attention
from interp.compare.construction.needed_keys import key_sets
from interp.core.results import Provenance
from interp.core.runs import read_patterns
from interp.core.stats import UPPER, mean_interval
from interp.probes.attention_by_role import attention_by_role
from interp.proofs.hand_built.shape_problems import grid_problems
from models.families.hand_built.position_coupling_addition import NAME
from studies.claims.ours import NotStored, Ours, difference, least, measure, number, share
from studies.position_coupling.grid_panels import GridPanel, GridPanels

# ---- stored grids


@measure
def grids(stored: Mapping[str, Any]) -> GridPanels:
    """All panels of a stored figure. Raises NotStored if some are missing."""
    panels = GridPanels.from_dict(stored)
    if panels.planned and len(panels.panels) < panels.planned:
        raise NotStored(f"{len(panels.panels)} of {panels.planned} panels of {panels.title} are stored.")
    return panels


@measure
def panel(stored: Mapping[str, Any], label: str) -> GridPanel:
    """One of them."""
    found = [one for one in grids(stored).panels if one.label == label]
    if not found:
        raise NotStored(f"The figure has no panel {label!r}.")
    return found[0]


@measure
def farthest(panel: GridPanel, trained: int) -> Ours:
    """The largest square size up to which at least 90% are right, divided by the longest size in training."""
    (grid,) = panel.grids
    one, other = (grid.table[axis].values.tolist() for axis in grid.accuracy.dims)
    square = {size: float(grid.accuracy.sel(dict.fromkeys(grid.accuracy.dims, size))) for size in one if size in other}
    far = max((size for size in square if all(square[k] >= 0.9 for k in square if k <= size)), default=0)
    remark = f"90% right up to {far}, trained up to {trained}"
    return Ours(far / trained, grid.provenance, model=grid.model, remark=remark)


@measure
def lowest_median(panel: GridPanel, **size: int) -> Ours:
    """The median over seeds at one size; without ``size``, the lowest of all sizes."""
    value = float(panel.median().sel({axis.replace("_", " "): at for axis, at in size.items()}).min())
    return Ours(value, Provenance(len(panel.grids), None, f"seeds of {panel.grids[0].model}"))


@measure
def without_scratchpad(panels: GridPanels, sizes: str, which: str) -> Ours:
    """The "best" or "least" mean exact match of three methods without scratchpad, "inside" or "outside" the training
    range."""
    means = {
        one.label: inside if sizes == "inside" else outside
        for one, (inside, outside) in zip(panels.panels, panels.means(), strict=True)
        if "no scratchpad" in one.label
    }
    best, source = {"best": max, "least": min}[which](means, key=lambda label: means[label]), panels.provenance
    if sizes == "outside":
        source = replace(source, source="problems; mean over sizes outside the training range")
    return Ours(means[best], source, remark=f"the {which} of three: {best}")


@measure
def parity(panel: GridPanel, bits: int) -> Ours:
    """The accuracy of the answer bit by greedy decoding; the remark has it given the true scratchpad, as in the paper's
    script."""
    (grid,) = panel.grids
    cell = grid.table.sel(bits=bits)
    forced, greedy, n = int(cell["answer_forced"]), int(cell["answer"]), int(cell.n)
    ours = share(greedy, n, f"problems of {bits} bits, decoded greedily", "sampled", grid.about["seed"], grid.model)
    return replace(ours, remark="" if forced == greedy else f"given the true scratchpad {forced} of {n}")


@measure
def longest_parity(panel: GridPanel) -> Ours:
    """The most bits up to which at least 95% of answers are right at every length, by greedy decoding."""
    (grid,) = panel.grids
    right = (grid.table["answer"] / grid.table["n"]).to_series() >= 0.95
    longest = int(right.index[right.cumprod().astype(bool)].max()) if right.iloc[0] else 0
    return Ours(float(longest), grid.provenance, model=grid.model, remark="95% right at every length up to it")


@measure
def one_factor_short(panel: GridPanel) -> Ours:
    """The mean exact match on products beyond the training range (3 digits) of which one factor has one digit."""
    shares = []
    for grid in panel.grids:
        cells = grid.accuracy.stack(size=grid.accuracy.dims)
        digits = np.array(cells["size"].values.tolist())
        shares.append(float(cells.values[(digits.min(1) == 1) & (digits.max(1) > 3)].mean()))
    value, low, high = mean_interval(np.array(shares), (0.0, 1.0))
    remark = "by seed " + ", ".join(f"{value:.1%}" for value in shares)
    return Ours(value, Provenance(len(shares), None, f"seeds of {panel.grids[0].model}"), low, high, remark=remark)


@measure
def means(panel: GridPanel) -> list[float]:
    """The mean exact match over all sizes, for each seed of a panel."""
    return [float(grid.accuracy.mean()) for grid in panel.grids]


#: Which panels' means are compared, as pairs (higher, lower) of n panels in the order of the figure. The least of these
#: differences counts; for the spread, the largest.
PAIRS: dict[str, Callable[[int], Iterable[tuple[int, int]]]] = {
    "least_rise": lambda n: ((i + 1, i) for i in range(n - 1)),
    "spread": lambda n: permutations(range(n), 2),
    "first_below_the_rest": lambda n: ((i, 0) for i in range(1, n)),
    "first_above_the_rest": lambda n: ((0, i) for i in range(1, n)),
    "fourth_above_third": lambda n: ((3, 2),),
    "second_above_third": lambda n: ((1, 2),),
    "four_heads_above_six_layers": lambda n: ((1, n - 1), (3, n - 1)),
}


@measure
def compared(panels: GridPanels, pairs: str) -> Ours:
    """The least difference of some of :data:`PAIRS` with an interval over seeds; each difference has its own (95%).

    The interval is Newcombe's hybrid of the two means', which allows for seeds that are not among so few (see
    :func:`studies.claims.differences.mean_difference`), so that three or four seeds of a panel are rarely sure of
    anything.
    """
    of = [means(one) for one in panels.panels]
    found = [difference(of[a], of[b], "problems", bounds=(0.0, 1.0)) for a, b in PAIRS[pairs](len(of))]
    said = zip(panels.panels, of, strict=True)
    remark = ", ".join(f"{one.label} {np.mean(mean):.3f} ({one.said_of('mean')})" for one, mean in said)
    return replace(least(found, most=pairs == "spread"), provenance=panels.provenance, remark=remark)


@measure
def trend_with_layers(panels: GridPanels) -> Ours:
    """The slope of the mean exact match with log2 of the number of layers, over all seeds of figure 10's decoders.

    Ordinary least squares with one intercept per number of heads; 95% interval of Student's t over seeds.
    """
    rows = [
        (layers, heads, value)
        for one in panels.panels
        for layers, heads in [[int(word) for word in one.label.split() if word.isdigit()]]
        for value in means(one)
    ]
    depth, heads, y = (np.array(column, float) for column in zip(*rows, strict=True))
    design = np.column_stack([np.log2(depth), *(heads == each for each in np.unique(heads))])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    squares, free = float(((y - design @ beta) ** 2).sum()), len(y) - design.shape[1]
    error = float(np.sqrt(squares / free * np.linalg.inv(design.T @ design)[0, 0]))
    half, slope = float(stdtrit(free, UPPER)) * error, float(beta[0])
    source = Provenance(len(y), None, f"seeds of {len(panels.panels)} decoders")
    return Ours(slope, source, slope - half, slope + half)


# ---- what heads attend to


@measure
def growth(adders: Sequence[Any], n: int = 32) -> Ours:
    """The slope, over two to six operands, of the tokens that all heads together attend to (above 0.01, without BOS).

    It is the steepest slope among the models.
    """
    operands = range(2, 7)
    fits = [linregress(operands, [_attended(model, m, n) for m in operands]) for model in adders]
    steepest, model = max(zip(fits, adders, strict=True), key=lambda pair: float(pair[0].slope))
    slope, half = float(steepest.slope), float(stdtrit(len(operands) - 2, UPPER) * steepest.stderr)
    slopes = [f"{float(fit.slope):.2f} {one.name_or_path}" for fit, one in zip(fits, adders, strict=True)]
    source = Provenance(n, 0, f"problems of T_A({model.task.n_digits}, m) for each m")
    remark = f"tokens an operand more: {', '.join(slopes)}"
    return Ours(slope, source, slope - half, slope + half, model=str(model.name_or_path), remark=remark)


def _attended(model: Any, operands: int, n: int) -> float:
    """Tokens that all heads together attend to in one step, mean over ``n`` problems."""
    task = model.task.at(operands, model.task.n_digits)
    keys, problems = key_sets(task), task.sample(n, torch.Generator().manual_seed(operands))
    rows = read_patterns(model, task.encode(problems), keys.queries)
    return float(np.concatenate([count_attended(chunk, keys) for chunk in rows])[:, -1].mean())


@measure
def on_needed(model: Any, operands: int, digits: int) -> Ours:
    """The share of its attention that the least faithful head gives to the tokens of its constructed counterpart."""
    result = key_attention(model, task=model.task.at(operands, digits), n=32, untrained=0)
    heads = result.table.weight.sel(role=["sum", "carry"]).max("role").values.ravel().tolist()
    remark = f"by head {', '.join(f'{x:.2f}' for x in heads)}"
    return Ours(min(heads), result.provenance, model=str(model.name_or_path), remark=remark)


@measure
def lines(model: Any, operands: int, digits: int, n: int = 64, of_columns: float = 0.75) -> Ours:
    """Figure 7b: the share of operands that some head reads along their anti-diagonal. An operand has a line in a head
    if, for the share ``of_columns`` of columns, no other digit of the operand has more weight than the column's own, in
    the mean over problems."""
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


# ---- Theorem 4.1: the construction, its size and its limits


def stated_width(operands: int, digits: int) -> int:
    """The paper's sufficient embedding dimension, 2 ceil log2(n + 1 + floor log10 m) + 2 ceil log2(m + 1) + 19."""
    length = digits + 1 + math.floor(math.log10(operands))
    return 2 * math.ceil(math.log2(length)) + 2 * math.ceil(math.log2(operands + 1)) + 19


@measure
def wider(operands: int, digits: int) -> Ours:
    """How many dimensions the construction needs beyond the stated ones."""
    width = models.build(NAME, max_operands=operands, max_digits=digits).config.d_model
    stated = stated_width(operands, digits)
    what = f"the construction for {operands} operands of {digits} digits"
    return number(width - stated, 1, what, remark=f"{width} dimensions, by the formula {stated}")


@measure
def right_on_large(sizes: Sequence[Mapping[str, Any]]) -> Ours:
    """The share of large problems that it answers rightly (at the largest sizes, a sample of positions)."""
    # The same problems in two dtypes are one check: it counts as right if both are.
    distinct: dict[tuple[int, int], list[int]] = {}
    for size in sizes:
        correct, n_of_size = distinct.setdefault((size["operands"], size["digits"]), [size["problems"], 0])
        distinct[size["operands"], size["digits"]] = [min(correct, size["correct"]), max(n_of_size, size["problems"])]
    right, n = (sum(column) for column in zip(*distinct.values(), strict=True))
    longest, most = (max(size[key] for size in sizes) for key in ("digits", "operands"))
    what = f"problems of {len(distinct)} sizes, up to {longest:,} digits and {most:,} operands"
    return share(right, n, what, "sampled", 0, NAME)


@measure
def right_when(max_operands: int, max_digits: int, **options: Any) -> Ours:
    """The share of 100 problems of its largest size that a variant of the construction answers rightly."""
    from studies.position_coupling.hand_built import run_cell

    model = models.build(NAME, max_operands=max_operands, max_digits=max_digits, **options)
    cell = run_cell(model, grid_problems(max_operands, max_digits, 100, 0))
    what = f"problems of {max_operands} operands of {max_digits} digits"
    return share(cell.correct, cell.problems, what, "sampled", 0)
