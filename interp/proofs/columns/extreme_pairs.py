"""The extreme pair of each class, run through the model: their margins, and the first that is answered wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.columns.column_classes import Classes
from interp.proofs.columns.small_margins import lead_of
from interp.proofs.columns.window_search import ClassProof
from interp.proofs.verdict.recheck import require_bounds
from interp.proofs.verdict.time_limit import watched
from interp.proofs.verdict.verdict import ArithmeticName
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer

_AT_ONCE = 256  # problems per forward pass: 7 MB, and more are hardly faster
_ROUNDING = 1e-9  # rounding error of a margin in float64, relative to the largest logit


@dataclass(frozen=True, eq=False)
class Leads:
    """Margins of the classes' witnesses: the right token's logit minus the best other one's, at the class's target.

    Attributes:
        own: the margins as the model computes them. margins: those of the judged function, which over the reals is run
            in float64. A NaN does not count as a lead.
        size: the largest magnitude of a logit next to each.
    """

    own: Float[np.ndarray, " n"]
    margins: Float[np.ndarray, " n"]
    size: Float[np.ndarray, " n"]

    def wrong(self, adder: AdderWeights, classes: Classes) -> WrongAnswer | None:
        """The worst witness that the model gets wrong by greedy decoding; witnesses with a wrong digit come first."""
        rows = np.flatnonzero(~(self.own > 0))
        found = np.nan_to_num(self.own[rows], nan=-np.inf)
        for row in rows[np.lexsort((found, classes.target[rows] >= classes.rule.written))]:
            pair = torch.from_numpy(classes.witnesses[row].copy())
            if (answer := wrong_answer(adder.model, adder.model.task, pair, len(adder.layout.queries))) is not None:
                return answer
        return None

    def failing_pairs(self, classes: Classes) -> dict[int, list[tuple[int, int]]]:
        """The witnesses that the judged function gets wrong, by target."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row in np.flatnonzero(~(self.margins > 0)).tolist():
            a, b = classes.witnesses[row, 0].tolist()
            found.setdefault(int(classes.target[row]), []).append((a, b))
        return found


@torch.inference_mode()
def replay(adder: AdderWeights, classes: Classes, arithmetic: ArithmeticName) -> Leads:
    """Run all extreme pairs through the model, with the weights as they were read."""
    model, problems = adder.model, torch.from_numpy(classes.witnesses[:, 0].copy())
    queries, answers = np.array(adder.layout.queries)[classes.target], classes.answer

    def run(weights: dict[str, torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
        leads, sizes, batches = [], [], torch.arange(len(problems)).split(_AT_ONCE)
        for chosen in watched(batches, "running extreme pairs", "batch", limited=False):
            logits = model(model.task.encode(problems[chosen]).to(model.device), weights=weights).double().cpu().numpy()
            at, index = np.arange(len(chosen)), chosen.numpy()
            rows = logits[at, queries[index]]
            leads.append(lead_of(rows, answers[index]))
            sizes.append(np.abs(rows).max(1))
        return np.concatenate(leads), np.concatenate(sizes)

    own, size = run(adder.stored)
    if arithmetic != "interval" or adder.model.dtype == torch.float64:
        return Leads(own, own, size)
    margins, size = run({name: value.double() for name, value in adder.stored.items()})
    return Leads(own, margins, size)


def require_proved(adder: AdderWeights, classes: Classes, leads: Leads, proofs: list[ClassProof]) -> None:
    """Check that every margin that was run reaches its class's proved bound; over the reals up to float64's rounding.

    Raises:
        UserError: one does not.
    """
    bounds = np.array([proof.lowest if proof.proved else -np.inf for proof in proofs])
    exact = leads.margins is leads.own and adder.model.dtype != torch.float64
    allowance = np.zeros_like(leads.size) if exact else _ROUNDING * (1 + leads.size)
    problem = lambda row: classes.rule.problem(*classes.witnesses[row, 0].tolist())  # noqa: E731
    require_bounds(adder.model, leads.margins, bounds, allowance, problem)
