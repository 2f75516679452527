"""What exams of the proof by a task's machine share: small models of every switch, and the truth by running them."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.proofs.machine.machine_method import _Proof, why_not_model
from interp.proofs.machine.path_search import PathClass
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import time_limit
from models import ArithmeticTransformer
from models.tasks import FormattedTask, formatted
from models.tasks.machines.machine import sequences
from models.tasks.machines.machine_of import machine_of
from models.transformer.config import TransformerConfig
from models.weight_maps import DenseWeights

#: Small tasks whose problems can all be run: 81 to 136 of them.
TASKS: tuple[dict[str, Any], ...] = (
    {"format": "{a:2}+{b:2}={s:3r}", "answer": "a + b", "base": 3},
    {"format": "{a:2}+{b:2}={s:3}", "answer": "a + b", "base": 3},
    {"format": "{a:2}-{b:2}={s:2r}", "answer": "a - b", "base": 4, "where": "a >= b"},
    {"format": "{a:2}-{b:2}={s:+2r}", "answer": "a - b", "base": 3},
    {"format": "{a}{b}{c}=", "answer": "max(max(a, b), c)", "base": 5},
)


def random_fields(rng: np.random.Generator) -> dict[str, Any]:
    """Fields of a config, of every switch that the proof knows."""
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    heads, d_head = pick((1, 4), (2, 4), (2, 2), (3, 2))
    fields: dict[str, Any] = {
        "normalization_type": pick(None, "RMS", "LN", "LN"),
        "act_fn": pick("gelu", "gelu_new", "relu", "silu"),
        "gated_mlp": pick(False, False, True),
        "d_mlp": pick(8, 8, 12, 0),
        "n_heads": heads,
        "d_head": d_head,
        "eps": pick(1e-5, 1e-5, 1e-2, 1.0, 1e-8),
        "norm_eps_outside": pick(False, False, False, True),
        "positional_embedding_type": pick("standard", "standard", "standard", "rotary", "none"),
        "attn_bias": pick(False, False, True),
        "attn_softmax": pick("softmax", "softmax", "softmax", "softmax1"),
        "use_qk_norm": pick(False, False, False, True),
        "attn_scale": pick(None, None, 1.0, 3.0),
        "parallel_attn_mlp": pick(False, False, False, True),
    }
    if fields["positional_embedding_type"] == "rotary":
        fields |= {"rotary_dim": 2, "rotary_adjacent_pairs": pick(False, True), "rotary_base": pick(10.0, 10_000.0)}
    if fields["normalization_type"] is None:
        fields["final_gain"] = pick(False, False, True)
    else:
        fields |= {"norm_placement": pick("pre", "pre", "pre", "post", "none"), "final_norm": pick(True, True, False)}
    return fields


def random_model(task: FormattedTask, seed: int, deviation: float, **fields: Any) -> ArithmeticTransformer:
    """A model of random weights; with a bias on scores, every second seed hides a key from all queries."""
    plain: dict[str, Any] = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8}
    config = TransformerConfig(d_vocab=task.d_vocab, n_ctx=task.input_length, **{**plain, **fields})
    weights, generator = DenseWeights(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in weights.own().items():
            kind = name.rsplit(".", 1)[1]
            size = deviation * (0.5 if kind in ("w", "bias") else 1)
            parameter.copy_((kind == "w") + size * torch.randn(parameter.shape, generator=generator))
            if kind == "bias" and seed % 2:
                parameter[:, :, 1] = -torch.inf
    return ArithmeticTransformer(weights, task, name="random").eval()


class Truth:
    """All problems of a small task, or some of a larger one, by running them."""

    def __init__(self, task: FormattedTask, problems: Tensor | None = None):
        self.task, self.machine = task, machine_of(task)
        domain = task.domain
        self.problems = domain.problems(domain.numbered(domain.kept)) if problems is None else problems
        self.tokens, self.targets = task.encode(self.problems), task.targets(self.problems)
        #: The machine's path of each problem, [n, step].
        self.paths = torch.from_numpy(self.machine.run(sequences(task, self.problems)))

    def leads(self, model: ArithmeticTransformer, arithmetic: str) -> Tensor:
        """The right token's lead over the best other one, [n, target]: of the model as it runs ("float32"), or of the
        same numbers in float64 ("interval")."""
        if arithmetic == "interval":
            weights = {name: value.detach() for name, value in model.effective_weights().items()}
            model = ArithmeticTransformer(DenseWeights.holding(model.config, weights).double(), self.task)
        with torch.no_grad():
            logits = model(self.tokens)[:, list(self.task.query_positions)].double()
        right = self.targets[..., None]
        others = logits.scatter(-1, right, -torch.inf).amax(-1)
        return (logits.gather(-1, right)[..., 0] - others).nan_to_num(nan=-torch.inf)

    def inside(self, one: PathClass) -> Tensor:
        """Which of these problems a class has, [n]."""
        masks = [mask[one.label] for mask in one.paths.roots]
        kept = one.paths.originals(masks)
        return torch.stack([torch.from_numpy(part)[self.paths[:, k]] for k, part in enumerate(kept)]).all(0)


def trained(
    task: FormattedTask, seed: int, steps: int = 300, rate: float = 2e-2, **fields: Any
) -> ArithmeticTransformer:
    """A small model after some steps on all problems at once: mostly right, with leads of a few logits."""
    model, truth = random_model(task, seed, 0.4, **fields), Truth(task)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.isfinite().all()], lr=rate)
    for _ in range(steps):
        logits = model(truth.tokens, weights=model.effective_weights())[:, list(task.query_positions)]
        loss = cross_entropy(logits.flatten(0, 1), truth.targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def noisy(model: ArithmeticTransformer, noise: float, seed: int) -> ArithmeticTransformer:
    """A copy whose tensors got noise of this share of their deviation."""
    found, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.isfinite().all() and parameter.numel() > 1:
                parameter += noise * parameter.std() * torch.randn(parameter.shape, generator=generator)
    return found


def shifted(model: ArithmeticTransformer, token: int, by: float) -> ArithmeticTransformer:
    """A copy whose unembedding adds more to a token."""
    found = copy.deepcopy(model)
    with torch.no_grad():
        dict(found.weight_map.own())["unembed.b_U"][token] += by
    return found


def proof_of(model: ArithmeticTransformer, task: FormattedTask, arithmetic: Any, seconds: float = 20.0) -> _Proof:
    """The search over all classes of a model, as far as it comes."""
    assert why_not_model(model) is None
    with torch.inference_mode(), time_limit(seconds / 60):
        proof = _Proof(Subject(model, task), machine_of(task), arithmetic)
        proof.run()
    return proof


class Judged:
    """A proof of a model and the truth about it."""

    def __init__(self, model: ArithmeticTransformer, truth: Truth, arithmetic: str, seconds: float = 20.0):
        self.proof, self.truth = proof_of(model, truth.task, arithmetic, seconds), truth
        self.leads = truth.leads(model, arithmetic)
        #: Float64 itself rounds: leads over the reals are known up to this, relative to their size.
        self.slack = 1e-9 if arithmetic == "interval" else 0.0

    @cached_property
    def least(self) -> list[tuple[PathClass, float]]:
        """Every class that has some of the problems, with the true least lead of them."""
        found = [(one, self.leads[self.truth.inside(one), one.paths.target]) for one in self.proof.classes]
        return [(one, float(leads.min())) for one, leads in found if len(leads)]

    def false(self) -> list[str]:
        """The classes whose proved bound is above the true least lead."""
        return [
            f"target {one.paths.target}, token {one.paths.token}: proved {one.bound}, is {least}"
            for one, least in self.least
            if one.proved and (one.bound > least + self.slack * (1 + abs(least)) or least <= 0)
        ]

    @property
    def proved(self) -> int:
        return sum(one.proved for one in self.proof.classes)


def made(number: int) -> FormattedTask:
    return formatted(**TASKS[number % len(TASKS)])
