"""The price of understanding (Gross et al. 2024, arXiv:2406.11779): ``interp reproduce comparison:price``.

Three proofs that a one-layer adder is right, float32 rounding enclosed, with the floating-point operations of each:

* *brute force*: every problem is run. This is done on pairs of two-digit numbers; all 10^20 pairs take 10^16 times as
  many operations;
* *carry programme*: branch and bound over columns (:mod:`interp.proofs.branching`);
* *with the program*: attention as before, but after it the states of the decompiled program
  (:mod:`interp.proofs.decompile`) in place of digits: one box for each target, own token and sum plus carry.

A forward pass is counted by torch's counter, which counts products of matrices. Proofs are counted entry by entry, on
arrays that derive from the weights. What both proofs need first, the terms of attention in Arb balls, is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

import models
from interp.core.as_json import decode, encode
from interp.core.results import Provenance, Result
from interp.core.sections import Section
from interp.papers.studies import Made, Settings, shows, study
from interp.proofs.balls import FLOAT32
from interp.proofs.branching import Search, prove
from interp.proofs.certify import AIM
from interp.proofs.class_proofs import BranchAndBound
from interp.proofs.one_layer import read_adder
from models.evaluation import margins
from models.numerals import shown

TARGET, TITLE = "comparison:price", "The price of understanding: three proofs of one theorem"
MODELS = ("microadder-57", "adder-456")
SIDE = 100  # brute force runs all operands below this
BRUTE, CARRY, PROGRAM = "brute force", "carry programme", "with the program"


class Counted(np.ndarray):
    """An array that counts the float64 operations on it, and on everything derived from it, in ``operations``."""

    operations = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        out = options.get("out")
        if out is not None:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counted) else x for x in out)
        found = getattr(ufunc, method)(*plain, **options)
        floats = [
            x for x in (found if isinstance(found, tuple) else (found,)) if getattr(x, "dtype", None) == np.float64
        ]
        each = 2 * np.shape(plain[0])[-1] if ufunc is np.matmul else 1
        Counted.operations += sum(np.size(plain[0]) if method == "reduce" else x.size * each for x in floats)
        if out is not None:
            return out[0]
        return tuple(map(counted, found)) if isinstance(found, tuple) else counted(found)

    def __array_function__(self, *asked: Any) -> Any:
        return counted(super().__array_function__(*asked))


def counted(value: Any) -> Any:
    """An array, or the arrays of a dataclass or a mapping, as :class:`Counted` arrays."""
    if isinstance(value, np.ndarray):
        return value.view(Counted)
    if isinstance(value, dict):
        return {key: counted(each) for key, each in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: counted(each) for name, each in held.items() if isinstance(each, _HELD)})
    return value


_HELD = (np.ndarray, dict)


@dataclass(frozen=True, eq=False)
class Price(Result):
    """What proofs of one theorem cost, and what they prove.

    Attributes:
        table: one row per ``model`` and ``proof``: ``operations`` for the 10^20 pairs, ``boxes`` that were bounded
            after attention (for brute force, problems that were run), and the ``bound`` of all margins in logits (for
            brute force, the smallest margin of those that were run). ``known`` is the smallest margin found among the
            10^20 pairs, which no bound can exceed.
    """

    table: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        said = []
        for model, rows in self.table.groupby("model", sort=False):
            brute, *proofs = rows.to_dict("records")
            cost = " and ".join(
                f"{one['operations']:.1e} operations {one['proof'] if one['proof'] == PROGRAM else 'by the ' + CARRY} "
                f"(every margin above {shown(one['bound'])})"
                for one in proofs
            )
            said.append(f"{model} is proved in {cost}, and would take {brute['operations']:.1e} by {BRUTE}")
        return ". ".join(said)


def by_force(model: models.ArithmeticTransformer) -> dict[str, Any]:
    """Run all pairs of operands below ``SIDE``, and scale their operations to all 10^20 pairs."""
    pairs = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE))
    weights, tokens = model.effective_weights(), model.task.encode(pairs)
    weights = {key: value.detach() for key, value in weights.items()}  # torch's counter would follow gradients
    with FlopCounterMode(display=False) as counter:
        logits = model(tokens, weights=weights)
    found = margins(logits[:, list(model.task.query_positions)], model.task.targets(pairs))
    operations = counter.get_total_flops() / len(pairs) * 10**20
    return {"proof": BRUTE, "operations": operations, "boxes": len(pairs), "bound": float(found.min())}


def proved(name: str, case: BranchAndBound, bound: Callable[[Search, tuple[int, int], float], float]) -> dict[str, Any]:
    """Prove every query by ``bound(search, query, aim)``, which returns the least margin that it proves."""
    search, aim = case.search, AIM * float(case.hunted.min())
    attention = counted(replace(search.attention, queries=counted(search.attention.queries)))
    Counted.operations, counting = 0, Search(counted(search.adder), FLOAT32, attention)
    least = min(bound(counting, query, aim) for query in search.attention.queries)
    return {"proof": name, "operations": float(Counted.operations), "boxes": counting.boxes, "bound": float(least)}


def by_columns(search: Search, query: tuple[int, int], aim: float) -> float:
    found = prove(search, search.query(*query), aim=aim).values()
    return min(one.lowest if one.proved and not one.open + one.refuted else -np.inf for one in found)


def by_program(search: Search, key: tuple[int, int], aim: float) -> float:
    """The least margin over the program's states: a box holds every leaf of one sum plus carry."""
    query = search.query(*key)
    leaves = query.roots()
    leaves = leaves[query.holds(leaves)]
    carry, total = query.class_of(leaves)
    low, high = (np.asarray(end) for end in query.box(leaves))
    states, first, state = np.unique(carry + np.maximum(total, 0), return_index=True, return_inverse=True)
    answer = query.answer(leaves)
    assert (answer == answer[first][state]).all()  # as the program says
    low = np.array([low[state == k].min(0) for k in range(len(states))])
    high = np.array([high[state == k].max(0) for k in range(len(states))])
    lower, _ = search.judge_boxes(query, answer[first], low, high, np.full(len(states), aim))
    return float(np.nan_to_num(lower, nan=-np.inf).min())


@study(TARGET, TITLE)
def price(settings: Settings) -> Made:
    rows = []
    for name in MODELS:
        model = models.load(name)
        case = BranchAndBound(read_adder(model), FLOAT32)
        for row in (by_force(model), proved(CARRY, case, by_columns), proved(PROGRAM, case, by_program)):
            rows.append({"model": name} | row | {"known": float(case.hunted.min())})
            settings.say(str(rows[-1]))
    about = Provenance(10**20, None, "pairs of ten-digit numbers", "certified with rounding")
    return Made({"price": encode(Price(pd.DataFrame(rows), about))})


@shows(TARGET)
def show_price(data: Any) -> list[Section]:
    found: Price = decode(Price, data["price"])
    text = f"""{found.sentence()}. {BRUTE.capitalize()} was run on {SIDE**2:,} pairs; its bound is theirs alone. An open
mark stands for the smallest margin that was met among all 10^20 pairs ("known"): a bound can be no higher. Most
operations of both proofs bound what attention writes. After it the program needs fewer boxes, because digits that have
one sum share a box; where such a box is wide, it costs more."""
    table = found.table.assign(operations=found.table.operations.map("{:.2e}".format))
    return [Section("Operations and bounds", text, (table,), (found.figure(),))]
