"""What zoo entries of every kind say of the runs that they come from."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.registry import get_spec
from models.training.recipes import get_recipe
from models.training.run_folder import differences


def how_made(configs: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The part of an entry's ``training`` that says how to do it again: commands, recipe, start, wall time, version."""
    return {
        "seconds": seconds,
        "commands": [_command(config) for config in configs],
        "recipe": configs[0]["recipe"],
        "start": configs[0].get("start"),
        **made_with(),
    }


def _command(config: dict[str, Any]) -> str:
    if "start" in config:
        return config["start"]["command"]
    judge = f" {config['judge']}" if "judge" in config else ""
    return f"interp train {config['model']} --seeds {config['seeds']} --first-seed {config['first_seed']}{judge}"


def made_with() -> dict[str, str]:
    """Versions that decide the bits of a run: torch, this package, and its commit where it runs from a checkout."""
    versions = {"torch": torch.__version__.split("+")[0], "carrylens": version("carrylens")}
    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    if (root / ".git").exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            versions["commit"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return versions


def begun(training: dict[str, Any]) -> str:
    """Where the seeds of an entry began, as its card says it."""
    start = training.get("start")
    if start is None:
        return "all learned from a random start"
    return f"all learned, from a start near {start['origin']} (each number times 1 + {start['noise']} z, z normal)"


def made_by(name: str, training: dict[str, Any]) -> str:
    """The card's paragraphs on what made a model: commands, and where their recipe was not the registered one.

    Args:
        training: of the entry's config, with ``commands`` and ``recipe``.
    """
    registered = get_spec(name).recipe or ""
    commands = "\n".join(f"    {command}" for command in training["commands"])
    changes = "\n".join(
        f"* `{path}`: {_shown(now)} (registered: {_shown(then)})"
        for path, now, then in differences(training["recipe"], get_recipe(registered).to_dict())
    )
    if not changes:
        return f"Made by\n\n{commands}"
    return f"Made by\n\n{commands}\n\nwith a recipe that differs from the registered one, {registered}, in\n\n{changes}"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()
