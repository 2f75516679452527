"""Find problems with small margins by gradient and dynamic programme. They are problems to try and not bounds.

In each class, the search takes the window whose box holds the smallest margin in float64. The margin's gradient there
turns the attention ratio into one number, which is linearised and minimised over the window's problems, column by
column.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.columns.column_classes import Classes, all_classes
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.ratio_attention import RatioAttention
from interp.proofs.numbers.activation_functions import ACTIVATIONS

STEPS = 3  # linearisations
_DIFFERENCE = 1e-3  # step of the finite difference, as a share of a box's radius


def hunt(adder: AdderWeights, attention: RatioAttention) -> tuple[Classes, Float[np.ndarray, " n"]]:
    """Every class with one problem that has a small margin (``witnesses``, [n, 1, 2]), and that margin in float64.

    Cost: one box per window and some hundred points, 1 to 3 s.
    """
    classes = all_classes(adder.layout)
    names = (classes.target, classes.token, classes.carry, classes.total)
    index = {key: row for row, key in enumerate(zip(*(x.tolist() for x in names), strict=True))}
    margins, witnesses = np.full(len(classes), np.inf), np.zeros((len(classes), 1, 2), dtype=np.int64)
    for target, tokens in enumerate(attention.tokens):
        for token in tokens:
            query = WindowBounds(attention, adder.layout, target, token)
            windows, digits, found = _hunt(adder, query)
            carry, total = query.class_of(windows)
            rows = [index[target, token, *key] for key in zip(carry.tolist(), total.tolist(), strict=True)]
            margins[rows], witnesses[rows, 0] = found, digits @ 10 ** np.arange(query.rule.digits)
    return replace(classes, witnesses=witnesses), margins


def _hunt(
    adder: AdderWeights, query: WindowBounds
) -> tuple[Windows, Int[np.ndarray, "n 2 digits"], Float[np.ndarray, " n"]]:
    """One window per class, the digits of one of its problems, and its margin."""
    windows = query.unsplit_windows()
    low, high = query.box(windows)
    center, radius = (low + high) / 2, (high - low) / 2
    gradient = gradient_at(adder, query, windows, center, radius)
    share = np.array([0.0, 0.5, 1.0])[:, None, None]
    corners = center - share * radius * np.sign(gradient)
    least = np.min([_margins(adder, query, windows, corner) for corner in corners], 0)
    carry, total = query.class_of(windows)
    order = np.lexsort((least, total, carry))
    first = np.flatnonzero(np.diff(carry[order] * 40 + total[order] + 20, prepend=-1))
    chosen = order[first]
    windows, gradient, radius = windows[chosen], gradient[chosen], radius[chosen]

    n = len(windows)
    weights = np.ones((n, len(query.weights)))
    written = np.broadcast_to((center[chosen] / len(query.weights))[:, None], (n, len(query.weights), center.shape[1]))
    best, digits = np.full(n, np.inf), np.zeros((n, 2, query.rule.digits), dtype=np.int64)
    for _ in range(STEPS):
        level = np.einsum("nhr,nr->nh", written, gradient)[..., None, None]
        along = np.einsum("hptr,nr->nhpt", query.coords, gradient) - level
        terms = np.einsum("hpt,nhpt,nh->npt", query.weights, along, 1 / weights)
        tried = least_problems(query, windows, terms)
        weights, written = attention_of(query, tried)
        point = written.sum(1)
        margins = _margins(adder, query, windows, point)
        better = margins < best
        best, digits = np.where(better, margins, best), np.where(better[:, None, None], tried, digits)
        gradient = gradient_at(adder, query, windows, point, radius)
    return windows, digits, best


def _margins(
    adder: AdderWeights, query: WindowBounds, windows: Windows, coords: Float[np.ndarray, "n r"]
) -> Float[np.ndarray, " n"]:
    y = adder.after_attention(query.token, adder.layout.queries[query.target], coords @ query.basis)
    return lead_of(logits_after(adder, y), query.answer(windows))


def gradient_at(
    adder: AdderWeights,
    query: WindowBounds,
    windows: Windows,
    at: Float[np.ndarray, "n r"],
    radius: Float[np.ndarray, "n r"],
) -> Float[np.ndarray, "n r"]:
    """The gradient of the margin at ``at``, by central differences."""
    found = np.empty_like(at)
    for k in range(at.shape[1]):
        step = np.zeros_like(at)
        step[:, k] = _DIFFERENCE * radius[:, k] + 1e-9
        ends = [_margins(adder, query, windows, at + sign * step) for sign in (1, -1)]
        found[:, k] = (ends[0] - ends[1]) / (2 * step[:, k])
    return found


def least_problems(
    query: WindowBounds, windows: Windows, terms: Float[np.ndarray, "n pos token"]
) -> Int[np.ndarray, "n operand column"]:
    """The digits of a problem in each window with the least sum of terms over the positions that the query sees.

    A dynamic programme over columns, with the carry as its state, for each window, whose window is fixed: 200 additions
    per column and window.
    """
    layout, rule, n = query.layout, query.rule, len(windows)
    rows = np.arange(n)
    pair, carry, out, written = rule.columns
    value = np.stack((np.zeros(n), np.full(n, np.inf)))  # [carry into the column, window]
    carries = windows.carries()
    choices = np.zeros((rule.digits, 2, n), dtype=np.int64)
    first_free = query.top + 1 if rule.all_end else rule.digits  # from here on any digits may stand
    for column in range(first_free):
        x, y = layout.operands[:, column]
        cost = terms[:, x, pair // 10] + terms[:, y, pair % 10]
        if query.shows(column):
            cost = cost + terms[:, layout.answers[column], written]
        cost = np.where(query.may_stand(column), cost + value[carry].T, np.inf)
        if windows.low <= column <= windows.high:
            fixed = (pair == windows.pairs[:, [column - windows.low]]) & (carry == carries[:, [column - windows.low]])
            cost = np.where(fixed, cost, np.inf)
        for c in (0, 1):
            choices[column, c] = np.where(out == c, cost, np.inf).argmin(1)
        value = np.stack([np.where(out[best] == c, cost[rows, best], np.inf) for c, best in enumerate(choices[column])])
    digits = np.zeros((n, 2, rule.digits), dtype=np.int64)
    state = np.array(rule.ends)[value[list(rule.ends)].argmin(0)]
    for column in reversed(range(first_free)):
        chosen = choices[column, state, rows]
        digits[:, 0, column], digits[:, 1, column] = pair[chosen] // 10, pair[chosen] % 10
        state = carry[chosen]
    for column in range(first_free, rule.digits):
        for operand, position in enumerate(layout.operands[:, column]):
            digits[:, operand, column] = terms[:, position, :10].argmin(1)
        if column <= windows.high:
            fixed = windows.pairs[:, column - windows.low]
            digits[:, 0, column], digits[:, 1, column] = fixed // 10, fixed % 10
    return digits


def attention_of(
    query: WindowBounds, digits: Int[np.ndarray, "n operand column"]
) -> tuple[Float[np.ndarray, "n head"], Float[np.ndarray, "n head r"]]:
    """D_h, and the coordinates of N_h / D_h, for problems of the query."""
    layout, position = query.layout, query.layout.queries[query.target]
    tokens = np.array([allowed[0] for allowed in layout.tokens[: position + 1]])[None].repeat(len(digits), 0)
    rule, carry = query.rule, np.zeros(len(digits), dtype=int)
    for column in range(rule.digits):
        total = rule.total(digits[:, 0, column], digits[:, 1, column])
        written, carry = rule.digit(total, carry), rule.out(total, carry)
        for operand in (0, 1):
            if layout.operands[operand, column] <= position:
                tokens[:, layout.operands[operand, column]] = digits[:, operand, column]
        if column < len(layout.answers) and layout.answers[column] <= position:
            tokens[:, layout.answers[column]] = written
    tokens[:, position] = query.token
    at = np.arange(position + 1)
    weights = query.weights[:, at, tokens]  # [head, n, pos]
    total = weights.sum(-1)
    written = np.einsum("hnp,hnpr->nhr", weights, query.coords[:, at, tokens]) / total.T[..., None]
    return total.T, written


def logits_after(adder: AdderWeights, y: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows vocab"]:
    """Logits in float64, from residual streams after the attention (with ``b_O`` added).

    It is the end of :mod:`models.run`'s forward once more. The search asks for it in numpy, hundreds of times for a few
    dozen points in the middle of a model, where the checks of a public call would take longer than the products.
    """
    return adder.normed(after_mlp(adder, y), adder.ln_final, adder.ln_final_b) @ adder.W_U + adder.b_U


def after_mlp(adder: AdderWeights, y: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
    """The residual stream in float64 after the MLP that reads y."""
    x, act = adder.normed(y, adder.ln2, adder.ln2_b), ACTIVATIONS[adder.model.config.act_fn].of
    if adder.W_gate is None:
        post = act(x @ adder.W_in + adder.b_in)
    else:
        post = act(x @ adder.W_gate) * (x @ adder.W_in) + adder.b_in
    return y + post @ adder.W_out + adder.b_out


def lead_of(logits: Float[np.ndarray, "*rows vocab"], answer: Int[np.ndarray, "*#rows"]) -> Float[np.ndarray, "*rows"]:
    """The answers' logits minus the best other ones; NaN where a logit is none or both are infinite."""
    answer = np.broadcast_to(answer, logits.shape[:-1])[..., None]
    right = np.take_along_axis(logits, answer, -1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, answer, -np.inf, -1)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return right - others.max(-1)
