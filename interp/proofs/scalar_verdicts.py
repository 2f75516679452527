"""Verdicts of a model with constant attention and rank 1 (method 1) on every pair, target by target.

Behind the attention, the answer to one query is a function of the scalar s: :class:`Answers` cuts the s that are
reached into pieces where one token is proved to win, and narrow ones between them where none is. s itself is a sum over
columns, so a :class:`interp.proofs.counting.Diagram` is grown from the highest column down: a node knows what the
columns so far add to s (an interval), and it is an end as soon as all that the others can add leaves one verdict.
Columns that hardly move s are not told apart; their whole range is added instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.balls import Arithmetic
from interp.proofs.columns import Classes, all_classes
from interp.proofs.constant_attention import BITS, ScalarAttention
from interp.proofs.counting import NODES, OPEN, RIGHT, WRONG, Diagram, reduced, symbols
from interp.proofs.decision import Decision, between, logits_behind, stream_behind
from interp.proofs.one_layer import OneLayerAdder
from models.tasks.addition import DIGITS

#: Nodes of one level before their sums are gathered in bins: more cost time, and fewer certainty.
MOST_NODES = 2000
_SYMBOLS = symbols(10)
_N = len(_SYMBOLS.x)
_UNREACHABLE = -1


@dataclass(frozen=True, eq=False)
class Answers:
    """What one query answers as a function of s, where it is asked: pieces [ends[i], ends[i + 1]] in units of 2^-BITS.

    Attributes:
        winner: the token proved to have the largest logit on all of a piece; -1 where none is proved.
    """

    ends: Int[np.ndarray, " n_1"]
    winner: Int[np.ndarray, " n"]

    def verdicts(
        self, low: Int[np.ndarray, " m"], high: Int[np.ndarray, " m"], answer: Int[np.ndarray, " m"]
    ) -> Int[np.ndarray, " m"]:
        """RIGHT where ``answer`` wins on all of [low, high], WRONG where another token does everywhere, else OPEN.

        Outside the pieces nothing is known. Both ends of a piece belong to it, so that a point where two pieces meet
        may be judged by either.
        """
        first = np.searchsorted(self.ends, low, side="right") - 1
        last = np.searchsorted(self.ends, high, side="left") - 1
        last = np.maximum(first, last)  # low == high
        inside = (first >= 0) & (high <= self.ends[-1])
        first, last = np.clip(first, 0, len(self.winner) - 1), np.clip(last, 0, len(self.winner) - 1)
        found = np.full(len(low), OPEN)
        for token in np.unique(answer):
            rows = np.flatnonzero((answer == token) & inside)
            others = (self.winner >= 0) & (self.winner != token)
            for verdict, pieces in ((RIGHT, self.winner == token), (WRONG, others)):
                before = np.concatenate(([0], np.cumsum(pieces)))
                whole = before[last[rows] + 1] - before[first[rows]] == last[rows] - first[rows] + 1
                found[rows[whole]] = verdict
        return found


class ScalarVerdicts:
    """All targets' diagrams, for one model in one arithmetic.

    Precondition: ``attention`` encloses the model's attention in the arithmetic of ``decision``, and its terms keep
    sums below 2^62.
    """

    def __init__(self, adder: OneLayerAdder, attention: ScalarAttention, arithmetic: Arithmetic):
        self.adder, self.attention = adder, attention
        self.decision = Decision(adder, attention, arithmetic)
        self.classes: Classes = all_classes(adder.layout, attention.terms)
        self.proved = np.array([self._proved(i) for i in range(len(self.classes))])

    def _proved(self, i: int) -> bool:
        classes, (low, high) = self.classes, self.classes.ends[i].tolist()
        return self.decision.prove(*_query(classes, i), int(classes.answer[i]), low, high, 0.0).proved

    def diagrams(self, fineness: float) -> list[Diagram]:
        """Verdicts of all targets, all the more certain the smaller ``fineness`` (in units of s) is.

        Postcondition: a pair that a diagram leads to RIGHT has a positive margin at its target, and one led to WRONG
        a negative one, both in the arithmetic at hand. Lemma: the pair's s lies in its node's interval plus the ranges
        of the columns below, and within the ends of its class; on that interval the verdict was proved.

        Cost: classes that are not proved as a whole x pieces x a margin; nodes x 200 symbols a column.
        """
        return [self._diagram(target, round(fineness * 2**BITS)) for target in range(len(self.adder.layout.queries))]

    def _diagram(self, target: int, fineness: int) -> Diagram:
        if self.proved[self.classes.target == target].all():
            return Diagram(RIGHT, tuple(np.zeros((0, _N), dtype=np.int32) for _ in range(DIGITS)))
        return _Growth(self, target, fineness).grow()

    def answers(self, target: int, token: int, fineness: int) -> Answers | None:
        """The pieces of s for a query and its own token, over the classes that are not proved; None without one."""
        classes = self.classes
        rows = np.flatnonzero((classes.target == target) & (classes.token == token) & ~self.proved)
        if not len(rows):
            return None
        low, high = classes.ends[rows].T
        ends, winners, points = [], [], {}

        def guess(s: np.ndarray) -> list[int]:
            query = np.array([target]), np.array([token])
            stream = stream_behind(self.adder, self.attention, *query, s[None] * 2.0**-BITS)
            return logits_behind(self.adder, stream)[0].argmax(-1).tolist()

        def wins(start: int, end: int, winner: int) -> bool:
            return bool(self.decision.margin(target, token, winner, between(start, end)) > 0)

        pieces = [(int(low.min()), int(high.max()))]
        while pieces:  # all pieces of one width at a time, so that float logits are found together
            a, b = (np.array(x, dtype=np.int64) for x in zip(*pieces, strict=True))
            middles = (a + b) // 2
            guesses = zip(guess(a), guess(middles), guess(b), strict=True)
            later = []
            for (start, end), middle, winner in zip(pieces, middles.tolist(), guesses, strict=True):
                asked = bool(((low <= end) & (high >= start)).any())
                won = asked and len(set(winner)) == 1 and wins(start, end, winner[1])
                if asked and not won and end - start > max(fineness, 1):
                    # Where no token can be proved to win at these points, smaller pieces would hardly change it.
                    for point, at_point in zip((start, middle, end), winner, strict=True):
                        if point not in points:
                            points[point] = wins(point, point, at_point)
                    if points[start] or points[middle] or points[end]:
                        later += [(start, middle), (middle, end)]
                        continue
                ends.append(start)
                winners.append(winner[1] if won else -1)
            pieces = later
        order = np.argsort(ends, kind="stable")
        return Answers(np.append(np.array(ends)[order], high.max()), np.array(winners)[order])


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Undecided nodes of one level.

    Attributes:
        low, high: what the columns above add to s, the delimiters included (units of 2^-BITS).
        own: the symbol of the target's column (-1 before it is read). index: the class (-1 before it is known).
        carry_out: the carry that the next column must give (-1: any).
    """

    low: Int[np.ndarray, " n"]
    high: Int[np.ndarray, " n"]
    own: Int[np.ndarray, " n"]
    index: Int[np.ndarray, " n"]
    carry_out: Int[np.ndarray, " n"]


class _Growth:
    """One target's diagram, from the highest column down."""

    def __init__(self, verdicts: ScalarVerdicts, target: int, fineness: int):
        self.verdicts, self.target, self.fineness = verdicts, target, fineness
        layout, terms = verdicts.adder.layout, verdicts.attention.terms[target]
        self.added = np.zeros((DIGITS, _N), dtype=np.int64)  # to s, by column and symbol
        for column in range(DIGITS):
            a, b = layout.operands[:, column]
            self.added[column] = terms[a, _SYMBOLS.x] + terms[b, _SYMBOLS.y]
            if column < min(target, len(layout.answers)):  # the digits of the answer that the query sees
                self.added[column] += terms[layout.answers[column], _SYMBOLS.written]
        if target == DIGITS + 1:
            self.added[DIGITS - 1] += terms[layout.answers[DIGITS], _SYMBOLS.carry_out]
        self.fixed = sum(int(terms[j, allowed[0]]) for j, allowed in enumerate(layout.tokens) if len(allowed) == 1)
        possible = [_SYMBOLS.possible(column) for column in range(DIGITS)]
        self.least = np.array([row[kept].min() for row, kept in zip(self.added, possible, strict=True)])
        self.most = np.array([row[kept].max() for row, kept in zip(self.added, possible, strict=True)])
        own = {target, target - 1} if target < DIGITS else {DIGITS - 1}  # where the class is read
        self.read = [bool(wide > fineness) or j in own for j, wide in enumerate(self.most - self.least)]
        self.last_own = max(min(own), 0)
        classes, rows = verdicts.classes, np.flatnonzero(verdicts.classes.target == target)
        self.numbers = np.full((11, 2, 20), -1)  # of classes, by previous digit, carry and total; -1 is the last place
        self.numbers[classes.previous[rows], classes.carry[rows], classes.total[rows]] = rows
        tokens = set(classes.token[rows].tolist())
        self.answers = {token: verdicts.answers(target, token, fineness) for token in tokens}

    def grow(self) -> Diagram:
        start = np.array([self.fixed])
        unknown = np.array([-1])
        nodes = _Nodes(start, start, unknown, unknown, unknown)
        levels: list[np.ndarray] = []
        for column in reversed(range(DIGITS)):
            nodes, level = self._column(nodes, column)
            levels.insert(0, level)
        return reduced(NODES, levels)

    def _column(self, nodes: _Nodes, column: int) -> tuple[_Nodes, Int[np.ndarray, "node symbol"]]:
        """The nodes below a column, and where each node goes on each symbol."""
        n = len(nodes.low)
        if not self.read[column]:
            after = _Nodes(
                nodes.low + self.least[column], nodes.high + self.most[column], nodes.own, nodes.index,
                np.full(n, -1),
            )  # fmt: skip
            target = np.arange(n) + NODES if column else np.full(n, OPEN)
            return after, np.repeat(target[:, None], _N, 1).astype(np.int32)
        level = np.full((n, _N), _UNREACHABLE, dtype=np.int32)
        needed = nodes.carry_out[:, None]
        kept = _SYMBOLS.possible(column) & ((needed < 0) | (needed == _SYMBOLS.carry_out))
        node, symbol = np.nonzero(kept)
        added = self.added[column, symbol]
        own = np.where(column == min(self.target, DIGITS - 1), symbol, nodes.own[node])
        index = self._classes(own, symbol) if column == self.last_own else nodes.index[node]
        telling = column <= self.target and (column == self.last_own + 1 or (column > 0 and self.read[column - 1]))
        carry_out = _SYMBOLS.carry_in[symbol] if telling else np.full(len(symbol), -1)
        below = _Nodes(nodes.low[node] + added, nodes.high[node] + added, own, index, carry_out)
        verdict = self._verdicts(below, column)
        ended = np.full(len(symbol), column == 0) | (verdict != OPEN)
        level[node[ended], symbol[ended]] = verdict[ended]
        going = np.flatnonzero(~ended)
        after, number = _gathered(_Nodes(*(getattr(below, name)[going] for name in _Nodes.__dataclass_fields__)))
        level[node[going], symbol[going]] = NODES + number
        return after, level

    def _classes(self, own: Int[np.ndarray, " n"], symbol: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The class of each pair, once the last column that it takes is read."""
        known, target = _SYMBOLS, self.target
        written, carry = known.written[symbol], known.carry_out[symbol]
        if target == DIGITS + 1:
            return self.numbers[carry, carry, -1]
        if target == DIGITS:
            return self.numbers[written, carry, -1]
        return self.numbers[written if target else -1, known.carry_in[own], known.total[own]]

    def _verdicts(self, nodes: _Nodes, column: int) -> Int[np.ndarray, " n"]:
        """By node, ``column`` having been read: RIGHT or WRONG for all that may follow, else OPEN."""
        classes, proved = self.verdicts.classes, self.verdicts.proved
        found = np.full(len(nodes.low), OPEN)
        if column > self.last_own:
            if column <= self.target < DIGITS:  # every class with these own digits may be proved
                found[self._own_proved()[nodes.own]] = RIGHT
            return found
        found[proved[nodes.index]] = RIGHT
        rows = np.flatnonzero(found == OPEN)
        index = nodes.index[rows]
        low = np.maximum(nodes.low[rows] + self.least[:column].sum(), classes.ends[index, 0])
        high = np.minimum(nodes.high[rows] + self.most[:column].sum(), classes.ends[index, 1])
        for token, answers in self.answers.items():
            chosen = np.flatnonzero(classes.token[index] == token)
            if answers is not None and len(chosen):
                verdicts = answers.verdicts(low[chosen], high[chosen], classes.answer[index[chosen]])
                found[rows[chosen]] = verdicts
        return found

    def _own_proved(self) -> Bool[np.ndarray, " symbol"]:
        classes, own = self.verdicts.classes, self.verdicts.classes.target == self.target
        open_ones = own & ~self.verdicts.proved
        wanted = set(zip(classes.carry[open_ones].tolist(), classes.total[open_ones].tolist(), strict=True))
        pairs = zip(_SYMBOLS.carry_in.tolist(), _SYMBOLS.total.tolist(), strict=True)
        return np.array([pair not in wanted for pair in pairs])


def _query(classes: Classes, i: int) -> tuple[int, int]:
    return int(classes.target[i]), int(classes.token[i])


def _gathered(nodes: _Nodes) -> tuple[_Nodes, Int[np.ndarray, " n"]]:
    """Nodes that share all but s as one, with the hull of their intervals, where they are equal or too many.

    The bins of s are as wide as it takes to have at most ``MOST_NODES``, unless more differ in the rest.
    """
    if not len(nodes.low):
        return nodes, np.zeros(0, dtype=np.int64)
    rest = np.stack((nodes.own, nodes.index, nodes.carry_out), 1)
    _, kind = np.unique(rest, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    _, exact = np.unique(np.stack((nodes.low, nodes.high, kind), 1), axis=0, return_inverse=True)
    number, width = exact.reshape(-1), 1
    most = max(MOST_NODES, kind.max() + 1)
    while number.max() + 1 > most:
        width = width * 4 if width > 1 else max(int(np.ptp(nodes.low)) // 2**20, 2)
        _, binned = np.unique(np.stack((nodes.low // width, kind), 1), axis=0, return_inverse=True)
        number = binned.reshape(-1)
    _, first = np.unique(number, return_index=True)
    low, high = nodes.low[first].copy(), nodes.high[first].copy()
    np.minimum.at(low, number, nodes.low)
    np.maximum.at(high, number, nodes.high)
    return _Nodes(low, high, nodes.own[first], nodes.index[first], nodes.carry_out[first]), number
