"""Below 57 parameters from the trained 57 itself, step by step, where each step begins with the previous model.

From random starts, few seeds grok around 57 parameters, and none much below (``BELOW`` in
:mod:`models.microadder_ladder`). It is easier to compress a model that knows addition already: its circuits are carried
over (:mod:`models.microadder_fit`) and trained for a few thousand steps more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from models.microadder_ladder import register_options, rung, slug
from models.microadder_options import MicroAdderOptions
from models.training.addition_problems import AdditionProblems, CarryMix
from models.training.recipes import Recipe, add_recipe


@dataclass(frozen=True)
class Step:
    """One step to fewer parameters, from the model before it."""

    what: str
    options: MicroAdderOptions
    before: str  # the model whose parameters the seeds start from
    name: str

    @property
    def n_parameters(self) -> int:
        return self.options.n_parameters


_STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no EOS, which is not scored", {"predict_eos": False}),
    ("o_A counts through H o_A alone", {"values": "direction"}),
    ("attention writes to the token plane only", {"out_writes": "tokens"}),
    ("a number an axis for W_qk", {"qk": "axes", "qk_dim": 3}),
    ("one norm gain", {"norm": "scalar"}),
    ("the MLP reads the token plane only", {"mlp_reads": "tokens"}),
    ("the head reads the token plane and the slope", {"head_reads": "tokens and slope"}),
    ("attention writes against what it reads", {"out_writes": "against values"}),
    ("a mirrored token plane", {"mirror": True, "freeze_arc_start": True, "out_writes": "tokens"}),
    ("one number for the circle of W_qk, one for its slope", {"qk": "circle and slope"}),
    ("the MLP reads along the tangent", {"mlp_reads": "tangent"}),
    ("the head reads along the tangent, and the slope", {"head_reads": "tangent and slope"}),
    ("equals half a column before the first, times a number", {"equals": "scaled half"}),
)
_TRIED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("W_qk is one number", {"qk": "scalar"}),
    ("W_qk is one number, and keys without slope", {"qk": "circle", "qk_dim": 2}),
    ("equals half a column before the first", {"equals": "half"}),
    ("queries are not turned", {"q_angle": False}),
    ("norm gains of one", {"norm": "fixed"}),
)


def _continued() -> tuple[Step, ...]:
    first = rung(57)
    options, before, steps = first.options, first.name, []
    for what, changes in _STEPS:
        options = replace(options, **changes)
        steps.append(Step(what, options, before, f"microadder-{options.n_parameters}"))
        before = steps[-1].name
    return tuple(steps)


CONTINUED = _continued()
SMALLEST = CONTINUED[-1]

#: Each starts from the last step; none of them succeeds in eight seeds.
TRIED = tuple(
    Step(what, replace(SMALLEST.options, **changes), SMALLEST.name, f"{SMALLEST.name}-{slug(what)}")
    for what, changes in _TRIED
)

#: No curriculum: it would spend the first steps on three digits, and the parent would forget the others.
CONTINUE = add_recipe(
    "microadder-continue",
    Recipe(
        steps=8_000,
        lr=0.002,
        warmup_steps=200,
        weight_decay=0.0,
        problems=AdditionProblems(carry_mix=CarryMix(0.5, 2_000, 6_000), digit_curriculum=()),
        snapshots=12,
    ),
)

for _step in (*CONTINUED, *TRIED):
    register_options(_step.name, _step.options, CONTINUE, sweep=_step != SMALLEST)
