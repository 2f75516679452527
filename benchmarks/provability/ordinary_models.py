"""The ordinary models: a task, a config and a seed each, without any part that was chosen so that a proof is easy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.tasks import Task
from models.training.model_definition import task_of
from models.transformer.config import TransformerConfig

MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class OrdinaryModel:
    """An ordinary model.

    Attributes:
        name: also of its run folder in :data:`MODELS`.
        task: what :func:`models.tasks.formatted` takes, or {"function": ...} or {"induction": ...} for those.
        config: fields of the config that differ from :data:`PLAIN`.
        seed: of the initial weights and the problems.
        steps: of the cosine schedule; training stops before its end once everything is right.
        command: what trained it, if it was not :mod:`benchmarks.provability.train`, and on which machine.
        alibi: whether scores get fixed slopes over distance, which are not trained.
    """

    name: str
    task: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    steps: int = 8_000
    alibi: bool = False
    command: str = ""

    def made_task(self) -> Task:
        return task_of(dict(self.task))

    def made_config(self, task: Task) -> TransformerConfig:
        return TransformerConfig(d_vocab=task.d_vocab, n_ctx=task.input_length, **{**PLAIN, **self.config})


#: One layer, LayerNorm and GELU, two heads that read and write all of the stream.
PLAIN: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 32,
    "n_heads": 2,
    "d_head": 16,
    "d_mlp": 128,
    "act_fn": "gelu",
    "normalization_type": "LN",
}
GATED: dict[str, Any] = {"normalization_type": "RMS", "act_fn": "silu", "gated_mlp": True, "d_mlp": 64}
ROTARY: dict[str, Any] = {"positional_embedding_type": "rotary"}
NO_NORM: dict[str, Any] = {"normalization_type": None, "act_fn": "relu"}


def _add(digits: int, order: str = "r", operands: str = "") -> dict[str, Any]:
    """Addition: the answer's digits in this order ("r": units first), the operands' in that one."""
    answer = f"{{s:{digits + 1}{order}}}"
    return {
        "format": f"{{a:{digits}{operands}}}+{{b:{digits}{operands}}}={answer}",
        "answer": "a + b",
        "variables": "addition",
    }


def _bits(expression: str) -> dict[str, Any]:
    return {"format": "{a}{b}{c}{d}{e}{f}{g}{h}=", "answer": expression, "base": 2}


SUBTRACT = {"format": "{a:4}-{b:4}={s:4r}", "answer": "a - b", "where": "a >= b", "variables": "subtraction"}
SIGNED = {"format": "{a:3}-{b:3}={s:+3r}", "answer": "a - b", "variables": "subtraction"}
BINARY = {"format": "{a:8}+{b:8}={s:9r}", "answer": "a + b", "base": 2, "variables": "addition"}
THREE = {"format": "{a:3}+{b:3}+{c:3}={s:4r}", "answer": "a + b + c", "variables": "addition"}
LARGEST = {"format": "{a}{b}{c}{d}=", "answer": "max(max(a, b), max(c, d))", "base": 64}
COMPARE = {"format": "{a:4}?{b:4}=", "answer": "(a > b) + (a >= b)", "variables": "comparison"}
COPY = {"format": "{a:8}={s:8}", "answer": "a"}
REVERSE = {"format": "{a:8}={s:8r}", "answer": "a"}
PARITY = _bits("a ^ b ^ c ^ d ^ e ^ f ^ g ^ h")
#: 0 opens and 1 closes; no beginning closes more than it opens, and four of eight close.
BRACKETS = _bits(
    "(a <= 0) * (a + b <= 1) * (a + b + c <= 1) * (a + b + c + d <= 2) * (a + b + c + d + e <= 2)"
    " * (a + b + c + d + e + f <= 3) * (a + b + c + d + e + f + g <= 3) * (a + b + c + d + e + f + g + h == 4)"
)

TWO_LAYERS: dict[str, Any] = {"n_layers": 2}
ATTENTION_ONLY: dict[str, Any] = {"n_layers": 2, "d_mlp": 0, "normalization_type": None}
ONE_WIDE_HEAD: dict[str, Any] = {"n_heads": 1, "d_head": 32}
LARGEST_OF_8 = {
    "format": "{a}{b}{c}{d}{e}{f}{g}{h}=",
    "answer": "max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))",
    "base": 64,
}


def _function(vocabulary: str, length: int, answer: str) -> dict[str, Any]:
    return {"function": {"vocabulary": vocabulary, "length": length, "answer": answer}}


def _stacked(name: str, task: Mapping[str, Any], config: Mapping[str, Any], steps: int = 8_000) -> OrdinaryModel:
    command = f"python -m benchmarks.provability.train_stacked OUT {name}, on one NVIDIA H200"
    return OrdinaryModel(name, task, config, 0, steps, command=command)


#: Shapes that are trained as stacks of seeds, with the number of seeds at each learning rate. Names are without seeds.
STACKED: tuple[tuple[OrdinaryModel, int], ...] = (
    *(
        (_stacked(f"induction-{length}-{heads}", {"induction": {"length": length}}, ATTENTION_ONLY | more), 6)
        for length in (6, 8, 12)
        for heads, more in (("one-head", ONE_WIDE_HEAD), ("two-heads", {}))
    ),
    (_stacked("add-3-two-layers-no-norm-relu", _add(3), NO_NORM | TWO_LAYERS), 4),
    (_stacked("add-5-two-layers", _add(5), TWO_LAYERS, steps=12_000), 4),
    (_stacked("compare-4", COMPARE, {}), 6),
    (_stacked("add-3-attention-only", _add(3), {"d_mlp": 0}), 6),
    (_stacked("add-3-parallel", _add(3), {"parallel_attn_mlp": True}), 6),
    (_stacked("add-4-highest-first", _add(4, ""), {}, steps=16_000), 6),
    (_stacked("add-three-3", THREE, {}, steps=12_000), 6),
    (_stacked("parity-8", PARITY, {}), 6),
    (_stacked("max-8-of-64", LARGEST_OF_8, {}, steps=10_000), 4),
    (_stacked("sorted-4-of-16", _function("0123456789abcdef", 4, "sorted"), {}), 4),
    (_stacked("brackets-24", _function("01", 24, "balanced"), {}), 4),
    (_stacked("brackets-24-two-layers", _function("01", 24, "balanced"), TWO_LAYERS), 4),
    (_stacked("parity-24", _function("01", 24, "parity"), {}), 4),
)

#: Of each shape, the first of its seeds that answered 110,000 drawn problems.
KEPT: Mapping[str, tuple[int, ...]] = {
    "induction-6-one-head": (0, 1, 2, 3, 4, 5, 6),
    "induction-6-two-heads": (0, 1),
    "induction-8-one-head": (0, 1),
    "induction-8-two-heads": (0, 1),
    "induction-12-one-head": (0, 1),
    "induction-12-two-heads": (0, 1),
    "add-3-two-layers-no-norm-relu": (0, 1),
    "add-5-two-layers": (0, 1),
    "compare-4": (5, 11),
    "add-three-3": (13,),
    "max-8-of-64": (7, 9),
    "sorted-4-of-16": (0, 1),
    "brackets-24-two-layers": (0, 1),
}

#: In the order in which they are trained.
ORDINARY: tuple[OrdinaryModel, ...] = (
    *(
        OrdinaryModel(f"add-{digits}-{kind}-{seed}", _add(digits), config, seed, steps)
        for digits, steps in ((3, 8_000), (5, 12_000))
        for seed in (0, 1)
        for kind, config in (("ln-gelu", {}), ("rms-gated-silu", GATED), ("no-norm-relu", NO_NORM))
    ),
    OrdinaryModel("add-4-ln-gelu-0", _add(4), steps=10_000),
    OrdinaryModel("add-6-ln-gelu-0", _add(6), steps=14_000),
    OrdinaryModel("add-3-highest-first-0", _add(3, ""), steps=12_000),
    OrdinaryModel("add-4-highest-first-0", _add(4, ""), steps=16_000),
    OrdinaryModel("subtract-4-0", SUBTRACT, steps=10_000),
    OrdinaryModel("subtract-signed-3-0", SIGNED, steps=10_000),
    OrdinaryModel("add-8-bits-0", BINARY, steps=10_000),
    OrdinaryModel("add-three-3-0", THREE, steps=12_000),
    OrdinaryModel("add-3-d16-0", _add(3), {"d_model": 16, "d_head": 8, "d_mlp": 64}, steps=12_000),
    OrdinaryModel("add-3-d64-0", _add(3), {"d_model": 64, "d_head": 32, "d_mlp": 256}),
    OrdinaryModel("add-3-one-head-0", _add(3), {"n_heads": 1, "d_head": 32}),
    OrdinaryModel("add-3-four-heads-0", _add(3), {"n_heads": 4, "d_head": 8}),
    OrdinaryModel("max-4-of-64-0", LARGEST, steps=10_000),
    OrdinaryModel("compare-4-0", COMPARE),
    OrdinaryModel("parity-8-0", PARITY),
    OrdinaryModel("brackets-8-0", BRACKETS),
    OrdinaryModel("copy-8-0", COPY),
    OrdinaryModel("reverse-8-0", REVERSE),
    OrdinaryModel("add-3-gelu-new-0", _add(3), {"act_fn": "gelu_new"}),
    OrdinaryModel("add-3-silu-0", _add(3), {"act_fn": "silu"}),
    OrdinaryModel("add-3-gated-gelu-0", _add(3), {"gated_mlp": True, "d_mlp": 64}),
    OrdinaryModel("add-3-attention-only-0", _add(3), {"d_mlp": 0}),
    OrdinaryModel("add-3-alibi-0", _add(3), {"attn_bias": True}, alibi=True),
    OrdinaryModel(
        "add-3-alibi-alone-0", _add(3, operands="r"),
        {"attn_bias": True, "positional_embedding_type": "none"}, alibi=True,
    ),
    OrdinaryModel("add-3-rotary-0", _add(3, operands="r"), ROTARY),
    OrdinaryModel("add-3-part-rotary-0", _add(3, operands="r"), {**ROTARY, "rotary_dim": 8}),
    OrdinaryModel("add-3-post-norm-0", _add(3), {"norm_placement": "post", "final_norm": False}),
    OrdinaryModel("add-3-parallel-0", _add(3), {"parallel_attn_mlp": True}),
    OrdinaryModel("add-3-no-final-norm-0", _add(3), {"final_norm": False}),
    OrdinaryModel("add-10-ln-gelu-0", _add(10), steps=20_000),
    *(
        replace(recipe, name=f"{recipe.name}-{seed}", seed=seed)
        for recipe, _ in STACKED
        for seed in KEPT.get(recipe.name, ())
    ),
)  # fmt: skip


def ordinary_model(name: str) -> OrdinaryModel:
    """The recipe of this name. Raises KeyError without one."""
    return {recipe.name: recipe for recipe in ORDINARY}[name]
