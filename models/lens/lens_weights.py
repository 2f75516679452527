"""Weights by TransformerLens' names, with a layer axis; state dicts, and its ways to process weights without changing
what a model says.

TransformerLens writes processed weights into the model. Here most weights are computed, so that a processed model is a
dense copy (:meth:`models.transformer.arithmetic_transformer.ArithmeticTransformer.dense_copy`). Only a model whose
weights are its parameters can be processed in place (``process_weights_``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.utilities.matrix import composition_scores

from models.errors import UserError, unknown_name
from models.lens import folding
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.circuits import HeadCircuits
from models.transformer.parts.read_only import ReadOnly
from models.transformer.parts.values import any_tensor
from models.transformer.parts.weights import Weights, is_bias, with_biases
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_cache import cached_weights
from models.weight_maps.weight_map import WeightMap

#: Buffers in a HookedTransformer's state dict, which hold no weight.
_BUFFERS = ("mask", "IGNORE", "rotary_sin", "rotary_cos")


class WeightMethods(HeadCircuits):
    """What a hooked model does with its weights by TransformerLens' names."""

    config: TransformerConfig
    weight_map: WeightMap
    weight_shapes: dict[str, tuple[int, ...]]

    @property
    def device(self) -> torch.device:
        return self._any_weight().device

    @property
    def dtype(self) -> torch.dtype:
        return self._any_weight().dtype

    def _any_weight(self) -> Tensor:
        tensor = any_tensor(self.weight_map)
        return self.effective_weights()["embed.W_E"] if tensor is None else tensor

    def effective_weights(self) -> Weights:
        """The weights that the weight map computes from the parameters. Biases that it leaves out are zero."""
        return self.weight_map()

    def cached_weights(self) -> Weights:
        """:meth:`effective_weights`, or those of the last call if nothing has changed since; do not write to them.

        The forward pass uses these; see :mod:`models.weight_maps.weight_cache`.
        """
        return cached_weights(self.weight_map)

    def all_weights(self) -> Weights:
        """Effective weights with zero biases filled in: the state dict of an equal HookedTransformer."""
        return with_biases(self.effective_weights(), self.config)

    def effective_weight(self, key: str) -> Tensor:
        """One weight: the parameter itself if the weight map passes it on, else computed and read-only."""
        return self._guarded(self.all_weights()[key], key)

    def _guarded(self, value: Tensor, key: str) -> Tensor:
        if value.is_meta or any(x.untyped_storage()._cdata == value.untyped_storage()._cdata for x in self._own()):
            return value
        return ReadOnly.of(
            value,
            f"{key} is computed from other numbers, so that writing into it would change nothing: use a hook, pass "
            "forward(..., weights=...), or write into the weights of model.dense_copy().",
        )

    def _own(self) -> Iterator[Tensor]:
        yield from self.weight_map.parameters()
        yield from self.weight_map.buffers()

    def tl_parameters(self) -> Weights:
        """Effective weights by name. Tied and low-rank weights are not Parameters, so tools read them here."""
        return self.all_weights()

    def _stack(self, part: str) -> Tensor:
        weights = self.all_weights()
        if f"blocks.0.{part}" not in weights:
            raise AttributeError(f"This model has no {part}.")
        stacked = torch.stack([weights[in_block(layer, part)] for layer in range(self.config.n_layers)])
        return self._guarded(stacked, f"A stack of every layer's {part}")

    W_Q: Any = property(lambda self: self._stack("attn.W_Q"), doc="[layer, head, d_model, d_head]")
    W_K: Any = property(lambda self: self._stack("attn.W_K"), doc="[layer, head, d_model, d_head]")
    W_V: Any = property(lambda self: self._stack("attn.W_V"), doc="[layer, head, d_model, d_head]")
    W_O: Any = property(lambda self: self._stack("attn.W_O"), doc="[layer, head, d_head, d_model]")
    b_Q: Any = property(lambda self: self._stack("attn.b_Q"), doc="[layer, head, d_head]")
    b_K: Any = property(lambda self: self._stack("attn.b_K"), doc="[layer, head, d_head]")
    b_V: Any = property(lambda self: self._stack("attn.b_V"), doc="[layer, head, d_head]")
    b_O: Any = property(lambda self: self._stack("attn.b_O"), doc="[layer, d_model]")
    W_in: Any = property(lambda self: self._stack("mlp.W_in"), doc="[layer, d_model, d_mlp]")
    W_out: Any = property(lambda self: self._stack("mlp.W_out"), doc="[layer, d_mlp, d_model]")
    b_in: Any = property(lambda self: self._stack("mlp.b_in"), doc="[layer, d_mlp]")
    b_out: Any = property(lambda self: self._stack("mlp.b_out"), doc="[layer, d_model]")
    W_E: Any = property(lambda self: self.effective_weight("embed.W_E"), doc="[d_vocab, d_model]")
    W_U: Any = property(lambda self: self.effective_weight("unembed.W_U"), doc="[d_model, d_vocab]")
    b_U: Any = property(lambda self: self.effective_weight("unembed.b_U"), doc="[d_vocab]")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        return self._stack("mlp.W_gate") if self.config.gated_mlp else None

    @property
    def W_pos(self) -> Tensor:
        """[n_ctx, d_model], or [level, n_ctx, d_model] for coupled positions."""
        if "pos_embed.W_pos" not in self.weight_shapes:
            raise AttributeError(f"A model with {self.config.positional_embedding_type} positions has no W_pos.")
        return self.effective_weight("pos_embed.W_pos")

    @property
    def W_E_pos(self) -> Float[Tensor, "vocab_and_pos d_model"]:
        return torch.cat((self.W_E, self.W_pos.reshape(-1, self.config.d_model)))

    def tl_state_dict(self) -> Weights:
        """Copies of all effective weights by a HookedTransformer's names, for its ``load_state_dict``."""
        weights = self.all_weights()
        return {key: value.detach().clone(memory_format=torch.contiguous_format) for key, value in weights.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """Load the model's own state dict or, if its weights are its parameters, one by TransformerLens' names.

        Raises:
            UserError: TransformerLens' names for a model that computes its weights, or names or shapes that do not fit.
        """
        if "embed.W_E" in state_dict:
            state_dict = self._own_names(state_dict)
        if (args[0] if args else options.get("strict", True)) is True:
            self._require_own(state_dict)
        return super().load_state_dict(state_dict, *args, **options)  # type: ignore[misc]

    def load_and_process_state_dict(self, state_dict: Mapping[str, Tensor], *args: bool, **options: bool) -> None:
        """Load weights by TransformerLens' names, then :meth:`process_weights_` with the options. Errors as both."""
        self.load_state_dict(state_dict)
        self.process_weights_(*args, **options)

    def process_weights_(
        self,
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """TransformerLens' processing, in place, which changes weights but not log-probabilities.

        As there, what does not apply to the norm is left out (centring without LayerNorm). Biases that the model did
        not have become parameters if they are not zero.

        Raises:
            UserError: a model that computes its weights, post-norms, or ``refactor_factored_attn_matrices``.
        """
        if refactor_factored_attn_matrices:
            raise UserError("Attention matrices are not refactored here; their factors are model.QK and model.OV.")
        dense = self._dense("process_weights_()")
        weights = self.tl_state_dict()
        if fold_ln and self.config.normalization_type is not None:
            weights = folding.folded_norms(self.config, weights)
        if center_writing_weights and folding.reads_are_centred(self.config):
            weights = folding.centred_writes(self.config, weights)
        if center_unembed:
            weights = folding.centred_unembed(weights)
        if fold_value_biases:
            weights = folding.folded_value_biases(self.config, weights)
        with torch.no_grad():
            for name, parameter in dense.named_parameters():
                parameter.copy_(weights.pop(name.replace("/", ".")))
            for key, bias in weights.items():  # that the model did not have
                if bool(bias.any()):
                    dense.register_parameter(key.replace(".", "/"), torch.nn.Parameter(bias))

    def center_unembed(self, state_dict: Weights | None = None) -> Any:
        """Subtract from ``W_U`` and ``b_U`` their mean over tokens: log-probabilities stay, logits move together.

        Given a state dict by TransformerLens' names, returns that state dict, as in TransformerLens; else a dense copy.
        """
        return self._processed(state_dict, folding.centred_unembed)

    def center_writing_weights(self, state_dict: Weights | None = None) -> Any:
        """Centre over d_model what is written to the residual stream, as LayerNorm subtracts the mean anyway.

        Arguments as for :meth:`center_unembed`.

        Raises:
            UserError: a model without LayerNorm before everything that reads the stream.
        """
        return self._processed(state_dict, lambda weights: folding.centred_writes(self.config, weights))

    def fold_value_biases(self, state_dict: Weights | None = None) -> Any:
        """Move ``b_V`` into ``b_O``, as a pattern's weights sum to one. Arguments as for :meth:`center_unembed`."""
        return self._processed(state_dict, lambda weights: folding.folded_value_biases(self.config, weights))

    @property
    def n_params_total(self) -> int:
        """The number of free parameters: 57 in microadder-57."""
        return sum(parameter.numel() for parameter in self.weight_map.parameters())

    def all_composition_scores(self, mode: str) -> Float[Tensor, "layer head later_layer later_head"]:
        """How strongly each head's output is read by each later head ("Q", "K" or "V"), 0 where it is not later.

        ``|W_OV W|_F / (|W_OV|_F |W|_F)`` with W the reader's QK (Q), its transpose (K) or OV (V): Elhage et al., 2021.

        Raises:
            UserError: another mode.
        """
        if mode not in ("Q", "K", "V"):
            raise UserError(f"The mode must be 'Q', 'K' or 'V', not {mode!r}.")
        right = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, right, broadcast_dims=True)
        layer = torch.arange(self.config.n_layers, device=scores.device)
        later = layer[:, None, None, None] < layer[None, None, :, None]
        return torch.where(later, scores, torch.zeros_like(scores))

    # ---- parts

    def _dense(self, what: str) -> DenseWeights:
        if isinstance(self.weight_map, DenseWeights):
            return self.weight_map
        raise UserError(
            f"{what} writes weights, and this model computes them from other numbers: take model.dense_copy() first."
        )

    def _require_own(self, state_dict: Mapping[str, Any]) -> None:
        """Raise UserError unless names and shapes are those of the model's own state dict."""
        own = self.state_dict()  # type: ignore[attr-defined]
        for prefix, writer in (("_orig_mod.", "torch.compile"), ("module.", "DataParallel")):
            if state_dict and all(key.startswith(prefix) for key in state_dict):
                raise UserError(f"Every name begins with {prefix!r}, as {writer} writes them; load it without that.")
        for key, value in state_dict.items():
            if key not in own:
                raise unknown_name("weight", key, own)
            if tuple(value.shape) != tuple(own[key].shape):
                turned = tuple(value.shape) == tuple(own[key].shape)[::-1]
                hint = ", which is its transpose" if turned else ""
                raise UserError(f"{key} has shape {tuple(own[key].shape)} here, not {tuple(value.shape)}{hint}.")
        for key in own:
            if key not in state_dict:
                raise UserError(f"The state dict lacks {key}.")

    def _own_names(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = dict(self._dense("A state dict by TransformerLens' names").named_parameters())
        given = {k: v for k, v in state_dict.items() if k.rsplit(".", 1)[-1] not in _BUFFERS}
        own = {f"weight_map.{key.replace('.', '/')}": value for key, value in given.items()}
        known = {f"weight_map.{name}": parameter for name, parameter in names.items()}
        for key in sorted(known.keys() - own.keys()):
            if not is_bias(key.removeprefix("weight_map.").replace("/", ".")):
                raise UserError(f"The state dict lacks {key.removeprefix('weight_map.').replace('/', '.')}.")
            own[key] = torch.zeros_like(known[key])
        own = {key: value for key, value in own.items() if key in known or bool(value.any())}
        for key, value in own.items():
            shape = list(known[key].shape) if key in known else None
            if list(value.shape) != shape:
                fits = "has no such weight" if shape is None else f"takes {shape}"
                name = key.removeprefix("weight_map.").replace("/", ".")
                raise UserError(f"The state dict has {name} of shape {list(value.shape)}; this model {fits}.")
        return own

    def _processed(self, state_dict: Weights | None, process: Any) -> Any:
        if state_dict is not None:
            return process(dict(state_dict))
        return self.dense_copy(process(self.tl_state_dict()))  # type: ignore[attr-defined]
