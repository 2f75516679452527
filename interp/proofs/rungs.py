"""What a proof can be about: the names of arithmetics, and how strong a claim each supports."""

from __future__ import annotations

from typing import Literal

from interp.core.results import Rung

ArithmeticName = Literal["float", "interval", "float32"]
RUNGS: dict[str, Rung] = {
    "float": "certified in floats",
    "interval": "certified in intervals",
    "float32": "certified with rounding",
}
