"""A proof that the hand-built multiplication transformer is right on *every* pair of operands of every size.

As in :mod:`interp.proofs.hand_built.addition_proof`, the first layer's scores see position ids and BOS alone, whatever
the digits are. The second layer's attention writes nothing. So the proof goes in three steps, on the model's own
weights:

1. **Separation.** Queries and keys do not depend on digits, values do not depend on positions, and nothing after
   attention reads position codes. Each of these is an equality on the weights. Scores are dyadic rationals, computed
   exactly.
2. **Attention, once for all sizes.** Position ids say which number a token belongs to and in which column it stands,
   whatever the operands' lengths are. So the tokens of a smaller size are some of those of the largest, with the same
   ids and in the same order, and scores are those of the largest size, restricted to its tokens. (This is checked for
   every size.) A key that matches in the largest size matches in the smaller one if it is there; the leak to all other
   keys is at most that of the largest, because all weights are positive.
3. **Classes.** What the rest of the model reads at a query is one of finitely many cases: which of the digits named in
   ``VARIABLES`` exist, which of them each head finds, the token just written, and the digits' values. The token just
   written is the last digit of ``PREVIOUS + carry``, which saves one variable; the carry is 0 ... 8 in a product and
   0 or 1 in a sum. Each case is enclosed (:mod:`interp.proofs.numbers.rounded_operations`), and its right token leads.

Lemma (schoolbook columns, a superset of what occurs): with ``PREVIOUS = A[k-1] B[j]`` and a carry of at most 8 into
column k - 1, the token just written is ``(PREVIOUS + carry) mod 10``, the carry into column k is
``(PREVIOUS + carry) // 10``, at most 8 again, and the right digit is ``(A[k] B[j] + that) mod 10``. A sum of two
digits and a carry of at most 1 carries at most 1. A digit that does not exist counts as 0.

Lemma (no rounding): a sum of products that are all multiples of q and whose magnitudes add up to at most ``2^24 q`` is
exact in float32, in any order, and with ``2^53 q`` in float64. Scores with the default temperature are such sums.

Precondition: the model is what its options build (:mod:`interp.proofs.hand_built.matches_options`), with position ids
from the task, which are functions of where delimiters stand. Postcondition of a positive margin for a size: every next
token of every response of that size, teacher-forced and hence greedily decoded, leads by at least so much; operands
with leading zeros are among its problems. Cost: nine scores [query, key] of the largest size and some 20,000 rows per
class; half a minute for 30 x 30 digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.hand_built.matches_options import why_not_built
from interp.proofs.hand_built.multiplication_keys import (
    DELIMITER,
    FIRST_VARIABLE,
    MIXTURE,
    NOTHING,
    PRODUCT,
    SUM,
    Places,
    find_keys,
    is_exact,
    quantum,
)
from interp.proofs.hand_built.sink_heads import Pattern, SinkWrites
from interp.proofs.numbers import rounded_operations
from interp.proofs.numbers.arb_balls import enclosure_of
from interp.proofs.numbers.enclosure import Enclosure, TrimmedMatrix, smallest_lead
from interp.proofs.numbers.rounding_errors import DOUBLE, LARGEST_WEIGHT, up
from interp.proofs.verdict.time_limit import watched
from models.tasks import Multiplication
from models.tasks.named.position_coupling.multiplication import DOLLAR
from models.transformer import HookedModel, in_block

CARRIES = {PRODUCT: 9, SUM: 2}  # how many values the carry into a column may have


def prove_sizes(model: HookedModel, sizes: list[tuple[int, int]], rounded: bool) -> Iterator[tuple[float, str | None]]:
    """For each size (M, N): (lower bound of the right token's lead on all problems, the obstacle to a proof or None).

    ``rounded``: with float32 rounding; otherwise over the real numbers. Attention is read for the largest number of
    digits on either side among the sizes.
    """
    largest = max(M for M, _ in sizes), max(N for _, N in sizes)
    proof = obstacle = None
    for M, N in watched(sizes, "proving", "size"):
        try:
            if obstacle is None:
                proof = proof or MultiplicationProof(model, largest, rounded)
                yield proof.lead_of_size(model.task.at(M, N))
                continue
        except NotSeparated as error:
            obstacle = str(error)
        yield -np.inf, obstacle


class MultiplicationProof:
    """The model's weights and its attention at the largest size; :meth:`lead` judges a class.

    Raises:
        NotSeparated: weights that the proof does not cover.
    """

    def __init__(self, model: HookedModel, largest: tuple[int, int], rounded: bool):
        if (obstacle := why_not_built(model)) is not None:
            raise NotSeparated(obstacle)
        self.weights = {key: value.detach().cpu().double().numpy() for key, value in model.effective_weights().items()}
        self.model, self.rounded = model, rounded
        self.rounding = rounded_operations.FLOAT32 if rounded else rounded_operations.REAL
        self._separate()
        self.places = Places.of(model.task.at(*largest))
        placed = self.W_pos[np.arange(len(self.W_pos)), self.places.ids].sum(1)
        near = model.weight_map.options.eta  # a wrong key is below by twice this
        self.found = [
            find_keys(self.places, self.W_E, placed, W_Q, W_K, near, self.rounding)
            for W_Q, W_K in watched(list(zip(self._of("W_Q"), self._of("W_K"), strict=True)), "attending", "head")
        ]
        self.written = [
            SinkWrites.of(self.W_E, self.W_pos.reshape(-1, self.W_pos.shape[-1]), W_V, W_O[:, self.read])
            for W_V, W_O in zip(self._of("W_V"), self._of("W_O"), strict=True)
        ]
        self.flags, self.flag = np.unique(placed[:, self.read], axis=0, return_inverse=True)
        self.flag = self.flag.reshape(-1)  # some versions of numpy return a column
        self._tables: dict[tuple[int, int], Enclosure] = {}
        self._leads: dict[tuple[int, ...], float] = {}

    def _of(self, name: str) -> np.ndarray:
        return self.weights[f"blocks.0.attn.{name}"]

    # ---- separation

    def _separate(self) -> None:
        if not all((abs(value) <= LARGEST_WEIGHT).all() for value in self.weights.values()):
            raise NotSeparated("a weight is too large")
        self.W_E, self.W_pos = self.weights["embed.W_E"], self.weights["pos_embed.W_pos"]
        self.W_U = self.weights["unembed.W_U"]
        readers = [self.weights[in_block(layer, "mlp.W_in")] for layer in (0, 1)] + [self.W_U]
        self.read = np.flatnonzero(sum(reader.any(1) for reader in readers))
        self.mlps = []
        for layer in (0, 1):
            W_in, b_in, W_out = (self.weights[in_block(layer, f"mlp.{name}")] for name in ("W_in", "b_in", "W_out"))
            b_out = self.weights.get(in_block(layer, "mlp.b_out"))
            bias = None if b_out is None else torch.from_numpy(b_out[self.read])
            W_out = W_out[:, self.read]
            unit = W_out.any(1)  # most of the first layer's write nothing
            W_in = W_in[self.read][:, unit]
            self.mlps.append((_matrix(W_in), torch.from_numpy(b_in[unit]), _matrix(W_out[unit]), bias))
        self.unembed, b_U = _matrix(self.W_U[self.read]), self.weights.get("unembed.b_U")
        self.b_U = None if b_U is None else torch.from_numpy(b_U)
        stack = np.concatenate((self.W_E, self.W_pos.reshape(-1, self.W_pos.shape[-1])))
        size = abs(self.W_E).max() + abs(self.W_pos).max((1, 2)).sum()
        if not is_exact(float(size), quantum(stack), 24 if self.rounded else 53):
            raise NotSeparated("the embeddings have too many binary digits to be added exactly")

    # ---- classes

    def lead_of_size(self, task: Multiplication) -> tuple[float, str | None]:
        """The least lead over all problems and tokens of a size, and the first token without a proved lead, if any."""
        queries, classes = np.unique(self.classes(task), axis=0, return_index=True)[::-1]
        leads = np.array([self.lead(features) for features in classes])
        if (leads > 0).all():
            return float(leads.min()), None
        token = int(queries[~(leads > 0)].min())
        where = task.target_roles[token].label
        return float(leads.min()), f"the right token may not lead at {where}"

    def classes(self, task: Multiplication) -> Int[np.ndarray, "query feature"]:
        """The class of every query of a size: codes of nine heads, flags, stage, what exists, own and right token."""
        places = Places.of(task)
        at = places.within(self.places)
        here = np.zeros(len(self.places.kind), dtype=bool)
        here[at] = True
        big = at[places.queries]
        codes = []
        for found in self.found:
            kept = here[found.query] & here[found.key]
            count = np.bincount(found.query[kept], minlength=len(here))
            label = np.bincount(found.query[kept], found.label[kept], len(here)).astype(np.int64)
            codes.append(np.where(count == 1, label, np.where(count == 0, NOTHING, MIXTURE))[big])
        q = places.queries
        features = (self.flag[big], places.kind[q], *places.exist().T, places.tokens[q], places.right[q])
        return np.stack((*codes, *features), 1).astype(np.int64)

    def lead(self, features: Iterable[int]) -> float:
        """A lower bound of the right token's lead over all cases of a class; -inf if there is none."""
        features = tuple(int(feature) for feature in features)
        if features not in self._leads:
            self._leads[features] = self._lead(*features)
        return self._leads[features]

    def _lead(self, *features: int) -> float:
        codes, (flag, stage, *exist, own, right) = features[: len(self.found)], features[len(self.found) :]
        case = cases(stage, exist, own, right)
        stream = Enclosure.exact(torch.from_numpy(self.W_E[case.token][:, self.read] + self.flags[flag]))
        parts = []
        for head, code in enumerate(codes):
            table = self._table(head, code)
            if code >= FIRST_VARIABLE:
                rows = case.values[code - FIRST_VARIABLE]
                if rows is None:
                    return -np.inf  # the head finds a digit that the case does not have
                table = table[torch.from_numpy(rows)]
            parts.append(table)
        x = self._with_mlp(0, self.rounding.add(stream, self._sum(parts)))
        _, first, group = np.unique(case.read, return_index=True, return_inverse=True)  # leaves a tenth of the cases
        x = self._with_mlp(1, hulls(x, torch.from_numpy(group.reshape(-1)), len(first)))
        return smallest_lead(self.rounding.linear(x, self.unembed, self.b_U), torch.from_numpy(case.target[first]))

    def _sum(self, parts: list[Enclosure]) -> Enclosure:
        """The sum of what heads write, in any order. A partial sum is at most the sum of all sizes; a zero adds no
        rounding."""
        mid, rad = sum(part.mid for part in parts), sum(part.rad for part in parts)
        size = sum(part.size * (part.mid.abs() + part.rad > 0) for part in parts)
        terms = sum((part.mid.abs() + part.rad > 0).double() for part in parts)
        own = self.rounding.growth(len(parts)) / len(parts) * (terms - 1).clamp_min(0.0) * size  # pyright: ignore
        return Enclosure.of(mid, up(rad + own, len(parts)))  # pyright: ignore

    def _with_mlp(self, layer: int, x: Enclosure) -> Enclosure:
        W_in, b_in, W_out, b_out = self.mlps[layer]
        hidden = self.rounding.activation("relu", self.rounding.linear(x, W_in, b_in))
        return self.rounding.add(x, self.rounding.linear(hidden, W_out, b_out))

    def _table(self, head: int, code: int) -> Enclosure:
        """What a head adds to the dimensions that are read, [digit, dim], or one row where it finds no variable."""
        if (head, code) not in self._tables:
            found, n = self.found[head], len(self.places.kind)
            share, matches = None if code == NOTHING else found.match, 1
            if code == MIXTURE:
                share, matches = found.match.union(found.match * found.most), found.most
            pattern = Pattern.of(share, found.rest, n, self.rounding, matches)
            tokens: list[tuple[int, ...]] = [()]
            if code >= FIRST_VARIABLE:
                tokens = [(digit,) for digit in range(10)]
            elif code != NOTHING:
                delimiters = tuple(range(10, DOLLAR))
                tokens = [delimiters if code == DELIMITER else (*range(10), *delimiters)]
            rows = [pattern.writes(self.written[head], DOLLAR, match, self.rounding) for match in tokens]
            self._tables[head, code] = enclosure_of(rows)
        return self._tables[head, code]


@dataclass(frozen=True, eq=False)
class ClassCases:
    """All cases of a class.

    Attributes:
        values: the values of ``VARIABLES``; None for those of the other stage.
        token, target: the token just written, and the right one.
        read: one number for OWN, PREVIOUS, token and target, which is what the second layer reads.
    """

    values: list[np.ndarray | None]
    token: Int[np.ndarray, " case"]
    target: Int[np.ndarray, " case"]
    read: Int[np.ndarray, " case"]


def cases(stage: int, exist: Iterable[int], own: int, right: int) -> ClassCases:
    """All cases of a class. A missing digit is 0; in the tokens ``own`` and ``right`` any digit stands for all."""
    digits = [range(10) if here else range(1) for here in exist]
    carries = range(CARRIES[stage]) if own < 10 else range(1)
    if stage == PRODUCT:
        k, before, b, carry = (x.reshape(-1) for x in np.meshgrid(*digits[:2], range(10), carries, indexing="ij"))
        now, previous, values = k * b, before * b, [k, before, b, None, None, None, None]
    else:
        *four, carry = (x.reshape(-1) for x in np.meshgrid(*digits, carries, indexing="ij"))
        now, previous, values = four[0] + four[2], four[1] + four[3], [None, None, None, *four]
    total = previous + carry
    token = total % 10 if own < 10 else np.full_like(total, own)
    target = (now + total // 10) % 10 if right < 10 else np.full_like(total, right)
    return ClassCases(values, token, target, ((now * 100 + previous) * 16 + token) * 16 + target)


def hulls(x: Enclosure, group: Int[Tensor, " row"], n: int) -> Enclosure:
    """For each of n groups, the balls around all of its rows."""
    index, shape = group[:, None].expand_as(x.mid), (n, x.mid.shape[1])
    low = x.mid.new_full(shape, torch.inf).scatter_reduce(0, index, x.low, "amin")
    high = x.mid.new_full(shape, -torch.inf).scatter_reduce(0, index, x.high, "amax")
    mid = (low + high) / 2
    return Enclosure.of(mid, up(torch.maximum(high - mid, mid - low) + 2 * DOUBLE * mid.abs()))


def _matrix(values: Float[np.ndarray, "input output"]) -> TrimmedMatrix:
    return TrimmedMatrix.of(torch.from_numpy(np.ascontiguousarray(values)))
