"""Stored results, whose texts have the names of parts and places that an earlier version gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interp.core.stored_data import require_stored
from models.tasks.roles import OUTPUT, OWN, PREVIOUS, REST
from models.transformer import with_part_names

_EARLIER = {
    "attention: own column": f"attention: {OWN}",
    "attention: previous column": f"attention: {PREVIOUS}",
    "attention: written digit": f"attention: {OUTPUT}",
    "attention: elsewhere": f"attention: {REST}",
    "attention on previous column": f"attention on {PREVIOUS}",
    "attention on written digit": f"attention on {OUTPUT}",
    "attention on elsewhere": f"attention on {REST}",
    " on own column": f" on {OWN}",
    "own digits": OWN,
    "digits below": PREVIOUS,
}


def with_places(text: str) -> str:
    """A stored text with this version's names of places."""
    for earlier, name in _EARLIER.items():
        text = text.replace(earlier, name)
    return text


def read_stored(path: Path) -> dict[str, Any]:
    """A stored result, with this version's names of parts and places instead of those that an earlier one wrote.

    Raises:
        UserError: a file of the package that an installed one does without.
    """
    require_stored(path)
    return json.loads(with_places(with_part_names(path.read_text(encoding="utf-8"))))
