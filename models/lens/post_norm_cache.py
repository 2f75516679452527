"""The activation cache of models whose residual stream is not the sum of what was written to it."""

from __future__ import annotations

from typing import Any, NoReturn

from transformer_lens import ActivationCache

from models.errors import UserError
from models.lens.lens_contract import LensContract


class PostNormCache(ActivationCache):
    """An :class:`ActivationCache` that refuses to attribute logits to components.

    A post-norm rescales the whole stream after each sublayer. So embeddings and sublayer outputs do not sum to the last
    residual stream, and no single frozen norm maps a component to the logits. The inherited methods would return
    numbers all the same. Single activations, stacks of them (``stack_activation``), per-head results and per-neuron
    results before the norm keep their meaning and stay available.
    """

    model: LensContract

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UserError(
            f"This model {self._why()}, so its stream is not a sum of component outputs and cannot be "
            "decomposed or attributed; read single activations, or patch and ablate components instead."
        )

    def _why(self) -> str:
        if self.model.cfg.layer_mix:
            return "takes a share of what each layer makes of the residual stream (layer_mix)"
        return (
            f"normalises the residual stream after each sublayer (norm_placement is {self.model.cfg.norm_placement!r})"
        )

    decompose_resid = accumulated_resid = stack_head_results = stack_neuron_results = _refuse
    get_full_resid_decomposition = apply_ln_to_stack = logit_attrs = logit_lens = _refuse

    def apply_slice_to_batch_dim(self, batch_slice: Any) -> PostNormCache:
        """The cache for some of the sequences, which refuses as this one does."""
        sliced = super().apply_slice_to_batch_dim(batch_slice)
        return PostNormCache(sliced.cache_dict, self.model, has_batch_dim=sliced.has_batch_dim)
