"""Below 57 parameters from the trained 57 itself, step by step, where each step begins with the previous model.

From random starts, few seeds grok around 57 parameters, and none much below (``BELOW`` in
:mod:`models.families.microadder_ladder`). It is easier to compress a model that knows addition already: its circuits
are carried over and trained for a few thousand steps more (the stored study ``microadder:continued``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from models.families.microadder_ladder import register_options, rung, slug
from models.training.addition_problems import AdditionProblems, CarryMix
from models.training.recipes import Recipe, add_recipe

#: What each step leaves out or shares, and the options for it.
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
#: Each starts from the last step; none of them succeeds in eight seeds.
_TRIED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("W_qk is one number", {"qk": "scalar"}),
    ("W_qk is one number, and keys without slope", {"qk": "circle", "qk_dim": 2}),
    ("equals half a column before the first", {"equals": "half"}),
    ("queries are not turned", {"q_angle": False}),
    ("norm gains of one", {"norm": "fixed"}),
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

_options = rung(57).options
for _what, _changes in _STEPS:
    _options = replace(_options, **_changes)
    register_options(f"microadder-{_options.n_parameters}", _options, CONTINUE, sweep=_what != _STEPS[-1][0])

#: The model of the last step.
SMALLEST = f"microadder-{_options.n_parameters}"
for _what, _changes in _TRIED:
    register_options(f"{SMALLEST}-{slug(_what)}", replace(_options, **_changes), CONTINUE, sweep=True)
