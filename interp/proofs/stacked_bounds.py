"""Lower bounds of the right token's lead in a model of two layers of attention, for whole sets of strings.

Let q be the query and r the place of the key that ought to win. The lead of the right token over another is

    c . x_q + sum_h sum_k p_k u_k,        p_k proportional to exp(d_k),   d_k = s_k - s_r,   u_k = c . (x_k V),

where ``x_i = e_i + y_i`` is the stream after the first layer, y_i being what its heads write: a mean over places. So it
suffices to bound d_k from above and u_k from below for each *context* of a key: its place, its token and the one before
it, on which the first layer's attention to the previous token makes x_k depend most. Write ``x_k = a_k + f_k`` with a
fixed vector a_k for each context, and ``x_q = b + g``. Then

    d_k =  x_q M (a_k - a_r) + m (a_k - a_r)      linear in y_q: its extreme over all strings of the set is found
         + (b M + m) f_k - (b M + m) f_r          linear in y_k and in y_r: likewise
         + g M (f_k - f_r)                        of second order: by the largest |g . l_i| and |f . r_i|, where
                                                  M = sum_i s_i l_i r_i is a singular value decomposition in
                                                  coordinates in which g and f have variance one.

Extremes of what attention writes are those of :mod:`interp.proofs.distinct_means`. At the query itself f_k is g, so
that the linear terms are one functional and the last one is the quadratic form of M's symmetric part, of which positive
eigenvalues count.

No two keys have the same token before them. So the largest ``sum_k exp(d_k) (t - u_k)`` for a level t is bounded by an
assignment of tokens to places, and ``(u_r + sum w_k u_k) / (1 + sum w_k) >= t`` if it is below ``u_r - t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.distinct_means import largest_mean, most_assigned, prices_of
from interp.proofs.stacked_weights import StackedWeights
from models.tasks import Arrangements

AT_ONCE = 2_000  # rows of a call: some megabytes, which stay in a processor's cache
SAMPLED = 3_000  # strings from which centres and coordinates are guessed
LEVELS = 6  # steps of Newton's method to the least mean
LEAST_VARIANCE = 1e-6  # of a coordinate, as a share of the largest


@dataclass(frozen=True)
class Bounded:
    """A lower bound of the lead for all strings of a set, and the token whose place would tell most about the rest."""

    bound: float
    split: int | None


class StackedBounds:
    """Bounds for sets of strings of one task, whose answer is read at one query.

    ``errors`` are how far differences of scores, and leads, may be off (:meth:`StackedWeights.float_errors`).
    """

    def __init__(self, weights: StackedWeights, query: int, strings: Int[Tensor, "n place"], errors: tuple[float, float]):
        self.weights, self.query, self.errors = weights, query, errors
        self.vocab, self.d = weights.stream.shape[1:]
        self.contexts = _contexts(query, self.vocab, sorted(set(strings.flatten().tolist())))
        self.place, self.before, self.token = self.contexts.T
        self.number = torch.full((weights.n, self.vocab + 1, self.vocab), -1)
        self.number[self.place, self.before, self.token] = torch.arange(len(self.contexts))
        seen = torch.ones(weights.n, self.vocab, dtype=torch.bool)
        self.seen = self._within(seen.expand(len(self.contexts), -1, -1), self.place, self.before, self.token)
        self.centre = weights.stream[self.place, self.token] + self._middle()
        self._coordinates(strings)
        every = torch.arange(len(self.contexts))
        #: For each head, a_k of every context, and the largest |f_k . r_i|, [context, coordinate].
        self.keys = [self.ranges_of_keys(right, every, self.seen) for _, _, right in self.form]
        self._low: dict[tuple[int, int, int], Tensor] = {}

    # ---- what the first layer writes

    def _within(self, allowed: Tensor, place: Tensor, before: Tensor, token: Tensor) -> Bool[Tensor, "row place token"]:
        """``allowed`` with a known token at each row's place and, where there is one, at the place before it."""
        rows, tokens = torch.arange(len(place)), torch.arange(self.vocab)
        at = torch.arange(self.weights.n)
        here = (at == place[:, None])[..., None] & (tokens == token[:, None])[:, None]
        last = (at == place[:, None] - 1)[..., None] & (tokens == before[:, None])[:, None]
        known = (at == place[:, None]) | ((at == place[:, None] - 1) & (before >= 0)[:, None])
        others = (tokens != token[:, None]) & (tokens != before[:, None])
        # A known token stands nowhere else, but for the last token, which is there twice.
        rest = allowed & others[:, None]
        single = allowed.sum(-1, keepdim=True) == 1
        rest = torch.where(single, allowed, rest)
        return torch.where(known[..., None], here | last, rest)[rows]

    def _most_written(
        self, place: int, token: Int[Tensor, " row"], along: Float[Tensor, "row d"], allowed: Tensor, levels: int = 3
    ) -> Float[Tensor, " row"]:
        """The largest ``along . y`` at a place with a token, over all strings that ``allowed`` admits."""
        end, found = place + 1, []
        for part in torch.arange(len(token)).split(AT_ONCE):
            total, shown, own = along[part] @ self.weights.bias, allowed[part][:, :end], along[part]
            for scores, written in zip(self.weights.scores, self.weights.written, strict=True):
                score = torch.where(shown, scores[place, token[part], :end], -torch.inf)
                weight = (score - score.amax((-1, -2), keepdim=True)).exp()
                value = (own @ written[:end].flatten(0, 1).T).view(len(part), end, self.vocab)
                total = total + largest_mean(weight, value, shown, levels)
            found.append(total)
        return torch.cat(found)

    def _middle(self) -> Float[Tensor, "context d"]:
        """A guess of the mean of y for each context."""
        found = self.weights.bias.repeat(len(self.contexts), 1)
        for place in range(self.query):
            rows = (self.place == place).nonzero()[:, 0]
            shown = self.seen[rows][:, : place + 1].double()
            shown = shown / shown.sum(-1, keepdim=True)
            for scores, written in zip(self.weights.scores, self.weights.written, strict=True):
                own = scores[place, self.token[rows], : place + 1]
                weight = (own - own.amax((-1, -2), keepdim=True)).exp() * shown
                weight = weight / weight.sum((-1, -2), keepdim=True)
                found = found.index_add(0, rows, weight.flatten(1) @ written[: place + 1].flatten(0, 1))
        return found

    def _most_of_keys(
        self, along: Float[Tensor, "row d"], rows: Int[Tensor, " row"], allowed: Tensor, levels: int = 3
    ) -> Float[Tensor, " row"]:
        """The largest ``along . x`` for some contexts."""
        found = along.new_zeros(len(rows))
        for place in range(self.query):
            part = (self.place[rows] == place).nonzero()[:, 0]
            if len(part):
                token = self.token[rows[part]]
                own = (self.weights.stream[place, token] * along[part]).sum(1)
                most = self._most_written(place, token, along[part], allowed[part], levels)
                found = found.index_copy(0, part, own + most)
        return found

    def ranges_of_keys(
        self, along: Float[Tensor, "i d"], rows: Int[Tensor, " row"], allowed: Bool[Tensor, "row place token"]
    ) -> tuple[Float[Tensor, "row d"], Float[Tensor, "row i"]]:
        """For some contexts, a point from which ``along`` reaches as far to both sides, and how far."""
        ends = [
            torch.stack([self._most_of_keys((sign * x).expand(len(rows), -1), rows, allowed) for x in along], 1)
            for sign in (1, -1)
        ]
        return _centred(along, ends[0], -ends[1])

    # ---- guesses

    def _coordinates(self, strings: Int[Tensor, "n place"]) -> None:
        """Coordinates in which g and f vary alike in all directions, from some strings; and M in these."""
        x = self.weights.first_layer(strings)
        asked = strings[:, self.query]
        means = torch.zeros(self.vocab, self.d, dtype=torch.float64).index_add(0, asked, x[:, self.query])
        counts = asked.bincount(minlength=self.vocab).clamp_min(1)
        g = x[:, self.query] - (means / counts[:, None])[asked]
        places = torch.arange(self.query)
        before = torch.cat((torch.full_like(strings[:, :1], -1), strings[:, : self.query - 1]), 1)
        rows = self.number[places, before, strings[:, : self.query]]
        f = (x[:, : self.query] - self.centre[rows]).flatten(0, 1)
        (g_root, g_inverse), (f_root, f_inverse) = _roots(g), _roots(f)
        #: For each head (l [i, d], s [i], r [i, d]); what is left of M by rounding is in ``rest``.
        self.form, self.square, self.rest = [], [], []
        for match in self.weights.match:
            left, size, right = torch.linalg.svd(g_root @ match @ f_root)
            self.form.append((left.T @ g_inverse, size, right @ f_inverse))
            rest = match - self.form[-1][0].T @ (size[:, None] * self.form[-1][2])
            value, vector = torch.linalg.eigh(g_root @ (match + match.T) @ g_root / 2)
            self.square.append((value, vector.T @ g_inverse))
            again = (match + match.T) / 2 - self.square[-1][1].T @ (value[:, None] * self.square[-1][1])
            self.rest.append(float(torch.maximum(rest.abs().amax(), again.abs().amax())))
        #: An upper bound of the sum of |x|'s entries for any string, twice.
        most = self.weights.stream.abs().amax((0, 1)) + self.weights.bias.abs()
        self.size = 2 * float((most + self.weights.written.abs().amax((1, 2)).sum(0)).sum() + x.abs().sum(-1).max())

    # ---- a set of strings

    def bounded(self, strings: Arrangements) -> Bounded:
        """A lower bound of the right token's lead over all others, for all strings of a set.

        The set must have a known token at its source, at the place before it, and at the query.
        """
        return _OneSet(self, strings).bounded()

    def least_values(self, head: int, answer: int, other: int) -> Float[Tensor, " context"]:
        """The least u_k of every context, for the lead of one token over another."""
        if (head, answer, other) not in self._low:
            along = self.weights.moved[head] @ (self.weights.W_U[:, answer] - self.weights.W_U[:, other])
            rows = torch.arange(len(self.contexts))
            most = self._most_of_keys(-along.expand(len(rows), -1), rows, self.seen, levels=2)
            self._low[head, answer, other] = -most
        return self._low[head, answer, other]


class _OneSet:
    """The bounds of one set of strings."""

    def __init__(self, of: StackedBounds, strings: Arrangements):
        self.of, self.weights, self.strings = of, of.weights, strings
        tokens = torch.tensor(strings.tokens)
        pool = torch.zeros(of.vocab, dtype=torch.bool).index_fill(0, torch.tensor(strings.pool, dtype=torch.int64), True)
        known = torch.arange(of.vocab) == tokens[:, None]
        self.allowed = torch.where((tokens >= 0)[:, None], known, pool)
        self.asked, self.source = tokens[of.query], strings.source
        inside = self.allowed[of.place, of.token] & (of.place != self.source)
        inside &= (of.before < 0) | self.allowed[(of.place - 1).clamp_min(0), of.before.clamp_min(0)]
        self.rows = inside.nonzero()[:, 0]
        self.right = of.number[self.source, tokens[self.source - 1] if self.source else -1, tokens[self.source]]
        place, before, token = (x[self.rows] for x in (of.place, of.before, of.token))
        self.shown = of._within(self.allowed.expand(len(self.rows), -1, -1), place, before, token)
        self.stream = self.weights.stream[of.query, self.asked]

    def _most_at_query(self, along: Float[Tensor, "row d"], allowed: Tensor) -> Float[Tensor, " row"]:
        """The largest ``along . x_q``."""
        most = self.of._most_written(self.of.query, self.asked.expand(len(along)), along, allowed)
        return along @ self.stream + most

    def _ends_at_query(self, along: Float[Tensor, "i d"]) -> tuple[Tensor, Tensor]:
        """(Largest, least) ``along . x_q``."""
        both = torch.cat((along, -along))
        most, least = self._most_at_query(both, self.allowed.expand(len(both), -1, -1)).chunk(2)
        return most, -least

    def differences(self, head: int) -> tuple[Float[Tensor, " row"], Float[Tensor, ""]]:
        """Upper bounds of d_k: for each context, and for the query's own key."""
        of, match, asked = self.of, self.weights.match[head], self.weights.asked[head]
        left, size, sight = of.form[head]
        one, row = self.allowed[None], self.right[None]
        around = of._within(one, *(x[row] for x in (of.place, of.before, of.token)))
        both = torch.cat((sight, -sight))
        ends = of._most_of_keys(both, row.expand(len(both)), around.expand(len(both), -1, -1)).chunk(2)
        right, right_reach = (x[0] for x in _centred(sight, ends[0][None], -ends[1][None]))
        most, least = self._ends_at_query(left)
        middle, reach = (x[0] for x in _centred(left, most[None], least[None]))
        reach = reach * size
        centres, key_reach = (x[self.rows] for x in of.keys[head])
        away = centres - right
        functional = away @ match.T
        along = middle @ match + asked
        first = self._most_at_query(functional, self.shown) + away @ asked
        keys = of._most_of_keys(along.expand(len(self.rows), -1), self.rows, self.shown) - centres @ along
        own = of._most_of_keys(-along[None], row, around)[0] + right @ along
        right_off = right_reach @ reach
        rest = of.rest[head] * of.size**2 + of.errors[0]
        self.own_without.append(self._without(along, around) - (own - right @ along))
        # The query's own key: all that is linear in g is one functional.
        value, directions = of.square[head]
        linear = match @ (middle - right) + match.T @ middle + asked
        there = along @ (middle - right) + self._most_at_query(linear[None], one)[0] - linear @ middle
        most, least = self._ends_at_query(directions)
        furthest = torch.maximum(most - directions @ middle, directions @ middle - least)
        there = there + own + right_off + (value.clamp_min(0.0) * furthest**2).sum() * (1 + 1e-9)
        return first + keys + own + key_reach @ reach + right_off + rest, there + rest

    def _without(self, along: Float[Tensor, " d"], around: Bool[Tensor, "1 place token"]) -> Float[Tensor, " pool"]:
        """The largest ``-along . f_r`` if a token of the pool were at no place, for each of them."""
        of, pool = self.of, torch.tensor(self.strings.pool, dtype=torch.int64)
        left = around & (torch.arange(of.vocab) != pool[:, None])[:, None]
        left = torch.where(left.any(-1, keepdim=True), left, around)
        return of._most_of_keys(-along.expand(len(pool), -1), self.right.expand(len(pool)), left)

    def bounded(self) -> Bounded:
        of, answer = self.of, self.strings.answer
        others = [token for token in range(self.weights.W_U.shape[1]) if token != answer]
        along = (self.weights.W_U[:, answer, None] - self.weights.W_U[:, others]).T  # [other, d]
        allowed = self.allowed.expand(len(others), -1, -1)
        lead = along @ self.weights.constant - self._most_at_query(-along, allowed)
        lead = lead + self.weights.b_U[answer] - self.weights.b_U[others]
        self.own_without: list[Tensor] = []
        without = lead.new_zeros(len(others), len(self.strings.pool))
        for head in range(self.weights.heads):
            differences, there = self.differences(head)
            values = torch.stack([of.least_values(head, answer, other) for other in others])
            at_query = along @ self.weights.moved[head].T
            least = -self._most_at_query(-at_query, allowed)
            level, gain = self._least_mean(values, differences, least, there)
            lead = lead + level
            without = without + self._gained(gain, self.own_without[-1].exp())
        worst = int(lead.argmin())
        pool = self.strings.pool
        return Bounded(float(lead[worst]) - of.errors[1], pool[int(without[worst].argmin())] if pool else None)

    def _gained(self, gains: Float[Tensor, "other place token"], factor: Float[Tensor, " pool"]) -> Tensor:
        """What keys could still take if a token were at no place, for each token of the pool."""
        best = gains.topk(2, -1).values
        pool = torch.tensor(self.strings.pool, dtype=torch.int64)
        left = torch.where(gains[..., pool] == best[..., :1], best[..., 1:], best[..., :1])
        return left.sum(1) * factor

    def _least_mean(
        self,
        values: Float[Tensor, "other context"],
        differences: Float[Tensor, " row"],
        at_query: Float[Tensor, " other"],
        there: Float[Tensor, ""],
    ) -> tuple[Float[Tensor, " other"], Float[Tensor, "other place token"]]:
        """(Lower bounds of the weighted means of values, what each key may take from them by its token before.)"""
        of = self.of
        weight, own = differences.clamp_max(700.0).exp(), there.clamp_max(700.0).exp()
        right, value = values[:, self.right], values[:, self.rows]
        column = torch.where(of.before[self.rows] < 0, of.vocab, of.before[self.rows])
        cell = (of.place[self.rows] * (of.vocab + 1) + column).expand(len(values), -1)
        free = torch.ones(len(values), self.weights.n, dtype=torch.bool)
        free[:, 0] = False  # nothing is before the first place
        level, best = right, torch.full_like(right, -torch.inf)
        gains = values.new_zeros(len(values), self.weights.n * (of.vocab + 1))
        prices = values.new_zeros(len(values), of.vocab + 1)
        for _ in range(LEVELS):
            gain = weight * (level[:, None] - value)
            gains = gains.new_zeros(gains.shape).scatter_reduce(1, cell, gain, "amax")
            table = gains.view(len(values), self.weights.n, -1)
            prices, wanted = prices_of(table, free, 0.5 * prices, 8)
            query = own * (level - at_query).clamp_min(0.0)
            left = right - level - most_assigned(table, free, prices) * (1 + 1e-12) - query
            best = torch.maximum(best, torch.where(left <= 0, level + left, level))
            slope = 1 + own * (level > at_query) + self._weight_of(table, wanted, gain, cell, weight)
            level = level + left / slope
        return best - 1e-12 * (right.abs() + best.abs()), gains.view(len(values), self.weights.n, -1)

    def _weight_of(self, table: Tensor, wanted: Tensor, gain: Tensor, cell: Tensor, weight: Tensor) -> Tensor:
        """The sum of the weights of the contexts that are chosen at each place."""
        chosen = table.gather(-1, wanted[..., None])[..., 0]  # [other, place]
        place = self.of.place[self.rows]
        column = torch.where(self.of.before[self.rows] < 0, self.of.vocab, self.of.before[self.rows])
        mine = (wanted[:, place] == column) & (gain >= chosen[:, place]) & (gain > 0)
        return torch.where(mine, weight, 0.0).sum(1)


def _contexts(query: int, vocab: int, tokens: Sequence[int]) -> Int[Tensor, "context 3"]:
    """(Place, token before, token) of all keys before the query; nothing, -1, is before the first place."""
    rows = [(0, -1, token) for token in tokens]
    rows += [(place, a, b) for place in range(1, query) for a in tokens for b in tokens if a != b]
    return torch.tensor(rows)


def _centred(along: Float[Tensor, "i d"], most: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """(Points at which each functional is in the middle of its range [row, d], how far they reach from there [row, i]).

    There are as many functionals as dimensions. What rounding moves the points by is in the second.
    """
    point = torch.linalg.solve(along, (most + least).T / 2).T
    there = point @ along.T
    return point, torch.maximum(most - there, there - least) * (1 + 1e-9) + 1e-12 * (most.abs() + least.abs())


def _roots(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    """The root of the covariance of some vectors, and its inverse."""
    value, vector = torch.linalg.eigh(x.T @ x / len(x))
    value = value.clamp_min(float(value.max()) * LEAST_VARIANCE).clamp_min(1e-12).sqrt()
    return vector @ (value[:, None] * vector.T), vector @ (vector.T / value[:, None])
