"""Symmetries of MicroAdder's weight maps with one head (133 to 57 numbers; :mod:`models.families.microadder`).

These are exact, and used if a rung has the numbers for them:

* ``W_qk`` times a unitary matrix, with pairs of rows as complex numbers: the queries' rotation commutes with it. An odd
  last row may change its sign. Exchanging the rows of each pair reverses the angle, so it can be kept in [0, 180].
* Values and output. Own values have an invertible matrix on each side of ``out_A``. With values through the head,
  ``out_A`` matters only through ``W_head out_A``, and a factor can be moved to ``out_B``.
* MLP neurons in any order, if their output is not the head's matrix.
* The token plane. A table with norms of its own can have any rotation. An arc or ellipse can have its axes exchanged
  (digit d's angle is then measured from the other axis) and reversed. In 57, whose neurons write with the head's
  matrix, the axes can only be exchanged, together with the neurons.
* The position space, if the spiral is learned: the circle can be rotated (its phase) and the slope reversed.
* Norm gains of dimensions that are read by matrices of their own move into these.
* A correction of columns 1 + b + m i: the 1 + b moves into the spiral. Radii are positive, angles within a turn.

Nothing else is known to be exact, and for a frozen position space nothing is.
"""

from __future__ import annotations

import math

import torch

from models.errors import UserError
from models.families import MicroAdderWeights
from models.tasks import DIGITS
from models.weight_maps import spiral
from studies.population.symmetries.base import Parameters, Symmetries, balanced
from studies.population.symmetries.spaces import Axis, Elements, Kind, SymmetryLayout, SymmetrySpace

STARTS = 24
FEW_STARTS = 8  # enough if the token plane's axes can only be exchanged, from which all else follows
TOKENS, UNITS, KEYS, INNER, OUT = (Axis(name) for name in ("tokens", "units", "keys", "inner", "out"))
GAINS = Axis("tokens", unsigned=True)
PLACES = ("pos_plus", "pos_equals", "pos_z_hi", "pos_eos")


class MicroAdderSymmetries(Symmetries):
    """Symmetries of MicroAdder. Raises UserError for options outside the rungs with one head (242 to 170 have two)."""

    def __init__(self, weight_map: MicroAdderWeights):
        o = self.options = weight_map.options
        ladder = (o.n_heads, o.position_dim, o.qk, o.columns) == (1, 3, "full", "spiral") and o.tie_qk and o.q_angle
        own = o.norm == "separate" and o.values == "own" and not o.tie_fc2
        shared = o.norm == "shared" and o.values == "head" and o.out_rank == 1 and not o.mlp_bias
        whole = (o.out_writes, o.mlp_reads, o.head_reads) == ("all", "all", "all") and o.out_rank is not None
        places = {o.plus, o.equals, o.z_hi, o.eos} <= {"learned", "zero"} and not o.freeze_arc_start and not o.mirror
        if not (ladder and whole and places and (own or shared)):
            raise UserError("No alignment is known here for MicroAdders outside of the rungs from 133 to 57 numbers.")
        self.own_values, self.names = own, [name for name, _ in weight_map.named_parameters()]
        self.place = None if o.freeze_spiral else Axis("places")
        units = TOKENS if o.tie_fc2 else UNITS
        plane: Kind = (
            "permutation" if o.tie_fc2 else "rotation" if own and o.tokens == "table" else "signed permutation"
        )
        rank = o.out_rank or 1
        # Ordered so that tensors in a space and in earlier ones determine its element.
        spaces = {"tokens": SymmetrySpace(plane, 2)}
        if self.place is not None:
            spaces["places"] = SymmetrySpace("turn", 3)
        spaces["keys"] = SymmetrySpace("unitary", o.qk_dim)
        if own:
            spaces["inner"] = SymmetrySpace("rotation", o.head_dim)
        spaces["out"] = SymmetrySpace("rotation", rank)
        axes: dict[str, tuple[Axis | None, ...]] = {
            "tokens": (None, TOKENS),
            "columns": (None, self.place),
            "W_qk": (KEYS, self.place),
            "out_B.tokens": (OUT, TOKENS),
            "out_B.places": (OUT, self.place),
            "W_fc1.tokens": (units, TOKENS),
            "W_fc1.places": (units, self.place),
            "W_head.tokens": (TOKENS, TOKENS),
            "W_head.places": (TOKENS, self.place),
        }
        axes |= {name: (self.place,) for name in PLACES if name in self.names}
        if not o.tie_fc2:
            spaces["units"] = SymmetrySpace("permutation", o.d_mlp)
            axes |= {"W_fc2.tokens": (UNITS, TOKENS), "W_fc2.places": (UNITS, self.place)}
        if o.mlp_bias:
            axes |= {"b_fc1": (UNITS,), "b_fc2.tokens": (TOKENS,), "b_fc2.places": (self.place,)}
        if own:
            axes |= {"W_v": (INNER, TOKENS), "out_A": (INNER, OUT)}
        else:
            axes |= {"out_A.tokens": (TOKENS, OUT), "out_A.places": (self.place, OUT)}
            axes |= {"norm_w.tokens": (GAINS,), "norm_w.places": (None,)}
        self.layout = SymmetryLayout(spaces, axes)
        exchanged = {"rotation": "rotations of the token plane", "permutation": "exchange of the token axes and units"}
        self.words = (
            "unitary matrices between queries and keys",
            "invertible matrices between values and output" if own else "factors of the output, and what no value has",
            exchanged.get(plane, "exchange and signs of the token axes"),
            *([] if self.place is None else ["turns of the spiral and the sign of its slope"]),
            *([] if o.tie_fc2 else ["order of MLP neurons", "gains of norms"]),
            "angles by full turns",
        )

    # ---- canonical form

    def canonical(self, parameters: Parameters) -> Parameters:
        found = {name: value.detach().double().clone() for name, value in parameters.items()}
        o, t = self.options, 2
        self._canonical_columns(found)
        found["q_angle"] = _within_a_turn(found["q_angle"])
        if found["q_angle"] < 0:
            even = o.qk_dim // 2 * 2
            swapped = found["W_qk"][:even].reshape(-1, 2, 3).flip(1).flatten(0, 1)
            found["q_angle"], found["W_qk"] = -found["q_angle"], torch.cat((swapped, found["W_qk"][even:]))
        if self.own_values:
            first, second, last = (found[name] for name in ("norm1_w", "norm2_w", "norm_f_w"))
            found["W_v"], found["W_qk"] = found["W_v"] * first[:t], found["W_qk"] * first[t:]
            found["W_fc1"], found["W_head"] = found["W_fc1"] * second, found["W_head"] * last
            found |= {name: torch.ones_like(first) for name in ("norm1_w", "norm2_w", "norm_f_w")}
            rank_1 = found["out_A"].ndim == 1
            inside, outside = found["out_A"], found["out_B"]
            if rank_1:
                inside, outside = inside[:, None], outside[None]
            read, written = balanced(found["W_v"].mT @ inside, outside)
            values, inside = _padded_balance(read, o.head_dim)
            found["W_v"], found["out_A"], found["out_B"] = values.mT, inside, written
            if rank_1:
                found["out_A"], found["out_B"] = inside[:, 0], written[0]
        else:
            if not o.tie_fc2:  # otherwise the head's matrix also writes, without gains
                gain = torch.cat((torch.ones(t, dtype=torch.float64), found["norm_w"][t:]))
                found["W_qk"], found["W_fc1"] = found["W_qk"] * gain[t:], found["W_fc1"] * gain
                if bool((gain != 0).all()):
                    found["W_head"], found["out_A"] = found["W_head"] * gain, found["out_A"] / gain
                    found["norm_w"] = found["norm_w"] / gain
            seen = torch.linalg.pinv(found["W_head"]) @ found["W_head"]  # projector onto what values can hold
            read = seen @ found["out_A"]
            ratio = float((found["out_B"].norm() / read.norm()).sqrt())
            if math.isfinite(ratio) and ratio > 0:
                read, found["out_B"] = read * ratio, found["out_B"] / ratio
            found["out_A"] = read
        return self._canonical_arc(found)

    def _canonical_columns(self, found: Parameters) -> None:
        if self.options.correction == "linear":
            factor = 1 + found["pos_correction_intercept"]
            if factor != 0:
                for name in ("amp", "slope", "offset"):
                    found[f"spiral_{name}"] = found[f"spiral_{name}"] * factor
                found["pos_correction_slope"] = found["pos_correction_slope"] / factor
                found["pos_correction_intercept"] = torch.zeros_like(factor)
        if not self.options.freeze_spiral:
            if found["spiral_amp"] < 0:
                found["spiral_amp"], found["spiral_phase"] = -found["spiral_amp"], found["spiral_phase"] + math.pi
            found["spiral_phase"] = _within_a_turn(found["spiral_phase"])

    def _canonical_arc(self, found: Parameters) -> Parameters:
        if self.options.tokens == "arc" and found["arc_A"] < 0:
            found["arc_A"], found["arc_start"] = -found["arc_A"], found["arc_start"] + math.pi
        if self.options.tokens == "ellipse":
            if found["arc_A"] < 0:
                found["arc_A"], found["arc_start"] = -found["arc_A"], math.pi - found["arc_start"]
                found["arc_stride"] = -found["arc_stride"]
            if found["arc_B"] < 0:
                found["arc_B"], found["arc_start"] = -found["arc_B"], -found["arc_start"]
                found["arc_stride"] = -found["arc_stride"]
        for name in ("arc_start", "arc_stride"):
            if name in found:
                found[name] = _within_a_turn(found[name])
        return found

    # ---- moves

    def _parts(self, canonical: Parameters) -> Parameters:
        """The tensors of the layout: embeddings as tables, everything in the stream split into tokens and places."""
        own, found = canonical, {}
        if "tok_table" in own:
            found["tokens"] = own["tok_table"]
        else:
            angle = own["arc_start"] + own["arc_stride"] * torch.arange(10, dtype=torch.float64)
            wide, high = own["arc_A"], own.get("arc_B", own["arc_A"])
            found["tokens"] = torch.stack((wide * angle.cos(), high * angle.sin()), -1)
        if self.options.freeze_spiral:
            found["columns"] = torch.zeros(1, 3, dtype=torch.float64)
        else:
            amp, phase, slope, offset = (own[f"spiral_{name}"] for name in ("amp", "phase", "slope", "offset"))
            found["columns"] = spiral(amp, phase, slope, offset, DIGITS, self.options.period)
        for name in self.layout.axes:
            tensor, _, side = name.partition(".")
            if name in found:
                continue
            value = own[tensor]
            if tensor == "out_B" and value.ndim == 1:
                value = value[None]
            if tensor == "out_A" and value.ndim == 1:
                value = value[:, None]
            if side:
                axis = 0 if tensor == "out_A" else -1
                value = value.narrow(axis, 0, 2) if side == "tokens" else value.narrow(axis, 2, 3)
            found[name] = value
        return found

    def _moved(self, canonical: Parameters, elements: Elements) -> Parameters:
        """The parameters moved: tensors by the layout, arcs and spirals by what the element means for their numbers."""
        parts = self.layout.apply(self._parts(canonical), elements)
        found = dict(canonical)
        for name in canonical:
            if name in parts:
                value = parts[name]
            elif f"{name}.tokens" in parts:
                axis = 0 if name == "out_A" else -1
                value = torch.cat((parts[f"{name}.tokens"], parts[f"{name}.places"]), axis)
            else:
                continue
            found[name] = value.reshape(canonical[name].shape)
        plane = elements["tokens"]
        if "tok_table" in found:
            found["tok_table"] = parts["tokens"]
        else:
            self._move_arc(found, plane)
        if "places" in elements:
            turn = elements["places"]
            found["spiral_phase"] = _within_a_turn(found["spiral_phase"] + torch.atan2(turn[0, 1], turn[0, 0]))
            found |= {name: found[name] * turn[2, 2] for name in ("spiral_slope", "spiral_offset")}
        return found

    def _move_arc(self, found: Parameters, plane: torch.Tensor) -> None:
        if plane[0, 0] == 0:  # exchanged: (B sin a, A cos a)
            if "arc_B" in found:
                found["arc_A"], found["arc_B"] = found["arc_B"], found["arc_A"]
            found["arc_start"], found["arc_stride"] = math.pi / 2 - found["arc_start"], -found["arc_stride"]
        first, second = plane.sum(0)
        if first < 0:  # cos changes its sign
            found["arc_start"], found["arc_stride"] = math.pi - found["arc_start"], -found["arc_stride"]
        if second < 0:  # sin does
            found["arc_start"], found["arc_stride"] = -found["arc_start"], -found["arc_stride"]
        found["arc_start"] = _within_a_turn(found["arc_start"])

    def random(self, canonical: Parameters, generator: torch.Generator) -> Parameters:
        return self._moved(canonical, self.layout.random(generator))

    def align(self, canonical: Parameters, reference: Parameters) -> Parameters:
        starts = FEW_STARTS if self.options.tie_fc2 else STARTS
        elements = self.layout.search(self._parts(canonical), self._parts(reference), starts)
        found = self._moved(canonical, elements)
        for name in ("arc_start", "arc_stride", "spiral_phase", "q_angle"):
            if name in found:  # choose the nearest full turn
                found[name] = reference[name] + _within_a_turn(found[name] - reference[name])
        return found


def _within_a_turn(angle: torch.Tensor) -> torch.Tensor:
    """The same angle in (-pi, pi]."""
    return -torch.remainder(math.pi - angle, 2 * math.pi) + math.pi


def _padded_balance(product: torch.Tensor, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[m, inner] and [inner, n] with this product, balanced."""
    rank = min(product.shape)
    u, s, vh = torch.linalg.svd(product, full_matrices=False)
    left, right = u * s.sqrt(), s.sqrt()[:, None] * vh
    pad = torch.nn.functional.pad
    return pad(left, (0, inner - rank)), pad(right, (0, 0, 0, inner - rank))
