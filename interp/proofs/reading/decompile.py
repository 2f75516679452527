"""From weights to a program: what a certified one-layer adder or subtractor computes, in ten lines, proved equal.

This is read off the weights, at the query of answer digit i, whose *own* token is the digit written before:

* attention reads the sum of the own column's digits, ``now``, and the sum of the previous column's, ``before``, with
  about a tenth of the weight; what it writes along one direction is a *level*;
* given the own token w, ``before`` is w or w - 1 without a carry into the column, w + 10 or w + 9 with one, so that
  ``now + (before - own) / 10`` is within 0.1 of ``now + carry``;
* for each own token the MLP has thresholds along the level: it has passed k of them where ``now + carry`` is k, and
  writes k's last digit.

In a subtractor, now and before are differences, and the carry is minus a borrow: ``before`` is w or w + 1 without a
borrow into the column, w - 10 or w - 9 with one, so that the same level is within 0.1 of ``now - borrow``.

The proof has three parts. (1) The model answers a + b (or a - b) on all pairs, by its certificate. (2) So does the
program: its step, executed on every state that a column can be in (own token, both digit sums, carry), gives the right
digit, and with it the next own token; the columns follow by induction. So program and model are equal. (3) The program
is how the model does it: for every column and own token, the levels that problems with ``now + carry = k`` can reach,
by the certifier's own bounds of attention, lie below those with k + 1, with a gap; the least gap is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Summary, probe
from interp.core.results import Provenance, Result
from interp.core.views import Grid, Picture
from interp.proofs.columns.adder_weights import AdderWeights, one_layer_adder, read_adder
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.column_rule import SUMS, ColumnRule, over_all_pairs
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.ratio_attention import FAR, NO_SPREAD, RatioAttention, read_ratio_attention
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from interp.proofs.numbers.rounding_errors import OWN_OF_RADII
from interp.proofs.verdict.verdict import IN_WORDS, ArithmeticName
from models.errors import UserError
from models.number_format import counted, shown
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

BITS_OF_A_NUMBER, BITS_OF_A_CHARACTER = 32, 8


#: The program, as it is both printed and executed by the proof.
PROGRAM = """\
def step(own, now, before):
    level = now + (before - own) / 10
    return sum(level > k - 0.55 for k in range(1, 20)) % 10

def add(a, b):
    own, answer = 0, []
    sums = [x + y for x, y in zip(a, b)]
    for now, before in zip(sums + [0], [0] + sums):
        own = step(own, now, before)
        answer.append(own)
    return answer
"""
#: The same for ``a - b``.
SUBTRACTION = """\
def step(own, now, before):
    level = now + (before - own) / 10
    return sum(level > k - 0.45 for k in range(-9, 10)) % 10

def subtract(a, b):
    own, answer = 0, []
    differences = [x - y for x, y in zip(a, b)]
    for now, before in zip(differences, [0] + differences):
        own = step(own, now, before)
        answer.append(own)
    return answer
"""
#: The same for all pairs: the last step writes a 9 where a borrow is left, and the answer shows a 1.
SIGNED = SUBTRACTION.replace("zip(differences,", "zip(differences + [0],").replace(
    "return answer", "return answer[:-1] + [int(answer[-1] > 0)]"
)


@dataclass(frozen=True, eq=False)
class Decompiled(Result):
    """A certified adder as a program.

    Attributes:
        program: its source; ``add(a, b)`` takes two lists of digits, units first, and gives one digit more than they
            have; ``subtract(a, b)`` gives as many, and for a signed difference the borrow that is left.
        states: how many states of a column the program was executed on.
        arithmetic, bound: the arithmetic of the model's certificate, and the proved lower bound of its margins.
        reads: one row per head: bounds, over all problems, of the shares of attention on the two digits of the ``own``
            column and on those of the column ``before``, and of the ``ratio`` of a digit's weight in the two columns.
        levels: one row per target and own token: ``along``, which direction that attention writes along has them, the
            one it writes most along first; ``step``, the mean distance between the levels of k and k + 1; and ``gap``,
            the least proved distance between them, in steps.
        digits: what each digit of the own column writes along the direction, on a scale from 0 for digit 0 to 9 for
            digit 9: the mean over columns, and how far a column is from it.
        parameters: the number of free parameters of the model.
        pairs: how many pairs there are, in words.
    """

    model: str
    program: str
    states: int
    arithmetic: ArithmeticName
    bound: float
    reads: pd.DataFrame
    levels: pd.DataFrame
    digits: pd.DataFrame
    parameters: int
    pairs: str
    provenance: Provenance

    @property
    def gap(self) -> float:
        """The least gap between the levels of k and k + 1, in steps."""
        return float(self.levels.gap.min())

    @property
    def bits(self) -> tuple[int, int]:
        """Description lengths in bits: of the program as text, and of the model's free parameters in float32."""
        return BITS_OF_A_CHARACTER * len(self.program), BITS_OF_A_NUMBER * self.parameters

    def sentence(self) -> str:
        lines = len([line for line in self.program.splitlines() if line])
        program, model = self.bits
        return (
            f"{self.model} is a program of {lines} lines on {self.pairs}: the model is proved right "
            f"{IN_WORDS[self.arithmetic]} (every margin above {shown(self.bound)}), and the program is right in all "
            f"{self.states:,} states of a column. {self._reading()} Levels of one more in {self.levels_of} are at "
            f"least {shown(self.gap)} of a step apart. The program has {program:,} bits as text, the model {model:,}"
        )

    @property
    def levels_of(self) -> str:
        """What has the levels: sum plus carry, or difference minus borrow."""
        return "sum plus carry" if self.program == PROGRAM else "difference minus borrow"

    def _reading(self) -> str:
        reads = self.reads
        if len(reads) == 1:
            low, high = shown(float(reads.ratio_low[0])), shown(float(reads.ratio_high[0]), up=True)
            return f"Attention reads the own column, and each digit of the column before {low} to {high} times less."
        heads = []
        for row in reads.itertuples():
            share = math.floor(100 * max(row.own_low, row.before_low))
            column = "own column" if row.own_low >= row.before_low else "column before"
            heads.append(f"head {row.head:.0f} " + (f"at least {share}% the {column}" if share else "without a bound"))
        return f"Attention has {counted(len(reads), 'head')}: {', '.join(heads)}."

    def to_dataframe(self) -> pd.DataFrame:
        return self.levels


@probe(
    "Which program is it, and is that all that it does?",
    needs=[one_layer_adder],
    summary=Summary("least gap of its levels", "steps", lambda found: Estimate(found.gap), 0.01, asked_by=()),
)
def decompile(model: HookedModel, *, task: TaskLike | None = None) -> Decompiled:
    """Turn a one-layer adder or subtractor into a program of ten lines, with a proof that both are equal on all pairs.

    The module's docstring has the proof. Cost: that of a certificate, and 1 to 5 s for the levels.

    Raises:
        UserError: a model that is not certified, whose attention has no bounds, or whose levels overlap.
    """
    certificate = certify_one_layer(model, "float32", task, tolerance=None)
    if certificate.status == "undecided":
        certificate = certify_one_layer(model, "interval", task, tolerance=None)
    if certificate.status not in ("certified", "conditional"):
        raise UserError(f"{certificate.model} is not certified, and a program is proved of certified models.")
    adder = read_adder(model, task)
    rule = adder.layout.rule
    attention = read_ratio_attention(adder, FLOAT32 if certificate.arithmetic == "float32" else REAL)
    if attention.obstacle is not None:  # though another method certified the model
        raise UserError(f"{certificate.model} has no bounds of what attention writes: {attention.obstacle}.")
    program = (SIGNED if rule.signed else SUBTRACTION) if rule.subtracts else PROGRAM
    levels = pd.DataFrame([_level(adder, attention, *key) for key in attention.queries if key[0] < rule.written])
    if not (levels.gap > 0).all():
        worst = levels.loc[levels.gap.idxmin()]
        raise UserError(
            f"{certificate.model} is not this program: at digit {worst.target:.0f} after {worst.own:.0f} two "
            f"{rule.result}s reach the same level."
        )
    return Decompiled(
        model=certificate.model,
        program=program,
        states=prove_program(program, rule),
        arithmetic=certificate.arithmetic,
        bound=certificate.lower_bound,
        reads=_reads(adder, attention),
        levels=levels,
        digits=_digits(adder, attention, int(levels.along.mode()[0])),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        pairs=rule.all_claimed,
        provenance=over_all_pairs(rule, certificate.arithmetic),
    )


def prove_program(source: str = PROGRAM, rule: ColumnRule = SUMS) -> int:
    """Execute a program's step on every state that a column can be in; returns how many there are.

    A state is the column's digit sum (or difference), the previous column's, and the carry into that one; the own token
    and the carry follow from it. The first column has none before it, and the last of a sum has no digits. By induction
    over columns, ``add`` is then addition, as it hands each step the digit that the previous step gave.

    Raises:
        UserError: a state in which the step does not give the right digit.
    """
    made: dict[str, Any] = {}
    exec(source, made)  # the constant above, or a test's altered copy of it
    states = [(0, now, 0, rule.digit(now, 0)) for now in rule.totals]
    for before, carry_before, now in product(rule.totals, (0, 1), rule.totals):
        carry, own = rule.out(before, carry_before), rule.digit(before, carry_before)
        states.append((own, now, before, rule.digit(now, carry)))
    for own, now, before, right in states:
        if made["step"](own, now, before) != right:
            raise UserError(
                f"The program is wrong after {own} in a column with {rule.result} {now} after one with {before}."
            )
    return len(states)


def _level(adder: AdderWeights, attention: RatioAttention, target: int, token: int) -> dict[str, int | float]:
    """How far apart the levels of one query are, by sum plus carry. The box and the error include rounding.

    Windows of one column tell them apart if one head reads all digits. The extremes of several heads add up as if the
    heads read different problems, so that windows take in the previous column where levels overlap otherwise. The
    direction is the first of the basis along which they are apart.
    """
    query = WindowBounds(attention, adder.layout, target, token)
    windows = query.unsplit_windows()
    first = _levels(attention, query, windows, 0)
    candidates = [windows, query.below_of(windows)] if windows.low else [windows]
    tried = (_levels(attention, query, some, along) for along in range(len(query.basis)) for some in candidates)
    return first if first["gap"] > 0 else next((found for found in tried if found["gap"] > 0), first)


def _levels(attention: RatioAttention, query: WindowBounds, windows: Windows, along: int) -> dict[str, int | float]:
    target, token = query.target, query.token
    carry, total = query.class_of(windows)
    rule = query.rule
    count = (total if target < rule.digits else 0) + rule.sign * carry
    low, high = (end[:, along] for end in query.box(windows))
    if target < rule.digits:  # the direction's sign is arbitrary; choose it so that levels rise with the sum
        rises = low[count == count.max()].mean() > low[count == count.min()].mean()
    else:
        rises = low[carry == 1].mean() > low[carry == 0].mean()
    low, high = (low, high) if rises else (-high, -low)
    known = np.unique(count)
    ends = np.array([(low[count == k].min(), high[count == k].max()) for k in known])
    # The component of the error along a direction of length 1, up to the rounding of the direction itself.
    error = float(np.abs(attention.basis[along]) @ query.error) * (1 + OWN_OF_RADII)
    gaps = ends[1:, 0] - ends[:-1, 1] - 2 * error
    step_size = float((ends[-1].mean() - ends[0].mean()) / (known[-1] - known[0]))
    return {"target": target, "own": token, "along": along, "step": step_size, "gap": float(gaps.min() / step_size)}


def _reads(adder: AdderWeights, attention: RatioAttention) -> pd.DataFrame:
    """Bounds of each head's shares of attention, at targets with both columns."""
    rows = []
    for head in range(len(adder.W_V)):
        found = []
        for (target, token), terms in attention.queries.items():
            if not 1 <= target < adder.layout.rule.digits:
                continue
            seen = [terms.weights[head, j, list(allowed)] for j, allowed in enumerate(adder.layout.tokens)]
            seen[adder.layout.queries[target]] = terms.weights[head, adder.layout.queries[target], [token]]
            least = np.array([w.min() for w in seen])
            most = np.array([w.max() for w in seen]) + math.exp(-FAR)  # those that are far below others are stored as 0
            off = 2 * (NO_SPREAD if terms.spread is None else float(terms.spread[head].max()))
            own, before = adder.layout.operands[:, target], adder.layout.operands[:, target - 1]
            shares = [_share(least, most, columns) for columns in (own, before)]
            ratio = least[own].min() / most[before].max(), most[own].max() / least[before].min()
            found.append([*shares[0], *shares[1], *ratio] * np.array([1 - off, 1 + off] * 3))
        found = np.array(found)
        low, high = found.min(0), found.max(0)
        rows.append([head, *np.where(np.arange(6) % 2, high, low)])
    columns = [f"{name}_{end}" for name in ("own", "before", "ratio") for end in ("low", "high")]
    return pd.DataFrame(rows, columns=["head", *columns])


def _share(least: np.ndarray, most: np.ndarray, columns: np.ndarray) -> tuple[float, float]:
    """Bounds of the share of some positions, where each weight lies between ``least`` and ``most``."""
    inside = np.isin(np.arange(len(least)), columns)
    low = least[inside].sum() / (least[inside].sum() + most[~inside].sum())
    return float(low), float(most[inside].sum() / (most[inside].sum() + least[~inside].sum()))


def _digits(adder: AdderWeights, attention: RatioAttention, along: int) -> pd.DataFrame:
    """What a digit in the own column writes along a direction of the basis, on a scale from 0 to 9, by the head that
    weighs it most."""
    written = []
    for (target, token), terms in attention.queries.items():
        if target < adder.layout.rule.digits and token == adder.layout.tokens[adder.layout.queries[target]][0]:
            own = adder.layout.operands[:, target]
            heads = terms.weights[:, own, :10].sum(2).argmax(0)
            written += list(attention.coords[heads, own, :10, along])
    written = np.array(written)  # [position, digit]
    scaled = 9 * (written - written[:, :1]) / (written[:, -1:] - written[:, :1])
    mean = scaled.mean(0)
    return pd.DataFrame({"digit": range(10), "written": mean, "apart": np.abs(scaled - mean).max(0)})


@drawing(Decompiled)
def levels_view(result: Decompiled) -> Picture:
    """Gaps between the program's levels, by target and own token, in steps. A threshold fits into a gap above 0."""
    table = result.levels.pivot(index="own", columns="target", values="gap")
    columns, rows = [f"s{t:.0f}" for t in table.columns], [f"{own:.0f}" for own in table.index]
    at = "digit asked for", "own token (the digit before)", "", table.to_numpy(), rows, columns, "least gap (steps)"
    note = f"Least proved gap between the levels of {result.levels_of} = k and k + 1, in steps between them"
    return Picture([Grid(*at, "range", 1.0, upwards=True)], note=note)
