"""What TransformerLens' tools expect of a model besides its forward pass.

These are hooks with their switches, checks, and calls of its tools. Tokens are in :mod:`models.lens.lens_tokens`,
weights in :mod:`models.lens.lens_weights`. All this is kept apart from the forward pass, so that
:mod:`models.transformer.arithmetic_transformer` reads top to bottom.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from models.calls.argument_kinds import shown
from models.calls.model_lock import turn_of
from models.errors import Caution, UserError, unknown_name
from models.lens.lens_tokens import TokenMethods
from models.lens.lens_weights import WeightMethods
from models.lens.runtime_config import RuntimeConfig
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.part_names import head_name, in_block
from models.transformer.parts.embeddings import Embed, Unembed
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import FireBias, PosEmbed, WindowBias
from models.transformer.parts.values import has_values
from models.weight_maps.weight_map import WeightMap

#: Hook points that fire only with a switch of the config.
_SWITCHES = {
    "attn.hook_result": "use_attn_result",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
    "hook_attn_in": "use_attn_in",
    "hook_mlp_in": "use_hook_mlp_in",
}


class SilentHook(UserError, AssertionError):
    """A hook that would never run. TransformerLens raises AssertionError (HookedTransformer) or ValueError (bridge)."""


class UnknownHook(UserError, KeyError):
    """A name of no hook point. TransformerLens raises KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])


class LabelList(list):
    """``all_head_labels`` is a method in TransformerLens 3.9 and a property in 4.3; this list answers to both."""

    def __call__(self) -> list[str]:
        return list(self)


class LensContract(TokenMethods, WeightMethods, HookedRootModule):
    """Base of the hooked model: everything but its forward."""

    config: TransformerConfig
    cfg: RuntimeConfig
    weight_map: WeightMap
    weight_shapes: dict[str, tuple[int, ...]]
    task: Task
    name_or_path: str | None
    embed: Embed
    pos_embed: PosEmbed  # where the config has such positions
    fire: FireBias  # the same
    blocks: nn.ModuleList
    ln_final: Norm  # where the config has one
    unembed: Unembed
    embed_tokens: Callable[..., Tensor]  # this and the next are methods of ArithmeticTransformer
    window_bias: Callable[..., WindowBias | None]

    # ---- one thread at a time, as hooks belong to the model and not to a run of it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # a compiler cannot follow a lock
            return super().__call__(*args, **kwargs)
        with turn_of(self):
            return super().__call__(*args, **kwargs)

    @contextmanager
    def hooks(self, *args: Any, **options: Any) -> Iterator[Any]:
        """As in TransformerLens. Other threads wait with their runs of this model until the context ends."""
        with turn_of(self), super().hooks(*args, **options) as hooked:
            yield hooked

    # ---- set-up

    def setup(self) -> None:
        super().setup()
        # transformer_lens 4.3 looks for attn.hook_q_input, 3.9 for hook_q_input: one point, two names.
        for layer in range(self.config.n_layers):
            for letter in "qkv":
                point = self.hook_dict[in_block(layer, f"hook_{letter}_input")]
                for table in (self.mod_dict, self.hook_dict):
                    table[in_block(layer, f"attn.hook_{letter}_input")] = point

    def check_hooks_to_add(
        self,
        hook_point: Any,
        hook_point_name: str,
        hook: Any,
        dir: str = "fwd",
        is_permanent: bool = False,
        prepend: bool = False,
    ) -> None:
        """Refuse a hook on a point that the current switches leave silent, as HookedTransformer does."""
        flag = self._switch_off(hook_point_name)
        if flag:
            raise SilentHook(f"A hook on {hook_point_name} would never run: call set_{flag}(True) first.")

    def add_hook(
        self,
        name: str | Callable[[str], bool],
        hook: Any,
        dir: Any = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """As in TransformerLens. A filter of names hooks each point once, and warns about those that are silent.

        Raises:
            SilentHook: a name that the switches leave silent.
            UnknownHook: a name of no hook point, or a filter that selects none.
        """
        for one in self._named(name):
            super().add_hook(one, hook, dir, is_permanent, level, prepend)

    def _enable_hook(self, name: Any, hook: Any, dir: Any) -> None:
        """Add one of the hooks of ``hooks()`` or ``run_with_hooks()``, with the checks of :meth:`add_hook`."""
        for one in self._named(name):
            self.check_hooks_to_add(self.mod_dict[one], one, hook, dir)
            super()._enable_hook(one, hook, dir)

    def get_caching_hooks(self, names_filter: Any = None, *args: Any, **options: Any) -> Any:
        """As in TransformerLens, without hooks on silent points; warns if one of those was asked for by name, or if a
        filter of names selects no point.

        Raises:
            UnknownHook: a name of no hook point.
        """
        asked = [names_filter] if isinstance(names_filter, str) else names_filter
        if isinstance(asked, list):
            for name in asked:
                self._require_known(name)
            self._warn_of_silence(asked)
        elif callable(asked) and not any(map(asked, self.hook_dict)):
            warnings.warn(
                "The filter of names selects no hook point, so that nothing is kept.", category=Caution, stacklevel=3
            )
        cache, *both = super().get_caching_hooks(names_filter, *args, **options)
        return cache, *([(name, hook) for name, hook in hooks if not self._switch_off(name)] for hooks in both)

    def _switch_off(self, hook_name: str) -> str | None:
        """The switch that is off and without which a hook point does not fire; None if it fires."""
        for suffix, flag in _SWITCHES.items():
            if hook_name.endswith(suffix) and not getattr(self.cfg, flag):
                return flag
        return None

    def _named(self, name: str | Callable[[str], bool]) -> list[str]:
        """The hook point of this name, or the points that a filter selects: each once, without silent ones."""
        if isinstance(name, str):
            self._require_known(name)
            return [name]
        taken: dict[int, str] = {}
        for one, point in self.hook_dict.items():
            if name(one):
                taken.setdefault(id(point), one)
        if not taken:
            raise UnknownHook("The filter of names selects no hook point, so that its hook would never run.")
        self._warn_of_silence(taken.values())
        return [one for one in taken.values() if not self._switch_off(one)]

    def _require_known(self, name: Any) -> None:
        if name not in self.mod_dict or name not in self.hook_dict:
            raise UnknownHook(str(unknown_name("hook point", name, self.hook_dict)))

    def _warn_of_silence(self, names: Iterable[str]) -> None:
        silent = {flag: name for name in names if (flag := self._switch_off(name))}
        if silent:
            what = ", ".join(f"{name} (set_{flag})" for flag, name in silent.items())
            warnings.warn(f"Hooks do not fire while their switches are off: {what}.", category=Caution, stacklevel=4)

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        self.cfg.use_attn_result = use_attn_result

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        if use_attn_in and self.cfg.use_split_qkv_input:
            raise UserError("use_attn_in has no effect together with use_split_qkv_input; switch that off first.")
        self.cfg.use_attn_in = use_attn_in

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        if use_split_qkv_input and self.cfg.use_attn_in:
            raise UserError("use_split_qkv_input takes over from use_attn_in; switch that off first.")
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        if use_hook_mlp_in and not self.config.d_mlp:
            raise UserError("A model without MLPs has no hook_mlp_in.")
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    @property
    def position_limits(self) -> tuple[int, ...]:
        """The highest position id of each level's table; empty unless positions are coupled."""
        cfg = self.config
        if cfg.positional_embedding_type != "coupled":
            return ()
        return self.weight_map.position_limits or (cfg.position_rows - 1,) * cfg.n_position_levels

    @property
    def all_head_labels(self) -> LabelList:
        return LabelList(
            head_name(layer, head) for layer in range(self.config.n_layers) for head in range(self.config.n_heads)
        )

    def blocks_with(self, submodule: str) -> list[tuple[int, Any]]:
        """(layer, block) for every block that has the submodule, e.g. "attn"."""
        return [(layer, block) for layer, block in enumerate(self.blocks) if hasattr(block, submodule)]

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum of output biases up to (not including) a layer; with ``mlp_input`` also that layer's attention."""
        self.check_layers(layer=layer)
        if layer < 0 or (mlp_input and layer == self.config.n_layers):
            raise UserError(f"There is no bias sum for layer={layer}, mlp_input={mlp_input}.")
        total = torch.zeros(self.config.d_model, device=self.device, dtype=self.dtype)
        weights = self.all_weights()
        for i in range(layer):
            total = total + weights[in_block(i, "attn.b_O")]
            if include_mlp_biases and self.config.d_mlp:
                total = total + weights[in_block(i, "mlp.b_out")]
        return total + weights[in_block(layer, "attn.b_O")] if mlp_input else total

    def as_residual(self, input: Any) -> Tensor:
        """A residual stream [batch, pos, d_model], checked.

        Raises:
            UserError: not a float tensor of that shape, or too many positions.
        """
        if not isinstance(input, Tensor) or not input.is_floating_point():
            raise UserError("With start_at_layer the input is a residual stream, a float tensor [batch, pos, d_model].")
        if input.ndim != 3 or input.shape[1] == 0 or input.shape[2] != self.config.d_model:
            raise UserError(
                f"A residual stream has shape [batch, pos, {self.config.d_model}] with at least one position, "
                f"not {list(input.shape)}."
            )
        if input.shape[1] > self.config.n_ctx:
            raise UserError(f"The stream has {input.shape[1]} positions; this model takes at most {self.config.n_ctx}.")
        return input

    def check_layers(self, **layers: int | None) -> None:
        """Raise UserError for a layer number that is not one of this model's (n_layers itself means the end)."""
        n = self.config.n_layers
        for name, layer in layers.items():
            if layer is not None and (isinstance(layer, bool) or not isinstance(layer, int) or not -n <= layer <= n):
                raise UserError(f"{name} must be an integer from {-n} to {n}, not {layer!r}.")

    # ---- as TransformerLens and SAELens call them

    def to(self, *args: Any, print_details: bool = True, **options: Any) -> Any:
        """As ``torch.nn.Module.to``; TransformerLens' ``print_details`` is accepted, but nothing is printed."""
        return super().to(*args, **options)

    def run_with_saes(
        self,
        *args: Any,
        saes: Any = (),
        reset_saes_end: bool = True,
        use_error_term: bool | None = None,
        **options: Any,
    ) -> Any:
        """Run the model with each of SAELens' autoencoders in place of the activation at its hook.

        Args:
            saes: one or several; each names its hook in ``cfg.metadata.hook_name`` or ``cfg.hook_name``.
            reset_saes_end: must not be False; autoencoders are not left attached.
            use_error_term: whether an autoencoder adds its reconstruction error in this run.

        Raises:
            UserError: an autoencoder without a hook name, ``reset_saes_end=False``, or a transcoder, which reads one
                activation and gives another.
        """
        if not reset_saes_end:
            raise UserError("Autoencoders are not left attached: run_with_saes is given them each time.")
        chosen = list(saes) if isinstance(saes, (list, tuple)) else [saes]
        places = []
        for sae in chosen:
            cfg = getattr(sae, "cfg", None)
            metadata = getattr(cfg, "metadata", None)
            name, out = (
                getattr(metadata, field, None) or getattr(cfg, field, None) for field in ("hook_name", "hook_name_out")
            )
            if _transcodes(sae) or out not in (None, name):
                raise UserError(
                    f"run_with_saes puts an autoencoder's output in place of what it reads, and this "
                    f"{type(sae).__name__} is a transcoder, which gives another activation than it reads."
                )
            if name not in self.hook_dict:
                raise UserError(f"An autoencoder's cfg.hook_name must be a hook point of this model, not {name!r}.")
            places.append(name)
        before = [getattr(sae, "use_error_term", None) for sae in chosen]
        hooks: list[Any] = [
            (name, lambda value, hook, sae=sae: sae(value)) for name, sae in zip(places, chosen, strict=True)
        ]
        try:
            for sae in chosen if use_error_term is not None else ():
                sae.use_error_term = use_error_term
            return self.run_with_hooks(*args, fwd_hooks=hooks, **options)
        finally:
            for sae, term in zip(chosen, before, strict=True) if use_error_term is not None else ():
                sae.use_error_term = term


def _transcodes(sae: Any) -> bool:
    """Whether one of SAELens' modules calls itself a transcoder, or reads and writes vectors of two lengths."""
    cfg = getattr(sae, "cfg", None)
    kind = getattr(cfg, "architecture", "")  # a method since version 6
    kind = kind() if callable(kind) else kind
    d_in, d_out = (getattr(cfg, name, None) for name in ("d_in", "d_out"))
    return "transcoder" in f"{type(sae).__name__} {kind}".lower() or d_out not in (None, d_in)


def padding_mask(mask: Any, residual: Tensor) -> Tensor:
    """A mask [batch, pos] of ones and zeros as booleans, True where there is no padding.

    Raises:
        UserError: another shape, values other than 0 and 1, or padding that is not on the right.
    """
    try:
        said = torch.as_tensor(mask).to(residual.device)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"attention_mask must be a tensor of ones and zeros, not {shown(mask)}.") from None
    if said.shape != residual.shape[:2]:
        raise UserError(f"attention_mask must have shape {list(residual.shape[:2])}, not {list(said.shape)}.")
    mask = said.bool()
    if has_values(mask) and bool((said != mask).any()):
        other = said[said != mask][0].item()
        raise UserError(f"attention_mask is 1 where there is a token and 0 at padding, and this one has {other}.")
    if has_values(mask) and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise UserError("Padding must be on the right: positions count from a sequence's first token.")
    return mask


def check_differentiable(forward: Any, *args: Any, **options: Any) -> None:
    """Raise UserError if a call of a model's ``forward`` does not return one number with a gradient."""
    given = signature(forward).bind(*args, **options).arguments
    if given.get("return_type") != "loss" or given.get("loss_per_token") or given.get("stop_at_layer") is not None:
        raise UserError("incl_bwd differentiates one number: pass return_type='loss', and no stop_at_layer.")
    if not torch.is_grad_enabled():
        raise UserError("incl_bwd needs gradients, and they are switched off (torch.no_grad or set_grad_enabled).")
