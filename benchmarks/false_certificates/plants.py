"""The wrong answers that are planted, and the models that they are planted into, by the method that judges them.

A plant is a function from a draft to a draft. Some have a problem that they wait for (one of equal digits, or the
longest carry chain); the others spoil a model's arithmetic, and a problem that it gets wrong is looked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import models
from benchmarks.false_certificates.drafts import BLOCK, HEADS, Draft, Watcher, harmed, neuron, watched
from models import ArithmeticTransformer
from models.tasks import Task
from models.tasks.token_function import TokenFunction
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights

OUT = f"{BLOCK}.mlp.W_out"
LARGEST = float(np.finfo(np.float32).max)
TRAINED = "benchmarks/provability/models/"

# ---- the models

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
    return task.as_problems([f"{first * base.ones}{'+-'[int(rng.integers(2))]}{second * base.ones}"])


def drawn(base: Base, task: Task, rng: np.random.Generator) -> Tensor:
    return task.sample(1, torch.Generator().manual_seed(int(rng.integers(2**31))))


def _ones(problems: Tensor) -> Tensor:
    return torch.ones_like(problems[:, :1])


def constant(rng: np.random.Generator) -> ArithmeticTransformer:
    """A small drawn model that answers 1 to every string of ten bits, by a bias."""
    pick = lambda *choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    task = TokenFunction("01", 10, _ones, name="always-one-10")
    config = TransformerConfig(
        n_layers=pick(1, 1, 2),
        d_model=8,
        n_heads=2,
        d_head=4,
        d_mlp=pick(8, 16),
        d_vocab=2,
        n_ctx=10,
        act_fn=pick("relu", "relu", "gelu", "silu"),
        normalization_type=pick(None, "RMS", "LN"),
        norm_eps_outside=bool(rng.integers(2)),
        eps=pick(1e-5, 1e-8, 1e-12),
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


# ---- plants that wait for a problem

Plant = Callable[[Draft], Draft]


def _harm(draft: Draft, dim: int, factor: float = 3.0) -> Draft:
    return harmed(draft, dim, factor, lift=bool(draft.choose("lift", (0, 1))))


def head(draft: Draft, scores: tuple[float, ...] = (30.0, 60.0)) -> Draft:
    """Heads that look at what differs from the problem, and write where nothing does."""
    seen = watched(draft, draft.choose("score", scores))
    return _through(seen)


def _through(seen: Watcher, steepness: float = 64.0) -> Draft:
    """One head writes to the logits; several through a neuron, which needs all of them."""
    if seen.n == 1 or not seen.draft.config.d_mlp:
        return _harm(seen.draft, seen.out)
    return _harm(neuron(seen, steepness), seen.spare)


def far_head(draft: Draft) -> Draft:
    """The same, with scores so far off that other weights vanish in float32, or in float64 too."""
    return head(draft, (90.0, 110.0, 400.0, 700.0, 750.0, 800.0, 1000.0, 1e4))


def firing(draft: Draft) -> Draft:
    """A neuron that passes its threshold on the problem alone."""
    seen = watched(draft, draft.choose("score", (30.0, 60.0, 200.0)))
    return _harm(neuron(seen, draft.power_of_ten("steepness", 2.5, 5)), seen.spare)


def rescaled_head(draft: Draft) -> Draft:
    """Heads whose values are tiny or large, and what they write large or tiny."""
    seen = watched(draft, 60.0, values=draft.power_of_ten("values", -36, 36))
    return _through(seen)


def rescaled_neuron(draft: Draft) -> Draft:
    """A neuron that reads by a tiny or large number and writes by a large or tiny one."""
    seen = watched(draft, 60.0)
    post = draft.power_of_ten("post", -30, 30) if draft.config.act_fn == "relu" else draft.power_of_ten("post", 0, 8)
    return _harm(neuron(seen, 64.0, post), seen.spare)


def tiny_stream(draft: Draft) -> Draft:
    """What waits and what is written are tiny parts of the stream, or in models without norms large ones."""
    high = 15.0 if draft.config.normalization_type is None else -2.0
    seen = watched(draft, 60.0, size=draft.power_of_ten("size", -30, high))
    return _through(seen)


def near_tie(draft: Draft) -> Draft:
    """A lead that is lost by less than float32 can tell, or by little more."""
    seen = watched(draft, 200.0)
    out = seen.out if seen.n == 1 else seen.spare
    made = seen.draft if seen.n == 1 else neuron(seen, 64.0)
    return harmed(made, out, 1 + draft.choose("by", (0.0, 1e-12, 1e-9, 1e-7, 1e-6)), lift=True)


def scores_rescaled(draft: Draft) -> Draft:
    """A neuron as in ``firing``, where scores are divided by an extreme number that the queries make up for."""
    draft = firing(draft)
    factor = draft.power_of_ten("attn_scale", -30, 30)
    draft.config = replace(draft.config, attn_scale=float(draft.config.score_scale) * factor)
    draft.scale([f"blocks.{i}.attn.{name}" for i in range(draft.config.n_layers) for name in ("W_Q", "b_Q")], factor)
    return draft


def cancelled_underflow(draft: Draft) -> Draft:
    """Heads whose harm others undo over the reals, and not in float32, where what these read is a product that is 0."""
    seen = watched(draft, 60.0, size=1e-12)
    made, attn, tiny = _through(seen), f"{BLOCK}.attn", 1e-46
    heads = slice(seen.head, seen.head + seen.n)
    for name in HEADS:
        value = made.weights[f"{attn}.{name}"].double()
        factor = {"W_V": tiny, "W_O": -1 / tiny}.get(name, 1.0)
        made.weights[f"{attn}.{name}"] = torch.cat((value, value[heads] * factor)).float()
    made.config = replace(made.config, n_heads=made.config.n_heads + seen.n)
    return made


# ---- plants that leave the range of float32


def large_logits(draft: Draft) -> Draft:
    """Logits beyond the largest float: of all problems, or only of those with the largest ones."""
    problems = draft.tried()
    sizes = np.sort(draft.logits(problems), -1)
    draft.put("unembed.b_U", (slice(None),), 0.0) if "unembed.b_U" not in draft.weights else None
    shift = 2 * float(np.abs(sizes).max())
    second = sizes[..., -2].max(-1) + shift
    share = draft.choose("share", (0.5, 0.9, 0.99, 0.999))
    factor = LARGEST / float(np.quantile(second, share)) * 1.0001
    draft.weights["unembed.b_U"] = draft.weights["unembed.b_U"] + shift
    draft.scale(("unembed.W_U", "unembed.b_U"), factor)
    draft.notes["factor"], draft.problem = factor, None
    return draft


def scaled_logits(draft: Draft) -> Draft:
    """The unembedding times 1e35 to 1e38."""
    draft.scale(("unembed.W_U", "unembed.b_U"), draft.power_of_ten("factor", 35, 38))
    draft.problem = None
    return draft


def large_gain(draft: Draft) -> Draft:
    """The last norm's gain times much, the unembedding divided by it: what lies between overflows."""
    if "ln_final.w" not in draft.weights:
        return large_neuron(draft)
    share = draft.choose("share", (0.9, 0.5, 0.2))
    factor = share * LARGEST / float(draft.weights["ln_final.w"].abs().max())
    draft.scale(("ln_final.w", "ln_final.b"), factor)
    draft.scale(("unembed.W_U",), 1 / factor)
    draft.problem = None
    return draft


def large_neuron(draft: Draft) -> Draft:
    """A neuron whose reading overflows on the problem alone, and that writes nothing, or next to nothing."""
    seen = watched(draft, 60.0)
    made, unit = neuron(seen, 64.0), seen.draft.config.d_mlp - 1
    for head in range(seen.head, seen.head + seen.n):
        made.write(f"{BLOCK}.attn.W_O", (head, 0), seen.out, 100.0)
    reader = f"{BLOCK}.mlp.W_{'gate' if made.config.gated_mlp else 'in'}"
    made.put(reader, (slice(None), unit), 0.0)
    made.put(reader, (seen.out, unit), LARGEST / 1.5)
    writes = draft.choose("writes", (0.0, 1e-38))
    made.put(OUT, (unit,), 0.0)
    made.write(OUT, (unit,), seen.spare, writes * seen.size)
    return made


def _overflowing(seen: Watcher, name: str) -> None:
    """Let what one token adds to a head's values (W_V) or keys (W_K) overflow."""
    made = seen.draft
    made.put(f"{BLOCK}.attn.{name}", (seen.head, seen.value, 0), LARGEST / 2)
    if f"{BLOCK}.ln1.w" in made.weights:
        made.put(f"{BLOCK}.ln1.w", (seen.value,), 1e6)
    else:
        embed = made.weights["embed.W_E"].clone()
        embed[:, seen.value] *= 8 / seen.size
        made.weights["embed.W_E"] = embed


def large_value(draft: Draft) -> Draft:
    """A value that overflows for one token, of a head that writes nothing."""
    seen = watched(draft, 60.0)
    seen.draft.put(f"{BLOCK}.attn.W_O", (seen.head,), 0.0)
    _overflowing(seen, "W_V")
    return seen.draft


def _constant_head(seen: Watcher) -> Draft:
    """Heads of which the first writes a constant, and the others nothing. The logits do without it only where it does
    not come."""
    made, attn = seen.draft, f"{BLOCK}.attn"
    for head in range(seen.head, seen.head + seen.n):
        for name in ("b_Q", "W_V", "W_K", "W_O"):
            made.put(f"{attn}.{name}", (head,), 0.0)
    made.put(f"{attn}.b_V", (seen.head, 0), 1.0)
    made.write(f"{attn}.W_O", (seen.head, 0), seen.out, seen.size)
    assert made.problem is not None
    right = int(made.task.targets(made.problem)[0, made.target])
    harm = 4 * float(np.abs(made.logits(made.tried(64))).max()) / seen.size
    made.put("unembed.W_U", (seen.out, right), harm)
    made.put("unembed.W_U", (seen.const, right), -harm)
    return made


def large_key(draft: Draft) -> Draft:
    """A key that overflows for one token where the query is 0: the head then writes 0 and not its constant."""
    seen = watched(draft, 60.0)
    made = _constant_head(seen)
    _overflowing(seen, "W_K")
    return made


def large_stream(draft: Draft) -> Draft:
    """A neuron that writes the largest float into the stream, on the problem alone."""
    seen = watched(draft, 200.0)
    made = neuron(seen, 64.0)
    unit = made.config.d_mlp - 1
    made.write(OUT, (unit,), seen.spare, draft.choose("writes", (1e10, 1e20, 1e30, 3e38)))
    return _harm(made, seen.spare)


# ---- ties and numbers that are none


def twins(draft: Draft) -> Draft:
    """Two tokens with the same logits."""
    assert draft.problem is not None
    right = int(draft.task.targets(draft.problem)[0, draft.target])
    logits = draft.logits(draft.problem)[0, draft.target]
    logits[right] = -np.inf
    other = int(logits.argmax())
    for name in ("unembed.W_U", "unembed.b_U"):
        value = draft.weights[name].clone()
        value[..., other] = value[..., right]
        draft.weights[name] = value
    return draft


def no_number(draft: Draft) -> Draft:
    """NaN or an infinity in a weight that one token reads."""
    assert draft.problem is not None
    token = int(draft.task.encode(draft.problem)[0, draft.places[0]])
    value = draft.choose("value", (math.nan, math.inf, -math.inf))
    name, at = draft.choose(
        "weight", (("embed.W_E", (token, 0)), ("unembed.b_U", (token,)), (f"{BLOCK}.attn.b_V", (0, 0)))
    )
    if name == "unembed.b_U":
        at = (int(draft.task.targets(draft.problem)[0, draft.target]),)
        value = -math.inf if value == math.inf else value
    draft.notes["weight"] = name
    draft.put(name, at, value)
    return draft


def all_hidden(draft: Draft) -> Draft:
    """A head that sees no key at one query, and so writes nothing there and a constant elsewhere."""
    seen = watched(draft, 60.0)
    made, query = _constant_head(seen), list(draft.task.query_positions)[draft.target]
    made.config = replace(made.config, attn_bias=True)
    bias = torch.zeros(made.config.n_heads, made.config.n_ctx, made.config.n_ctx)
    bias[seen.head, query] = -math.inf
    made.weights[f"{BLOCK}.attn.bias"] = bias
    return made


def vanishing_stream(draft: Draft) -> Draft:
    """A model whose stream vanishes on one string of ten bits, where a norm with a tiny eps divides by it."""
    n = 10
    bits = draft.rng.integers(2, size=n).tolist()
    unit, left = (2.0 ** -draft.choose(name, powers) for name, powers in (("unit", (78, 80)), ("left", (75, 76, 77))))
    depth, eps = 2.0 ** -draft.choose("depth", (56, 60)), draft.choose("eps", (0.0, 0.0, 1e-46, 1e-42))
    config = TransformerConfig(
        n_layers=1,
        d_model=6,
        n_heads=1,
        d_head=1,
        d_mlp=0,
        d_vocab=2,
        n_ctx=n,
        norm_placement="none",
        eps=eps,
        norm_eps_outside=bool(draft.choose("outside", (0, 1))),
        attn_scale=1.0,
    )
    w = {name: torch.zeros_like(value) for name, value in DenseWeights(config).own().items()}
    attn = f"{BLOCK}.attn"
    w["ln_final.w"] += 1
    w["embed.W_E"][:, 0] = left  # all that is left of the stream at the special string
    w["embed.W_E"][1, 2] = w["embed.W_E"][:, 4] = unit
    w["pos_embed.W_pos"][:, 3] = torch.arange(n) * math.log(2) * unit  # so that weights are 2^p / (2^n - 1)
    w[f"{attn}.W_Q"][0, 4, 0] = w[f"{attn}.W_K"][0, 3, 0] = w[f"{attn}.W_V"][0, 2, 0] = 1 / unit
    w[f"{attn}.W_O"][0, 0, 1] = -depth
    w[f"{attn}.b_O"][1] = depth * sum(bit * 2**p for p, bit in enumerate(bits)) / (2**n - 1)
    w["unembed.W_U"][0, 0], w["unembed.W_U"][1, 0] = 1.0, 3.0
    # 10 - x0 - 3 x1 is positive after the norm, and 0 has more than it where x0 alone is left.
    w["unembed.b_U"][1] = draft.choose("bias", (10.0, 10.0, 2.4))
    task = TokenFunction("01", n, _ones, name="always-one-10")
    return replace(draft, config=config, weights=w, task=task, problem=torch.tensor([bits]), target=0, name="vanishing")


# ---- other methods


def waking_together(draft: Draft) -> Draft:
    """In the first or second of two layers, a head that looks at what is not one of the problem's tokens, far off."""
    score, layer = draft.choose("score", (60.0, 700.0, 800.0, 900.0, 1e4)), draft.choose("layer", (0, 1))
    seen = watched(draft, score, layer=layer, together=True)
    return _harm(seen.draft, seen.out)


def rescaled_together(draft: Draft) -> Draft:
    """The same, with tiny or large values."""
    layer, values = draft.choose("layer", (0, 1)), draft.power_of_ten("values", -30, 17)
    seen = watched(draft, 200.0, values=values, layer=layer, together=True)
    return _harm(seen.draft, seen.out)


BUILT: tuple[tuple[str, dict[str, int], tuple[tuple[int, ...], ...]], ...] = (
    ("position-coupling-hand-built", {"max_operands": 3, "max_digits": 4}, ((3, 4), (2, 4), (3, 2), (1, 3))),
    ("multiplication-hand-built", {"max_digits": 3}, ((3, 3), (2, 3), (1, 2))),
    ("parity-hand-built", {"max_bits": 16}, ((16,), (15,), (8,), (3,))),
)


def construction(rng: np.random.Generator) -> ArithmeticTransformer:
    """A construction, of another temperature in two of three cases, down to where it errs."""
    name, sizes, _ = BUILT[int(rng.integers(len(BUILT)))]
    eta = (0.3, 1.0, 16.0)[int(rng.integers(3))]
    return models.build(name, **sizes, eta=eta).eval()


def rebuilt(draft: Draft) -> Draft:
    """A construction with one weight, or one matrix, that its options do not build; the wrong problem is looked for at
    several shapes."""
    assert draft.construction is not None
    name = draft.choose("weight", sorted(draft.weights))
    how = draft.choose("how", ("one entry", "all", "large", "small"))
    value = draft.weights[name].clone()
    if how == "one entry":
        filled = value.nonzero()
        value[tuple(filled[int(draft.rng.integers(len(filled)))])] *= -1
    else:
        value = value * {"all": -0.5, "large": 1e38, "small": 1e-38}[how]
    draft.weights[name] = value
    return as_built(draft)


def as_built(draft: Draft) -> Draft:
    """A construction as its options build it, and a problem that it gets wrong."""
    assert draft.construction is not None
    draft.notes["eta"] = float(draft.construction.options.eta)
    shapes = next(shapes for name, _, shapes in BUILT if draft.name.startswith(name))
    for shape in shapes:
        draft.asked = draft.task.at(*shape)
        draft.problem = draft.asked.sample(200, torch.Generator().manual_seed(0))
        wrong = ~(draft.leads(draft.problem, np.float32, draft.asked) > 0).all(1)
        if wrong.any():
            draft.problem = draft.problem[int(wrong.argmax())][None]
            break
    return draft


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
    Base(f"{TRAINED}add-8-bits-0", of_equal_digits, 8, base=2),
    Base(f"{TRAINED}add-3-no-norm-relu-0", of_equal_digits, 3),
    Base(f"{TRAINED}reverse-8-0", of_one_number, 8),
)
DRAWN = (Base(constant, drawn), Base(constant, drawn), Base("modular-addition-59", drawn), Base(constant, drawn))

EVERY: tuple[Plant, ...] = (
    far_head,
    firing,
    head,
    rescaled_head,
    large_neuron,
    near_tie,
    tiny_stream,
    large_logits,
    rescaled_neuron,
    large_value,
    scores_rescaled,
    large_gain,
    large_key,
    large_stream,
    twins,
    scaled_logits,
    cancelled_underflow,
    no_number,
)
#: By method: its models, and the plants, both in turn.
PLANTED: Mapping[str, tuple[tuple[Base, ...], tuple[Plant, ...]]] = {
    "branch and bound over columns": (ADDERS, EVERY),
    "finite machine": (SMALL, (*EVERY, all_hidden)),
    "prefix tree": (DRAWN, (*EVERY, vanishing_stream)),
    "hand-built": ((Base(construction, drawn),), (rebuilt, as_built)),
    "exhaustive": ((Base(with_a_gain, drawn), Base(one_more_key, drawn)), EVERY),
    "operator by operator": (
        (Base("mixed-ten-digits", of_two_numbers, 10),),
        (far_head, firing, near_tie, large_neuron),
    ),
    "two layers of attention": (
        (Base(f"{TRAINED}induction-8-one-head-0", drawn), Base(f"{TRAINED}induction-8-two-heads-0", drawn)),
        (waking_together, waking_together, rescaled_together, scaled_logits, waking_together),
    ),
}
