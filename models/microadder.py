"""MicroAdder: ten-digit addition in 242 to 57 free numbers, and in fewer (Zarechnev, 2026, sections 2 and 4).

The effective model is a stock one-layer RMSNorm decoder. Its residual stream is split: the first dimensions hold the
digit (of the smaller models: a point on a circular arc), the others the column (a point on a spiral). Queries and
keys read only the position dimensions, values only the token dimensions. Where all digits lie on one circle, the RMS
of the stream depends on the position alone, and so does the attention pattern. The 57-parameter model is

    e(d)  = A [cos(start + d stride), sin(start + d stride)]
    x_t   = [e(d_t) | p_t]                        one norm n(x) = x / sqrt(mean(x^2) + 1e-5) * w, used three times
    k_t   = W n(x_t)[2:5],  q_t = R(theta) k_t    W is qk_dim x 3, scores divided by sqrt(qk_dim)
    v_t   = n(x_t)[0:2] H                         H is 2 x 5
    y_t   = x_t + ((sum_j a_tj v_j) . o_A) o_B    rank 1
    y'_t  = y_t + gelu(W1 n(y_t)) F               F is H (57) or a matrix of its own (67, 74)
    logit = (H n(y'_t)) . e(d)

and :class:`MicroAdderOptions` says what the others have in place of each part. The rungs of the ladder and the
variants that were tried below 57 are named in :mod:`models.microadder_ladder`. Queries and keys narrower than
``d_head`` are padded with zero columns, and ``attn_scale`` is sqrt(qk_dim).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import TransformerConfig
from models.errors import UserError, unknown_name
from models.parts.weights import Weights
from models.tasks.addition import DIGITS, DelimitedAddition, TenDigitAddition, UnendedAddition
from models.weight_maps.base import WeightMap, fill_, normal_, uniform_, xavier_uniform_
from models.weight_maps.geometry import rotate_pairs, spiral
from models.weight_maps.structured import circulant, scaled_axes, toeplitz

Place = Literal["learned", "spiral", "zero"]
SPIRAL = {"amp": 3.5, "phase": 0.0, "slope": 0.15, "offset": 0.0}  # 57 and 67: frozen there; 74: starts there
EARLY_SPIRAL = {"amp": 1.0, "phase": 0.0, "slope": 1 / 9, "offset": 0.0}  # where 226 to 75 start, in the public code
ARC = {"A": 2.5, "start": -1.2, "stride": 0.29}


@dataclass(frozen=True)
class MicroAdderOptions:
    """What a model of the family is made of; the defaults are the 57-parameter model (section 2)."""

    token_dim: int = 2
    position_dim: int = 3
    n_heads: int = 1
    head_dim: int = 5
    qk_dim: int = 4
    d_mlp: int = 2
    delimiters: bool = False  # plus, equals, EOS and padding are tokens of their own, 14 in all
    predict_eos: bool = True  # False: an answer is eleven digits, and no place behind the tenth is ever read
    # Digits on a circle (3 numbers), on an ellipse (4), or in a table with a row a token.
    tokens: Literal["arc", "ellipse", "table"] = "arc"
    freeze_arc_start: bool = False
    # Columns on a spiral (4 numbers unless frozen), or in a table with a row a column.
    columns: Literal["spiral", "table"] = "spiral"
    freeze_spiral: bool = True
    early_spiral: bool = False  # starts small, as all rungs above 74 did
    period: int = 10  # columns a turn of the spiral
    # The spiral's column i times 1 + a number of its own ("full", 10 numbers) or 1 + intercept + slope i.
    correction: Literal["none", "linear", "full"] = "none"
    # Places outside the columns: three learned numbers, the spiral's next column on that side, or zero.
    plus: Place = "zero"
    equals: Place = "learned"
    z_hi: Place = "learned"
    eos: Place = "zero"
    tie_qk: bool = True  # queries are the keys, turned by one learned angle a head
    q_angle: bool = True
    start_angle: float = 0.0  # radians, where the angle starts
    start_axes: float = 1.0  # where the first two numbers of qk="axes" start
    # How the numbers of the key matrix fill it; "axes": a number an axis; "fixed": ones, no numbers.
    qk: Literal["full", "rank 1", "toeplitz", "circulant", "axes", "fixed"] = "full"
    qk_reads: Literal["positions", "all"] = "positions"
    # Values through the head's matrix, a matrix of their own, or one learned direction in the token dimensions.
    values: Literal["head", "own", "direction"] = "head"
    out_rank: int | None = 1  # None: a full matrix
    out_writes: Literal["all", "tokens"] = "all"
    mlp_reads: Literal["all", "tokens"] = "all"
    mlp_bias: bool = False
    tie_fc2: bool = True  # the MLP writes through the head's matrix
    head_reads: Literal["all", "tokens"] = "all"
    # Norm gains: three vectors, one for all, one for all that has one number for both sides of the split, one number,
    # or ones.
    norm: Literal["separate", "shared", "split", "scalar", "fixed"] = "shared"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(get_type_hints(type(self))[field.name])
            if choices and all(isinstance(choice, str) for choice in choices) and value not in choices:
                raise unknown_name(field.name, value, choices)
        if self.tokens != "table" and self.token_dim != 2:
            raise UserError(f"An arc lies in two dimensions; token_dim cannot be {self.token_dim}.")
        if self.columns == "spiral" and self.position_dim < 3:
            raise UserError(f"A spiral needs three dimensions; position_dim cannot be {self.position_dim}.")
        if self.columns == "table" and "spiral" in (self.plus, self.equals, self.z_hi, self.eos):
            raise UserError("Places on the spiral need columns on the spiral.")
        if self.values == "head" and self.n_heads * self.head_dim != self.d_model:
            raise UserError("Values through the head's matrix need n_heads * head_dim = d_model.")
        if self.values == "direction" and (self.n_heads, self.out_rank) != (1, 1):
            raise UserError("Values of one direction need one head and out_rank=1.")
        if self.tie_fc2 and self.d_mlp != self.token_dim:
            raise UserError(f"The head's matrix has {self.token_dim} rows, so d_mlp cannot be {self.d_mlp}.")
        if self.qk_dim < 1 or self.d_mlp < 1:
            raise UserError("qk_dim and d_mlp must be at least 1.")

    @property
    def d_model(self) -> int:
        return self.token_dim + self.position_dim

    @property
    def d_head(self) -> int:
        """Columns of W_Q, W_K and W_V: the wider of values and queries."""
        return max(self.qk_dim, 1 if self.values == "direction" else self.head_dim)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every free number by name, in a fixed order: the model's budget."""
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
            found |= {f"spiral_{name}": () for name in SPIRAL}
        if self.correction == "full":
            found["pos_correction"] = (DIGITS,)
        elif self.correction == "linear":
            found |= {"pos_correction_slope": (), "pos_correction_intercept": ()}
        for name in ("plus", "equals", "z_hi", "eos"):
            if getattr(self, name) == "learned" and (self.predict_eos or name not in ("z_hi", "eos")):
                found[f"pos_{name}"] = (p,)
        if self.tie_qk and self.q_angle:
            found["q_angle"] = () if h == 1 else (h,)
        rows, columns = h * self.qk_dim, d if self.qk_reads == "all" else p
        key_shapes: dict[str, tuple[int, ...] | None] = {
            "full": (rows, columns),
            "rank 1": (rows + columns,),
            "toeplitz": (rows + columns - 1,),
            "circulant": (rows,),
            "axes": (min(rows, columns),),
            "fixed": None,
        }
        key_shape = key_shapes[self.qk]
        if key_shape is not None:
            if not self.tie_qk:
                found["W_q"] = key_shape
            found["W_qk"] = key_shape
        width = h * self.head_dim
        if self.values != "head":
            found["W_v"] = (width, t) if self.values == "own" else (t,)
        written = t if self.out_writes == "tokens" else d
        if self.out_rank is None:
            found["W_out"] = (width, written)
        else:
            if self.values != "direction":
                found["out_A"] = (width,) if self.out_rank == 1 else (width, self.out_rank)
            found["out_B"] = (written,) if self.out_rank == 1 else (self.out_rank, written)
        found["W_fc1"] = (self.d_mlp, t if self.mlp_reads == "tokens" else d)
        if self.mlp_bias:
            found["b_fc1"] = (self.d_mlp,)
        if not self.tie_fc2:
            found["W_fc2"] = (self.d_mlp, d)
        if self.mlp_bias:
            found["b_fc2"] = (d,)
        found["W_head"] = (t, t if self.head_reads == "tokens" else d)
        if self.norm == "separate":
            found |= {"norm1_w": (d,), "norm2_w": (d,), "norm_f_w": (d,)}
        elif self.norm != "fixed":
            found["norm_w"] = {"shared": (d,), "split": (2,), "scalar": ()}[self.norm]
        return found

    @property
    def n_parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes().values())

    def task(self) -> TenDigitAddition:
        if not self.predict_eos:
            return UnendedAddition()
        return DelimitedAddition() if self.delimiters else TenDigitAddition()

    @property
    def splits_the_stream(self) -> bool:
        """Whether attention cannot depend on digits: one norm for all, and queries and keys from positions."""
        return self.tokens == "arc" and self.qk_reads == "positions" and not self.delimiters


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


class MicroAdderWeights(WeightMap):
    """57 free numbers: arc 3, equals 3, z_hi 3, angle 1, W_qk 12, o_A and o_B 10, W_fc1 10, W_head 10, norm 5.

    Other options have other numbers; :meth:`MicroAdderOptions.shapes` lists them.
    """

    def __init__(self, options: MicroAdderOptions = MicroAdderOptions()):
        super().__init__(microadder_config(options))
        self.options = options
        self.split_stream = options.token_dim if options.splits_the_stream else None
        for name, shape in options.shapes().items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        if options.columns == "spiral" and options.freeze_spiral:
            for name, value in self._spiral_start().items():
                self.register_buffer(f"spiral_{name}", torch.tensor(value), persistent=False)

    def _spiral_start(self) -> dict[str, float]:
        return EARLY_SPIRAL if self.options.early_spiral else SPIRAL

    def initialise(self, generator: torch.Generator) -> None:
        """As the public code: matrices by Xavier, places N(0, 0.02), o_A by Kaiming, o_B and biases 0, gains 1."""
        constants = {f"arc_{name}": value for name, value in ARC.items()} | {"arc_B": ARC["A"]}
        constants |= {f"spiral_{name}": value for name, value in self._spiral_start().items()}
        for name, parameter in self.named_parameters():
            if name in constants:
                fill_(parameter, constants[name])
            elif name == "q_angle":
                fill_(parameter, self.options.start_angle)
            elif name == "tok_table":
                with torch.no_grad():
                    parameter.copy_(_token_start(*parameter.shape))
            elif name in ("pos_columns", "pos_plus", "pos_equals", "pos_z_hi", "pos_eos"):
                normal_(parameter, 0.02, generator)
            elif name == "out_A":  # Kaiming uniform with a = sqrt(5): 1 / sqrt(fan-in), which is the rank here
                uniform_(parameter, (self.options.out_rank or 1) ** -0.5, generator)
            elif "norm" in name:
                fill_(parameter, 1.0)
            elif name in ("W_qk", "W_q") and self.options.qk == "axes":
                fill_(parameter[:2], self.options.start_axes)
                fill_(parameter[2:], 1.0)
            elif parameter.ndim == 2 and name != "out_B":
                xavier_uniform_(parameter, generator)
            elif name == "W_v" or name in ("W_qk", "W_q"):
                uniform_(parameter, 1.0, generator)
            else:
                fill_(parameter, 0.0)

    def forward(self) -> Weights:
        o, own = self.options, dict(self.named_parameters())
        d, t, h, d_head = o.d_model, o.token_dim, o.n_heads, o.d_head
        tokens = self._tokens()
        norms = [self._norm(name) for name in ("norm1_w", "norm2_w", "norm_f_w")]
        head = F.pad(self.W_head, (0, d - self.W_head.shape[1]))  # [t, d]
        w_q, w_k = self._queries_and_keys()
        weights: Weights = {
            "embed.W_E": F.pad(tokens, (0, d - t)),
            "pos_embed.W_pos": F.pad(self._positions(), (t, 0)),
            "blocks.0.ln1.w": norms[0],
            "blocks.0.attn.W_Q": w_q,
            "blocks.0.attn.W_K": w_k,
        }

        # Values [head, d, d_head] from the token dimensions, output [head, d_head, d], as factors where they are.
        matrix = {"head": lambda: head, "own": lambda: own["W_v"].T, "direction": lambda: own["W_v"][:, None]}[o.values]()
        values = F.pad(matrix, (0, 0, 0, d - t)).unflatten(1, (h, -1)).transpose(0, 1)
        weights["blocks.0.attn.W_V"] = F.pad(values, (0, d_head - values.shape[2]))
        if o.out_rank is None:
            right = F.pad(self.W_out, (0, d - self.W_out.shape[1])).unflatten(0, (h, -1))
            weights["blocks.0.attn.W_O"] = F.pad(right, (0, 0, 0, d_head - right.shape[1]))
        else:
            left = own["out_A"] if o.values != "direction" else torch.ones_like(own["W_v"][:1])
            left = left.reshape(h, -1, o.out_rank)
            left = F.pad(left, (0, 0, 0, d_head - left.shape[1]))
            right = F.pad(self.out_B, (0, d - self.out_B.shape[-1])).reshape(1, o.out_rank, d).expand(h, -1, -1)
            weights["blocks.0.attn.W_O"] = left * right if o.out_rank == 1 else left @ right
            weights["blocks.0.attn.W_O_left"] = left  # the factors, for the training fast path
            weights["blocks.0.attn.W_O_right"] = right
        weights["blocks.0.ln2.w"] = norms[1]
        weights["blocks.0.mlp.W_in"] = F.pad(self.W_fc1, (0, d - self.W_fc1.shape[1])).T
        weights["blocks.0.mlp.W_out"] = head if o.tie_fc2 else self.W_fc2
        if o.mlp_bias:
            weights["blocks.0.mlp.b_in"], weights["blocks.0.mlp.b_out"] = self.b_fc1, self.b_fc2
        weights["ln_final.w"] = norms[2]
        weights["unembed.W_U"] = head.T @ tokens.T
        return weights

    # ---- the parts

    def _tokens(self) -> Tensor:
        """[vocab, token_dim]: the table, or e(d)."""
        o = self.options
        if o.tokens == "table":
            return self.tok_table
        start = ARC["start"] if o.freeze_arc_start else self.arc_start
        angle = start + self.arc_stride * torch.arange(
            self.config.d_vocab, device=self.arc_A.device, dtype=self.arc_A.dtype
        )
        if o.tokens == "arc":
            return self.arc_A * torch.stack((angle.cos(), angle.sin()), -1)
        return torch.stack((self.arc_A * angle.cos(), self.arc_B * angle.sin()), -1)

    def _positions(self) -> Tensor:
        """[34, position_dim]: columns, shared by both operands and the answer, and the four other places."""
        o, own = self.options, dict(self.named_parameters())
        if o.columns == "table":
            around = F.pad(self.pos_columns, (0, 0, 1, 1))
        else:
            numbers = (self.spiral_amp, self.spiral_phase, self.spiral_slope, self.spiral_offset)
            around = spiral(*numbers, DIGITS + 2, o.period, first=-1)
            around = F.pad(around, (0, o.position_dim - 3))  # a fourth dimension is empty on the spiral
        column = around[1:-1]
        if o.correction == "full":
            column = column * (1 + self.pos_correction[:, None])
        elif o.correction == "linear":
            i = torch.arange(DIGITS, device=column.device, dtype=column.dtype)
            column = column * (1 + self.pos_correction_intercept + self.pos_correction_slope * i)[:, None]

        def place(name: str, beyond: Tensor) -> Tensor:
            kind = getattr(o, name)
            if kind == "learned" and f"pos_{name}" in own:
                return own[f"pos_{name}"][None]
            return beyond if kind == "spiral" else torch.zeros_like(beyond)

        before, after = around[:1], around[-1:]
        plus, equals, z_hi, eos = place("plus", after), place("equals", before), place("z_hi", after), place("eos", after)
        return torch.cat((column, plus, column, equals, column, z_hi, eos))

    def _queries_and_keys(self) -> tuple[Tensor, Tensor]:
        """W_Q and W_K, [head, d_model, d_head]."""
        o, own = self.options, dict(self.named_parameters())
        columns = o.d_model if o.qk_reads == "all" else o.position_dim

        def matrices(name: str) -> Tensor:  # [head, qk_dim, columns]
            rows = o.n_heads * o.qk_dim
            if o.qk == "fixed":
                like = own["W_head"]
                full = torch.eye(rows, columns, device=like.device, dtype=like.dtype)
            elif o.qk == "full":
                full = own[name]
            elif o.qk == "rank 1":
                full = own[name][:rows, None] * own[name][rows:]
            else:
                full = {"toeplitz": toeplitz, "circulant": circulant, "axes": scaled_axes}[o.qk](own[name], rows, columns)
            return full.unflatten(0, (o.n_heads, o.qk_dim))

        def shaped(matrix: Tensor) -> Tensor:
            return F.pad(matrix.transpose(1, 2), (0, o.d_head - o.qk_dim, o.d_model - columns, 0))

        keys = matrices("W_qk")
        queries = keys if o.tie_qk else matrices("W_q")
        if o.tie_qk and o.q_angle:
            angles = self.q_angle.reshape(-1)
            queries = torch.stack([rotate_pairs(queries[i], angles[i]) for i in range(o.n_heads)])
        return shaped(queries), shaped(keys)

    def _norm(self, name: str) -> Tensor:
        o = self.options
        if o.norm == "separate":
            return getattr(self, name)
        if o.norm == "fixed":
            return torch.ones_like(self.W_head[0, :1]).expand(o.d_model)
        if o.norm == "split":
            return torch.cat((self.norm_w[:1].expand(o.token_dim), self.norm_w[1:].expand(o.position_dim)))
        return self.norm_w.expand(o.d_model)


def _token_start(n: int, token_dim: int) -> Tensor:
    """Where learned token embeddings start: digit d at [cos(2 pi d / 10), sin(2 pi d / 10), d / 9], others in corners."""
    digits = spiral(*(torch.tensor(x) for x in (1.0, 0.0, 1 / 9, 0.0)), DIGITS)
    corners = torch.tensor([[2.0, 0, -1], [0, 2, -1], [-2, 0, -1], [0, -2, -1]])  # plus, equals, EOS, padding
    return torch.cat((digits, corners))[:n, :token_dim]
