"""Symmetries of the 456-parameter adder and its relatives (:mod:`models.families.low_rank_adder`).

These are exact, and used:

* an invertible matrix between the two factors of the position table, of the output and of both MLP matrices;
* queries, keys and values share their first factor A and, with it, an invertible matrix; the head's seven dimensions
  matter only through the products S = B_q B_k^T and T = B_v U, and can be anything with these products;
* units in any order; gains and biases of the two norms before sublayers move into the matrices that read;
* the stream's axes in any order, with RMSNorm each with a sign of its own, but no rotation: the last norm's gains are
  between the stream and a head that is tied to the embedding.

In canonical form A has orthonormal columns, B_k = B_v are the first rows of the identity, other factors are balanced.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from models.errors import UserError
from models.families.low_rank_adder import D_MLP, D_MODEL, LowRankAdderWeights
from studies.population.symmetries.base import Parameters, Symmetries, balanced
from studies.population.symmetries.spaces import Axis, SymmetryLayout, SymmetrySpace

STARTS = 24  # in so few dimensions coordinate descent has many local optima; another start is cheap
STREAM, UNITS, INNER = Axis("stream"), Axis("units"), Axis("inner")


class LowRankSymmetries(Symmetries):
    """Symmetries of the 456 family. Raises UserError without low-rank attention and positions (adder-763)."""

    def __init__(self, weight_map: LowRankAdderWeights):
        options = weight_map.options
        if options.qkv_rank is None or options.out_rank is None or options.position_rank is None:
            raise UserError("No alignment is known here for the 456 family without low-rank attention (adder-763).")
        self.options, self.rank = options, options.qkv_rank
        self.rms = options.normalization_type == "RMS"
        spaces = {  # ordered so that tensors in a space and in earlier ones determine its element
            "stream": SymmetrySpace("signed permutation" if self.rms else "permutation", D_MODEL),
            "inner": SymmetrySpace("rotation", self.rank),
            "places": SymmetrySpace("rotation", options.position_rank),
            "out": SymmetrySpace("rotation", options.out_rank),
        }
        axes: dict[str, tuple[Axis | None, ...]] = {
            "W_E": (None, STREAM),
            "pos.A": (None, Axis("places")),
            "pos.B": (Axis("places"), STREAM),
            "A": (STREAM, INNER),
            "S": (INNER, INNER),
            "T": (INNER, Axis("out")),
            "out.B": (Axis("out"), STREAM),
        }
        for name, one, other in (("mlp_in", STREAM, UNITS), ("mlp_out", UNITS, STREAM)):
            if options.mlp_rank is None:
                axes[f"{name}.W"] = (one, other)
            else:
                spaces[name] = SymmetrySpace("rotation", options.mlp_rank)
                axes |= {f"{name}.A": (one, Axis(name)), f"{name}.B": (Axis(name), other)}
        spaces["units"] = SymmetrySpace("permutation", D_MLP)
        for norm in ("ln1", "ln2", "ln_final"):
            axes[f"{norm}_w"] = (Axis("stream", unsigned=True),)
            if not self.rms:
                axes[f"{norm}_b"] = (STREAM,)
        self.layout = SymmetryLayout(spaces, axes)
        self.words = (
            f"permutations{' and signs' if self.rms else ''} of the residual stream's axes",
            "invertible matrices between the factors of every product",
            "invertible matrices in the head",
            "order of MLP neurons",
            "gains and biases of norms before sublayers",
        )

    def canonical(self, parameters: Parameters) -> Parameters:
        own = {name: value.detach().double() for name, value in parameters.items()}
        tied, D = self.options.tie_kv, D_MODEL
        q, k, *v = own["qkv.B"].split(D, 1)
        found = {"W_E": own["W_E"], "S": q @ k.T, "T": (k if tied else v[0]) @ own["out.A"], "out.B": own["out.B"]}
        found |= {name: own[name] for name in own if name.startswith(("pos.", "mlp_", "ln"))}
        found["A"] = own["qkv.A"]
        for norm, reader in (("ln1", "A"), ("ln2", "mlp_in.W" if self.options.mlp_rank is None else "mlp_in.A")):
            gain = own[f"{norm}_w"]
            if not self.rms:
                if not bool((gain != 0).all()):
                    raise UserError(f"{norm}_b cannot be moved past a gain of zero, so that there is no alignment.")
                found[f"{norm}_b"] = own[f"{norm}_b"] / gain
            found[reader] = gain[:, None] * found[reader]
            found[f"{norm}_w"] = torch.ones_like(gain)
        u, s, vh = torch.linalg.svd(found["A"], full_matrices=False)
        polar = vh.T @ torch.diag(s) @ vh
        found["A"], found["S"], found["T"] = u @ vh, polar @ found["S"] @ polar, polar @ found["T"]
        if not self.rms:  # LayerNorm removes the mean of all that is written; the head also reads the embedding
            for name in ("pos.B", "out.B", "mlp_out.W" if self.options.mlp_rank is None else "mlp_out.B"):
                found[name] = found[name] - found[name].mean(1, keepdim=True)
        pairs = [("pos.A", "pos.B"), ("T", "out.B")]
        pairs += [(f"{name}.A", f"{name}.B") for name in ("mlp_in", "mlp_out") if self.options.mlp_rank is not None]
        for left, right in pairs:
            found[left], found[right] = balanced(found[left], found[right])
        return self._numbers(found)

    def _numbers(self, parts: Parameters) -> Parameters:
        """The parameters that consist of these parts."""
        rest = D_MODEL - self.rank
        read = F.pad(torch.eye(self.rank, dtype=torch.float64), (0, rest))
        blocks = [F.pad(parts["S"], (0, rest)), read] + ([] if self.options.tie_kv else [read])
        found = {name: value for name, value in parts.items() if name not in ("A", "S", "T")}
        return found | {
            "qkv.A": parts["A"],
            "qkv.B": torch.cat(blocks, 1),
            "out.A": F.pad(parts["T"], (0, 0, 0, rest)),
        }

    def _parts(self, canonical: Parameters) -> Parameters:
        found = {name: value for name, value in canonical.items() if name not in ("qkv.A", "qkv.B", "out.A")}
        parts = {"A": canonical["qkv.A"], "S": canonical["qkv.B"][:, : self.rank], "T": canonical["out.A"][: self.rank]}
        return found | parts

    def random(self, canonical: Parameters, generator: torch.Generator) -> Parameters:
        return self._numbers(self.layout.apply(self._parts(canonical), self.layout.random(generator)))

    def align(self, canonical: Parameters, reference: Parameters) -> Parameters:
        parts = self._parts(canonical)
        return self._numbers(self.layout.apply(parts, self.layout.search(parts, self._parts(reference), STARTS)))
