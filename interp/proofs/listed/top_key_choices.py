"""Attention over the best few keys: which keys surely take part, and every choice that the scores leave open.

A query attends to the keys with fewer than k larger scores
(:meth:`models.transformer.parts.attention.Attention.pattern_of`; keys that tie with the last of the best all take
part). Where balls around the scores overlap, the choice is not known. One ball around what all choices write would be
as wide as the values lie apart, and nothing could be proved after it. So each choice is followed separately, as a case;
the one that the computer takes is among them.

Lemma. With t the least score of a choice C, all of C are at least t and all others less than t; fewer than k of C are
larger than t, so that at least ``|C| - k + 1`` of them equal t. If every score lies between its low and its high end,
then t is at most the least high end of C and at least any low end of the others, and that many of C have a low end of
at most t. :func:`choices` lists all sets that satisfy these conditions, which include C.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.numbers.enclosure import Chosen, Enclosure

MOST_CASES = 64  # cases of one problem, over all layers and heads
MOST_OPEN = 8  # keys that may or may not take part, at one query of one head


def choices(low: list[float], high: list[float], chosen: Chosen, top_k: int) -> list[list[bool]]:
    """The sets of keys that one query may attend to, as masks. ``chosen`` is for this query only.

    Precondition: the ends are finite. Cost: 2^m sets for m open keys.
    """
    keys = range(len(low))
    sure, unsure = (mask.nonzero()[:, 0].tolist() for mask in (chosen.sure, chosen.open))
    found = []
    for size in range(max(top_k - len(sure), 0), len(unsure) + 1):
        for more in combinations(unsure, size):
            inside = {*sure, *more}
            most = min(high[j] for j in inside)
            if all(low[j] <= most for j in keys if j not in inside) and (
                sum(low[j] <= most for j in inside) > len(inside) - top_k
            ):
                found.append([j in inside for j in keys])
    return found


def cases(
    scores: dict[int, Enclosure], chosen: dict[int, Chosen], top_k: int, problem: Int[Tensor, " row"]
) -> tuple[Int[Tensor, " case"], dict[int, Chosen]]:
    """Every row once for each combination of choices at its queries: (the case's row, what is chosen in it).

    ``scores`` and ``chosen`` are by the query's place, [head, row, key]. ``problem`` is what a row is a case of.
    Choices that would make more than ``MOST_CASES`` cases of a problem stay open in all of its cases.
    """
    room = (MOST_CASES // problem.bincount()[problem]).tolist()
    options: list[dict[tuple[int, int], list[list[bool]]]] = [{} for _ in problem]
    counts = torch.ones(len(problem), dtype=torch.int64)
    for place, here in chosen.items():
        for head, row in here.open.any(-1).nonzero().tolist():
            alone = Chosen(here.sure[head, row], here.out[head, row])
            if int(alone.open.sum()) > MOST_OPEN:
                continue
            low, high = (end[head, row].tolist() for end in (scores[place].low, scores[place].high))
            if not all(map(math.isfinite, low + high)):
                continue
            sets = choices(low, high, alone, top_k)
            assert sets  # by the lemma; a row without cases would count as proved
            if counts[row] * len(sets) <= room[row]:
                options[row][place, head] = sets
                counts[row] *= len(sets)
    rows = torch.arange(len(problem)).repeat_interleave(counts)
    found = {place: Chosen(here.sure[:, rows], here.out[:, rows]) for place, here in chosen.items()}
    case = 0
    for row in options:
        for masks in product(*row.values()):
            for (place, head), mask in zip(row, masks, strict=True):
                found[place].sure[head, case] = torch.tensor(mask)
                found[place].out[head, case] = ~torch.tensor(mask)
            case += 1
    return rows, found
