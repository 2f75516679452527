"""Software and hardware that affect bitwise reproducibility: threads, kernels, compilation, versions, machine.

A checkpoint keeps one entry for every stretch of the run, so that a resumed run can say what has changed.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from models.training.native import kernel_name
from models.training.run_folder import differences
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.tropical_kernel import kernel_of_width


def surroundings(model: ArithmeticTransformer, objective: Any, compiled: bool, processes: int) -> dict[str, Any]:
    """The surroundings of this process. ``kernels`` names compiled code by a hash of source, flags and machine."""
    tropical = model.config.attn_scores == "neg_l1" and model.config.attn_top_k is not None
    kernels = (getattr(objective, "kernel", None), kernel_of_width(model.config.d_head) if tropical else None)
    device = next(model.parameters()).device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "compiled": compiled,
        "kernels": [kernel_name(kernel) for kernel in kernels if kernel is not None],
        "torch": torch.__version__,
    }


def continued(before: list[dict[str, Any]], here: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The stretches of a run that continues ``here``; a warning says what has changed."""
    if not before:
        return [here]
    changes = [change for change in differences(before[-1], here) if change[0] != "from_step"]
    if not changes:
        return before
    listed = ", ".join(f"{path} was {then!r} and is {now!r}" for path, then, now in changes)
    warnings.warn(
        f"The run in {folder} goes on in other surroundings ({listed}): it will not end with the bits of a run that "
        "was not interrupted.",
        stacklevel=5,
    )
    return [*before, here]


def _processor() -> str:
    """The processor's name, and which of its instruction sets torch uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, 'unknown')}, {torch.backends.cpu.get_cpu_capability()}"
