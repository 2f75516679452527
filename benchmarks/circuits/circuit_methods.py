"""The methods: one function and one registration each.

    @method("mine", "what it does, in a few words")
    def mine(case: Case) -> Tensor: ...     # one score for each of case.edges

A method sees a model and some pairs (:class:`benchmarks.circuits.cases.Case`). What it returns is judged on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchmarks.circuits.cases import Case
from interp.causal.circuits.every_circuit import MOST_FITTED
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.gradient_attribution import complete_estimate, compute_attribution
from interp.causal.edges.optimal import optimal_values
from interp.causal.edges.paths import compute_direct
from interp.core.sites import model_name
from models.errors import UserError

TAUS = tuple(10 ** (k / 4 - 3) for k in range(13))  # 0.001 to 1


@dataclass(frozen=True)
class Method:
    """``most_edges``: it is left out on graphs with more edges that can matter; ``draws``: on so many draws at most;
    ``kinds``: on these kinds of pairs alone."""

    name: str
    what: str
    function: Callable[[Case], Float[Tensor, " edge"]]
    most_edges: int | None = None
    draws: int | None = None
    kinds: tuple[str, ...] | None = None

    def suits(self, live: int, draw: int, kind: str) -> bool:
        """Whether it is run on a graph with so many edges that can matter, on this draw of this kind of pairs."""
        few = self.most_edges is None or live <= self.most_edges
        return few and (self.draws is None or draw < self.draws) and (self.kinds is None or kind in self.kinds)


METHODS: dict[str, Method] = {}


def method(
    name: str,
    what: str,
    *,
    most_edges: int | None = None,
    draws: int | None = None,
    kinds: tuple[str, ...] | None = None,
) -> Callable[[Callable[[Case], Tensor]], Callable[[Case], Tensor]]:
    """Register a method. Raises UserError if another one has the name."""

    def add(function: Callable[[Case], Tensor]) -> Callable[[Case], Tensor]:
        if name in METHODS and METHODS[name].function.__module__ != function.__module__:
            raise UserError(f"A method named {name!r} is registered already.")
        METHODS[name] = Method(name, what, function, most_edges, draws, kinds)
        return function

    return add


# ---- one edge at a time, exactly


@method("exact", "what the logit difference loses without the edge")
def exact(case: Case) -> Tensor:
    return (case.experiment.full[0] - compute_direct(case.experiment)[0]).double().mean(-1)


@method("restore", "what the logit difference gains with only the edge")
def restore(case: Case) -> Tensor:
    """Every edge by itself put into the corrupted run (denoising)."""
    single = EdgeExperiment(case.model, case.pairs, "logit_diff", "corrupted", "denoise")
    found = (compute_direct(single)[0] - single.full[0]).double().mean(-1)
    case.experiment.forwards += single.forwards
    return found


# ---- gradients


def _attributed(case: Case, name: str, steps: int) -> Tensor:
    return -compute_attribution(case.experiment, name, steps)[0].double().mean(-1)


@method("eap", "edge attribution patching (Syed et al., 2023)")
def eap(case: Case) -> Tensor:
    return _attributed(case, "eap", 1)


@method("eap-ig-5", "EAP with integrated gradients, five steps (Hanna et al., 2024)")
def eap_ig_five(case: Case) -> Tensor:
    return _attributed(case, "eap-ig", 5)


@method(
    "eap-ig",
    "the same, with steps doubled until the estimates add up to the difference within 5%, 640 at most",
    most_edges=64,
)
def eap_ig(case: Case) -> Tensor:
    return -complete_estimate(case.experiment, "eap-ig")[1][0].double().mean(-1)


@method("clean-corrupted", "EAP with the mean gradient of the clean and the corrupted run")
def clean_corrupted(case: Case) -> Tensor:
    return _attributed(case, "ends", 1)


@method("atp-qk", "EAP with edges into queries and keys taken through the softmax (AtP*'s QK fix)")
def atp_qk(case: Case) -> Tensor:
    return _attributed(case, "qk-fix", 1)


@method("atp-star", "the same, without one sublayer's gradients at a time (AtP*'s GradDrop); no sign", most_edges=64)
def atp_star(case: Case) -> Tensor:
    return -_attributed(case, "atp-star", 1)


@method("gim", "EAP with gradients that factors of a product share (Gradient Interaction Modifications, 2025)")
def gim(case: Case) -> Tensor:
    return _attributed(case, "gim", 1)


@method("conductance", "path integral of each edge (conductance; CEAP, Wu et al., 2026), 40 steps")
def conductance(case: Case) -> Tensor:
    return _attributed(case, "conductance", 40)


# ---- searches: the later an edge is given up, the higher it stands


@method("acdc", "for how many of 13 thresholds ACDC keeps the edge (Conmy et al., 2023)", most_edges=32)
def acdc(case: Case) -> Tensor:
    kept = torch.zeros(len(case.edges), dtype=torch.float64)
    for tau in TAUS:
        mask, score = case.live, 1.0
        for edge in case.space.reverse_topological():
            if mask[edge]:
                trial = case.space.live(mask & (torch.arange(len(mask)) != edge))
                without = float(case.score(trial[None])[0])
                if score - without < tau:
                    mask, score = trial, without
        kept += mask
    return kept


def removed(case: Case, score: Callable[[Bool[Tensor, "variant edge"]], Tensor]) -> Tensor:
    """The step at which greedy removal, of the edge that costs least, takes each edge out."""
    mask, step = case.live, 0
    found = torch.zeros(len(mask), dtype=torch.float64)
    while mask.any():
        kept = mask.nonzero()[:, 0]
        trials = case.space.live(mask & ~torch.eye(len(mask), dtype=torch.bool)[kept])
        scores = score(trials)
        best = trials[int(scores.argmax())]
        step += 1
        found[mask & ~best] = step
        mask = best
    return found


@method("greedy", "greedy removal by the exact score", most_edges=32)
def greedy(case: Case) -> Tensor:
    return removed(case, case.score)


@method(
    "greedy-optimal",
    "greedy removal under optimal ablation (Li and Janson, 2024)",
    most_edges=8,
    draws=1,
    kinds=("made carry",),
)
def greedy_optimal(case: Case) -> Tensor:
    undecided, full = ~case.live, case.experiment.full[0].double().mean()
    tokens = case.pairs.clean_tokens[: len(case.pairs) // 2]

    def score(masks: Tensor) -> Tensor:
        assert len(masks) <= MOST_FITTED
        return -(optimal_values(case.experiment, masks | undecided, tokens)[0].double().mean(-1) - full).abs()

    return removed(case, score)


@method("exhaustive", "the smallest faithful circuit of these pairs: what another draw of pairs costs", most_edges=16)
def exhaustive(case: Case) -> Tensor:
    masks, _ = case.space.circuits(2**16)
    fits = case.score(masks) >= case.criterion.threshold
    sizes = masks.sum(1).masked_fill(~fits, len(case.edges) + 1)
    return masks[int(sizes.argmin())].double()


@method("random", "random scores: the control")
def random(case: Case) -> Tensor:
    own = crc32(f"{model_name(case.model)}, {case.pairs.what}, {case.seed}".encode())  # not the same for all models
    return torch.randn(len(case.edges), generator=torch.Generator().manual_seed(own), dtype=torch.float64)
