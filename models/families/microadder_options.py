"""The options of a MicroAdder: every switch of the family, and the parameters that each setting costs.

:mod:`models.families.microadder` turns the parameters into weights; :mod:`models.families.microadder_ladder` names the
settings that the paper and its sweeps compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from models.errors import UserError
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.named.addition import DIGITS, DelimitedAddition, TenDigitAddition, UnendedAddition
from models.tasks.task import Task
from models.transformer.config import TransformerConfig, check_choices

Place = Literal["learned", "spiral", "scaled half", "zero"]
SPIRAL_NUMBERS = ("amp", "phase", "slope", "offset")


@dataclass(frozen=True)
class MicroAdderOptions:
    """The options of one model of the family; the defaults are the 57-parameter model (section 2)."""

    token_dim: int = 2
    position_dim: int = 3
    n_heads: int = 1
    head_dim: int = 5
    qk_dim: int = 4
    d_mlp: int = 2
    delimiters: bool = False  # plus, equals, EOS and padding are tokens of their own, 14 in all
    predict_eos: bool = True  # False: an answer is eleven digits, and no place after the tenth is ever read
    # Digits on a circle (3 numbers), on an ellipse (4), or in a table with one row per token.
    tokens: Literal["arc", "ellipse", "table"] = "arc"
    freeze_arc_start: bool = False
    # Everything in the token plane commutes with the reflection that takes digit d to 9 - d, as addition does: the arc
    # lies around 45 degrees; values and attention output lie along its tangent (one number); W_fc1, W_fc2 and the
    # head's matrix are [[a, b], [b, a]]. With a free arc start, the matrices are tied in this way, and the arc is not:
    # training finds its place.
    mirror: bool = False
    # Subtraction: two heads read one direction and write along one of their own each. The second operand's places are
    # off the first's by three learned numbers, and the second head's queries are reflected in the third dimension, so
    # that each head can have an operand to itself.
    opposed: bool = False
    # Columns on a spiral (4 numbers unless frozen), or in a table with one row per column.
    columns: Literal["spiral", "table"] = "spiral"
    freeze_spiral: bool = True
    early_spiral: bool = False  # starts small, as in all rungs above 74
    period: int | float = 10  # columns per turn of the spiral
    level: bool = False  # the frozen spiral does not rise: it is a circle, with 1 in the third dimension
    # The spiral's column i is multiplied by 1 + its own number ("full", 10 numbers) or by 1 + intercept + slope i.
    correction: Literal["none", "linear", "full"] = "none"
    # Places outside the columns are three learned numbers, the spiral's next column on that side, the spiral half a
    # column beyond times one learned number, or zero.
    plus: Place = "zero"
    equals: Place = "learned"
    z_hi: Place = "learned"
    eos: Place = "zero"
    tie_qk: bool = True  # queries are the keys, rotated by one learned angle per head
    q_angle: bool = True
    start_angle: float = 0.0  # initial value of the angle, in radians
    start_axes: float = 1.0  # initial value of the first two axes of qk="axes" and "circle"
    # How the parameters fill the key matrix. "axes": one number per axis; "circle": one for the first two axes and none
    # for the third; "circle and slope": one for those and one for the third.
    qk: Literal["full", "axes", "circle", "circle and slope"] = "full"
    # Values use the head's matrix, a matrix of their own, or one learned direction in the token dimensions.
    values: Literal["head", "own", "direction"] = "head"
    out_rank: int | None = 1  # None: a full matrix
    out_writes: Literal["all", "tokens"] = "all"
    # "slope" is the last dimension; "tangent" is that of a mirrored arc, with b = -a
    mlp_reads: Literal["all", "tokens", "tokens and slope", "tangent"] = "all"
    mlp_bias: bool = False
    tie_fc2: bool = True  # the MLP writes through the head's matrix
    head_reads: Literal["all", "tokens", "tokens and slope", "tangent and slope"] = "all"
    # Norm gains: three vectors, one shared vector, one number, or ones.
    norm: Literal["separate", "shared", "scalar", "fixed"] = "shared"

    def __post_init__(self) -> None:
        check_choices(self)
        if self.tokens != "table" and self.token_dim != 2:
            raise UserError(f"An arc lies in two dimensions; token_dim cannot be {self.token_dim}.")
        if self.columns == "spiral" and self.position_dim < 3 - self.freeze_spiral:
            raise UserError(
                f"A spiral needs three dimensions, a frozen one two and is then a circle; position_dim cannot be "
                f"{self.position_dim}."
            )
        if self.level and not (self.columns == "spiral" and self.freeze_spiral):
            raise UserError("Only a frozen spiral can be level.")
        if self.columns == "table" and {"spiral", "scaled half"} & {self.plus, self.equals, self.z_hi, self.eos}:
            raise UserError("Places on the spiral need columns on the spiral.")
        if self.values == "head" and self.n_heads * self.head_dim != self.d_model:
            raise UserError("Values through the head's matrix need n_heads * head_dim = d_model.")
        if self.values == "direction" and (self.n_heads, self.out_rank) != (1 + self.opposed, 1):
            heads = "two opposed heads" if self.opposed else "one head"
            raise UserError(f"Values of one direction need {heads} and out_rank=1.")
        if self.opposed and not (
            (self.values, self.columns, self.position_dim) == ("direction", "spiral", 3)
            and self.tie_qk
            and self.qk in ("full", "axes")
            and not self.mirror
        ):
            raise UserError("Opposed heads need values of one direction, columns on a spiral and tied queries of them.")
        if self.tie_fc2 and self.d_mlp != self.token_dim:
            raise UserError(f"The head's matrix has {self.token_dim} rows, so d_mlp cannot be {self.d_mlp}.")
        if self.mirror and not (
            (self.tokens, self.values, self.d_mlp) == ("arc", "direction", 2)
            and self.out_writes == "tokens"
            and "all" not in (self.mlp_reads, self.head_reads)
            and self.mlp_reads != "tokens and slope"
            and not self.mlp_bias
        ):
            raise UserError("A mirrored token plane needs an arc, one direction and tokens everywhere.")
        if not self.mirror and "tangent" in f"{self.mlp_reads}, {self.head_reads}":
            raise UserError("Only a mirrored arc has a tangent to read along.")
        if self.qk_dim < 1 or self.d_mlp < 1:
            raise UserError("qk_dim and d_mlp must be at least 1.")

    @property
    def d_model(self) -> int:
        return self.token_dim + self.position_dim

    @property
    def qk_heads(self) -> int:
        """How many heads have keys of their own; opposed heads share theirs."""
        return 1 if self.opposed else self.n_heads

    @property
    def d_head(self) -> int:
        """Columns of W_Q, W_K and W_V: the wider of values and queries."""
        return max(self.qk_dim, 1 if self.values == "direction" else self.head_dim)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every free parameter by name, in a fixed order: the model's budget."""
        d, t, p, h = self.d_model, self.token_dim, self.position_dim, self.n_heads
        found: dict[str, tuple[int, ...]] = {}
        if self.tokens == "table":
            found["tok_table"] = (14 if self.delimiters else 10, t)
        else:
            found["arc_A"] = ()
            if self.tokens == "ellipse":
                found["arc_B"] = ()
            if not self.freeze_arc_start:
                found["arc_start"] = ()
            found["arc_stride"] = ()
        if self.columns == "table":
            found["pos_columns"] = (DIGITS, p)
        elif not self.freeze_spiral:
            found |= {f"spiral_{name}": () for name in SPIRAL_NUMBERS}
        if self.correction == "full":
            found["pos_correction"] = (DIGITS,)
        elif self.correction == "linear":
            found |= {"pos_correction_slope": (), "pos_correction_intercept": ()}
        for name in ("plus", "equals", "z_hi", "eos"):
            if self.predict_eos or name not in ("z_hi", "eos"):
                numbers = {"learned": p, "scaled half": 1}.get(getattr(self, name))
                found |= {} if numbers is None else {f"pos_{name}": (numbers,)}
        if self.opposed:
            found["pos_second"] = (p,)
        if self.tie_qk and self.q_angle:
            found["q_angle"] = () if h == 1 or self.opposed else (h,)
        rows = self.qk_heads * self.qk_dim
        key_shapes: dict[str, tuple[int, ...]] = {
            "full": (rows, p),
            "axes": (min(rows, p),),
            "circle": (),
            "circle and slope": (2,),
        }
        if not self.tie_qk:
            found["W_q"] = key_shapes[self.qk]
        found["W_qk"] = key_shapes[self.qk]
        if self.mirror:
            found |= {"out_B": (), "W_fc1": (1 if self.mlp_reads == "tangent" else 2,)}
            found |= {} if self.tie_fc2 else {"W_fc2": (2,)}
            found["W_head"] = (3 if self.head_reads == "tokens and slope" else 2,)
            return found | self._norm_shapes()
        width = h * self.head_dim
        if self.values != "head":
            found["W_v"] = (width, t) if self.values == "own" else (t,)
        written = d if self.out_writes == "all" else t
        if self.out_rank is None:
            found["W_out"] = (width, written)
        else:
            if self.values != "direction":
                found["out_A"] = (width,) if self.out_rank == 1 else (width, self.out_rank)
            rows = h if self.opposed else self.out_rank
            found["out_B"] = (written,) if rows == 1 else (rows, written)
        read = {"all": d, "tokens": t, "tokens and slope": t + 1}
        found["W_fc1"] = (self.d_mlp, read[self.mlp_reads])
        if self.mlp_bias:
            found["b_fc1"] = (self.d_mlp,)
        if not self.tie_fc2:
            found["W_fc2"] = (self.d_mlp, d)
        if self.mlp_bias:
            found["b_fc2"] = (d,)
        found["W_head"] = (t, read[self.head_reads])
        return found | self._norm_shapes()

    def _norm_shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.d_model
        if self.norm == "separate":
            return {"norm1_w": (d,), "norm2_w": (d,), "norm_f_w": (d,)}
        shapes: dict[str, tuple[int, ...]] = {"shared": (d,), "scalar": ()}
        return {} if self.norm == "fixed" else {"norm_w": shapes[self.norm]}

    @property
    def n_parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes().values())

    def task(self) -> Task:
        if self.opposed:
            return ten_digit_subtraction()
        if not self.predict_eos:
            return UnendedAddition()
        return DelimitedAddition() if self.delimiters else TenDigitAddition()

    @property
    def splits_the_stream(self) -> bool:
        """Whether attention cannot depend on digits: queries and keys read positions, and all tokens have one norm."""
        return self.tokens == "arc" and not self.delimiters


def ten_digit_subtraction() -> FormattedTask:
    """a - b with a >= b as MicroAdder would write it: units first, and the tokens of minus and equals are zeros."""
    vocabulary = {str(digit): digit for digit in range(DIGITS)} | {"-": 0, "=": 0}
    return formatted(
        "{a:10r}-{b:10r}={s:10r}",
        "a - b",
        where="a >= b",
        variables="subtraction",
        vocabulary=vocabulary,
        name="ten-digit-subtraction",
    )


def microadder_config(options: MicroAdderOptions) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        d_model=options.d_model,
        n_heads=options.n_heads,
        d_head=options.d_head,
        d_mlp=options.d_mlp,
        d_vocab=14 if options.delimiters else 10,
        n_ctx=34,
        act_fn="gelu",
        normalization_type="RMS",
        eps=1e-5,
        attn_scale=math.sqrt(options.qk_dim),
    )
