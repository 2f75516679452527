"""Files in which papers' own code stored their models: ``models.load`` reads them where this package is importable.

A file is recognised by what it holds, never by its name. Only data are unpickled: a file with code in it is refused.

microadder_checkpoint   MicroAdder's ``.pt``, of two generations of its code
low_rank_checkpoint     the 456-parameter adder's ``.pt``
pooled_decoder          verified-circuits' ``.json``
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from models.files.stored_names import TORCH_FILES
from models.importers.readers import File, LoadOptions, Reader, reader_of, register

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer


def _is_microadder(file: File) -> bool:
    config, state = (file.content.get(name) for name in ("config", "model_state_dict"))
    return isinstance(state, dict) and isinstance(config, dict) and {"tok_dim", "pos_dim"} <= config.keys()


def _microadder(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    from studies.checkpoints.microadder_checkpoint import convert

    return convert(file.content, file.path)


def _is_low_rank(file: File) -> bool:
    config, state = (file.content.get(name) for name in ("model_config", "model_state"))
    return isinstance(state, dict) and isinstance(config, dict) and {"pos_rank", "d_ff"} <= config.keys()


def _low_rank(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    from studies.checkpoints.low_rank_checkpoint import convert

    return convert(file.content, file.path)


def _is_pooled(file: File) -> bool:
    return {"cfg", "state_dict_hex"} <= file.content.keys()


def _pooled(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    from studies.checkpoints.pooled_decoder import convert

    return convert(file.content, file.path)


PUBLISHED = (
    Reader("a MicroAdder checkpoint", TORCH_FILES, _is_microadder, _microadder),
    Reader("a checkpoint of the 456-parameter adder's code", TORCH_FILES, _is_low_rank, _low_rank),
    Reader("a decoder that ends in a sum over positions", (".json",), _is_pooled, _pooled),
)
register(*PUBLISHED)


def load_published(path: str | Path) -> ArithmeticTransformer | None:
    """The model of a published checkpoint under the name of the registered model that it is; None for another file.

    Raises:
        UserError: the file is missing, truncated, holds code, or is of a configuration without a weight map.
    """
    file = File(Path(path))
    reader = reader_of(file, PUBLISHED)
    return None if reader is None else reader.load(file, LoadOptions())
