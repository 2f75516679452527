"""The checks that an intervention makes of a model before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models import ArithmeticTransformer
from models.errors import UserError, known_name
from models.importers import from_transformer_lens
from models.tasks import Task
from models.transformer import HookedModel, model_name


def has_mlp(cfg: Any) -> bool:
    """Whether the layers of a model with this ``cfg`` have an MLP."""
    return bool(getattr(cfg, "d_mlp", 0)) and not getattr(cfg, "attn_only", False)


def require_hook(model: HookedModel, name: str) -> str:
    """``name``, if the model has such a hook point.

    Raises:
        UserError: there is no such hook point; the message names the closest.
    """
    return known_name("hook point", name, model.hook_dict)


def require_layer(model: HookedModel, layer: int) -> int:
    """A layer counted from 0; negative ones count from the end. Raises UserError where there is none."""
    n = model.cfg.n_layers
    if not -n <= layer < n:
        raise UserError(f"There is no layer {layer}: this model has {n}, counted from 0.")
    return layer % n


def require_head(model: HookedModel, head: int) -> int:
    """A head counted from 0. Raises UserError where the layers have no such head."""
    n = model.cfg.n_heads
    if not 0 <= head < n:
        raise UserError(f"There is no head {head}: each layer has {n}, counted from 0.")
    return head


def require_evaluation_mode(model: HookedModel) -> None:
    """Raise UserError for a model in training mode: dropout would change what is not patched."""
    if model.training:
        raise UserError("The model is in training mode; call model.eval() first.")


def require_sums(model: HookedModel, what: str) -> None:
    """Raise UserError where the residual stream is not the sum of what is written to it (post-norm)."""
    config = getattr(model, "config", None)
    after = getattr(model.cfg, "use_normalization_before_and_after", False)
    if after or not getattr(config, "residual_stream_adds_up", True):
        raise UserError(
            f"{what} needs a residual stream that is the sum of what is written to it; this model's norms come after "
            "the sums, so that the parts do not add up."
        )


def pair_names(a: HookedModel, b: HookedModel) -> tuple[str, str]:
    """The names by which results call two models, marked (a) and (b) where they are the same."""
    first, second = model_name(a), model_name(b)
    return (f"{first} (a)", f"{second} (b)") if first == second else (first, second)


@torch.no_grad()
def stream_is_written(model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: Sequence[str]) -> bool:
    """Whether what is written at these hooks reaches the residual stream, in a run of the first tokens.

    In transformer_lens 4's ``TransformerBridge``, ``hook_resid_mid`` is the MLP's input: what is written there reaches
    the MLP and not the stream, so half of an intervention would silently not happen. Two runs find out.
    """
    if isinstance(model, ArithmeticTransformer):
        return True
    mids = [name for name in hooks if name.endswith("hook_resid_mid") and name in model.hook_dict]
    if not mids:
        return True
    block = mids[0].removesuffix("hook_resid_mid")
    seen: list[dict[str, Tensor]] = []
    for shift in (0.0, 1.0):
        caught: dict[str, Tensor] = {}
        hooked: list[tuple[str, Any]] = [(mids[0], lambda value, hook, shift=shift: value + shift)]
        for name in ("hook_mlp_out", "hook_resid_post"):
            hooked.append((block + name, lambda value, hook, c=caught, name=name: c.update({name: value.detach()})))
        model.run_with_hooks(tokens[:2], fwd_hooks=hooked)
        seen.append(caught)
    stream = [caught["hook_resid_post"] - caught["hook_mlp_out"] for caught in seen]
    return float((stream[1] - stream[0]).abs().mean()) > 0.5


def with_writable_stream(model: HookedModel, task: Task, hooks: Sequence[str]) -> Any:
    """The model, or a copy with equal logits where writing at one of the hooks would be lost.

    Raises:
        UserError: such a model that cannot be copied.
    """
    tokens = task.encode(task.sample(2, torch.Generator().manual_seed(0))).to(model.cfg.device)
    if stream_is_written(model, tokens, hooks):
        return model
    try:
        return from_transformer_lens(model, task)
    except UserError as error:
        raise UserError(
            f"What is written to hook_resid_mid does not reach the stream of this {type(model).__name__}, and no copy "
            f"can be made where it does: {error}"
        ) from None
