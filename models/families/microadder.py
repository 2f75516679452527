"""MicroAdder: ten-digit addition with 242 to 57 free parameters, and with fewer (Zarechnev, 2026, sections 2 and 4).

The effective model is a stock one-layer RMSNorm decoder. Its residual stream is split: the first dimensions hold the
digit (in the smaller models, a point on a circular arc), the others the column (a point on a spiral). Queries and
keys read only the position dimensions, values only the token dimensions. Where all digits lie on one circle, the RMS
of the stream depends on the position alone, and so does the attention pattern. The 57-parameter model is

    e(d)  = A [cos(start + d stride), sin(start + d stride)]
    x_t   = [e(d_t) | p_t]                        one norm n(x) = x / sqrt(mean(x^2) + 1e-5) * w, used three times
    k_t   = W n(x_t)[2:5],  q_t = R(theta) k_t    W is qk_dim x 3, scores divided by sqrt(qk_dim)
    v_t   = n(x_t)[0:2] H                         H is 2 x 5
    y_t   = x_t + ((sum_j a_tj v_j) . o_A) o_B    rank 1
    y'_t  = y_t + gelu(W1 n(y_t)) F               F is H (57) or a matrix of its own (67, 74)
    logit = (H n(y'_t)) . e(d)

and :class:`MicroAdderOptions` (:mod:`models.families.microadder_options`) says what the others have in place of each
part. The rungs of the ladder and the variants that were tried below 57 are named in
:mod:`models.families.microadder_ladder`. Queries and keys narrower than ``d_head`` are padded with zero columns, and
``attn_scale`` is sqrt(qk_dim).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.families.microadder_options import MicroAdderOptions, microadder_config
from models.tasks.named.addition import DIGITS
from models.transformer.parts.weights import Weights
from models.weight_maps.geometry import mirrored_square, rotate_pairs, scaled_axes, spiral
from models.weight_maps.weight_map import WeightMap, fill_, normal_, uniform_, xavier_uniform_

SPIRAL = {"amp": 3.5, "phase": 0.0, "slope": 0.15, "offset": 0.0}  # 57 and 67: frozen there; 74: starts there
EARLY_SPIRAL = {"amp": 1.0, "phase": 0.0, "slope": 1 / 9, "offset": 0.0}  # where 226 to 75 start, in the public code
ARC = {"A": 2.5, "start": -1.2, "stride": 0.29}


class MicroAdderWeights(WeightMap):
    """57 free parameters: arc 3, equals 3, z_hi 3, angle 1, W_qk 12, o_A and o_B 10, W_fc1 10, W_head 10, norm 5.

    Other options have other parameters; :meth:`MicroAdderOptions.shapes` lists them.
    """

    # Which of these exist depends on the options.
    arc_A: Tensor
    arc_B: Tensor
    arc_start: Tensor
    arc_stride: Tensor
    tok_table: Tensor
    pos_columns: Tensor
    pos_correction: Tensor
    pos_second: Tensor
    pos_correction_slope: Tensor
    pos_correction_intercept: Tensor
    q_angle: Tensor
    W_out: Tensor
    out_B: Tensor
    W_fc1: Tensor
    b_fc1: Tensor
    W_fc2: Tensor
    b_fc2: Tensor
    W_head: Tensor
    norm_w: Tensor
    spiral_amp: Tensor
    spiral_phase: Tensor
    spiral_slope: Tensor
    spiral_offset: Tensor

    def __init__(self, options: MicroAdderOptions | None = None):
        options = options or MicroAdderOptions()
        super().__init__(microadder_config(options))
        self.options = options
        self.split_stream = options.token_dim if options.splits_the_stream else None
        for name, shape in options.shapes().items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        if options.columns == "spiral" and options.freeze_spiral:
            for name, value in self._spiral_start().items():
                self.register_buffer(f"spiral_{name}", torch.tensor(value), persistent=False)

    def _spiral_start(self) -> dict[str, float]:
        level = {"slope": 0.0, "offset": 1.0} if self.options.level else {}
        return (EARLY_SPIRAL if self.options.early_spiral else SPIRAL) | level

    @property
    def constants(self) -> dict[str, float]:
        o, found = self.options, dict[str, float]()
        if o.columns == "spiral":
            found["columns a turn"] = float(o.period)
            if o.freeze_spiral:
                found |= {f"spiral's {name}": value for name, value in self._spiral_start().items() if value}
        if o.mirror and o.freeze_arc_start:
            found |= {"arc's centre": math.pi / 4, "tangent": 0.5**0.5}
        elif o.freeze_arc_start:
            found["arc's start"] = ARC["start"]
        return found

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise as the public code: Xavier matrices, places N(0, 0.02), o_A Kaiming, o_B and biases 0, gains 1."""
        constants = {f"arc_{name}": value for name, value in ARC.items()} | {"arc_B": ARC["A"]}
        constants |= {f"pos_{name}": 1.0 for name in ("plus", "equals") if getattr(self.options, name) == "scaled half"}
        constants |= {f"spiral_{name}": value for name, value in self._spiral_start().items()}
        for name, parameter in self.named_parameters():
            if name in constants:
                fill_(parameter, constants[name])
            elif name == "q_angle":
                fill_(parameter, self.options.start_angle)
            elif name == "pos_second":  # the level places of the first operand, reflected in the third dimension
                fill_(parameter[:2], 0.0)
                fill_(parameter[2:], -2.0)
            elif name == "tok_table":
                with torch.no_grad():
                    parameter.copy_(_token_start(*parameter.shape))
            elif name in ("pos_columns", "pos_plus", "pos_equals", "pos_z_hi", "pos_eos"):
                normal_(parameter, 0.02, generator)
            elif name == "out_A":  # Kaiming uniform with a = sqrt(5): 1 / sqrt(fan-in), where the fan-in is the rank
                uniform_(parameter, (self.options.out_rank or 1) ** -0.5, generator)
            elif "norm" in name:
                fill_(parameter, 1.0)
            elif name in ("W_qk", "W_q") and self.options.qk == "axes":
                fill_(parameter[:2], self.options.start_axes)
                fill_(parameter[2:], 1.0)
            elif name in ("W_qk", "W_q") and self.options.qk == "circle and slope":
                fill_(parameter[:1], self.options.start_axes)
                fill_(parameter[1:], 1.0)
            elif name in ("W_qk", "W_q") and self.options.qk == "circle":
                fill_(parameter, self.options.start_axes)
            elif parameter.ndim == 2 and name != "out_B":
                xavier_uniform_(parameter, generator)
            elif self.options.mirror and name.startswith(("W_fc", "W_head")):
                uniform_(parameter, 1.5**0.5, generator)  # Xavier's bound for a 2x2 matrix
            elif name == "W_v":
                uniform_(parameter, 1.0, generator)
            else:
                fill_(parameter, 0.0)

    def forward(self) -> Weights:
        o = self.options
        own: dict[str, Tensor] = dict(self.named_parameters())
        d, t, h, d_head = o.d_model, o.token_dim, o.n_heads, o.d_head
        tokens = self._tokens()
        norms = [self._norm(name) for name in ("norm1_w", "norm2_w", "norm_f_w")]
        if o.mirror:  # [[a, b], [b, a]], and the arc's tangent
            own |= _mirrored(own, o)
            own["W_v"] = torch.stack((-torch.ones_like(own["out_B"]), torch.ones_like(own["out_B"])))
            own["W_v"] = own["W_v"] * 0.5**0.5 if o.freeze_arc_start else own["W_v"]
            own["out_B"] = own["out_B"] * own["W_v"]
        head = _of_the_stream(own["W_head"], o.head_reads, d)  # [t, d]
        w_q, w_k = self._queries_and_keys()
        weights: Weights = {
            "embed.W_E": F.pad(tokens, (0, d - t)),
            "pos_embed.W_pos": F.pad(self._positions(), (t, 0)),
            "blocks.0.ln1.w": norms[0],
            "blocks.0.attn.W_Q": w_q,
            "blocks.0.attn.W_K": w_k,
        }

        # Values [head, d, d_head] from the token dimensions; output [head, d_head, d], as factors if it is factored.
        matrix = {"head": lambda: head, "own": lambda: own["W_v"].T, "direction": lambda: own["W_v"][:, None]}[
            o.values
        ]()
        values = F.pad(matrix, (0, 0, 0, d - t)).unflatten(1, (1 if o.opposed else h, -1)).transpose(0, 1)
        values = values.expand(h, -1, -1) if o.opposed else values
        weights["blocks.0.attn.W_V"] = F.pad(values, (0, d_head - values.shape[2]))
        if o.out_rank is None:
            right = F.pad(self.W_out, (0, d - self.W_out.shape[1])).unflatten(0, (h, -1))
            weights["blocks.0.attn.W_O"] = F.pad(right, (0, 0, 0, d_head - right.shape[1]))
        else:
            left = own["out_A"] if o.values != "direction" else torch.ones_like(own["W_v"][:1])
            left = left.reshape(1 if o.opposed else h, -1, o.out_rank)
            left = left.expand(h, -1, -1) if o.opposed else left
            left = F.pad(left, (0, 0, 0, d_head - left.shape[1]))
            right = F.pad(own["out_B"], (0, d - own["out_B"].shape[-1])).reshape(-1, o.out_rank, d).expand(h, -1, -1)
            weights["blocks.0.attn.W_O"] = _product(left, right)
            weights["blocks.0.attn.W_O_left"] = left  # the factors, for the training fast path
            weights["blocks.0.attn.W_O_right"] = right
        weights["blocks.0.ln2.w"] = norms[1]
        weights["blocks.0.mlp.W_in"] = _of_the_stream(own["W_fc1"], o.mlp_reads, d).T
        weights["blocks.0.mlp.W_out"] = head if o.tie_fc2 else F.pad(own["W_fc2"], (0, d - own["W_fc2"].shape[1]))
        if o.mlp_bias:
            weights["blocks.0.mlp.b_in"], weights["blocks.0.mlp.b_out"] = self.b_fc1, self.b_fc2
        weights["ln_final.w"] = norms[2]
        weights["unembed.W_U"] = _product(head.T, tokens.T)
        return weights

    # ---- the parts

    def _tokens(self) -> Tensor:
        """[vocab, token_dim]: the table, or e(d)."""
        o = self.options
        if o.tokens == "table":
            return self.tok_table
        start = ARC["start"] if o.freeze_arc_start else self.arc_start
        if o.mirror and o.freeze_arc_start:
            start = math.pi / 4 - 4.5 * self.arc_stride
        angle = start + self.arc_stride * torch.arange(
            self.config.d_vocab, device=self.arc_A.device, dtype=self.arc_A.dtype
        )
        if o.tokens == "arc":
            return self.arc_A * torch.stack((angle.cos(), angle.sin()), -1)
        return torch.stack((self.arc_A * angle.cos(), self.arc_B * angle.sin()), -1)

    def _positions(self) -> Tensor:
        """[34, position_dim]: columns, which both operands and the answer share, and the four other places."""
        o, own = self.options, dict(self.named_parameters())
        if o.columns == "table":
            around = halves = F.pad(self.pos_columns, (0, 0, 1, 1))  # without a spiral, the places around are zero
        else:
            numbers = (self.spiral_amp, self.spiral_phase, self.spiral_slope, self.spiral_offset)
            around = spiral(*numbers, DIGITS + 2, o.period, first=-1)
            halves = spiral(*numbers, 11, o.period, first=-0.5)
            around, halves = (F.pad(x, (0, o.position_dim - 3)) for x in (around, halves))  # a fourth dimension is 0
        column = around[1:-1]
        if o.correction == "full":
            column = column * (1 + self.pos_correction[:, None])
        elif o.correction == "linear":
            i = torch.arange(DIGITS, device=column.device, dtype=column.dtype)
            column = column * (1 + self.pos_correction_intercept + self.pos_correction_slope * i)[:, None]

        def place(name: str, end: int) -> Tensor:
            kind = getattr(o, name)
            if kind == "scaled half":
                return own[f"pos_{name}"] * halves[[end]]
            if f"pos_{name}" in own:
                return own[f"pos_{name}"][None]
            return (around if kind == "spiral" else torch.zeros_like(column))[[end]]

        plus, equals, z_hi, eos = place("plus", -1), place("equals", 0), place("z_hi", -1), place("eos", -1)
        second = column + self.pos_second if o.opposed else column
        return torch.cat((column, plus, second, equals, column, z_hi, eos))

    def _queries_and_keys(self) -> tuple[Tensor, Tensor]:
        """W_Q and W_K, [head, d_model, d_head]."""
        o, own = self.options, dict(self.named_parameters())
        columns = o.position_dim

        def matrices(name: str) -> Tensor:  # [head, qk_dim, columns]
            rows = o.qk_heads * o.qk_dim
            if o.qk == "full":
                full = own[name]
            elif o.qk == "axes":
                full = scaled_axes(own[name], rows, columns)
            elif o.qk == "circle and slope":
                full = scaled_axes(own[name][[0, 0, 1]], rows, columns)
            else:
                full = own[name] * torch.eye(rows, columns, device=own[name].device, dtype=own[name].dtype)
                full = F.pad(full[:, :2], (0, max(0, columns - 2)))
            return full.unflatten(0, (o.qk_heads, o.qk_dim))

        def shaped(matrix: Tensor) -> Tensor:
            return F.pad(matrix.transpose(1, 2), (0, o.d_head - o.qk_dim, o.d_model - columns, 0))

        keys = matrices("W_qk")
        queries = keys if o.tie_qk else matrices("W_q")
        if o.tie_qk and o.q_angle:
            angles = self.q_angle.reshape(-1)
            queries = torch.stack([rotate_pairs(queries[i], angles[i]) for i in range(o.qk_heads)])
        if o.opposed:
            reflected = torch.cat((queries[..., :2], -queries[..., 2:]), -1)
            queries, keys = torch.cat((queries, reflected)), keys.expand(2, -1, -1)
        return shaped(queries), shaped(keys)

    def _norm(self, name: str) -> Tensor:
        o = self.options
        if o.norm == "separate":
            return getattr(self, name)
        if o.norm == "fixed":
            return torch.ones_like(self.W_head.reshape(-1)[:1]).expand(o.d_model)
        return self.norm_w.expand(o.d_model)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a b``, term by term. Processors sum ``a @ b`` in different orders, and a certificate is about every bit."""
    terms = [a[..., k, None] * b[..., k, None, :] for k in range(a.shape[-1])]
    return sum(terms[1:], terms[0])


def _of_the_stream(matrix: Tensor, reads: str, d_model: int) -> Tensor:
    """A matrix that reads the first dimensions (perhaps also the last), padded to read all, [row, d_model]."""
    if reads.endswith("slope"):
        matrix = torch.cat((F.pad(matrix[:, :-1], (0, d_model - matrix.shape[1])), matrix[:, -1:]), 1)
    return F.pad(matrix, (0, d_model - matrix.shape[1]))


def _mirrored(own: dict[str, Tensor], o: MicroAdderOptions) -> dict[str, Tensor]:
    """The token plane's matrices as [[a, b], [b, a]]; where the slope is read, both rows read it in the same way."""

    def square(numbers: Tensor, tangent: bool) -> Tensor:
        return mirrored_square(torch.cat((numbers[:1], -numbers[:1])) if tangent else numbers[:2])

    found = {"W_fc1": square(own["W_fc1"], o.mlp_reads == "tangent")}
    if "W_fc2" in own:
        found["W_fc2"] = square(own["W_fc2"], False)
    head = square(own["W_head"], o.head_reads.startswith("tangent"))
    if o.head_reads.endswith("slope"):
        head = torch.cat((head, own["W_head"][-1:].expand(2, 1)), 1)
    return found | {"W_head": head}


def _token_start(n: int, token_dim: int) -> Tensor:
    """Initial token embeddings: digit d at [cos 2 pi d / 10, sin 2 pi d / 10, d / 9], other tokens in corners."""
    digits = spiral(*(torch.tensor(x) for x in (1.0, 0.0, 1 / 9, 0.0)), n=DIGITS)
    corners = torch.tensor([[2.0, 0, -1], [0, 2, -1], [-2, 0, -1], [0, -2, -1]])  # plus, equals, EOS, padding
    return torch.cat((digits, corners))[:n, :token_dim]
