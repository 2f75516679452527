"""The certified models that wrong answers are planted into, and how a problem of each is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import models
from benchmarks.false_certificates.drafts import Draft
from models import ArithmeticTransformer
from models.tasks import Task
from models.tasks.formats.string_task import TokenFunction
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights

TRAINED = "benchmarks/provability/models/"

Problem = Callable[["Base", Task, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Base:
    """A certified model, by name or by a function that draws one, and how a problem of its task is chosen.

    Numbers have ``width`` digits to ``base``.
    """

    source: str | Callable[[np.random.Generator], ArithmeticTransformer]
    problem: Problem
    width: int = 0
    base: int = 10

    @property
    def ones(self) -> int:
        return (self.base**self.width - 1) // (self.base - 1)

    def draft(self, rng: np.random.Generator) -> Draft:
        model = models.load(self.source).eval() if isinstance(self.source, str) else self.source(rng)
        draft = Draft.of(model, rng)
        if callable(self.source) and draft.construction is None:
            draft.name = self.source.__name__
        draft.problem = self.problem(self, model.task, rng)
        draft.target = int(draft.choose("target", (0, -1, len(model.task.query_positions) // 2)))
        return draft


def of_equal_digits(base: Base, task: Task, rng: np.random.Generator) -> Tensor:
    """A pair of numbers of one digit each, over and over; or the longest carry chain, 99...9 + 1."""
    high, low = sorted(rng.integers(base.base, size=2).tolist(), reverse=True)
    most = (base.base - 1) * base.ones
    pairs = [(high * base.ones, low * base.ones), (high * base.ones, high * base.ones), (most, 1)]
    return task.as_problems([pairs[int(rng.integers(len(pairs)))]])


def of_one_number(base: Base, task: Task, rng: np.random.Generator) -> Tensor:
    """One number of one or two digits, over and over."""
    first, second = rng.integers(base.base, size=2).tolist()
    return task.as_problems([(int((f"{first}{second}" * base.width)[: base.width]),)])


def of_two_numbers(base: Base, task: Task, rng: np.random.Generator) -> Tensor:
    """As :func:`of_equal_digits`, of a task with an operator."""
    first, second = rng.integers(1, base.base, size=2).tolist()
    operator = "+-"[int(rng.integers(2))]
    if operator == "-":  # no difference is below zero
        first, second = max(first, second), min(first, second)
    return task.as_problems([f"{first * base.ones}{operator}{second * base.ones}"])


def drawn(base: Base, task: Task, rng: np.random.Generator) -> Tensor:
    return task.sample(1, torch.Generator().manual_seed(int(rng.integers(2**31))))


def ones(problems: Tensor) -> Tensor:
    return torch.ones_like(problems[:, :1])


def constant(rng: np.random.Generator, layers: tuple[int, ...] = (1, 1, 2)) -> ArithmeticTransformer:
    """A small drawn model that answers 1 to every string of ten bits, by a bias."""
    pick = lambda *choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    task = TokenFunction("01", 10, ones, name="always-one-10")
    config = TransformerConfig(
        n_layers=pick(*layers),
        d_model=8,
        n_heads=2,
        d_head=4,
        d_mlp=pick(8, 16),
        d_vocab=2,
        n_ctx=10,
        act_fn=pick("relu", "relu", "gelu", "silu"),
        normalization_type=pick(None, "RMS", "LN"),
        norm_eps_outside=bool(rng.integers(2)),
        eps=pick(1e-5, 1e-8, 1e-11),
        final_norm=bool(rng.integers(2)),
        gated_mlp=bool(rng.integers(4) == 0),
    )
    weights, generator = DenseWeights(config), torch.Generator().manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        for name, value in weights.own().items():
            last = name.rsplit(".", 1)[1]
            if last == "w":
                value.fill_(1.0)
            else:
                value.copy_(torch.randn(value.shape, generator=generator) * (0.3 if last.startswith("W_") else 0.1))
        weights.own()["unembed.b_U"].copy_(torch.tensor([0.0, 6.0]))
    return ArithmeticTransformer(weights, task, "constant").eval()


def induction(rng: np.random.Generator, places: int = 6, tokens: int = 7) -> ArithmeticTransformer:
    """Short induction, built with some noise: a head that looks at the place before, and one that looks for what
    follows the present token. A proof of two layers is over in seconds."""
    task = models.tasks.induction(places, tokens)
    token, place, before, answer = (slice(start, start + tokens) for start in range(0, 4 * tokens, tokens))
    config = TransformerConfig(
        n_layers=2,
        d_model=4 * tokens,
        n_heads=1,
        d_head=tokens,
        d_mlp=0,
        d_vocab=task.d_vocab,
        n_ctx=places,
        normalization_type=None,
    )
    weights, generator = DenseWeights(config), torch.Generator().manual_seed(int(rng.integers(2**31)))
    with torch.no_grad():
        own, one, shifted = weights.own(), torch.eye(tokens), torch.eye(tokens).roll(1, 1)
        for value in own.values():
            value.zero_()
        own["embed.W_E"][:, token], own["pos_embed.W_pos"][:, place] = one, one[:places]
        first, second = "blocks.0.attn", "blocks.1.attn"
        own[f"{first}.W_Q"][0, place], own[f"{first}.W_K"][0, place] = 60 * one, shifted
        own[f"{first}.W_V"][0, token], own[f"{first}.W_O"][0][:, before] = one, one
        own[f"{second}.W_Q"][0, token], own[f"{second}.W_K"][0, before] = 60 * one, one
        own[f"{second}.W_K"][0, place.start] = -2.0  # nothing is before the first place, whose head sees itself
        own[f"{second}.W_V"][0, token], own[f"{second}.W_O"][0][:, answer] = one, one
        own["unembed.W_U"][answer] = 10 * one
        for value in own.values():
            value += 0.02 * torch.randn(value.shape, generator=generator)
    return ArithmeticTransformer(weights, task, "induction").eval()


def shallow(rng: np.random.Generator) -> ArithmeticTransformer:
    """As :func:`constant`, of one layer."""
    return constant(rng, (1,))


BUILT: tuple[tuple[str, dict[str, int], tuple[tuple[int, ...], ...]], ...] = (
    ("position-coupling-hand-built", {"max_operands": 3, "max_digits": 4}, ((3, 4), (2, 4), (3, 2), (1, 3))),
    ("multiplication-hand-built", {"max_digits": 3}, ((3, 3), (2, 3), (1, 2))),
    ("parity-hand-built", {"max_bits": 16}, ((16,), (15,), (8,), (3,))),
)


def construction(rng: np.random.Generator) -> ArithmeticTransformer:
    """A construction of small sizes."""
    name, sizes, _ = BUILT[int(rng.integers(len(BUILT)))]
    return models.build(name, **sizes).eval()


def with_a_gain(rng: np.random.Generator) -> ArithmeticTransformer:
    """Addition modulo 59, with a gain of ones before the logits, which only a run of all problems knows."""
    draft = Draft.of(models.load("modular-addition-59").eval(), rng)
    draft.config = replace(draft.config, final_gain=True)
    draft.weights["ln_final.w"] = torch.ones(draft.config.d_model)
    return draft.model()


def one_more_key(rng: np.random.Generator) -> ArithmeticTransformer:
    """As :func:`constant`, with a softmax that has a further key."""
    draft = Draft.of(constant(rng), rng)
    draft.config = replace(draft.config, attn_softmax="softmax1")
    return draft.model()


ADDERS = tuple(
    Base(name, of_equal_digits, 10)
    for name in (
        "microadder-57",
        "microadder-10",
        "adder-4-by-hand",
        "microadder-57-by-hand",
        "microadder-67",
        "adder-456",
    )
)
SMALL = (
    Base(f"{TRAINED}add-3-no-norm-relu-0", of_equal_digits, 3),
    Base(shallow, drawn),
    Base(f"{TRAINED}add-8-bits-0", of_equal_digits, 8, base=2),
    Base(shallow, drawn),
    Base(f"{TRAINED}reverse-8-0", of_one_number, 8),
    Base(shallow, drawn),
)
DRAWN = (Base(constant, drawn), Base(constant, drawn), Base("modular-addition-59", drawn), Base(constant, drawn))
