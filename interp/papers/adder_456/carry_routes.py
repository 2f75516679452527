"""By which route the carry into a column reaches the digit that is predicted there.

Pairs of problems agree in the two digits of column i and in all columns above, and differ in the carry into column i:

    made      column i-1 has two digits of sum s < 9 in one problem and of sum s + 10 in the other; everything below is
              the same, so is the digit s_{i-1} that the model has just written and reads at its query
    passed    column i-1 has the same digits, of sum 9, and passes on a carry that arrives there in one problem and not
              in the other; everything below may differ, and s_{i-1} is 0 or 9
    control   column i-1 has other digits of the *same* sum; the carry does not differ and nothing should change

The model runs on one problem with an activation taken from its run on the other (interchange), at the query that
predicts digit i: the keys and values of a group of positions, the query vector, the query's own token in the residual
stream (its embedding, past attention), the attention's output, or all of the residual stream after attention. The
table counts how often the predicted digit becomes the other problem's, which is the digit with the carry flipped.

    whole stream after attention     100% by construction in a one-layer model: the check of the method
    own token by all its routes      the last output digit, which is the query's own token: in the stream, as a key with
                                     its value, and in the query vector
      own token in the stream        its embedding in the residual stream alone, past attention
    attention output                 everything that attention brings
      previous operands              keys and values of a_{i-1}, b_{i-1}
      operands below                 keys and values of columns 0 .. i-2
      earlier outputs                keys and values of s_0 .. s_{i-2}
      last output                    keys and values of s_{i-1}, the query's own position
      query vector                   the query alone, so the pattern

If a carry is read off ``x_{i-1} + y_{i-1} - s_{i-1}``, the schoolbook rule without its memory, then "made" flips with
the previous operands, "passed" with the own token or the last output, and nothing with the operands below.
Clopper-Pearson intervals; sampled.

Limits: one layer and its queries. Routes are swapped one at a time, so a signal that needs two of them at once shows in
neither (compare with the routes that hold both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from interp.core import runs
from interp.core.model import HookedModel
from interp.core.problems import right_tokens
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.papers.adder_456.columns import adder_task, only_layer
from models.errors import UserError, unknown_name
from models.evaluation import Rate
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.pair_kinds import carry_pairs
from models.tasks.paired_problems import ProblemPairs

KINDS = ("made", "passed", "control")
ATTENTION = ("previous operands", "operands below", "earlier outputs", "last output", "query vector")
OWN = ("own token by all its routes", "own token in the stream")
ROUTES = ("whole stream after attention", *OWN, "attention output", *ATTENTION)
BLOCK = "blocks.0."


@dataclass(frozen=True, eq=False)
class CarryRoutes(Result):
    """``flipped``: (kind of pair, route) -> how often the prediction became the other problem's digit; for the control,
    whose digits agree, how often it became any other digit. Only pairs that the model answers rightly on both sides
    count."""

    model: str
    flipped: Mapping[tuple[str, str], Rate]
    provenance: Provenance

    def rate(self, kind: str, route: str) -> Rate:
        return self.flipped[kind, route]

    def sentence(self) -> str:
        texts = []
        for kind, what in (("made", "made in the previous column"), ("passed", "passed on by it")):
            found = [(route, self.flipped[kind, route].accuracy) for route in (*OWN, *ATTENTION)]
            strong = [f"{route} {share:.1%}" for route, share in sorted(found, key=lambda x: -x[1]) if share > 0.02]
            texts.append(f"a carry {what} is flipped by {', '.join(strong) or 'no single route'}")
        worst = max(self.flipped["control", route].accuracy for route in ROUTES)
        n = self.flipped["made", ROUTES[0]].n, self.flipped["passed", ROUTES[0]].n
        return f"In {self.model} {'; '.join(texts)} ({n[0]:,} and {n[1]:,} pairs; control pairs at most {worst:.1%})."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per kind of pair and route: n, flipped, share, low, high (95%)."""
        rows = []
        for (kind, route), rate in self.flipped.items():
            low, high = rate.interval if rate.n else (0.0, 1.0)
            row = {"pair": kind, "route": route, "n": rate.n, "flipped": rate.correct}
            rows.append(row | {"share": rate.accuracy if rate.n else float("nan"), "low": low, "high": high})
        return pd.DataFrame(rows)


def route_pairs(task: FixedWidthAddition, kind: str, column: int, n: int, seed: int = 0) -> ProblemPairs:
    """``n`` pairs of problems (see the module) for the carry into ``column`` (1 to 9; passed: 2 to 9).

    Raises:
        UserError: an unknown kind, or a column that has no such pair.
    """
    if kind not in KINDS:
        raise unknown_name("kind of pair", kind, KINDS)
    if column >= DIGITS:  # there the digit is the carry itself, with no column of its own to look at
        raise UserError(f"The carry goes into columns 1 to {DIGITS - 1}, not {column}.")
    return carry_pairs(task, column, n, seed, made=kind != "passed", flipped=kind != "control")


def carry_routes(model: HookedModel, task: Any = None, n_per_column: int = 300, seed: int = 0) -> CarryRoutes:
    """Interchange by route for the carry into columns 1 to 9 of a one-layer ten-digit adder.

    Cost: two runs per pair, and one per route; pairs that the model answers wrongly on either side are left out.

    Raises:
        UserError: another task, more than one layer, n below 1.
    """
    task = adder_task(model, task)
    only_layer(model)
    if n_per_column < 1:
        raise UserError(f"n_per_column must be at least 1, not {n_per_column}.")
    counts: dict[tuple[str, str], list[int]] = {(kind, route): [0, 0] for kind in KINDS for route in ROUTES}
    for kind in KINDS:
        for column in range(2 if kind == "passed" else 1, DIGITS):
            pairs = route_pairs(task, kind, column, n_per_column, seed)
            for route, (flipped, n) in _column(model, task, column, pairs, kind == "control").items():
                counts[kind, route][0] += flipped
                counts[kind, route][1] += n
    name = model_name(model)
    rates = {key: Rate(n, flipped) for key, (flipped, n) in counts.items()}
    total = sum(rates[kind, ROUTES[0]].n for kind in KINDS)
    return CarryRoutes(name, rates, Provenance(total, seed, "pairs that are answered right on both sides"))


def _column(
    model: HookedModel, task: FixedWidthAddition, column: int, pairs: ProblemPairs, control: bool
) -> dict[str, tuple[int, int]]:
    """(flips, pairs) of one column, by route."""
    query, routes = task.query_positions[column], _routes(task, column)
    sites = list(dict.fromkeys(site for route in routes.values() for site in route))
    both = (runs.read(model, tokens, sites, [query]) for tokens in (pairs.clean_tokens, pairs.corrupted_tokens))
    (own, clean), (other, corrupted) = ((dict(zip(sites, held, strict=True)), logits) for held, logits in both)
    digits = [right[:, [column]] for right in (pairs.clean_targets, pairs.corrupted_targets)]
    used = right_tokens(clean, digits[0]) & right_tokens(corrupted, digits[1])
    (token,) = routes[OWN[0]]
    step = other[token] - own[token]
    edits = {route: [site.put(other[site]) for site in found] for route, found in routes.items()}
    edits[OWN[1]] = [Site(f"{BLOCK}hook_resid_mid", (query,)).put(lambda held, _: held + step)]
    found = {}
    for route in ROUTES:
        predicted = runs.run(model, pairs.clean_tokens, edits[route], [query]).argmax(-1).cpu()
        flipped = predicted != digits[0] if control else predicted == digits[1]
        found[route] = int((flipped & used).sum()), int(used.sum())
    return found


def _routes(task: FixedWidthAddition, column: int) -> dict[str, list[Site]]:
    """The sites that each simple route takes from the other problem."""
    query = task.query_positions[column]
    operands = lambda columns: tuple(task.operand_position(i, c) for c in columns for i in (0, 1))  # noqa: E731
    at = lambda names, positions: [Site(BLOCK + name, positions) for name in names]  # noqa: E731
    keys = ("attn.hook_k", "attn.hook_v")
    return {
        "whole stream after attention": at(["hook_resid_mid"], (query,)),
        "own token by all its routes": at(["hook_resid_pre"], (query,)),
        "attention output": at(["hook_attn_out"], (query,)),
        "previous operands": at(keys, operands([column - 1])),
        "operands below": at(keys, operands(range(column - 1))),
        "earlier outputs": at(keys, tuple(range(task.query_positions[0] + 1, query))),
        "last output": at(keys, (query,)),
        "query vector": at(["attn.hook_q"], (query,)),
    }
