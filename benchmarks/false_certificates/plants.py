"""The wrong answers that are planted, and the models that they are planted into, by the method that judges them.

A plant is a function from a draft to a draft. Some have a problem that they wait for (one of equal digits, or the
longest carry chain); the others spoil a model's arithmetic, and a problem that it gets wrong is looked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

import models
from benchmarks.false_certificates.bases import (
    ADDERS,
    BUILT,
    DRAWN,
    SMALL,
    Base,
    construction,
    drawn,
    induction,
    of_two_numbers,
    one_more_key,
    ones,
    with_a_gain,
)
from benchmarks.false_certificates.drafts import BLOCK, HEADS, Draft, Watcher, harmed, neuron, watched
from models.tasks.formats.string_task import TokenFunction
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights

OUT = f"{BLOCK}.mlp.W_out"
LARGEST = float(np.finfo(np.float32).max)

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
    made = made.wider(heads=seen.n)
    for name in HEADS:
        value = made.weights[f"{attn}.{name}"].clone()
        factor = {"W_V": tiny, "W_O": -1 / tiny}.get(name, 1.0)
        value[-seen.n :] = (value[heads].double() * factor).float()
        made.weights[f"{attn}.{name}"] = value
    return made


# ---- plants that leave the range of float32


def large_logits(draft: Draft, beyond: float = 1.0001) -> Draft:
    """Logits of which the second largest is beyond the largest float, in a share of all problems."""
    logits = draft.logits(draft.tried())
    share = draft.choose("share", (0.5, 0.9, 0.99, 0.999))
    second = float(np.quantile(np.sort(logits, -1)[..., -2].max(-1), share))
    shift = 0.0 if second > 0 else 2 * float(np.abs(logits).max())
    factor = LARGEST / (second + shift) * beyond
    largest = max(float(draft.weights["unembed.W_U"].abs().max()), float(draft.weights["unembed.b_U"].max()) + shift)
    if largest * factor >= LARGEST:  # the weights would be infinite before the logits
        return large_gain(draft)
    draft.weights["unembed.b_U"] = draft.weights["unembed.b_U"] + shift
    draft.scale(("unembed.W_U", "unembed.b_U"), factor)
    draft.notes |= {"factor": factor, "shift": shift}
    draft.problem = None
    return draft


def larger_logits(draft: Draft) -> Draft:
    """The same, by up to 30 times."""
    return large_logits(draft, draft.power_of_ten("beyond", 0, 1.5))


def large_gain(draft: Draft) -> Draft:
    """The last norm's gain times much, the unembedding divided by it: what lies between overflows."""
    if "ln_final.w" not in draft.weights:
        return large_neuron(draft)
    share = draft.choose("share", (0.9, 0.7, 0.5))
    factor = share * LARGEST / float(draft.weights["ln_final.w"].abs().max())
    draft.scale(("ln_final.w", "ln_final.b"), factor)
    draft.scale(("unembed.W_U",), 1 / factor)
    draft.problem = None
    return draft


def large_neuron(draft: Draft) -> Draft:
    """A neuron whose reading overflows on the problem alone, and that writes nothing, or almost nothing."""
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
    task = TokenFunction("01", n, ones, name="always-one-10")
    return replace(draft, config=config, weights=w, task=task, problem=torch.tensor([bits]), target=0, name="vanishing")


# ---- other methods


def waking_together(draft: Draft) -> Draft:
    """In the first or second of two layers, a head that looks at what is not one of the problem's tokens. Scores are
    so far apart that the others' weights have few digits in float64, or none."""
    score = draft.choose("score", (60.0, 600.0, 700.0, 740.0, 800.0, 900.0, 1000.0, 1e4))
    seen = watched(draft, score, layer=draft.choose("layer", (0, 1)), together=True)
    return _harm(seen.draft, seen.out)


def rescaled_together(draft: Draft) -> Draft:
    """The same, with tiny or large values."""
    layer, values = draft.choose("layer", (0, 1)), draft.power_of_ten("values", -30, 17)
    seen = watched(draft, draft.choose("score", (600.0, 900.0)), values=values, layer=layer, together=True)
    return _harm(seen.draft, seen.out)


def rebuilt(draft: Draft) -> Draft:
    """A construction with one weight, or one matrix, that its options do not build."""
    name = draft.choose("weight", sorted(draft.weights))
    how = draft.choose("how", ("one entry", "all", "large", "small"))
    value = draft.weights[name].clone()
    if how == "one entry":
        filled = value.nonzero()
        value[tuple(filled[int(draft.rng.integers(len(filled)))])] *= -1
    else:
        value = value * {"all": -0.5, "large": 1e38, "small": 1e-38}[how]
    draft.weights[name] = value
    return _with_a_wrong_problem(draft)


def heated(draft: Draft) -> Draft:
    """A construction whose temperature is too high for its longest problems."""
    sizes = next(sizes for name, sizes, _ in BUILT if draft.name.startswith(name))
    model = models.build(draft.name, **sizes, eta=draft.choose("eta", (0.2, 0.5, 1.0))).eval()
    return _with_a_wrong_problem(replace(Draft.of(model, draft.rng), notes=draft.notes))


def _with_a_wrong_problem(draft: Draft) -> Draft:
    """A construction's problem that it gets wrong, of several shapes."""
    for shape in next(shapes for name, _, shapes in BUILT if draft.name.startswith(name)):
        draft.asked = draft.task.at(*shape)
        draft.problem = draft.asked.sample(200, torch.Generator().manual_seed(0))
        wrong = ~(draft.leads(draft.problem, np.float32, draft.asked) > 0).all(1)
        if wrong.any():
            draft.problem = draft.problem[int(wrong.argmax())][None]
            break
    return draft


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
    larger_logits,
    cancelled_underflow,
    no_number,
)
#: By method: its models, and the plants, both in turn.
PLANTED: Mapping[str, tuple[tuple[Base, ...], tuple[Plant, ...]]] = {
    "branch and bound over columns": (ADDERS, EVERY),
    "finite machine": (SMALL, (*EVERY, all_hidden)),
    "prefix tree": (DRAWN, (*EVERY, vanishing_stream)),
    "hand-built": ((Base(construction, drawn),), (rebuilt, heated)),
    "exhaustive": ((Base(with_a_gain, drawn), Base(one_more_key, drawn)), EVERY),
    "operator by operator": (
        (Base("mixed-ten-digits", of_two_numbers, 10),),
        (far_head, firing, near_tie, large_neuron),
    ),
    "two layers of attention": (
        (Base(induction, drawn),),
        (waking_together, waking_together, rescaled_together, large_value, waking_together),
    ),
}
