"""What zoo entries of every kind record about the runs that they come from."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


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
