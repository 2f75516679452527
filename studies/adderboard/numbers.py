"""Public adders whose numbers are published as JSON: an adapter per form says which architecture they fill.

The one form that is known is that of the arc decoders (:mod:`models.families.arc_decoder`):

    {"shared": {"rotary_base": 3.0, "rms_eps": 1e-6, "constants": {"arc_radius": 160.0, "arc_stride": "pi/48", ...}},
     "models": {NAME: {"phi": [numbers], "norm": [3 indices], "qk": index,
                       "Q": {"position": [...], "index": [...]}, "G": ..., "U": ...}, ...}}

where entry ``position[i]`` of a flattened matrix is ``phi[index[i]]``, and all others are 0. Nothing is run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.errors import UserError
from models.families.arc_decoder import ArcDecoder, ArcDecoderWeights, Places, arc_decoder_task
from models.files.checkpoint import parse_json, read_bytes
from models.transformer.arithmetic_transformer import ArithmeticTransformer

LARGEST_TEXT = 1 << 20  # bytes
_SIZES = {"vocabulary": 10, "d_model": 3, "d_head": 4, "heads": 1, "layers": 1, "rotary_pairs": "adjacent"}
_CONSTANTS = {
    "arc_radius": "arc's radius", "arc_start": "arc's start", "arc_stride": "arc's stride",
    "attention_angle": "angle of keys", "down_angle": "angle of the MLP",
    "qk_gain_1": "second gain of queries and keys", "qk_gain_2": "third gain of queries and keys",
    "qk_gain_3": "fourth gain of queries and keys",
}  # fmt: skip


@dataclass(frozen=True)
class PublishedNumbers:
    """A model made of published numbers, and where the file says that they come from."""

    name: str
    model: ArithmeticTransformer
    source: str


def load_numbers(path: str | Path) -> list[PublishedNumbers]:
    """The models whose numbers a JSON file has.

    Raises:
        UserError: no JSON, a form that is not known, a missing or wrong number; one sentence says which.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size > LARGEST_TEXT:
        raise UserError(f"{path} is larger than a file of numbers can be ({LARGEST_TEXT >> 20} MB).")
    value = parse_json(read_bytes(path), path)
    if not isinstance(value, dict) or not isinstance(value.get("models"), dict) or not value["models"]:
        raise UserError(f"{path} has no numbers in a form that is known (docs/board.md has it).")
    try:
        return [
            PublishedNumbers(name, _arc_decoder(name, value.get("shared", {}), one), str(value.get("source", "")))
            for name, one in value["models"].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} has no numbers of an arc decoder: {missing}.") from None


def _arc_decoder(name: str, shared: Mapping[str, Any], one: Mapping[str, Any]) -> ArithmeticTransformer:
    for size, value in _SIZES.items():
        if shared.get(size, value) != value:
            raise ValueError(f"its {size} is {shared[size]!r}, not {value!r}")
    numbers = [_number(value) for value in one["phi"]]
    constants = {ours: _number(shared["constants"][theirs]) for theirs, ours in _CONSTANTS.items()}
    constants["rotary base"] = _number(shared["rotary_base"])
    index = [_index(i, len(numbers)) for i in one["norm"]]
    if len(index) != 3:
        raise ValueError("its norm has three gains")
    q, gate, up = (_places(one[key], 3 * rows, len(numbers)) for key, rows in (("Q", 4), ("G", 2), ("U", 2)))
    decoder = ArcDecoder(
        numbers, index, _index(one["qk"], len(numbers)), q, gate, up,
        constants={key: value for key, value in constants.items() if value}, eps=_number(shared["rms_eps"]),
    )  # fmt: skip
    model = ArithmeticTransformer(ArcDecoderWeights(decoder), arc_decoder_task(), name=name)
    model.weight_map.initialise(torch.Generator())  # nothing is drawn
    return model


def _places(given: Mapping[str, Any], entries: int, n: int) -> Places:
    positions, numbers = given["position"], given["index"]
    if len(positions) != len(numbers) or len(set(positions)) != len(positions):
        raise ValueError("each position of a matrix has one index")
    return {_index(i, entries): _index(k, n) for i, k in zip(positions, numbers, strict=True)}


def _index(value: Any, n: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < n:
        raise ValueError(f"{value!r} is no index from 0 to {n - 1}")
    return value


def _number(value: Any) -> float:
    """A finite number, or a text such as "pi/48"."""
    if isinstance(value, str) and (match := re.fullmatch(r"(-?)pi/(\d{1,6})", value)) and int(match[2]):
        return math.pi / int(match[2]) * (-1 if match[1] else 1)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)
