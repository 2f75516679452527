"""The methods: one function and one registration each.

    @method("mine", "what it does, in a few words")
    def mine(case: Case) -> Tensor: ...     # one score for each of case.edges

A method sees a model and some pairs (:class:`benchmarks.circuits.cases.Case`). What it returns is judged on others.
There are three kinds, which stand apart in the tables:

    control     knows nothing of the runs: what any method must beat
    estimate    says what an edge does, from a few passes or from one for each edge
    search      measures the score that defines the truth, of single edges or of many masks: it is told what it is asked
                for, and pays in passes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from zlib import crc32

import torch
from jaxtyping import Bool
from scipy.stats import rankdata
from torch import Tensor

from benchmarks.circuits.cases import Case, role
from benchmarks.circuits.truth import CORRUPTED, MEAN, ZERO
from interp.causal.edges.attribution_methods import complete_estimate, compute_attribution
from interp.causal.edges.edge_graph import EMBED, LOGITS, POS_EMBED
from interp.causal.edges.path_patching import compute_direct
from models.errors import UserError, known_name
from models.transformer.part_names import head_name, in_block, layer_part

TAUS = tuple(10 ** (k / 4 - 3) for k in range(13))  # 0.001 to 1


CONTROL, ESTIMATE, SEARCH = "control", "estimate", "search"
Function = Callable[[Case], Tensor | Mapping[str, float]]


@dataclass(frozen=True)
class Method:
    """``most_edges``: it is left out on graphs with more edges that can matter; ``ablations``: it is run under these
    alone. The tables say so."""

    name: str
    what: str
    function: Function
    kind: str = ESTIMATE
    most_edges: int | None = None
    ablations: tuple[str, ...] = (CORRUPTED, MEAN, ZERO)

    def suits(self, ablation: str, live: int) -> bool:
        return ablation in self.ablations and (self.most_edges is None or live <= self.most_edges)


METHODS: dict[str, Method] = {}


def method(
    name: str,
    what: str,
    *,
    kind: str = ESTIMATE,
    most_edges: int | None = None,
    ablations: tuple[str, ...] = (CORRUPTED, MEAN, ZERO),
) -> Callable[[Function], Function]:
    """Register a method. Raises UserError if another one has the name."""

    def add(function: Function) -> Function:
        if name in METHODS and METHODS[name].function.__module__ != function.__module__:
            raise UserError(f"A method named {name!r} is registered already.")
        known_name("kind of method", kind, (CONTROL, ESTIMATE, SEARCH))
        METHODS[name] = Method(name, what, function, kind, most_edges, ablations)
        return function

    return add


# ---- controls


@method("random", "random scores", kind=CONTROL)
def random(case: Case) -> Tensor:
    own = crc32(f"{case.subject.name}, {case.ablation}, {case.seed}".encode())  # not the same for all models
    return torch.randn(len(case.edges), generator=torch.Generator().manual_seed(own), dtype=torch.float64)


@method("blind prior", "how often the edge's role is in the circuits of other families; no run", kind=CONTROL)
def blind_prior(case: Case) -> Tensor:
    inside, of = (
        torch.tensor(x).double()
        for x in zip(*(case.prior.get(role(edge, case.model.cfg.n_layers), (0, 0)) for edge in case.edges), strict=True)
    )
    return (inside + 0.5) / (of + 1)


@method("weights", "the length of what the sender's weights and the receiver's make together; no run", kind=CONTROL)
@torch.no_grad()
def weights(case: Case) -> Tensor:
    """``|W_sender W_receiver| / (|W_sender| |W_receiver|)``, Frobenius norms (composition, Elhage et al. 2021)."""
    own, graph = case.model.effective_weights(), case.experiment.graph
    writes, reads = {EMBED: own["embed.W_E"], POS_EMBED: own.get("pos_embed.W_pos")}, {LOGITS: own["unembed.W_U"]}
    for layer, head in product(range(graph.n_layers), range(graph.n_heads)):
        w = {kind: own[in_block(layer, f"attn.W_{kind}")][head] for kind in "QKVO"}
        name = head_name(layer, head)
        writes[name] = w["V"] @ w["O"]
        qk = w["Q"] @ w["K"].T
        reads |= {f"{name}.q": qk, f"{name}.k": qk.T, f"{name}.v": writes[name]}
    for layer in range(graph.n_layers * graph.has_mlp):
        name = layer_part(layer, "mlp")
        writes[name], reads[name] = own[in_block(layer, "mlp.W_out")], own[in_block(layer, "mlp.W_in")]
    found = []
    for edge in graph.edges:
        one, other = writes[edge.sender], reads[edge.receiver]
        found.append(float((one @ other).norm() / (other.norm() * one.norm()).clamp_min(1e-12)))
    return torch.tensor(found, dtype=torch.float64)


@method("prior and weights", "the ranks of both, added, among edges that can matter; no run", kind=CONTROL)
def prior_and_weights(case: Case) -> Tensor:
    """What is known before any run: what is usual of an edge's role, and how well its two ends fit together."""
    found = torch.zeros(len(case.edges), dtype=torch.float64)
    for scores in (blind_prior(case), weights(case)):
        found[case.live] += torch.from_numpy(rankdata(case.scored(scores)[case.live]))
    return found


# ---- one edge at a time, exactly


@method("exact", "what the logit difference loses without the edge", kind=SEARCH)
def exact(case: Case) -> Tensor:
    return (case.experiment.full[0] - compute_direct(case.experiment)[0]).double().mean(-1)


@method("restore", "what the logit difference gains with only the edge", kind=SEARCH)
def restore(case: Case) -> Tensor:
    """Every edge by itself in a run whose other edges are cut (denoising)."""
    return case.recovered(torch.eye(len(case.edges), dtype=torch.bool) & case.live[:, None])


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
    ablations=(CORRUPTED,),  # with constants on cut edges even 640 steps are mostly not enough
)
def eap_ig(case: Case) -> Tensor:
    return -complete_estimate(case.experiment, "eap-ig")[1][0].double().mean(-1)


@method("clean-corrupted", "EAP with the mean gradient of the clean and the corrupted run")
def clean_corrupted(case: Case) -> Tensor:
    return _attributed(case, "ends", 1)


@method("atp-qk", "EAP with edges into queries and keys taken through the softmax (AtP*'s QK fix)")
def atp_qk(case: Case) -> Tensor:
    return _attributed(case, "qk-fix", 1)


@method("atp-star", "the same, without one sublayer's gradients at a time (AtP*'s GradDrop); no sign")
def atp_star(case: Case) -> Tensor:
    return -_attributed(case, "atp-star", 1)


@method("gim", "EAP with gradients that factors of a product share (Gradient Interaction Modifications, 2025)")
def gim(case: Case) -> Tensor:
    return _attributed(case, "gim", 1)


@method("conductance", "path integral of each edge (conductance; CEAP, Wu et al., 2026), 40 steps")
def conductance(case: Case) -> Tensor:
    return _attributed(case, "conductance", 40)


# ---- searches: the later an edge is given up, the higher it stands


@method(
    "acdc",
    "for how many of 13 thresholds ACDC keeps the edge (Conmy et al., 2023)",
    kind=SEARCH,
    ablations=(CORRUPTED,),
)
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


@method("greedy", "greedy removal by the exact score", kind=SEARCH, most_edges=32, ablations=(CORRUPTED,))
def greedy(case: Case) -> Tensor:
    return removed(case, case.score)


@method(
    "exhaustive",
    "the smallest faithful circuit of these pairs: what another draw of pairs costs",
    kind=SEARCH,
    most_edges=13,
    ablations=(CORRUPTED,),
)
def exhaustive(case: Case) -> Tensor:
    masks, _ = case.space.circuits(2**20)
    fits = case.score(masks) >= case.criterion.threshold
    sizes = masks.sum(1).masked_fill(~fits, len(case.edges) + 1)
    return masks[int(sizes.argmin())].double()
