"""Decoders of other arithmetic by columns: subtraction, mixed addition and subtraction, comparison.

One-layer decoders (:class:`ThinWeights`) have free weights, no biases, and attention that writes along few directions:
W_O = left right, of a small rank for all heads together. What attention can tell the MLP is then a few numbers, and a
proof over all pairs can follow them. In the mixed task the operator is a token between the numbers, and of a
difference a >= b, so that each answer is written units first and a borrow is read where a carry is.

Training starts with attention in place, and the rest is learned; the cards say so. No random start of the mixed task
was kept: the few that were tried had not learned it when they were stopped.

A signed difference is written in complement, units first, and then the borrow that is left, so that a proof over
columns reaches it, too.

The others are stock decoders, of two layers in the shape of QuantaMaths (Quirke and Barez 2024; Quirke et al. 2025) and
narrower: the answer has a sign and its highest digit first, which takes all columns into account at once. With a stream
128 wide, one of two seeds learned mixed numbers of ten digits so well that 10,000 problems find no error, and a search
along gradients does. Signed subtraction alone was learned less well: on 10,000 uniform problems two seeds are right
99.3% and 96.2% of the time, a seed of one layer 95.1%; where borrows are long, on half of the validation problems, they
are wrong far more often (96.3%, 72.7% and 56.5% of all validation problems are right). Each took four minutes on a GPU
(one H100). With 32 and 16 dimensions, six digits and a quarter of the batch it was not learned: at best 2% of the
validation problems are right with two layers and 0.6% with one (none of four seeds, 95% interval 0 to 60%).

    interp train signed-subtraction-ten-digits --seeds 2
    interp train signed-subtraction-ten-digits-one-layer
    interp train signed-subtraction-six-digits
    interp train signed-subtraction-six-digits-one-layer --seeds 4

To compare numbers of ten digits, one layer is enough for all but the hardest: see the cards. The proof for the clock
adder, whose attention writes along four directions, was not complete within four minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from models.families.subtractors import padded_subtraction
from models.registry import ModelSpec, register
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.named.addition import PADDED_TOKENS, PaddedAddition
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.training.ten_digit_problems import AdditionProblems, CarryMix, SubtractionProblems
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import fill_, normal_

MIXED = {"+": "a + b", "-": "a - b"}
FAMILIES = {"+": "addition", "-": "subtraction"}
#: Where attention starts: dimensions of the stream, the length of a place, the angle between columns, how many columns
#: a query looks behind its own, and the sharpness of scores.
PLACES, PLACED, TURN, BEHIND, SHARP = 7, 3.0, math.tau / 13, 0.25, 11.0


def stock_config(
    d_vocab: int, n_ctx: int, n_layers: int, d_model: int, n_heads: int, norm: Literal["LN", "RMS"] = "LN"
) -> TransformerConfig:
    """A stock decoder with an MLP four times as wide as the stream."""
    return TransformerConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_model // n_heads,
        d_mlp=4 * d_model,
        d_vocab=d_vocab,
        n_ctx=n_ctx,
        normalization_type=norm,
    )


@dataclass(frozen=True)
class Thin:
    """Sizes of a one-layer decoder; with ``circle``, the digits stand on one full circle, whose radius is learned."""

    d_vocab: int
    n_ctx: int
    d_model: int
    n_heads: int
    d_mlp: int
    rank: int
    circle: bool = False


class ThinWeights(DenseWeights):
    """One layer with RMS norms and without biases, whose attention writes along ``rank`` directions."""

    digits: Tensor
    placed = "queries, keys and the places they read, with which each head begins at the columns of one operand"

    def __init__(self, task: Callable[[], FormattedTask], thin: Thin):
        config = stock_config(thin.d_vocab, thin.n_ctx, 1, thin.d_model, thin.n_heads, "RMS")
        config = config.replace(d_mlp=thin.d_mlp, d_head=4)
        super().__init__(config, biases=False)
        self.thin, self.task = thin, task
        if not thin.circle:
            self.placed += ", and the digits, which begin on an arc"
        delattr(self, "blocks/0/attn/W_O")
        self.out_A = nn.Parameter(torch.zeros(config.n_heads * config.d_head, thin.rank))
        self.out_B = nn.Parameter(torch.zeros(thin.rank, config.d_model))
        if thin.circle:
            delattr(self, "embed/W_E")
            self.others = nn.Parameter(torch.zeros(config.d_vocab - 10, config.d_model))
            angle = torch.arange(10) * math.tau / 10
            rows = torch.nn.functional.pad(torch.stack((angle.cos(), angle.sin()), 1), (config.d_model - 2, 0))
            self.register_buffer("digits", rows, persistent=False)
            self.radius = nn.Parameter(torch.ones(()))

    def forward(self) -> Weights:
        heads, own = self.config.n_heads, self.own()
        left, right = own.pop("out_A"), own.pop("out_B")
        if self.thin.circle:
            own["embed.W_E"] = torch.cat((own.pop("radius") * self.digits, own.pop("others")))
        matrix = (left.double() @ right.double()).to(left.dtype)  # rounded once, the same on every processor
        attn = "blocks.0.attn"
        return own | {
            f"{attn}.W_O": matrix.unflatten(0, (heads, -1)),
            f"{attn}.W_O_left": left.unflatten(0, (heads, -1)),
            f"{attn}.W_O_right": right.expand(heads, -1, -1),
        }

    def initialise(self, generator: torch.Generator) -> None:
        """Matrices of r rows from N(0, 1/r), embeddings from N(0, 1/4), norms 1, the circle's radius 3. Then attention
        is placed."""
        for name, parameter in self.named_parameters():
            kind = name.rsplit("/", 1)[-1]
            if kind in ("w", "radius"):
                fill_(parameter, PLACED if kind == "radius" else 1.0)
            else:
                rows = 4 if kind in ("W_E", "W_pos", "others") else parameter.shape[-2]
                normal_(parameter, rows**-0.5, generator)
        with torch.no_grad():
            self._place(self.task())

    def _place(self, task: FormattedTask) -> None:
        """Let each of the first heads look at its operand, at a query's column and a tenth as much at the one before.

        The first dimensions of the stream are for this: two for a circle of columns, two that say which operand it is;
        the query's column on a circle of its own and a one; and one for each operator. Heads of the second operand
        look at an operator, and so see nothing else, if it is not theirs. An operator that is the only one is looked at
        as well.
        """
        own = {name.rsplit("/", 1)[-1]: parameter for name, parameter in self.named_parameters()}
        first = PLACES + len(task.parsed.operators)
        own["W_pos"][:, :first] = own["others" if self.thin.circle else "W_E"][:, :first] = 0
        if not self.thin.circle:  # digits on an arc, as those of MicroAdder
            angle = math.pi / 4 + 0.15 * (torch.arange(10) - 4.5)
            own["W_E"][:10, first:] *= 0.2
            own["W_E"][:10, first : first + 2] = PLACED * torch.stack((angle.cos(), angle.sin()), 1)
        turn = lambda column: PLACED * torch.tensor([math.cos(column * TURN), math.sin(column * TURN), 1.0])  # noqa: E731
        for at, role in enumerate(task.roles):
            if role.kind == "operand" and role.index is not None and role.column is not None:
                own["W_pos"][at, [0, 1, 2 + role.index]] = turn(role.column)
        for target, at in enumerate(task.query_positions):
            own["W_pos"][at, 4:PLACES] = turn(target - BEHIND)
        for i, operator in enumerate(task.parsed.operators):
            own["W_E"][task.parsed.ids[operator], PLACES + i] = PLACED
        heads = [(0, None), *((1, i) for i in range(max(1, len(task.parsed.operators))))]
        for head, (operand, reads) in enumerate(heads):
            q, k = own["W_Q"][head], own["W_K"][head]
            q[:], k[:] = 0, 0
            q[4, 0] = q[5, 1] = SHARP
            q[PLACES - 1, 2:] = SHARP * torch.tensor([-1.0, -4.0])
            k[0, 0] = k[1, 1] = k[2 + operand, 2] = k[3 - operand, 3] = k[PLACES - 1, 3] = 1
            k[PLACES:first, 3] = 1
            if task.parsed.operators and reads is not None:
                k[PLACES + 1 - reads, 3] = -0.125

    def decay_mask(self) -> dict[str, bool]:
        return super().decay_mask() | {"out_A": True, "out_B": True}


def padded_mixed() -> FormattedTask:
    """Ten-digit addition, and subtraction with a >= b, as the 456-parameter adder would write it."""
    return formatted(
        "{a:10}{op}{b:10}={s:11r}<EOS>",
        MIXED,
        where={"-": "a >= b"},
        variables=FAMILIES,
        vocabulary=[*PADDED_TOKENS, "-"],
        name="padded-mixed",
    )


def complement_subtraction() -> FormattedTask:
    """a - b modulo 10^10 for all pairs, and then the borrow that is left: the eleventh digit is 1 where a < b."""
    return formatted(
        "{a:10}-{b:10}={s:11r}<EOS>",
        "(a - b) % 10**10 + 10**10 * (a < b)",
        variables="complement",
        vocabulary=["-" if token == "+" else token for token in PADDED_TOKENS],
        name="complement-subtraction",
    )


def mixed(digits: int) -> FormattedTask:
    """Addition and subtraction with a sign, the highest digit first, as in QuantaMaths."""
    return formatted(
        f"{{a:{digits}}}{{op}}{{b:{digits}}}={{s:+{digits + 1}}}",
        MIXED,
        variables=FAMILIES,
        name=f"mixed-{digits}",
    )


def signed_subtraction(digits: int) -> FormattedTask:
    """a - b with a sign, the highest digit first."""
    return formatted(
        f"{{a:{digits}}}-{{b:{digits}}}={{s:+{digits}}}",
        "a - b",
        variables="subtraction",
        name=f"signed-subtraction-{digits}",
    )


def comparison(digits: int) -> FormattedTask:
    """Whether a < b, 0 or 1, in one token."""
    return formatted(f"{{a:{digits}}}<{{b:{digits}}}=", "a < b", variables="comparison", name=f"comparison-{digits}")


SOURCE = "this project: other arithmetic by columns"
#: The schedule of one layer, in which carries and borrows are frequent at first.
ONE_LAYER = Recipe(
    steps=10_000,
    batch_size=256,
    lr=5e-3,
    min_lr_ratio=0.01,
    warmup_steps=200,
    betas=(0.9, 0.98),
    eval_every=1_000,
    stop_after_perfect=4,
    snapshots=16,
)
FADING = CarryMix(0.5, 4_000, 8_000)
SUBTRACT = add_recipe("subtractor-thin", ONE_LAYER.replace(problems=SubtractionProblems((), FADING)))
CLOCK = add_recipe("adder-thin", ONE_LAYER.replace(problems=AdditionProblems((), FADING)))
ADD_OR_SUBTRACT = add_recipe(
    "mixed-thin",
    ONE_LAYER.replace(batch_size=128, eval_every=500, problems=TaskProblems(hard=0.5), validation_size=1_024),
)
STOCK = add_recipe(
    "stock-columns",
    Recipe(
        steps=8_000,
        batch_size=128,
        lr=2e-3,
        min_lr_ratio=0.02,
        warmup_steps=200,
        betas=(0.9, 0.98),
        problems=TaskProblems(hard=0.5),
        eval_every=500,
        validation_size=1_024,
        stop_after_perfect=6,
        snapshots=0,
    ),
)
STOCK_WIDE = add_recipe(
    "stock-columns-wide",
    STOCK.replace(
        batch_size=512, lr=1e-3, warmup_steps=400, eval_every=1_000, validation_size=2_048, stop_after_perfect=8
    ),
)
COMPARE = add_recipe("comparison", STOCK.replace(steps=4_000, lr=3e-3, eval_every=250, snapshots=16))


def _thin(name: str, task: Callable[[], FormattedTask], thin: Thin, recipe: Recipe) -> None:
    register(ModelSpec(name, partial(ThinWeights, task, thin), task, recipe, SOURCE))


def _stock(
    name: str, task: partial[FormattedTask], n_ctx: int, n_layers: int, d_model: int, recipe: Recipe = STOCK
) -> None:
    d_vocab = 12 if task.func is comparison else 13
    config = stock_config(d_vocab, n_ctx, n_layers, d_model, 4)
    if task.func is mixed:  # as QuantaMaths has it
        config = config.replace(act_fn="relu")
    register(
        ModelSpec(name, partial(DenseWeights, config), task, recipe, SOURCE, sweep=task.func is signed_subtraction)
    )


_thin("subtractor-2480", padded_subtraction, Thin(14, 33, 16, 2, 32, 2), SUBTRACT)
_thin("complement-subtractor", complement_subtraction, Thin(14, 34, 16, 2, 32, 2), ADD_OR_SUBTRACT)
_thin("mixed-ten-digits", padded_mixed, Thin(15, 34, 16, 3, 32, 2), ADD_OR_SUBTRACT)
_thin("clock-adder", PaddedAddition, Thin(14, 34, 16, 4, 64, 4, circle=True), CLOCK)
_stock("comparison-ten-digits", partial(comparison, 10), 23, 2, 16, COMPARE)
_stock("comparison-ten-digits-one-layer", partial(comparison, 10), 23, 1, 16, COMPARE)
_stock("signed-subtraction-six-digits", partial(signed_subtraction, 6), 21, 2, 32)
_stock("signed-subtraction-six-digits-one-layer", partial(signed_subtraction, 6), 21, 1, 16)
_stock("signed-subtraction-ten-digits", partial(signed_subtraction, 10), 33, 2, 128, STOCK_WIDE)
_stock(
    "signed-subtraction-ten-digits-one-layer",
    partial(signed_subtraction, 10),
    33,
    1,
    128,
    STOCK_WIDE.replace(steps=10_000),
)
_stock("mixed-ten-digits-two-layers", partial(mixed, 10), 34, 2, 128, STOCK_WIDE.replace(steps=7_000))
_stock("mixed-six-digits", partial(mixed, 6), 22, 2, 64)
