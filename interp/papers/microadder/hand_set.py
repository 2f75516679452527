"""Trained parameters next to parameters set by hand: how many are enough, with how many digits, and which is which.

discoverability_gap()                the smallest counts of both kinds, with the strength of evidence
compare_numbers(trained, by_hand)    MicroAdder's numbers one by one
digits_kept(model)                   to how many significant digits it can be rounded
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import models
from interp.compare.symmetries.base import closest_unitary
from interp.core.model import HookedModel
from interp.core.results import Provenance, Result, Rung
from interp.core.sites import model_name
from interp.proofs import Certificate, certify
from interp.proofs.methods import certified_at_best
from interp.proofs.stored import stored_certificate
from interp.proofs.trials import significant
from models import zoo
from models.errors import UserError
from models.microadder import MicroAdderWeights
from models.registry import get_spec
from models.tasks.addition import FixedWidthAddition

#: What MicroAdder's paper states (section 6): parameters of the smallest hand-coded adder, and of its own.
STATED = (36, 57)
KINDS = ("by hand", "trained", "trained from another model")
Judge = Callable[[Any], Certificate]

#: What each of MicroAdder's numbers does; derived in :mod:`models.hand_built.microadder`.
ROLES = {
    "arc_A": "radius of the digits' arc",
    "arc_start": "angle of digit 0: the arc is centred on 45 degrees",
    "arc_stride": "angle from digit to digit",
    "pos_equals": "equals: the column before the first, and zeros for the column after the last",
    "pos_z_hi": "Z_10's place: far up the slope, only EOS",
    "q_angle": "how far past its own column a query looks",
    "W_qk": "sharpness of attention on the columns' circle and slope",
    "out_A": "reads the arc's tangent out of the values",
    "out_B": "writes the weighed digits against the previous answer digit",
    "W_fc1": "both neurons read the tangent, with opposite signs: carry out or none",
    "W_fc2": "what the neurons write",
    "W_head": "values, output of the neurons and head: tangent (first two) and slope (last)",
    "norm_w": "norm gains",
}


# ---- how few


@dataclass(frozen=True, eq=False)
class DiscoverabilityGap(Result):
    """Adders of two ten-digit numbers by hand and by training, fewest numbers first.

    ``table``: model, made (one of ``KINDS``), numbers (how many are free), values (how many differ, without 0, 1 and
    -1), rung, smallest_margin (NaN without a certificate).
    """

    table: pd.DataFrame
    provenance: Provenance

    @classmethod
    def of(cls, table: pd.DataFrame) -> DiscoverabilityGap:
        """The result for a table; its evidence is as strong as that of its weakest model."""
        weakest = min(table.rung, key=lambda rung: get_args(Rung).index(rung) if rung in get_args(Rung) else -1)
        return cls(table, Provenance(len(table), None, "models; evidence as of the weakest", weakest))

    def smallest(self, *kinds: str) -> pd.Series:
        """The certified model with the fewest numbers among some kinds. Raises UserError if there is none."""
        rows = self.table[self.table.made.isin(kinds) & self.table.rung.str.startswith("certified")]
        if rows.empty:
            raise UserError(f"No certified model was {' or '.join(kinds)}.")
        return rows.loc[rows.numbers.idxmin()]

    @property
    def factor(self) -> float:
        """How many parameters training from random starts needs per parameter set by hand."""
        return float(self.smallest("trained").numbers / self.smallest("by hand").numbers)

    def sentence(self) -> str:
        hand, trained = self.smallest("by hand"), self.smallest("trained")
        text = (
            f"{hand.numbers} numbers set by hand are enough ({hand.model}, {hand.rung}); the smallest model trained "
            f"from a random start has {trained.numbers} ({trained.model}, {trained.rung}), {self.factor:.3g} times as "
            f"many; stated were {STATED[0]} and {STATED[1]}, {STATED[1] / STATED[0]:.2f} times"
        )
        if "trained from another model" in set(self.table.made):
            on = self.smallest("trained from another model")
            text += f"; training on from a larger model comes down to {on.numbers} ({on.model}, {on.rung})"
        return text + ". Constants of the scheme are not counted in any of them"


def discoverability_gap(judge: Judge = certified_at_best, names: Iterable[str] | None = None) -> DiscoverabilityGap:
    """Every registered adder of two ten-digit numbers that is set by hand or in the zoo, with its strength of evidence.

    A zoo entry's certificate is taken as it is stored with the weights; other models are judged here, some 20 s each,
    and those that no method can judge count as sampled. The counts are of the numbers that the weight map takes. What a
    scheme fixes (spirals and their period, zeros and ones of a pattern, widths) does not count for any of the models.
    """
    rows = []
    for name in models.names(sweeps=True) if names is None else names:
        spec = get_spec(name)
        by_hand = spec.recipe is None
        if not by_hand and name not in zoo.zoo_names():
            continue
        model = models.build(name) if by_hand else models.load(name)
        parameters = [p.detach().reshape(-1) for p in model.parameters()]
        if not isinstance(model.task, FixedWidthAddition) or not parameters:
            continue
        certificate = (None if by_hand else stored_certificate(name)) or _judged(model, judge)
        values = torch.cat(parameters).abs().unique()
        kind = "by hand"
        if not by_hand:
            kind = KINDS[2] if zoo.read_entry(name)["training"].get("start") else KINDS[1]
        rows.append(
            {
                "model": name,
                "made": kind,
                "numbers": sum(map(len, parameters)),
                "values": int(((values != 0) & (values != 1)).sum()),
                "rung": "sampled" if certificate is None else _rung(certificate),
                "smallest_margin": math.nan if certificate is None else certificate.smallest_margin,
            }
        )
    return DiscoverabilityGap.of(pd.DataFrame(rows).sort_values(["numbers", "model"], ignore_index=True))


def _judged(model: HookedModel, judge: Judge) -> Certificate | None:
    try:
        return judge(model)
    except UserError:  # no method of the certifier applies
        return None


def _rung(certificate: Certificate) -> str:
    return certificate.provenance.rung if certificate.status == "certified" else certificate.status


# ---- how many digits


@dataclass(frozen=True, eq=False)
class DigitsKept(Result):
    """Verdicts on a model whose free parameters were rounded to significant digits.

    ``table``: digits, status, rung, smallest_margin, counterexample.
    """

    model: str
    table: pd.DataFrame
    provenance: Provenance

    @classmethod
    def of(cls, model: str, table: pd.DataFrame) -> DigitsKept:
        """The result for a table; its evidence is as strong as that of its weakest verdict."""
        weakest = min(table.rung, key=get_args(Rung).index)
        return cls(model, table, Provenance(len(table), None, "roundings; evidence as of the weakest", weakest))

    @property
    def enough(self) -> int | None:
        """The fewest digits such that this and every larger number is "certified"; None if the largest is not."""
        found = None
        for row in self.table.sort_values("digits", ascending=False).itertuples():
            if row.status != "certified":
                break
            found = int(row.digits)  # pyright: ignore[reportArgumentType]
        return found

    def sentence(self) -> str:
        if self.enough is None:
            return f"{self.model} is not certified at {self.table.digits.max()} significant digits"
        return f"{self.model} stays certified if its numbers are rounded to {self.enough} or more significant digits"


def over_the_reals(model: HookedModel) -> Certificate:
    return certify(model, arithmetic="interval", width=None)  # only the verdict; the accuracy is not bounded


def digits_kept(
    model: HookedModel, digits: Iterable[int] = (1, 2, 3, 4, 5), judge: Judge = over_the_reals
) -> DigitsKept:
    """Round every free parameter (angles in the unit that the model uses) and judge the result."""
    rows = []
    for kept in digits:
        rounded = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in rounded.parameters():
                parameter.copy_(significant(parameter, kept))
        found = judge(rounded)
        a, b, answer = found.counterexample or (None, None, None)
        rows.append(
            {
                "digits": kept,
                "status": found.status,
                "rung": found.provenance.rung,
                "smallest_margin": found.smallest_margin,
                "counterexample": "" if a is None else f"{a} + {b} -> {'no number' if answer is None else answer}",
            }
        )
    return DigitsKept.of(model_name(model), pd.DataFrame(rows))


# ---- number by number


UNITS_ON = "uniform problems, for the units' ranges"


@dataclass(frozen=True, eq=False)
class NumberComparison(Result):
    """MicroAdder's parameters in two models.

    ``table``: name, index, trained (as stored), aligned (the same function, moved along its exact symmetries towards
    the other model), as_read (that times the norm gain of the dimension it reads: W_qk, W_fc1, W_head), by_hand (as
    read too), difference (as_read - by_hand), role. ``amounts``: quantity, trained, by_hand: what the parameters amount
    to, in units that no symmetry changes.
    """

    trained: str
    by_hand: str
    table: pd.DataFrame
    amounts: pd.DataFrame
    provenance: Provenance

    @property
    def correlation(self) -> float:
        """The cosine between both models' key matrices as read; other arrays have scales of their own."""
        a, b = self.table[self.table.name == "W_qk"][["as_read", "by_hand"]].to_numpy().T
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    def sentence(self) -> str:
        plain = int(self.table.by_hand.isin([0.0, 1.0, -1.0]).sum())
        ratio = self.amounts.set_index("quantity").loc["weight of the next column over the own"]
        return (
            f"Of {len(self.table)} numbers, {plain} are 0, 1 or -1 in {self.by_hand}; the next column weighs "
            f"{ratio.trained:.3g} times the own one in {self.trained} and {ratio.by_hand:.3g} times there; the key "
            f"matrices, with norm gains and along the symmetries, have a cosine of {self.correlation:.2f}"
        )


def compare_numbers(trained: HookedModel, by_hand: HookedModel, n: int = 2_000, seed: int = 0) -> NumberComparison:
    """Compare two MicroAdders of one parametrisation, number by number; ``n`` uniform pairs show what the neurons do.

    Raises:
        UserError: models that do not have the same free parameters.
    """
    maps = [getattr(model, "weight_map", None) for model in (trained, by_hand)]
    a, b = ({k: v.detach() for k, v in m.named_parameters()} if isinstance(m, MicroAdderWeights) else {} for m in maps)
    if not a or {k: v.shape for k, v in a.items()} != {k: v.shape for k, v in b.items()}:
        raise UserError(f"{model_name(trained)} and {model_name(by_hand)} do not have the same free numbers.")
    near = aligned(a, b)
    read, built = as_read(near), as_read(b)
    rows = []
    for name, value in b.items():
        for index in np.ndindex(*value.shape):
            four = [float(x[name][index]) for x in (a, near, read, built)]
            rows.append([name, ", ".join(map(str, index)), *four, four[2] - four[3], ROLES[name]])
    columns = ["name", "index", "trained", "aligned", "as_read", "by_hand", "difference", "role"]
    left, right = (amounts(model, n, seed) for model in (trained, by_hand))
    both = pd.DataFrame({"quantity": list(left), "trained": left.values(), "by_hand": right.values()})
    return NumberComparison(
        model_name(trained), model_name(by_hand), pd.DataFrame(rows, columns=columns), both,
        Provenance(n, seed, UNITS_ON),
    )  # fmt: skip


def aligned(trained: dict[str, Tensor], target: dict[str, Tensor]) -> dict[str, Tensor]:
    """The trained parameters, moved as near to ``target`` as the symmetries of what the model computes allow.

    * ``W_qk``, rows taken in pairs as complex numbers, may be multiplied by any unitary matrix: the rotation of the
      queries commutes with it. The nearest one is the polar factor (Procrustes). With the rows of each pair
      exchanged, the angle changes its sign.
    * ``out_A`` matters only through ``W_head out_A``, and its scale can be traded against ``out_B``'s (the best of
      3,202 factors from 1/100 to 100).

    The 57 has no permutation symmetry of its neurons, because W_head ties them to axes, and no symmetry of norm gains,
    because W_head also writes what it reads. The 67 has both. All sizes have more symmetries that exchange or reverse
    axes, which would hide which number is which; they are in :mod:`interp.compare.symmetries.microadder`.
    """
    found = {name: value.double().clone() for name, value in trained.items()}
    goal = {name: value.double() for name, value in target.items()}
    if float(found["q_angle"] * goal["q_angle"]) < 0:
        found["q_angle"] = -found["q_angle"]
        found["W_qk"] = found["W_qk"].reshape(-1, 2, found["W_qk"].shape[1]).flip(1).flatten(0, 1)
    own, other = (as_read(numbers)["W_qk"] for numbers in (found, goal))
    found["W_qk"] = closest_unitary(own @ other.T).T @ found["W_qk"]
    head = found["W_head"]
    seen = torch.linalg.pinv(head) @ head  # onto what W_head reads
    visible, wanted = seen @ found["out_A"], seen @ goal["out_A"]

    def distance(factor: float) -> float:
        return sum(
            float((x - y).square().sum() / z.square().sum().clamp(min=1e-12))
            for x, y, z in (
                (found["out_B"] * factor, goal["out_B"], goal["out_B"]),
                (visible / factor, wanted, goal["out_A"]),
            )
        )

    factors = [sign * 10 ** (exponent / 400) for exponent in range(-800, 801) for sign in (1, -1)]  # 1 is one of them
    best = min(factors, key=distance)
    found["out_B"] = found["out_B"] * best
    found["out_A"] = visible / best + goal["out_A"] - wanted
    return found


def as_read(numbers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices that read the normed stream, multiplied by its gains: what they would be with norm gains of 1.

    ``W_head`` also writes, without gains; this is its part as the unembedding.
    """
    gain = numbers["norm_w"]
    readers = {"W_qk": gain[2:], "W_fc1": gain, "W_head": gain}
    return numbers | {name: numbers[name] * g for name, g in readers.items()}


@torch.no_grad()
def amounts(model: HookedModel, n: int, seed: int) -> dict[str, float]:
    """What a MicroAdder's parameters amount to: arc, attention, value gain, and the neurons' ranges by carry out.

    The pattern is read on one problem, as it is the same on all. Ranges are over n uniform problems and columns 0-9.
    """
    task, arc = model.task, model.weight_map
    pairs = task.as_problems(torch.randint(10**10, (n, 2), generator=torch.Generator().manual_seed(seed)))
    _, cache = model.run_with_cache(task.encode(pairs), names_filter=lambda name: "pattern" in name or "pre" in name)
    pattern = cache["blocks.0.attn.hook_pattern"][0, 0]
    queries = list(task.query_positions)
    rows = range(1, 10)
    x, y = ([task.operand_position(k, i) for i in range(10)] for k in (0, 1))
    next_over_own = [
        float((pattern[queries[i], x[i]] + pattern[queries[i], y[i]]) / pattern[queries[i], [x[i - 1], y[i - 1]]].sum())
        for i in rows
    ]
    stride, start = math.degrees(float(arc.arc_stride)), math.degrees(float(arc.arc_start))
    weights = model.effective_weights()
    tangent = math.radians(start + 4.5 * stride)
    along = torch.tensor([-math.sin(tangent), math.cos(tangent), 0, 0, 0])
    values = weights["blocks.0.ln1.w"] * along @ weights["blocks.0.attn.W_V"][0] @ weights["blocks.0.attn.W_O"][0]
    size = (weights["embed.W_E"][0] + weights["pos_embed.W_pos"][0]).square().mean().sqrt()
    pre = cache["blocks.0.mlp.hook_pre"][:, queries[:10]]
    beyond = 10 ** torch.arange(1, 11)  # a column's carry out is that of all digits up to it
    carry = (pairs[:, :, None] % beyond).sum(1) >= beyond
    found = {
        "arc, degrees": 9 * stride,
        "centre of the arc, degrees": start + 4.5 * stride,
        "weight of the next column over the own": float(np.exp(np.log(next_over_own).mean())),
        "that in column 1": next_over_own[0],
        "that in column 9": next_over_own[-1],
        "weight of equals for Z_10": float(pattern[queries[10], queries[0]]),
        "tangent written for one read": float(values @ along / size),
    }
    for unit in (0, 1):
        for word, which in (("without", ~carry), ("with", carry)):
            some = pre[..., unit][which]
            found |= {f"unit {unit}, {word} carry-out: least": float(some.min())}
            found |= {f"unit {unit}, {word} carry-out: most": float(some.max())}
    return found
