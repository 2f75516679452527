"""A proof that the hand-built transformer is right on *every* problem of a shape, without trying them.

Attention in this construction does not see digits: a score is a function of the two tokens' position ids and of
whether the key is BOS, and ids follow from where a token stands. So for one shape (m operands of n digits) every query
has *one* pattern, whatever the 10^(n m) problems are, and the proof goes in three steps, on the model's own weights:

1. **Separation.** Queries and keys read position codes, FULL_ONES and IS_BOS only; values read tokens only; heads write
   where neither the embeddings nor another head do; the hidden units read the heads' outputs and NUM only. Each is an
   equality on the weights.
2. **Attention.** For every response query the keys that tie with BOS are exactly those that the algorithm needs:

       head 1   a_i and b_{i-1} at the digit to be predicted        (none for b_0 and behind a last digit)
       head 2   a_i and b_{i-1} at the query's own place
       head 3   every token at the digit to be predicted            (m + i of them; none behind a last digit)
       head 4   the query's own token, and a_{i+1} at its place     (not in b_m)

   All other keys together weigh at most E against BOS' 1, and the tie is off by at most D; both are computed.
3. **Values.** What the MLP can then see is a finite set: two digits' sum, the previous two digits' sum and the carry
   into them (19 x 19 x 2, a superset of what occurs), how many keys heads 3 and 4 share BOS with. Each value is widened
   to the interval that E and D allow, and the logits' ranges over the intervals (the units are piecewise linear in
   three readings, so ranges are attained at ends and knots) leave the right token on top.

``arithmetic="real"`` is about the exact function that the stored weights define. ``arithmetic="rounded"`` widens every
interval by standard bounds for rounding in the model's dtype with unit roundoff u (n u / (1 - n u) for a sum of n
terms, in any order; exp within 4 units in the last place; no underflow that matters), and so is about the model as it
runs. Bounds are evaluated in float64 and moved outwards by ``SLACK``, far above float64's own error.

Precondition: position ids from the task. Postcondition: a certificate for a shape states that every next token of
every response of that shape, teacher-forced and hence greedily decoded, is right; operands with fewer digits are among
its problems. Cost: four tables [response, sequence], as one forward pass; no digits enter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.core.model import HookedModel
from interp.core.numerals import shown
from interp.core.operand_problems import grid_problems
from interp.proofs.coupled_values import NotSeparated, Perturbation, read_units, smallest_margin
from interp.proofs.watch import watched
from models.errors import UserError
from models.evaluation import margins
from models.hand_built.coupled_addition import HandBuiltOptions
from models.partial_forward import logits_at
from models.tasks.segments import to_number

SLACK = 1e-9
Arithmetic = Literal["real", "rounded"]


@dataclass(frozen=True)
class Counterexample:
    """A problem that the model gets wrong, and the first token of its response where it does."""

    problem: tuple[int, ...]
    target: str  # role of the token, such as "b2[0]", ">" or "EOS"
    expected: str
    predicted: str

    def __str__(self) -> str:
        shown = [_brief(number) for number in self.problem[:3]]
        more = f"+... ({len(self.problem)} operands)" if len(self.problem) > 3 else ""
        problem = "+".join(shown) + more
        return f"on {problem} the model writes {self.predicted!r} where {self.expected!r} is right ({self.target})"


def _brief(number: int) -> str:
    """A number's text, or the last digits of a long one (Python writes out 4,300 digits at most)."""
    return str(number) if number < 10**30 else f"...{number % 10**20:020d}"


@dataclass(frozen=True)
class CoupledAdditionCertificate:
    """What was proved for one shape, or why nothing was.

    Attributes:
        operands, digits: the shape; it has ``10^(operands digits)`` problems.
        rung: "certified" or "refuted" (a counterexample is at hand), else "open": not proved, and no problem found.
        arithmetic: "real" or "rounded"; see the module.
        margin: a lower bound of the right token's lead over all problems and positions (-inf: a step before failed).
        leakage: E, the largest weight of all wrong keys of a query together, BOS having 1.
        tie_error: D, the largest score difference between BOS and a key that should tie with it.
        queries: response positions that were checked.
        obstacle: the step that failed, in words.
    """

    operands: int
    digits: int
    rung: Literal["certified", "refuted", "open"]
    arithmetic: Arithmetic
    margin: float
    leakage: float
    tie_error: float
    queries: int
    obstacle: str | None = None
    counterexample: Counterexample | None = None

    def sentence(self) -> str:
        plural = lambda n, what: f"{n} {what}{'s' * (n > 1)}"  # noqa: E731
        shape = f"{plural(self.operands, 'operand')} of up to {plural(self.digits, 'digit')}"
        if self.rung == "certified":
            where = "in real arithmetic" if self.arithmetic == "real" else "with rounding"
            return (
                f"Certified {where}: right on all 10^{self.operands * self.digits} problems of {shape}, "
                f"every token by a logit margin of at least {shown(self.margin, 3)}."
            )
        if self.rung == "refuted":
            return f"Refuted for {shape}: {self.obstacle}; {self.counterexample}."
        return f"Open for {shape}: {self.obstacle}, and no problem that was tried came out wrong."


@dataclass(frozen=True)
class Reading:
    """What a head's scores and values are made of, read off the weights in float64."""

    level1: Float[np.ndarray, "query_id key_id"]  # score of a pair of level-1 ids
    level2: Float[np.ndarray, "query_id key_id"]
    bos: float  # score of BOS
    unit: float  # a flipped sign lowers a score by twice this


def certify_shape(
    model: HookedModel, operands: int, digits: int, arithmetic: Arithmetic = "real", search: int = 64
) -> CoupledAdditionCertificate:
    """Prove the hand-built transformer right on all problems of a shape, or find one that it gets wrong.

    Args:
        search: problems to try when the proof fails.

    Raises:
        UserError: another model, a shape beyond the model's, or an unknown arithmetic.
    """
    return certify_shapes(model, [(operands, digits)], arithmetic, search)[0]


def certify_shapes(
    model: HookedModel, shapes: list[tuple[int, int]], arithmetic: Arithmetic = "real", search: int = 64
) -> list[CoupledAdditionCertificate]:
    """:func:`certify` for several shapes of one model; the weights are read once."""
    if not isinstance(getattr(getattr(model, "weight_map", None), "options", None), HandBuiltOptions):
        raise UserError("This certificate is for the hand-built Position Coupling transformer alone.")
    if arithmetic not in ("real", "rounded"):
        raise UserError(f"The arithmetic is 'real' or 'rounded', not {arithmetic!r}.")
    weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
    try:
        readings = read_heads(weights, model.weight_map.dims, model.task.special)
        read_units(weights, model.weight_map.dims)
    except NotSeparated as error:
        return [_failed(model, m, n, arithmetic, str(error), search) for m, n in shapes]
    watch = watched(shapes, "proving", "shape")
    return [_certify_shape(model, weights, readings, m, n, arithmetic, search) for m, n in watch]


def _certify_shape(
    model: HookedModel, weights: Any, readings: list[Reading], m: int, n: int, arithmetic: Arithmetic, search: int
) -> CoupledAdditionCertificate:
    task = model.task.at(m, n)
    ids = task.position_ids(task.encode(torch.zeros(1, m, n, dtype=torch.long)))[0].numpy()
    needed = required_keys(m, task.length)
    leakage, tie = np.zeros(4), np.zeros(4)
    for head, reading in enumerate(readings):
        matched, leakage[head], tie[head] = attended(reading, ids, m, task.length)
        wrong = (matched != needed[head]).any(1)
        if wrong.any():
            step, place = divmod(int(wrong.argmax()), task.length + 1)
            names = {True: "attends to keys it should not", False: "misses a key"}
            obstacle = (
                f"head {head + 1} {names[bool((matched & ~needed[head]).any())]}, first at b_{step}, place {place}"
            )
            return _failed(model, m, n, arithmetic, obstacle, search, float(leakage.max()), float(tie.max()))
    size = Perturbation.of(model, len(ids), leakage, tie, arithmetic == "rounded", SLACK)
    margin = smallest_margin(weights, model.weight_map.dims, m, size)
    if not margin > 0:
        obstacle = "leakage and rounding may cost more than the margin"
        return _failed(model, m, n, arithmetic, obstacle, search, float(leakage.max()), float(tie.max()), float(margin))
    queries = (m + 1) * (task.length + 1)
    return CoupledAdditionCertificate(
        m, n, "certified", arithmetic, float(margin), float(leakage.max()), float(tie.max()), queries
    )


def read_heads(weights: dict[str, np.ndarray], dims: dict[str, slice], special: int) -> list[Reading]:
    """Step 1: the separation of positions and tokens, checked, and what each head's scores are.

    Raises:
        NotSeparated: weights that couple them.
    """
    tokens, levels = weights["embed.W_E"], weights["pos_embed.W_pos"]
    written = [dims[name] for name in ("PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS", "SUM", "ARROW", "EOS")]

    def need(holds: Any, what: str) -> None:
        if not holds:
            raise NotSeparated(what)

    need(all((tokens[:, w] == 0).all() and (levels[:, :, w] == 0).all() for w in written), "the input fills outputs")
    need((levels[:, 0] == 0).all(), "id 0 is not zero")
    ordinary = np.arange(len(tokens)) != special
    readings = []
    for head in range(4):
        W_Q, W_K = weights["blocks.0.attn.W_Q"][head], weights["blocks.0.attn.W_K"][head]
        W_V, W_O = weights["blocks.0.attn.W_V"][head], weights["blocks.0.attn.W_O"][head]
        base, key_tokens = tokens @ W_Q, tokens @ W_K
        need((base == base[0]).all(), f"queries of head {head + 1} depend on the token")
        need((key_tokens[ordinary] == 0).all(), f"keys of head {head + 1} depend on the digit")
        need((levels @ W_V == 0).all(), f"values of head {head + 1} depend on the position")
        q, k, bos = levels @ W_Q, levels @ W_K, key_tokens[special]
        apart = [q[0] @ k[1].T, q[1] @ k[0].T, base[0] @ k[0].T, base[0] @ k[1].T, q[0] @ bos, q[1] @ bos]
        need(all((product == 0).all() for product in apart), f"scores of head {head + 1} mix levels or BOS with codes")
        output = W_V @ W_O
        name = ("PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS")[head]
        source, factor = (("NUM", 3.0), ("NUM", 3.0), ("IS_BOS", 1.0), ("IS_BOS", 1.0))[head]
        expected = np.zeros_like(output)
        expected[dims[source], dims[name]] = factor
        need((output == expected).all(), f"head {head + 1} does not copy {factor:g} {source} to {name}")
        pair = np.abs(q[0][:, None] * k[0][None]).max()
        readings.append(Reading(q[0] @ k[0].T, q[1] @ k[1].T, float(base[0] @ bos), float(pair)))
    return readings


def required_keys(m: int, length: int) -> Bool[np.ndarray, "head query key"]:
    """Step 2's sets, by where tokens stand: query (i, p) is place p of b_i, place 0 the delimiter before it.

    Place p of a_i stands at i (l + 1) - p (p = 0: the delimiter behind it; that of a_m is b_0's), place p of b_i at
    (m + i) (l + 1) + p.
    """
    w = length + 1
    queries, n_pos = (m + 1) * w, (2 * m + 1) * w
    needed = np.zeros((4, queries, n_pos), dtype=bool)
    needed[:, :, 0] = True  # BOS
    i, p = np.divmod(np.arange(queries), w)
    row = np.arange(queries)

    def mark(head: int, chosen: np.ndarray, position: np.ndarray) -> None:
        needed[head, row[chosen], position[chosen]] = True

    a = lambda number, place: number * w - place  # noqa: E731
    b = lambda number, place: (m + number) * w + place  # noqa: E731
    inner, later = p < length, i >= 1
    mark(0, later & inner, a(i, p + 1))
    mark(0, later & inner, b(i - 1, p + 1))
    mark(1, later & ~((i == m) & (p == 0)), a(i, p))
    mark(1, later, b(i - 1, p))
    for number in range(m):
        mark(2, inner, a(number + 1, p + 1))
        mark(2, inner & (number < i), b(np.full_like(i, number), p + 1))
    mark(3, row >= 0, b(i, p))
    mark(3, (i < m) & ~((i == m - 1) & (p == 0)), a(i + 1, p))
    return needed


def attended(
    reading: Reading, ids: Int[np.ndarray, "pos level"], m: int, length: int
) -> tuple[Bool[np.ndarray, "query key"], float, float]:
    """(which keys tie with BOS, largest weight of all others together, largest difference of a tie)."""
    first = m * (length + 1)  # '='
    query, position = np.arange(first, len(ids)), np.arange(len(ids))
    score = reading.level1[ids[query, 0]][:, ids[:, 0]] + reading.level2[ids[query, 1]][:, ids[:, 1]]
    gap = np.where(position[None] <= query[:, None], score - reading.bos, -np.inf)
    gap[:, 0] = 0.0  # BOS itself
    matched = gap > -reading.unit  # a wrong key is two units below
    leak = np.where(matched, 0.0, np.exp(gap)).sum(1).max()
    tie = np.abs(gap, where=matched, out=np.zeros_like(gap)).max()
    # float64's own error in the scores and sums here, generously
    own = 1e-14 * (abs(reading.bos) + 1)
    return matched, float(leak * (1 + SLACK)), float(tie + own)


def find_counterexample(model: Any, operands: int, digits: int, n: int = 64, seed: int = 0) -> Counterexample | None:
    """The first of ``n`` problems (carry-heavy, extreme and random) whose response the model gets wrong."""
    task = model.task.at(operands, digits)
    problems = grid_problems(operands, digits, n, seed)
    rows = task.sequences(problems[:1]).mask[0].nonzero().flatten()
    for problem in problems.split(1):
        sequences = task.sequences(problem)
        logits, targets = logits_at(model, sequences.inputs, rows), sequences.targets[:, rows]
        wrong = (margins(logits, targets) <= 0)[0].nonzero().flatten().tolist()
        if wrong:
            numbers = tuple(to_number(number) for number in problem[0].tolist())
            at = wrong[0]
            predicted = task.token_text(logits[0, at].argmax())
            label = task.target_roles[at].label
            return Counterexample(numbers, label, task.token_text(targets[0, at]), predicted)
    return None


def _failed(
    model: HookedModel,
    m: int,
    n: int,
    arithmetic: Arithmetic,
    obstacle: str,
    search: int,
    leakage: float = float("nan"),
    tie: float = float("nan"),
    margin: float = float("-inf"),
) -> CoupledAdditionCertificate:
    found = find_counterexample(model, m, n, search) if search else None
    rung = "refuted" if found else "open"
    return CoupledAdditionCertificate(m, n, rung, arithmetic, margin, leakage, tie, 0, obstacle, found)
