"""What the parts of a model are called, and what belongs to a block.

    L0H1                head 1 of layer 0
    L0N3                neuron 3 of layer 0
    L0.attn, L0.mlp     what the sublayers of layer 0 write

Hook points and weights of a block have the names of TransformerLens: "blocks.0.attn.hook_z", "blocks.0.mlp.W_in".
"""

from __future__ import annotations

import re
from typing import SupportsIndex

from models.errors import UserError

_NAME = re.compile(r"L(\d+)(?:([HN])(\d+)|\.(\w+))")
#: Names that earlier versions wrote, and that stored results still have.
_EARLIER = (
    (re.compile(r"\bL(\d+)(?: neuron |U)(\d+)\b"), r"L\1N\2"),
    (re.compile(r"\bMLP(\d+)\b"), r"L\1.mlp"),
    (re.compile(r"\bL(\d+) (?:MLP|mlp)\b"), r"L\1.mlp"),
    (re.compile(r"\bL([02-9]\d*) attention\b"), r"L\1.attn"),  # "L1 attention" is AddLM's, by the L1 distance
    (re.compile(r"\bL(\d+) (b_O|b_out)\b"), r"L\1.\2"),
)


def head_name(layer: SupportsIndex, head: SupportsIndex) -> str:
    """A head, such as ``L0H1``."""
    return f"L{layer}H{head}"


def neuron_name(layer: SupportsIndex, neuron: SupportsIndex) -> str:
    """A neuron of the MLP, such as ``L0N3``."""
    return f"L{layer}N{neuron}"


def layer_part(layer: SupportsIndex, part: str) -> str:
    """What a whole layer has one of, such as ``L0.mlp``, ``L0.attn`` or the bias ``L0.b_out``."""
    return f"L{layer}.{part}"


def read_part(name: str) -> tuple[int, str, int | None]:
    """(layer, part, index) of a name: (0, "head", 1) of ``L0H1``, (0, "neuron", 3) of ``L0N3``, (0, "mlp", None) of
    ``L0.mlp``.

    Raises:
        UserError: a text that is no such name.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise UserError(f"{name!r} is not the name of a part, such as L0H1, L0N3 or L0.mlp.")
    layer, kind, index, part = found.groups()
    return (int(layer), part, None) if part else (int(layer), {"H": "head", "N": "neuron"}[kind], int(index))


def in_block(layer: SupportsIndex, name: str = "") -> str:
    """A hook point or weight of a block, such as "blocks.0.attn.hook_z"; without ``name``, the block itself."""
    return f"blocks.{layer}.{name}" if name else f"blocks.{layer}"


def with_part_names(text: str) -> str:
    """A stored text with the names of this version: "L0N3" where an earlier one wrote "L0U3" or "L0 neuron 3"."""
    for earlier, name in _EARLIER:
        text = earlier.sub(name, text)
    return text
