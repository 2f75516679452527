"""What is recorded of how a run was made: the software and hardware that its bits depend on, and how to repeat it.

A checkpoint keeps one entry of surroundings (threads, kernels, compilation, versions, machine) for every stretch of the
run, so that a resumed run can say what has changed. A zoo entry keeps the commands, the recipe and versions.
"""

from __future__ import annotations

import contextlib
import subprocess
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.errors import Caution
from models.training.native.compiled_kernels import kernel_name
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
        category=Caution,
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


def how_made(
    configs: Sequence[dict[str, Any]], seconds: float, surroundings: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The part of an entry's ``training`` that says how to repeat it: commands, recipe, start, wall time, version.

    ``surroundings``: those that the runs recorded. They name the GPU and torch's version, which may not be those here.
    """
    devices = dict.fromkeys(part["device"] for part in surroundings if part["device"] != "cpu")
    torches = dict.fromkeys(part["torch"].split("+")[0] for part in surroundings)
    ran = ({"machine": ", ".join(devices)} if devices else {}) | ({"torch": ", ".join(torches)} if torches else {})
    return {
        "seconds": seconds,
        "commands": [_command(config) for config in configs],
        "recipe": configs[0]["recipe"],
        "start": configs[0].get("start"),
        **made_with(),
        **ran,
    }


def _command(config: dict[str, Any]) -> str:
    if "start" in config:
        return config["start"]["command"]
    judge = f" {config['judge']}" if "judge" in config else ""
    parts = f" --cluster local --parts-of {config['parts_of']}" if "parts_of" in config else ""
    return f"interp train {config['model']} --seeds {config['seeds']} --first-seed {config['first_seed']}{judge}{parts}"


def made_with() -> dict[str, str]:
    """Versions that decide the bits of a run: torch, this package, and its commit if it runs from a checkout."""
    versions = {"torch": torch.__version__.split("+")[0], "carrylens": version("carrylens")}
    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    if (root / ".git").exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            versions["commit"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return versions
