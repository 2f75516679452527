"""A checkpoint with other contents, as a test wants them, and the digest that belongs to them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.training.run_folder import _digest


def edit_checkpoint(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the checkpoint.json of a run in place."""
    path = run / "checkpoint.json"
    entry = json.loads(path.read_text())
    entry.pop("digest")
    change(entry)
    path.write_text(json.dumps(entry | {"digest": _digest(entry)}))
