"""Copies of stock TransformerLens models as this project's, with equal logits: the reverse of
:mod:`models.lens.export`.

``HookedTransformer`` (up to 3.9) and the native ``TransformerBridge`` (from 4.0 on) hold the same weights under the
same attributes. Methods that need effective weights (fast patching, edge graphs) use such a copy of a user's model. A
copy is compared with the original on random tokens before it is returned; it never approximates.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from math import sqrt
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from models.errors import UserError
from models.importers.named_tensors import ACTIVATIONS, relative_difference
from models.lens.export import SAME_FIELDS
from models.number_format import small
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.hooked import HookedModel
from models.transformer.parts.weights import weight_shapes
from models.transformer.unaltered import require_unaltered
from models.weight_maps.dense import DenseWeights

_NORMS: dict[str | None, Literal["LN", "RMS"] | None] = {
    "LN": "LN",
    "LNPre": "LN",
    "RMS": "RMS",
    "RMSPre": "RMS",
    None: None,
}
#: How far the copy's logits may differ, relative to the largest logit. A bridge's norms compute in float32.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_CHECK_ROWS = 4
_COPIES: MutableMapping[Any, ArithmeticTransformer] = WeakKeyDictionary()


def from_transformer_lens(model: HookedModel, task: Task) -> ArithmeticTransformer:
    """An :class:`ArithmeticTransformer` of free weights with the logits of a stock TransformerLens model.

    A model of this project is returned as it is. The copy is kept while the model lives, and returned again if its
    weights and logits are still the model's. Cost: a copy of the weights and two runs on four random sequences.

    Raises:
        UserError: a part that this project's transformer does not have, a hook or other change that a copy would lose,
            or logits that differ.
    """
    if isinstance(model, ArithmeticTransformer):
        return model
    require_unaltered(model, f"A copy of this {type(model).__name__}")
    if (kept := _kept(model, task)) is not None:
        return kept
    for cfg in configs_of(model.cfg):
        copy = _copy(model, task, cfg)
        if (error := _difference(model, copy)) <= TOLERANCE.get(copy.dtype, 1e-2):
            with suppress(TypeError):  # a model without weak references is copied every time
                _COPIES[model] = copy
            return copy
    raise UserError(
        f"A copy of this {type(model).__name__} gives other logits (by {small(error)} of the largest): it has a part "
        "that this project's transformer does not know."
    )


@torch.no_grad()
def _kept(model: HookedModel, task: Task) -> ArithmeticTransformer | None:
    """The copy made before, if it is still valid: for this task, with the model's weights and logits."""
    try:
        copy = _COPIES.get(model)
    except TypeError:
        return None
    if copy is None or copy.task is not task or copy.training:
        return None
    if copy.dtype != model.W_E.dtype or copy.device != model.W_E.device:
        return None
    for name, parameter in copy.weight_map.named_parameters():
        value = _weight(model, name.replace("/", "."))
        if value is None:
            if parameter.any():
                return None
        elif value.numel() != parameter.numel() or not torch.equal(value.reshape(parameter.shape), parameter):
            return None
    return copy if _difference(model, copy) <= TOLERANCE.get(copy.dtype, 1e-2) else None


def _copy(model: HookedModel, task: Task, cfg: TransformerConfig) -> ArithmeticTransformer:
    found = {key: (_weight(model, key), shape) for key, shape in weight_shapes(cfg).items()}
    given = {key: value.reshape(shape) for key, (value, shape) in found.items() if value is not None}
    weights = DenseWeights.holding(cfg, given)
    return ArithmeticTransformer(weights, task, name=getattr(model.cfg, "model_name", None) or type(model).__name__)


def configs_of(cfg: Any, shared_keys: bool = False) -> Iterator[TransformerConfig]:
    """Yield the configs that the stock model's may stand for, as versions read some switches differently.

    ``shared_keys``: keys that heads share may be copied to each, as a copy of a live model, whose hooks have them once,
    must not do.

    Raises:
        UserError: a part that this project's config cannot express.
    """
    positions, norm = cfg.positional_embedding_type, cfg.normalization_type
    unknown = {
        "act_fn": cfg.act_fn not in ACTIVATIONS and not getattr(cfg, "attn_only", False),
        "positional_embedding_type": positions not in ("standard", "rotary"),
        "normalization_type": norm not in _NORMS,
        "n_key_value_heads": not shared_keys
        and (getattr(cfg, "n_key_value_heads", None) or cfg.n_heads) != cfg.n_heads,
        "attention_dir": getattr(cfg, "attention_dir", "causal") != "causal",
        "use_local_attn": bool(getattr(cfg, "use_local_attn", False)),
        "use_normalization_before_and_after": bool(getattr(cfg, "use_normalization_before_and_after", False)),
    }
    for switch, refused in unknown.items():
        if refused:
            raise UserError(f"This project's transformer cannot express {switch}={getattr(cfg, switch)!r}.")
    predicted = getattr(cfg, "d_vocab_out", None)
    turned = getattr(cfg, "rotary_dim", None) or cfg.d_head
    config = TransformerConfig(
        **{name: getattr(cfg, name) for name in SAME_FIELDS},
        d_mlp=0 if getattr(cfg, "attn_only", False) else (cfg.d_mlp or 0),
        d_vocab_out=None if predicted in (None, -1, cfg.d_vocab) else predicted,
        act_fn=ACTIVATIONS.get(cfg.act_fn, "gelu"),
        gated_mlp=bool(getattr(cfg, "gated_mlp", False)),
        normalization_type=_NORMS[norm],
        positional_embedding_type=positions,
        rotary_base=float(getattr(cfg, "rotary_base", 10000.0) or 10000.0),
        rotary_dim=turned if positions == "rotary" and turned != cfg.d_head else None,
        parallel_attn_mlp=bool(getattr(cfg, "parallel_attn_mlp", False)),
        dtype=str(cfg.dtype).removeprefix("torch."),  # pyright: ignore[reportArgumentType]
    )
    # A native bridge keeps -1 for "the root of d_head", and scales by it even without use_attn_scale; a
    # HookedTransformer then does not scale. None is the root too.
    root = sqrt(cfg.d_head)
    scaled = float(cfg.attn_scale) if (cfg.attn_scale or 0) > 0 else root
    for scale in (scaled,) if getattr(cfg, "use_attn_scale", True) else (1.0, root):
        for adjacent in (True, False) if positions == "rotary" else (True,):
            yield config.replace(attn_scale=scale, rotary_adjacent_pairs=adjacent)


def _weight(model: HookedModel, key: str) -> Tensor | None:
    """The stock model's tensor for one of this project's weights; None if it has none (a bias of zero).

    Norms whose gain was folded away ("LNPre") have no tensor either; their gain is one.
    """
    part, name = key.rsplit(".", 1)
    if part in ("embed", "pos_embed", "unembed"):
        return getattr(model, name, None)
    if "ln" in part:
        norm = model.ln_final if part == "ln_final" else getattr(_block(model, part), part.rsplit(".", 1)[1])
        found = getattr(norm, name, None)
        return torch.ones(()).expand(model.cfg.d_model) if found is None and name == "w" else found
    try:
        stacked = getattr(model, name)  # [layer, ...]
    except AttributeError:
        return None
    return None if stacked is None else stacked[int(part.split(".")[1])]


def _block(model: HookedModel, part: str) -> Any:
    return model.blocks[int(part.split(".")[1])]


@torch.no_grad()
def _difference(model: HookedModel, copy: ArithmeticTransformer) -> float:
    """Largest difference of the two models' logits on random tokens, relative to the largest logit."""
    length = min(copy.task.input_length, copy.config.n_ctx)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(copy.config.d_vocab, (_CHECK_ROWS, length), generator=generator).to(copy.device)
    return relative_difference(copy(tokens), model(tokens), 1e-6)
