"""Methods that name neurons, judged by what is known of every input: ``python -m benchmarks.circuits.whole``.

There are two truths about the neurons of the last layer where the answer is read, which depend on no pairs, as all
problems are run:

    switch   some answers are told from all others by a threshold on what the neuron reads, in every problem. In adders
             with more problems than can be run: the carry is, which is proved
             (:mod:`interp.proofs.reading.unit_ranges`)
    needed   with the neuron's mean over all problems in its place, some problem is answered wrongly

A method sees the pairs that methods of edges see, and gives every neuron a score, which is judged by its AUROC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from benchmarks.circuits.cases import Case
from benchmarks.circuits.circuit_methods import CONTROL, ESTIMATE, SEARCH
from benchmarks.circuits.scores import auroc
from benchmarks.circuits.subjects import SUBJECTS, TRUTH, Subject, stored_truths
from benchmarks.circuits.truth import FEW
from models.tasks.check_task import domain_of
from models.transformer.part_names import in_block

UNITS = TRUTH.with_name("units.json")
KINDS = ("switch", "needed")
COLUMNS = ("subject", "method", *KINDS, "switches", "needed ones", "neurons")
POST, STREAM, PRE = "mlp.hook_post", "hook_resid_post", "mlp.hook_pre"
RIDGE = 1e-3


class UnitCase(Case):
    """A subject with an MLP in its last layer, as a method of neurons sees it."""

    @cached_property
    def own(self) -> dict[str, Tensor]:
        last = in_block(self.model.cfg.n_layers - 1, "mlp.")
        weights = self.model.effective_weights()
        return {name.removeprefix(last): value.detach() for name, value in weights.items() if name.startswith(last)}

    @torch.no_grad()
    def read(self, tokens: Tensor, *names: str) -> tuple[Float[Tensor, "n _"], ...]:
        """What hook points of the last layer hold where the answer is read."""
        full = [in_block(self.model.cfg.n_layers - 1, name) for name in names]
        _, cached = self.model.run_with_cache(tokens, names_filter=lambda name: name in full)
        return tuple(cached[name][:, self.position] for name in full)

    def read_all(self, *names: str) -> tuple[Tensor, ...]:
        """The same in all problems, with the right answers as the last."""
        task, problems = self.model.task, domain_of(self.model.task).every()
        parts = [self.read(task.encode(part), *names) for part in problems.split(2**12)]
        return (*map(torch.cat, zip(*parts, strict=True)), task.targets(problems)[:, self.pairs.target])

    def answers(self, stream: Float[Tensor, "n d_model"]) -> Float[Tensor, "n token"]:
        """Logits of residual streams after the last layer."""
        return self.model(stream[:, None], start_at_layer=self.model.cfg.n_layers)[:, 0]

    def lead(self, stream: Float[Tensor, "n d_model"]) -> Float[Tensor, " n"]:
        """The clean answer's logit minus the corrupted one's."""
        rows, target = torch.arange(len(stream)), self.pairs.target
        found = self.answers(stream)
        right, wrong = self.pairs.clean_targets[:, target], self.pairs.corrupted_targets[:, target]
        return found[rows, right] - found[rows, wrong]

    @cached_property
    def clean(self) -> tuple[Tensor, ...]:
        return self.read(self.clean_tokens, POST, STREAM)

    @cached_property
    def corrupted(self) -> Tensor:
        return self.read(self.corrupted_tokens, POST)[0]

    @cached_property
    def gradient(self) -> Float[Tensor, "n unit"]:
        """Of the lead, by what each neuron says in the clean problem."""
        stream = self.clean[1].clone().requires_grad_()
        (found,) = torch.autograd.grad(self.lead(stream).sum(), stream)
        return found @ self.own["W_out"].T

    @torch.no_grad()
    def without(self, post: Tensor, stream: Tensor, unit: int, mean: Tensor) -> Tensor:
        """The stream with the mean in a neuron's place."""
        return stream + (mean[unit] - post[:, unit])[:, None] * self.own["W_out"][unit]


@torch.no_grad()
def truths_of(subject: Subject) -> dict[str, Bool[np.ndarray, " unit"]]:
    """Which neurons are "needed" and which are a "switch", from all problems."""
    case = UnitCase(subject)
    post, stream, pre, right = case.read_all(POST, STREAM, PRE)
    mean, needed = post.mean(0), []
    for unit in range(post.shape[1]):
        answers = case.answers(case.without(post, stream, unit, mean)).argmax(-1)
        needed.append(bool((answers != right).any()))
    return {"needed": np.array(needed), "switch": gaps(pre, right)[0].gt(0).numpy()}


def gaps(pre: Float[Tensor, "n unit"], right: Int[Tensor, " n"]) -> tuple[Float[Tensor, " unit"], ...]:
    """(width, middle) of the widest gap of each neuron that has all problems with some of the answers below it, and
    those with all others above; the width is negative where there is none."""
    sides = [pre[right == answer] for answer in right.unique()]
    low, order = torch.stack([side.amin(0) for side in sides]).sort(0)
    high = torch.stack([side.amax(0) for side in sides]).gather(0, order).cummax(0).values[:-1]
    width, at = (low[1:] - high).max(0)
    return width, (low[1:] + high).gather(0, at[None])[0] / 2


def _ablation(case: UnitCase) -> Tensor:
    post, stream = case.clean
    mean, full = torch.cat((post, case.corrupted)).mean(0), case.lead(stream)
    units = range(post.shape[1])
    return torch.stack([(full - case.lead(case.without(post, stream, unit, mean))).mean() for unit in units])


def _probe(case: UnitCase) -> Tensor:
    """The length of the weights by which ridge regression reads the answer from the neurons, each scaled to one."""
    x = torch.cat((case.clean[0], case.corrupted)).double()
    targets = torch.cat((case.pairs.clean_targets, case.pairs.corrupted_targets))[:, case.pairs.target]
    y = torch.nn.functional.one_hot(targets).double()
    x, y = (x - x.mean(0)) / x.std(0).clamp_min(1e-6), y - y.mean(0)
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, x.T @ y).norm(dim=1)


def _weights(case: UnitCase) -> Tensor:
    gate = case.own.get("W_gate", case.own["W_in"]).norm(dim=0)
    return case.own["W_in"].norm(dim=0) * gate * case.own["W_out"].norm(dim=1)


#: Method -> (kind, its scores).
UNIT_METHODS: dict[str, tuple[str, Callable[[UnitCase], Tensor]]] = {
    "random": (
        CONTROL,
        lambda case: torch.rand(
            len(case.own["W_out"]), generator=torch.Generator().manual_seed(len(case.subject.name))
        ),
    ),
    "weights": (CONTROL, _weights),
    "probe": (ESTIMATE, _probe),
    "difference": (ESTIMATE, lambda case: (case.clean[0] - case.corrupted).abs().mean(0)),
    "gradient": (ESTIMATE, lambda case: (case.gradient * (case.clean[0] - case.corrupted)).mean(0)),
    "gradient, each pair": (ESTIMATE, lambda case: (case.gradient * (case.clean[0] - case.corrupted)).abs().mean(0)),
    "gradient x activation": (ESTIMATE, lambda case: (case.gradient * case.clean[0]).mean(0)),
    "ablation": (SEARCH, _ablation),
}


def run_units(subjects: Sequence[Subject] = SUBJECTS, say: Callable[[str], None] = print) -> pd.DataFrame:
    """One row per subject and method: the AUROC for neurons that are ``needed`` and for those that are a ``switch``
    (NaN where it is not known, or all are or none is), how many are each, and how many ``neurons`` there are."""
    rows, switches = [], {name: entry["switches"] for name, entry in stored_truths().items()}
    for subject in subjects:
        model = subject.model
        domain = model.task.domain
        known = {int(name.partition("N")[2]) for name, _ in switches.get(subject.name, ())}
        few = domain is not None and domain.combinations <= FEW
        if not model.cfg.d_mlp or not (few or known):
            continue
        case = UnitCase(subject)
        n = len(case.own["W_out"])
        proved = {"needed": np.zeros(n, bool), "switch": np.isin(np.arange(n), [*known])}
        truths = truths_of(subject) if few else proved
        for name, (_, function) in UNIT_METHODS.items():
            scores = function(case).detach().abs().double().numpy()
            found = [auroc(scores, truths[kind]) for kind in KINDS]
            rows.append((subject.name, name, *found, *(int(truths[kind].sum()) for kind in KINDS), n))
        say(f"{subject.name}: {dict(zip(KINDS, rows[-1][-3:], strict=False))} of {n}")
    return pd.DataFrame(rows, columns=list(COLUMNS))
