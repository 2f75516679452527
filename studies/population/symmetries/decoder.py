"""Symmetries of a decoder whose matrices are its parameters: ToyGPT, Position Coupling's trained models.

These are exact, and used:

* units of an MLP in any order; in a gated MLP also a factor moved from what the gate multiplies to what is written; for
  ReLU units a positive factor;
* heads in any order; in every head any invertible matrix between queries and keys and another between values and output
  (with rotary positions only an angle per pair of dimensions);
* biases of keys, which shift all scores of a query alike, are set to zero; biases of values move to the output's;
* norms before a sublayer: gains and biases move into the matrices that read; what LayerNorm's mean removes, and what
  reads only that, is set to zero;
* the stream: any rotation (with LayerNorm: about (1, ..., 1)) if norms come only before sublayers and the head is not
  tied to the embedding. Otherwise the gains of a norm on the stream keep its axes: permutations, with signs for
  RMSNorm.

Scales that only a norm's epsilon sees are not exact, and not used.
"""

from __future__ import annotations

import torch

from models.errors import UserError
from models.transformer import TransformerConfig
from models.weight_maps import DenseWeights, TiedDecoderWeights
from studies.population.symmetries.base import Parameters, Symmetries, balanced
from studies.population.symmetries.spaces import Axis, Kind, SymmetryLayout, SymmetrySpace

STREAM = Axis("stream")


class DecoderSymmetries(Symmetries):
    """Symmetries of :class:`DenseWeights` and :class:`TiedDecoderWeights`.

    Raises:
        UserError: FIRE's biases, or scores that are not a dot product: their symmetries are not known here.
    """

    def __init__(self, weight_map: DenseWeights | TiedDecoderWeights):
        cfg = weight_map.config
        if cfg.positional_embedding_type == "fire" or cfg.attn_scores != "dot":
            raise UserError(
                "No alignment is known here for FIRE's position biases or for scores other than dot products."
            )
        if cfg.norm_groups > 1:
            raise UserError("No alignment is known here for norms over groups of the stream.")
        self.cfg = cfg
        self.names = [name for name, _ in weight_map.named_parameters()]
        self.tied = isinstance(weight_map, TiedDecoderWeights)
        self.free_stream = not self.tied and not cfg.has_post_norm
        self.layout = SymmetryLayout(self._spaces(), {name: self._axes(name) for name in self.names})
        stream = {
            "rotation": "rotations of the residual stream",
            "rotation about ones": "rotations of the residual stream about its mean",
            "signed permutation": "permutations and signs of the residual stream's axes",
            "permutation": "permutations of the residual stream's axes",
        }[self._stream_kind()]
        inner = "angles of rotary pairs in queries and keys" if cfg.positional_embedding_type == "rotary" else ""
        self.words = (
            stream,
            "order of heads",
            inner or "invertible matrices between queries and keys",
            "invertible matrices between values and output",
            *(["order of MLP neurons"] if cfg.d_mlp else []),
            *(["scales and signs of gated neurons"] if cfg.d_mlp and cfg.gated_mlp else []),
            *(["gains and biases of norms"] if cfg.has_pre_norm else []),
        )

    def _stream_kind(self) -> Kind:
        layer_norm = self.cfg.normalization_type == "LN"
        if self.free_stream:
            return "rotation about ones" if layer_norm else "rotation"
        return "permutation" if layer_norm else "signed permutation"

    def _spaces(self) -> dict[str, SymmetrySpace]:
        cfg = self.cfg
        found = {"stream": SymmetrySpace(self._stream_kind(), cfg.d_model)}
        rotary = "phases" if cfg.rotary_adjacent_pairs else "phases of halves"
        for layer in range(cfg.n_layers):
            found[f"{layer}.heads"] = SymmetrySpace("permutation", cfg.n_heads)
            inner: Kind = rotary if cfg.positional_embedding_type == "rotary" else "rotation"
            found[f"{layer}.qk"] = SymmetrySpace(inner, cfg.d_head, f"{layer}.heads")
            found[f"{layer}.ov"] = SymmetrySpace("rotation", cfg.d_head, f"{layer}.heads")
            if cfg.d_mlp:
                kind: Kind = "signed permutation" if cfg.gated_mlp else "permutation"
                found[f"{layer}.units"] = SymmetrySpace(kind, cfg.d_mlp)
        return found

    def _axes(self, name: str) -> tuple[Axis | None, ...]:
        place, _, kind = name.rpartition("/")
        if place in ("embed", "pos_embed"):
            levels = (None,) if kind == "W_pos" and self.cfg.positional_embedding_type == "coupled" else ()
            return (*levels, None, STREAM)
        if place == "unembed":
            return (STREAM, None) if kind == "W_U" else (None,)
        if kind in ("w", "b") and place.rpartition("/")[2].startswith("ln"):
            if kind == "w" and self.free_stream:
                return (None,)  # ones, in canonical form
            return (Axis("stream", unsigned=kind == "w"),)
        layer = place.split("/")[1]
        heads, qk, ov, units = (Axis(f"{layer}.{inner}") for inner in ("heads", "qk", "ov", "units"))
        return {
            "W_Q": (heads, STREAM, qk),
            "W_K": (heads, STREAM, qk),
            "W_V": (heads, STREAM, ov),
            "W_O": (heads, ov, STREAM),
            "b_Q": (heads, qk),
            "b_K": (heads, qk),
            "b_V": (heads, ov),
            "b_O": (STREAM,),
            "W_gate": (STREAM, Axis(units.space, unsigned=True)),
            "W_in": (STREAM, units),
            "b_in": (units,),
            "W_out": (units, STREAM),
            "b_out": (STREAM,),
        }[kind]

    def canonical(self, parameters: Parameters) -> Parameters:
        found = {name: value.detach().double().clone() for name, value in parameters.items()}
        for layer in range(self.cfg.n_layers):
            attn, mlp = f"blocks/{layer}/attn/", f"blocks/{layer}/mlp/"
            if self.cfg.has_pre_norm:
                _fold(found, f"blocks/{layer}/ln1/", [(attn + f"W_{x}", attn + f"b_{x}") for x in "QKV"])
                if self.cfg.d_mlp:
                    _fold(found, f"blocks/{layer}/ln2/", [(mlp + "W_in", mlp + "b_in"), (mlp + "W_gate", "")])
            self._canonical_heads(found, attn)
            if self.cfg.d_mlp:
                _balance_units(found, mlp, self.cfg)
        if self.free_stream:
            if self.cfg.has_final_norm:
                _fold(found, "ln_final/", [("unembed/W_U", "unembed/b_U")])
            if self.cfg.normalization_type == "LN" and self.cfg.has_pre_norm:
                self._drop_means(found)
        return found

    def _canonical_heads(self, found: Parameters, attn: str) -> None:
        if attn + "b_V" in found and attn + "b_O" in found:
            moved = torch.einsum("he,hed->d", found[attn + "b_V"], found[attn + "W_O"])
            found[attn + "b_O"] = found[attn + "b_O"] + moved
            found[attn + "b_V"] = torch.zeros_like(found[attn + "b_V"])
        if self.cfg.positional_embedding_type != "rotary":
            if attn + "b_K" in found:
                found[attn + "b_K"] = torch.zeros_like(found[attn + "b_K"])
            bias = found.get(attn + "b_Q")
            queries = found[attn + "W_Q"]
            stacked = queries if bias is None else torch.cat((queries, bias[:, None]), 1)
            queries, keys = balanced(stacked, found[attn + "W_K"].mT)
            found[attn + "W_K"] = keys.mT
            found[attn + "W_Q"] = queries[:, : self.cfg.d_model]
            if bias is not None:
                found[attn + "b_Q"] = queries[:, -1]
        if attn + "b_V" not in found or attn + "b_O" in found:
            found[attn + "W_V"], found[attn + "W_O"] = balanced(found[attn + "W_V"], found[attn + "W_O"])

    def _drop_means(self, found: Parameters) -> None:
        """Remove what is written or read along (1, ..., 1), which has no effect since every read is centred first."""
        for name, axes in self.layout.axes.items():
            place, _, kind = name.rpartition("/")
            if STREAM not in axes or place.startswith("unembed") or "/ln" in f"/{place}":
                continue
            norm = {"W_in": "ln2", "W_gate": "ln2", "W_Q": "ln1", "W_K": "ln1", "W_V": "ln1"}.get(kind)
            bias = found.get(place.rpartition("/")[0] + f"/{norm}/b") if norm else None
            if bias is None or not bias.any():  # a bias of the norm is read along (1, ..., 1) as well
                found[name] = found[name] - found[name].mean(axes.index(STREAM), keepdim=True)

    def random(self, canonical: Parameters, generator: torch.Generator) -> Parameters:
        return self.layout.apply(canonical, self.layout.random(generator))

    def align(self, canonical: Parameters, reference: Parameters) -> Parameters:
        return self.layout.apply(canonical, self.layout.search(canonical, reference))


def _fold(found: Parameters, norm: str, readers: list[tuple[str, str]]) -> None:
    """Move a norm's gains (and biases, if every reader has one to take them) into the matrices that read it."""
    gain, bias = found[norm + "w"], found.get(norm + "b")
    into = [(matrix, own) for matrix, own in readers if matrix in found]
    if bias is not None and all(own in found for _, own in into):
        for matrix, own in into:
            found[own] = found[own] + bias @ found[matrix]
        found[norm + "b"] = torch.zeros_like(bias)
    elif bias is not None:
        if not bool((gain != 0).all()):
            raise UserError(f"{norm}b cannot be moved past a gain of zero, so that this model has no alignment here.")
        found[norm + "b"] = bias / gain
    for matrix, _ in into:
        found[matrix] = gain[:, None] * found[matrix]
    found[norm + "w"] = torch.ones_like(gain)


def _balance_units(found: Parameters, mlp: str, cfg: TransformerConfig) -> None:
    """Give incoming and outgoing weights the same size, if a factor can be moved between them."""
    if not cfg.gated_mlp and cfg.act_fn != "relu":
        return
    incoming, outgoing = found[mlp + "W_in"], found[mlp + "W_out"]
    bias = found.get(mlp + "b_in")
    sizes = incoming.square().sum(0) + (0 if bias is None else bias.square())
    factor = (outgoing.square().sum(1) / sizes) ** 0.25
    factor = torch.where(factor.isfinite() & (factor > 0), factor, torch.ones_like(factor))
    found[mlp + "W_in"], found[mlp + "W_out"] = incoming * factor, outgoing / factor[:, None]
    if bias is not None:
        found[mlp + "b_in"] = bias * factor
