"""The extreme pair of each class, run through the model: their margins, and the first that is answered wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.columns.column_classes import Classes
from interp.proofs.columns.column_evidence import WrongToken
from interp.proofs.columns.small_margins import lead_of
from interp.proofs.columns.window_search import ClassProof
from interp.proofs.verdict.time_limit import watched
from interp.proofs.verdict.verdict import ArithmeticName
from models import UserError
from models.evaluation import predict
from models.number_format import shown
from models.transformer import model_name

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

    def wrong(self, adder: AdderWeights, classes: Classes) -> tuple[tuple[int, int, int | None], WrongToken] | None:
        """The worst witness that the model gets wrong by greedy decoding; witnesses with a wrong digit come first."""
        rows = np.flatnonzero(~(self.own > 0))
        found = np.nan_to_num(self.own[rows], nan=-np.inf)
        for row in rows[np.lexsort((found, classes.target[rows] >= classes.rule.written))]:
            pair = torch.from_numpy(classes.witnesses[row].copy())
            if (answer := wrong_pair(adder, pair)) is not None:
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


def require_bounds(adder: AdderWeights, classes: Classes, leads: Leads, proofs: list[ClassProof]) -> None:
    """Check that every margin that was run reaches its class's proved bound; over the reals up to float64's rounding.

    Raises:
        UserError: one does not, so that the model does something that the certifier does not know of.
    """
    bounds = np.array([proof.lowest if proof.proved else -np.inf for proof in proofs])
    exact = leads.margins is leads.own and adder.model.dtype != torch.float64
    short = leads.margins < bounds - (0 if exact else _ROUNDING * (1 + leads.size))
    if short.any():
        row = int(short.argmax())
        problem = classes.rule.problem(*classes.witnesses[row, 0].tolist())
        raise UserError(
            f"{model_name(adder.model)} does not compute what its weights say: a token of {problem} leads by "
            f"{leads.margins[row]:.3g}, and by the weights by more than {shown(bounds[row])}."
        )


@torch.inference_mode()
def wrong_pair(
    adder: AdderWeights, pair: Int[torch.Tensor, "1 2"]
) -> tuple[tuple[int, int, int | None], WrongToken] | None:
    """The problem and the model's greedily decoded answer if it is wrong (None if that does not spell a number)."""
    task, asked = adder.model.task, len(adder.layout.queries)
    answer, right = predict(adder.model, pair, method="greedy").cpu(), task.targets(pair)
    if torch.equal(answer[:, :asked], right[:, :asked]):
        return None
    first = int((answer != right)[0, :asked].long().argmax())
    said, expected = (_token_text(adder, int(row[0, first])) for row in (answer, right))
    token = WrongToken(adder.layout.rule.label(first), said, expected)
    a, b = pair[0].tolist()
    decoded = task.decode(answer)[0]
    return (a, b, decoded), token


def _token_text(adder: AdderWeights, token: int) -> str:
    return "NaN" if token < 0 else adder.model.task.token_text(token)
