"""SHA-256 of what a certificate is about, and whether the model computes what its weights say."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from models import ArithmeticTransformer, UserError
from models.importers import from_transformer_lens
from models.tasks import Task
from models.transformer import HookedModel, alterations, model_name


def fingerprint(model: ArithmeticTransformer, weights: dict[str, torch.Tensor] | None = None) -> str:
    """SHA-256 of everything a certificate is about: task, config, and every effective weight, bit for bit."""
    digest = hashlib.sha256()
    config = model.config.to_dict() | {"task": model.task.name}
    digest.update(json.dumps(config, sort_keys=True).encode())
    if weights is None:
        with torch.no_grad():
            weights = model.effective_weights()
    for name in sorted(set(weights) & set(model.weight_shapes)):
        value = weights[name].detach().cpu()
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def require_plain(model: HookedModel) -> None:
    """Raise UserError unless the model computes what its effective weights say, as a fingerprint presumes."""
    if isinstance(model, ArithmeticTransformer):
        found = list(alterations(model))
    else:  # a bridge has hooks of its own on its modules; a copy of the weights is judged
        hooked = [name for name, point in getattr(model, "hook_dict", {}).items() if point._forward_hooks]
        found = [f"{name} has a hook" for name in hooked]
        found += ["autocast is on"] * torch.is_autocast_enabled("cpu")
    if model.training:
        found.append("the model is in training mode")
    found += inexact_products(model.cfg.device)
    if found:
        raise UserError(
            f"{model_name(model)} may compute something else than its weights say, which is what a certificate is "
            f"about: {'; '.join(found[:3])}{'; ...' if len(found) > 3 else ''}."
        )


def inexact_products(device: torch.device | str | None) -> list[str]:
    """Why float32 products on a device may not be those of IEEE 754, in words; empty if they are.

    torch has a setting for all kernels and, in newer versions, one for each library, which hand down "none". On top of
    what they say, a product is tried: TF32 and bfloat16 would round one of its factors.
    """
    kind = torch.device(device or "cpu").type
    if kind not in ("cpu", "cuda"):
        return [f"nothing is known about products on {kind}"]
    try:
        settings = [torch.get_float32_matmul_precision()]
    except RuntimeError:  # torch refuses to name one for all if another was set for some
        settings = []
    library: Any = torch.backends.mkldnn if kind == "cpu" else torch.backends.cuda
    owners: tuple[Any, ...] = (torch.backends, library, getattr(library, "matmul", None))
    settings += [str(owner.fp32_precision) for owner in owners if hasattr(owner, "fp32_precision")]
    found = [
        f"torch's float32 matmul precision is {setting!r}, and the certifier needs 'highest'"
        for setting in settings
        if setting not in ("highest", "none", "ieee")
    ]
    if not found:
        ones = torch.full((256, 256), 1 + 2.0**-20, device=device)
        if not torch.equal(ones @ torch.eye(256, device=device), ones):
            found.append("float32 products on this device round their factors")
        small, large = torch.full((8, 8), 2.0**-140, device=device), 2.0**100 * torch.eye(8, device=device)
        if kind == "cpu" and not torch.equal(small @ large, torch.full_like(small, 2.0**-40)):
            found.append("numbers below 2^-126 count as zero (torch.set_flush_denormal)")
    return found


def require_exact_products(model: HookedModel) -> None:
    """Raise UserError where torch's settings round products otherwise than IEEE 754 does, as every proof presumes."""
    if found := inexact_products(model.cfg.device):
        raise UserError(f"What {model_name(model)} computes is not certain here: {'; '.join(found)}.")


def identify(model: HookedModel, task: Task) -> str:
    """The fingerprint of a model. Raises UserError if the model does not compute what its weights say."""
    if not isinstance(model, ArithmeticTransformer):
        return fingerprint(from_transformer_lens(model, task))
    require_plain(model)
    if model.task.name != task.name:
        raise UserError(f"{model_name(model)} was built for {model.task.name}, and not for {task.name}.")
    return fingerprint(model)
