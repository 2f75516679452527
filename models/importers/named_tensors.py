"""Tensors of somebody's file, taken by name: every shape is checked, and nothing is left over unnoticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import NotSaid, UserError, unknown_name
from models.files.checkpoint import read_json
from models.importers.contents import read_content
from models.transformer.config import Activation, TransformerConfig
from models.transformer.parts.weights import Weights

#: Activation functions by the names that files give them.
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
#: The ends of names of tensors that are no weights.
BUFFERS = (
    ".mask", ".IGNORE", ".rotary_sin", ".rotary_cos", ".inv_freq", ".masked_bias", ".attn.bias", ".attention.bias",
)  # fmt: skip

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Where checkpoints keep a state dict, and what wrappers of modules put before its names.
WITHIN = ("model", "state_dict", "model_state_dict", "weights", "module")
WRAPPERS = ("_orig_mod.", "module.", "model.", "net.")


MOST_REPEATED = 64 << 20  # bytes of the tensors of a file that repeat values, as a gain that all dimensions share


class NamedTensors:
    """The tensors of a file. ``take`` gives one of a shape; ``finish`` refuses what was not taken."""

    def __init__(self, tensors: Mapping[str, Tensor], source: Path | str):
        self.source = source
        wide = any(value.dtype == torch.float64 for value in tensors.values())
        self.dtype = torch.float64 if wide else torch.float32
        self._left = dict(tensors)
        self.skipped: list[str] = []
        self._names = list(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises UserError if there is none of this name, with the closest one."""
        if name not in self._names:
            raise unknown_name(f"tensor in {self.source}", name, self._names)
        return tuple(self._left[name].shape)

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of a name, in float32 (float64 if the file has any). Each is taken once.

        Raises:
            UserError: no such tensor, one of another shape, or one that does not hold floating-point numbers.
        """
        found = self.shape(name)
        if found != shape:
            raise UserError(f"{name} of {self.source} has shape {list(found)}, and the config says {list(shape)}.")
        tensor = self._left.pop(name)
        if tensor.dtype not in _FLOATS:
            raise UserError(f"{name} of {self.source} is of {tensor.dtype}; a weight is a floating-point number.")
        return tensor.to(self.dtype)

    def maybe(self, name: str, *shape: int) -> Tensor | None:
        """The tensor of a name, or None if there is none."""
        return self.take(name, *shape) if name in self._names else None

    def skip(self, endings: Iterable[str]) -> None:
        """Leave out buffers whose names end so."""
        self.skipped += [name for name in self._left if name.endswith(tuple(endings))]
        for name in self.skipped:
            self._left.pop(name, None)

    def finish(self, notes: list[str] | None = None) -> None:
        """Raise UserError if a tensor was not taken; what was left out is added to ``notes``."""
        if notes is not None and self.skipped:
            many = f"{len(self.skipped)} buffers such as " if len(self.skipped) > 1 else "the buffer "
            notes.append(f"left out {many}{self.skipped[0]}")
        if self._left:
            name, value = next(iter(self._left.items()))
            raise UserError(
                f"{self.source} has a tensor {name} of shape {list(value.shape)} that this reader has no place for."
            )


def output_matrix(
    tensors: NamedTensors, embedding: Float[Tensor, "d_vocab d_model"], names: Iterable[str], tied: bool
) -> Float[Tensor, "d_model d_vocab"]:
    """``W_U``: the first of these tensors that is there, else the embedding's transpose.

    Raises:
        UserError: the config says that it is ``tied`` to the embedding, and it differs from it.
    """
    name = next((name for name in names if name in tensors), None)
    if name is None:
        return embedding.T
    head = tensors.take(name, *embedding.shape)
    if tied and not torch.equal(head, embedding):
        raise UserError(
            f"{tensors.source} has a {name} that differs from the embedding, and its config ties the two "
            "(tie_word_embeddings); set that to false, or remove the tensor."
        )
    return head.T


def relative_difference(ours: Tensor, theirs: Tensor, least: float = 1e-12) -> float:
    """The largest difference, relative to the largest of theirs or to the ``least``; infinite between other shapes."""
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=least))


def said_heads(n_heads: Any, width: int, path: Path | str) -> int:
    """How many heads share ``width`` dimensions, which tensors do not tell.

    Raises:
        NotSaid: no number that divides them, with the numbers that may be tried.
    """
    if type(n_heads) is int and n_heads >= 1 and width % n_heads == 0:
        return n_heads
    raise NotSaid(
        f"{path} does not say how many heads share its {width} dimensions; say it, as in config={{'n_heads': 4}}.",
        "n_heads",
        [n for n in range(1, 17) if width % n == 0],
    )


def heads_of(
    matrix: Float[Tensor, "out d_model"], n_heads: int, repeat: int = 1
) -> Float[Tensor, "head d_model d_head"]:
    """A torch Linear's weight from the stream to all heads, each shared by ``repeat`` heads, as ``W_Q`` is."""
    return matrix.view(n_heads, -1, matrix.shape[1]).transpose(1, 2).repeat_interleave(repeat, 0)


def head_biases(bias: Float[Tensor, " out"], n_heads: int, repeat: int = 1) -> Float[Tensor, "head d_head"]:
    """The bias of such a Linear, as ``b_Q`` is."""
    return bias.view(n_heads, -1).repeat_interleave(repeat, 0)


def output_of(matrix: Float[Tensor, "d_model in"], n_heads: int) -> Float[Tensor, "head d_head d_model"]:
    """A torch Linear's weight from all heads to the stream, as ``W_O`` is."""
    return matrix.T.reshape(n_heads, -1, matrix.shape[0])


def without_missing(weights: Mapping[str, Tensor | None]) -> Weights:
    """The weights that are there."""
    return {name: value for name, value in weights.items() if value is not None}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` or ``.bin`` file, or of all that an ``.index.json`` names.

    Raises:
        UserError: a file that is missing, damaged or holds code, or a link out of the folder.
    """
    if path.name.endswith(".index.json"):
        files = read_json(path).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise UserError(f"{path} has no weight_map from tensors to files.")
        found: dict[str, Tensor] = {}
        for file in sorted(set(files.values())):
            if Path(file).name != file or Path(file).suffix not in (".safetensors", ".bin"):
                raise UserError(f"{path} names {file[:80]!r}, which is no file of tensors in its folder.")
            found |= read_tensors(inside(path.parent / file))
        if missing := next((name for name in files if name not in found), None):
            raise UserError(f"{path} promises the tensor {missing!r}, which none of its files has.")
        return found
    return tensors_in(read_content(path)[0], path)


def inside(path: Path) -> Path:
    """A file of a folder. Raises UserError if it is a link to somewhere else.

    The folders that Hugging Face's hub downloads to consist of links to ``blobs``, two folders above.
    """
    folder, target = path.parent.resolve(), path.resolve()
    if not target.is_relative_to(folder) and target.parent != folder.parent.parent / "blobs":
        raise UserError(f"{path} is a link out of its folder, to {target}.")
    return path


def state_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict in a checkpoint, by itself or under one of :data:`WITHIN`, without what wrappers put before all of
    its names: torch.compile, DataParallel and accelerate, PyTorch Lightning."""
    several = content.get("state_dicts")  # of a whole run, as Nanda's grokking files have them: the last one
    last = several[-1] if isinstance(several, list) and several and isinstance(several[-1], Mapping) else content
    state = next((content[name] for name in WITHIN if isinstance(content.get(name), Mapping)), last)
    found = {str(name): value for name, value in dict(state).items()}
    while before := next((prefix for prefix in WRAPPERS if found and all(n.startswith(prefix) for n in found)), None):
        found = {name.removeprefix(before): value for name, value in found.items()}
    return found


def tensors_in(content: Mapping[str, Any], path: Path | str) -> dict[str, Tensor]:
    """The tensors of a state dict. Raises UserError if it holds anything else: other objects, names that are no text,
    tensors that are sparse, have no values, or repeat them to more than :data:`MOST_REPEATED` bytes."""
    bad = next((name for name, value in content.items() if not isinstance(value, Tensor)), None)
    if bad is not None or not content:
        what = f"{bad!r} is a {type(content[bad]).__name__}" if bad is not None else "it is empty"
        raise UserError(f"{path} is no state dict: {what}.")
    repeated = 0
    for name, value in content.items():
        if not isinstance(name, str):
            raise UserError(f"{path} names a tensor by a {type(name).__name__}, not by text.")
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            kind = "quantised" if value.is_quantized else "without values" if value.is_meta else "sparse"
            raise UserError(f"{name} of {path} is {kind}; only dense tensors are read.")
        size = value.numel() * value.element_size()
        repeated += size if size > value.untyped_storage().nbytes() else 0
        if repeated > MOST_REPEATED:
            raise UserError(f"{name} of {path} has {value.numel():,} values, and the file has fewer.")
    return dict(content)


def overridden(config: TransformerConfig, changes: Mapping[str, Any] | None) -> TransformerConfig:
    """The config with a user's changes. Raises UserError for a field that it does not have."""
    for name in changes or {}:
        if not hasattr(config, name):
            raise unknown_name("field of TransformerConfig", name, config.to_dict())
    return config.replace(**(changes or {}))
