"""Where a run computes: its device, and the precision in which matrix products are fastest there."""

from __future__ import annotations

import torch

from models.errors import UserError


def resolve_device(device: str) -> torch.device:
    """The torch device of a name; "auto" is CUDA if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"There is no device {device!r}; use auto, cpu or cuda.") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise UserError("No CUDA device is available here; use --device cpu or auto.")
    return resolved


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether products of bfloat16 matrices are fast there: on GPUs that have them, and on processors with AVX-512.

    Other processors emulate them: with AVX2 only, a step of a one-layer model of width 128 takes nine times as long
    with autocast as without.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.backends.cpu.get_cpu_capability() == "AVX512"
