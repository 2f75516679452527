"""Read published checkpoints of other people's code safely, and convert them to this project's weight maps.

A file is recognised by the configuration that it holds, never by its name. To support another family of models, add a
:class:`PublishedFormat` to ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.importers import low_rank_checkpoint, microadder_checkpoint
from models.importers.safe_torch import read_torch_file

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

__all__ = ["FORMATS", "PublishedFormat", "load_published"]


@dataclass(frozen=True)
class PublishedFormat:
    """How to recognise a family of published checkpoints, and what to do with one."""

    family: str
    recognises: Callable[[dict[str, Any]], bool]
    convert: Callable[[dict[str, Any], Path], Any]


FORMATS = (
    PublishedFormat("MicroAdder", microadder_checkpoint.recognises, microadder_checkpoint.convert),
    PublishedFormat("456-parameter adder", low_rank_checkpoint.recognises, low_rank_checkpoint.convert),
)


def load_published(path: str | Path, checkpoint: dict[str, Any] | None = None) -> ArithmeticTransformer | None:
    """A model with the weights of a published ``.pt`` checkpoint of a family of :data:`FORMATS`; None for another file.

    Only tensors and plain containers are unpickled: a file with code in it is refused, not run. ``checkpoint`` is what
    is in the file, where it was read already.

    Raises:
        UserError: the file is missing, truncated, holds code, or is of a configuration that this project has no weight
            map for.
    """
    path = Path(path)
    checkpoint = read_torch_file(path) if checkpoint is None else checkpoint
    return next((known.convert(checkpoint, path) for known in FORMATS if known.recognises(checkpoint)), None)
