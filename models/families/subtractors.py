"""Ten-digit subtraction a - b with a >= b: a twin of MicroAdder, and one of the 456-parameter adder.

One head cannot give two operands opposite signs, and MicroAdder's operands share their places. The twin has a second
head, which has the first one's keys, values and angle; its queries are reflected in the third dimension, where the
places of the second operand are off by three learned numbers, and it writes along a direction of its own. Eleven places
on a level circle (ten columns and the one before the first) are all that is needed: the answer has ten digits.

    arc 3, minus 3, equals 3, second operand 3, angle 1, W_qk 3, values 2, output 4, W_fc1 10, head 10, norm 5: 47

The low-rank shapes have not learnt it: of 16 seeds of the largest, 763, none answered all validation problems in 27,000
steps of the recipe below (95% interval 0 to 20.6%), and the best one 11.6% of them. Smaller ones were not tried.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from models.families.low_rank_adder import OPTIONS as LOW_RANK
from models.families.low_rank_adder import LowRankAdderWeights
from models.families.microadder import SPIRAL, MicroAdderWeights
from models.families.microadder_ladder import OPPOSED_START, rung
from models.registry import ModelSpec, register
from models.tasks import formatted
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.named.addition import PADDED_TOKENS
from models.training.bfgs_polish import Polish
from models.training.recipes import Recipe, add_recipe
from models.training.ten_digit_problems import CarryMix, SubtractionProblems

TWIN = replace(
    rung(57).options,
    opposed=True,
    n_heads=2,
    predict_eos=False,
    level=True,
    period=11,
    plus="learned",
    equals="learned",
    values="direction",
    out_writes="tokens",
    qk="axes",
    qk_dim=3,
    start_angle=0.45,
    start_axes=3.75,
)


def padded_subtraction() -> FormattedTask:
    """a - b with a >= b as the 456-parameter adder would write it: operands as one reads, the answer units first."""
    return formatted(
        "{a:10}-{b:10}={s:10r}<EOS>",
        "a - b",
        where="a >= b",
        variables="subtraction",
        vocabulary=["-" if token == "+" else token for token in PADDED_TOKENS],
        name="padded-subtraction",
    )


def _start() -> tuple[tuple[str, float | tuple[float, float]], ...]:
    """The adders' start of arc and neurons; minus and equals stand one column before the first, one in each operand's
    half of the third dimension."""
    turn = -2 * math.pi / TWIN.period
    x, y = (SPIRAL["amp"] * f(turn) for f in (math.cos, math.sin))
    places = {"pos_equals": (x, y, 1.0), "pos_plus": (x, y, -1.0)}
    kept = [(name, value) for name, value in OPPOSED_START.initial_values or () if not name.startswith("pos_")]
    return (*kept, *((f"{name}[{i}]", value) for name, place in places.items() for i, value in enumerate(place)))


SUBTRACT = add_recipe(
    "subtractor",
    OPPOSED_START.replace(
        steps=12_000,
        problems=SubtractionProblems(((400, 3), (1_400, 6)), CarryMix(0.8, 3_000, 9_000)),
        initial_values=_start(),
        keep_share=((6_000, 0.25), (11_000, 0.125)),
        polish=Polish(drawn_at=4_000),
    ),
)
PADDED = add_recipe(
    "subtractor-padded",
    Recipe(
        steps=27_000,
        batch_size=256,
        warmup_steps=1_350,
        problems=SubtractionProblems(carry_mix=CarryMix(0.5, 10_000, 20_000)),
        eval_every=1_000,
        drop_seed_below=((10_000, 0.35),),
        snapshots=0,
    ),
)
SOURCE = "this project: a ten-digit adder's parts, for subtraction"

register(
    ModelSpec(
        name=f"subtractor-{TWIN.n_parameters}",
        weight_map=partial(MicroAdderWeights, TWIN),
        task=TWIN.task,
        recipe=SUBTRACT,
        source=SOURCE,
    )
)
for _size in (763, 582, 512, 456):
    register(
        ModelSpec(
            name=f"subtractor-{_size}",
            weight_map=partial(LowRankAdderWeights, LOW_RANK[f"adder-{_size}"]),
            task=padded_subtraction,
            recipe=PADDED,
            source=SOURCE,
            sweep=True,
        )
    )
