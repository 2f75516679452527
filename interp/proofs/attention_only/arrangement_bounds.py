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

Extremes of what attention writes are those of :mod:`interp.proofs.attention_only.distinct_means`. At the query itself
f_k is g, so that the linear terms are one functional and the last one is the quadratic form of M's symmetric part, of
which positive eigenvalues count.

No two keys have the same token before them. So the largest ``sum_k exp(d_k) (t - u_k)`` for a level t is bounded by an
assignment of tokens to places, and ``(u_r + sum w_k u_k) / (1 + sum w_k) >= t`` if it is below ``u_r - t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.attention_only.attention_tables import StackedWeights
from interp.proofs.attention_only.distinct_means import CLOSE, ROUGH, How, dual_prices_of, largest_mean, most_assigned
from interp.proofs.numbers.rounding_errors import DOUBLE, OWN, OWN_OF_RADII
from models.tasks import Arrangements

AT_ONCE = 2_000  # rows of a call: some megabytes, which stay in a processor's cache
LEVELS = 6  # steps of Newton's method to the least mean
NEGLIGIBLE = -6.0  # a difference of scores that is not looked at more closely
LARGEST_SCORE = 500.0
LEAST_VARIANCE = 1e-6  # of a coordinate, as a share of the largest


@dataclass(frozen=True)
class Bounded:
    """A lower bound of the lead for all strings of a set, and the token whose place would tell most about the rest."""

    bound: float
    split: int | None


class StackedBounds:
    """Bounds for sets of strings of one task, whose answer is read at one query.

    ``tokens`` are all that its strings have; some of the strings, from which centres are guessed, need not have them.
    ``errors`` are how far differences of scores, and leads, may be off (:meth:`StackedWeights.float_errors`).
    """

    def __init__(
        self,
        weights: StackedWeights,
        query: int,
        tokens: Sequence[int],
        strings: Int[Tensor, "n place"],
        errors: tuple[float, float],
    ):
        self.weights, self.query, self.errors = weights, query, errors
        self.vocab, self.d = weights.stream.shape[1:]
        self.contexts = _contexts(query, tokens)
        self.place, self.before, self.token = self.contexts.T
        self.number = torch.full((weights.n, self.vocab + 1, self.vocab), -1)
        self.number[self.place, self.before, self.token] = torch.arange(len(self.contexts))
        seen = torch.ones(len(self.contexts), weights.n, self.vocab, dtype=torch.bool)
        self.seen = self.within(seen, torch.arange(len(self.contexts)))
        self.centre = weights.stream[self.place, self.token] + self._middle()
        self._coordinates(strings)
        every = torch.arange(len(self.contexts))
        #: For each head, a_k of every context, and the largest |f_k . r_i|, [context, coordinate].
        self.keys = [self.ranges_of_keys(right, every, self.seen) for _, _, right in self.form]
        self._low: dict[tuple[int, int, int], Tensor] = {}

    # ---- what the first layer writes

    def within(
        self, allowed: Bool[Tensor, "row place token"], contexts: Int[Tensor, " row"]
    ) -> Bool[Tensor, "row place token"]:
        """``allowed`` with each row's context: a token at its place, and one before, which stand nowhere else."""
        place, before, token = (x[contexts, None] for x in (self.place, self.before, self.token))
        tokens, at = torch.arange(self.vocab), torch.arange(self.weights.n)
        here, last = at == place, (at == place - 1) & (before >= 0)  # [row, place]
        others = (tokens != token) & (tokens != before)
        single = allowed.sum(-1, keepdim=True) == 1  # known; the query's token is there twice
        rest = torch.where(single, allowed, allowed & others[:, None])
        rest = torch.where(last[..., None], (tokens == before)[:, None], rest)
        return torch.where(here[..., None], (tokens == token)[:, None], rest)

    def most_written(
        self, place: int, token: Int[Tensor, " row"], along: Float[Tensor, "row d"], allowed: Tensor, how: How = CLOSE
    ) -> Float[Tensor, " row"]:
        """The largest ``along . y`` at a place with a token, over all strings that ``allowed`` admits."""
        end, found = place + 1, []
        for part in torch.arange(len(token)).split(AT_ONCE):
            total, shown, own = along[part] @ self.weights.bias, allowed[part][:, :end], along[part]
            for scores, written in zip(self.weights.scores, self.weights.written, strict=True):
                score = torch.where(shown, scores[place, token[part], :end], -torch.inf)
                weight = (score - score.amax((-1, -2), keepdim=True)).exp()
                value = (own @ written[:end].flatten(0, 1).T).view(len(part), end, self.vocab)
                total = total + largest_mean(weight, value, shown, how)
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
                own = torch.where(shown > 0, scores[place, self.token[rows], : place + 1], -torch.inf)
                weight = (own - own.amax((-1, -2), keepdim=True)).exp() * shown
                weight = weight / weight.sum((-1, -2), keepdim=True)
                found = found.index_add(0, rows, weight.flatten(1) @ written[: place + 1].flatten(0, 1))
        return found

    def most_of_keys(
        self, along: Float[Tensor, "row d"], rows: Int[Tensor, " row"], allowed: Tensor, how: How = CLOSE
    ) -> Float[Tensor, " row"]:
        """The largest ``along . x`` for some contexts."""
        found = along.new_zeros(len(rows))
        for place in range(self.query):
            part = (self.place[rows] == place).nonzero()[:, 0]
            if len(part):
                token = self.token[rows[part]]
                own = (self.weights.stream[place, token] * along[part]).sum(1)
                most = self.most_written(place, token, along[part], allowed[part], how)
                found = found.index_copy(0, part, own + most)
        return found

    def ranges_of_keys(
        self, along: Float[Tensor, "i d"], rows: Int[Tensor, " row"], allowed: Bool[Tensor, "row place token"]
    ) -> tuple[Float[Tensor, "row d"], Float[Tensor, "row i"]]:
        """For some contexts, a point from which ``along`` reaches as far to both sides, and how far."""
        ends = [
            torch.stack([self.most_of_keys((sign * x).expand(len(rows), -1), rows, allowed) for x in along], 1)
            for sign in (1, -1)
        ]
        return centred(along, ends[0], -ends[1])

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
            rest = _left_over(match, *self.form[-1])
            value, vector = torch.linalg.eigh(g_root @ (match + match.T) @ g_root / 2)
            self.square.append((value, vector.T @ g_inverse))
            again = _left_over((match + match.T) / 2, self.square[-1][1], value, self.square[-1][1])
            self.rest.append(float(torch.maximum(rest, again)))
        #: An upper bound of the sum of |x|'s entries for any string, twice.
        most = self.weights.stream.abs().amax((0, 1)) + self.weights.bias.abs()
        self.size = 2 * float((most + self.weights.written.abs().amax((1, 2)).sum(0)).sum() + x.abs().sum(-1).max())

    # ---- a set of strings

    def bounded(self, sets: Sequence[Arrangements]) -> list[Bounded]:
        """A lower bound of the right token's lead over all others, for all strings of each set.

        The sets have the same pool, source, right token and token at the query, and known tokens at their source and at
        the place before it.
        """
        return _Sets(self, sets).bounded()

    def least_values(self, head: int, answer: int, other: int) -> Float[Tensor, " context"]:
        """The least u_k of every context, for the lead of one token over another."""
        if (head, answer, other) not in self._low:
            along = self.weights.moved[head] @ (self.weights.W_U[:, answer] - self.weights.W_U[:, other])
            rows = torch.arange(len(self.contexts))
            most = self.most_of_keys(-along.expand(len(rows), -1), rows, self.seen, ROUGH)
            self._low[head, answer, other] = -most
        return self._low[head, answer, other]


class _Sets:
    """The bounds of some sets of strings, which are parts of one; a row is a set and a context of a key."""

    def __init__(self, of: StackedBounds, sets: Sequence[Arrangements]):
        self.of, self.weights, first = of, of.weights, sets[0]
        self.answer, self.pool = first.answer, torch.tensor(first.pool, dtype=torch.int64)
        tokens = torch.tensor([one.tokens for one in sets])
        every = torch.arange(of.vocab)
        in_pool = torch.zeros(of.vocab, dtype=torch.bool).index_fill(0, self.pool, True)
        self.allowed = torch.where((tokens >= 0)[..., None], every == tokens[..., None], in_pool)
        self.asked, source = tokens[0, of.query], first.source
        before = of.before.clamp_min(0)
        inside = self.allowed[:, of.place, of.token] & (of.place != source)
        inside &= (of.before < 0) | self.allowed[:, (of.place - 1).clamp_min(0), before]
        self.set, self.context = inside.nonzero().T
        self.shown = of.within(self.allowed[self.set], self.context)
        right = of.number[source, tokens[0, source - 1] if source else -1, tokens[0, source]]
        self.right = right.expand(len(sets))
        self.around = of.within(self.allowed, self.right)
        self.stream = self.weights.stream[of.query, self.asked]

    # ---- what the first layer writes

    def _most_at_query(self, along: Float[Tensor, "row d"], allowed: Tensor, how: How = CLOSE) -> Float[Tensor, " row"]:
        """The largest ``along . x_q``."""
        most = self.of.most_written(self.of.query, self.asked.expand(len(along)), along, allowed, how)
        return along @ self.stream + most

    def _each_at_query(self, along: Float[Tensor, "i d"]) -> Float[Tensor, "set i"]:
        """The largest ``along . x_q`` of each set."""
        n, k = len(self.allowed), len(along)
        return self._most_at_query(along.repeat(n, 1), self.allowed.repeat_interleave(k, 0)).view(n, k)

    def _ends_at_query(self, along: Float[Tensor, "i d"]) -> tuple[Float[Tensor, "set i"], Float[Tensor, "set i"]]:
        """(Largest, least) ``along . x_q`` of each set."""
        most, least = self._each_at_query(torch.cat((along, -along))).chunk(2, 1)
        return most, -least

    def _ends_at_source(self, along: Float[Tensor, "i d"]) -> tuple[Float[Tensor, "set i"], Float[Tensor, "set i"]]:
        """(Largest, least) ``along . x_r`` of each set."""
        n, both = len(self.allowed), torch.cat((along, -along))
        rows, allowed = self.right.repeat_interleave(len(both)), self.around.repeat_interleave(len(both), 0)
        most, least = self.of.most_of_keys(both.repeat(n, 1), rows, allowed).view(n, -1).chunk(2, 1)
        return most, -least

    # ---- scores

    def differences(self, head: int) -> tuple[Float[Tensor, " row"], Float[Tensor, " set"], Float[Tensor, "set pool"]]:
        """Upper bounds of d_k: of each row, and of the query's own key in each set.

        The last is by how much the right key's part, ``-(b M + m) f_r``, would change without a token of the pool.
        """
        of, match, asked = self.of, self.weights.match[head], self.weights.asked[head]
        left, size, sight = of.form[head]
        right, right_reach = centred(sight, *self._ends_at_source(sight))
        middle, reach = centred(left, *self._ends_at_query(left))
        reach = reach * size
        along = middle @ match + asked  # b M + m: [set, d]
        own = of.most_of_keys(-along, self.right, self.around)
        without = self._without(along) - own[:, None]
        own = own + (right * along).sum(1)
        right_off = (right_reach * reach).sum(1)
        centre, key_reach = (x[self.context] for x in of.keys[head])
        far = float(torch.stack([x.abs().sum(1).max() for x in (middle, right, centre)]).max())  # NaN stays
        rest = of.rest[head] * (of.size + 2 * far) ** 2 + of.errors[0]
        # The three parts of the header: their constants here, and what strings of the set may add to them below.
        away, along_row = centre - right[self.set], along[self.set]
        linear_at_query, linear_at_keys = away @ asked, (centre * along_row).sum(1)
        second_order = (key_reach * reach[self.set]).sum(1)
        same = linear_at_query - linear_at_keys + second_order + (own + right_off)[self.set] + rest
        functional = away @ match.T

        def linear_parts(part: Tensor, how: How) -> Tensor:
            shown = self.shown[part]
            at_keys = of.most_of_keys(along_row[part], self.context[part], shown, how)
            return self._most_at_query(functional[part], shown, how) + at_keys + same[part]

        found = linear_parts(torch.arange(len(self.set)), ROUGH)
        again = (found > NEGLIGIBLE).nonzero()[:, 0]
        found = found.index_copy(0, again, torch.minimum(found[again], linear_parts(again, CLOSE)))
        # The query's own key: all that is linear in g is one functional.
        value, directions = of.square[head]
        linear = (middle - right) @ match.T + middle @ match + asked
        there = (along * (middle - right)).sum(1) - (linear * middle).sum(1)
        there = there + self._most_at_query(linear, self.allowed) + own + right_off
        most, least = self._ends_at_query(directions)
        at = middle @ directions.T
        square = (value.clamp_min(0.0) * torch.maximum(most - at, at - least) ** 2).sum(1) * (1 + OWN_OF_RADII)
        return found, there + square + rest, without

    def _without(self, along: Float[Tensor, "set d"]) -> Float[Tensor, "set pool"]:
        """The largest ``-along . x_r`` if a token of the pool were at no place, for each of them."""
        n, k = len(along), len(self.pool)
        around = self.around.repeat_interleave(k, 0)
        left = around & (torch.arange(self.of.vocab) != self.pool.repeat(n)[:, None])[:, None]
        left = torch.where(left.any(-1, keepdim=True), left, around)
        rows = self.right.repeat_interleave(k)
        return self.of.most_of_keys(-along.repeat_interleave(k, 0), rows, left).view(n, k)

    # ---- leads

    def bounded(self) -> list[Bounded]:
        of, U = self.of, self.weights.W_U
        others = [token for token in range(U.shape[1]) if token != self.answer]
        along = (U[:, self.answer, None] - U[:, others]).T  # [other, d]
        lead = along @ self.weights.constant - self._each_at_query(-along)  # [set, other]
        lead = lead + self.weights.b_U[self.answer] - self.weights.b_U[others]
        without = lead.new_zeros(*lead.shape, len(self.pool))
        for head in range(self.weights.heads):
            differences, there, own_without = self.differences(head)
            values = torch.stack([of.least_values(head, self.answer, other) for other in others])
            at_query = -self._each_at_query(-along @ self.weights.moved[head].T)
            level, gain = self._least_mean(values, differences, at_query, there)
            lead = lead + level
            without = without + self._gained(gain) * own_without.exp()[:, None]
        worst = lead.argmin(1)
        tells = without[torch.arange(len(lead)), worst]
        splits = self.pool[tells.argmin(1)].tolist() if len(self.pool) else [None] * len(lead)
        bounds = torch.where(lead.isnan(), -torch.inf, lead).amin(1).sub(of.errors[1]).tolist()
        return [Bounded(bound, split) for bound, split in zip(bounds, splits, strict=True)]

    def _least_mean(
        self,
        values: Float[Tensor, "other context"],
        differences: Float[Tensor, " row"],
        at_query: Float[Tensor, "set other"],
        there: Float[Tensor, " set"],
    ) -> tuple[Float[Tensor, "set other"], Float[Tensor, "set other place column"]]:
        """(Lower bounds of the weighted means of values, what each key may take from them by its token before.)"""
        of, n, sets = self.of, self.weights.n, len(there)
        # A weight of e^500 lets a level be above a value by less than float64 can tell; so would any larger one.
        weight, own = differences.clamp_max(LARGEST_SCORE).exp(), there.clamp_max(LARGEST_SCORE).exp()[:, None]
        right, value = values[:, self.right[0]].expand(sets, -1), values[:, self.context].T  # [row, other]
        place, before = of.place[self.context], of.before[self.context]
        column = torch.where(before < 0, of.vocab, before)
        cell = ((self.set * n + place) * (of.vocab + 1) + column)[:, None].expand_as(value)
        free = (torch.arange(n) > 0).expand(sets * len(values), -1)  # nothing is before the first place
        level, best = right, torch.full_like(right, -torch.inf)
        empty = values.new_zeros(sets * n * (of.vocab + 1), len(values))
        table, dual_prices = empty, values.new_zeros(len(free), of.vocab + 1)
        for _ in range(LEVELS):
            gain = weight[:, None] * (level[self.set] - value)
            gains = empty.scatter_reduce(0, cell, gain, "amax")
            table = gains.view(sets, n, of.vocab + 1, -1).permute(0, 3, 1, 2)
            flat = table.flatten(0, 1)
            dual_prices, wanted = dual_prices_of(flat, free, 0.5 * dual_prices, 8)
            query = own * (level - at_query).clamp_min(0.0)
            off = (n + of.vocab) * 64 * DOUBLE * (flat.amax(-1).sum(-1) + dual_prices.sum(-1))
            left = right - level - (most_assigned(flat, free, dual_prices) + off).view_as(level) - query * (1 + OWN)
            # A level that is NaN is no bound; one of the others, or -inf, is.
            best = torch.fmax(best, torch.where(left > 0, level, level + left))
            # Newton's step, by the weights of the contexts that are chosen at each place
            chosen = flat.gather(-1, wanted[..., None])[..., 0].view(sets, -1, n).mT[self.set, place]  # [row, other]
            mine = (wanted.view(sets, -1, n).mT[self.set, place] == column[:, None]) & (gain >= chosen) & (gain > 0)
            slope = torch.where(mine, weight[:, None], 0.0)
            slope = (1 + own * (level > at_query)).index_add(0, self.set, slope)
            level = level + left / slope
        return best - OWN * (right.abs() + best.abs()), table

    def _gained(self, gains: Float[Tensor, "set other place column"]) -> Float[Tensor, "set other pool"]:
        """What keys could still take if a token were at no place, for each token of the pool."""
        best = gains.topk(2, -1).values
        left = torch.where(gains[..., self.pool] == best[..., :1], best[..., 1:], best[..., :1])
        return left.sum(2)


def _contexts(query: int, tokens: Sequence[int]) -> Int[Tensor, "context 3"]:
    """(Place, token before, token) of all keys before the query; nothing, -1, is before the first place."""
    rows = [(0, -1, token) for token in tokens]
    rows += [(place, a, b) for place in range(1, query) for a in tokens for b in tokens if a != b]
    return torch.tensor(rows)


def centred(along: Float[Tensor, "i d"], most: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """(Points at which each functional is in the middle of its range [row, d], how far they reach from there [row, i]).

    There are as many functionals as dimensions. What rounding moves the points by is in the second.
    """
    point = torch.linalg.solve(along, (most + least).T / 2).T
    there = point @ along.T
    return point, torch.maximum(most - there, there - least) * (1 + OWN_OF_RADII) + OWN * (most.abs() + least.abs())


def _left_over(
    matrix: Float[Tensor, "d d"], left: Float[Tensor, "i d"], size: Float[Tensor, " i"], right: Float[Tensor, "i d"]
) -> Tensor:
    """How far an entry of a matrix may be from that of its product form, as that is rounded, too."""
    rounded = len(size) * 8 * DOUBLE * (left.abs().T @ (size[:, None].abs() * right.abs()))
    return ((matrix - left.T @ (size[:, None] * right)).abs() + rounded).amax()


def _roots(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    """The root of the covariance of some vectors, and its inverse."""
    value, vector = torch.linalg.eigh(x.T @ x / len(x))
    value = value.clamp_min(float(value.max()) * LEAST_VARIANCE).clamp_min(1e-12).sqrt()
    return vector @ (value[:, None] * vector.T), vector @ (vector.T / value[:, None])
