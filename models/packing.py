"""Pack ternary matrices in 2 or 1.6 bits per weight, and store such a model in one file, exact to the last bit.

    "two-bit"   four weights per byte, 0.25 bytes each: 16 times less than float32
    "trits"     five weights per byte (3^5 = 243 of 256 codes), 0.2 bytes each: 20 times less than float32

The entropy of equally frequent trits is log2 3 = 1.585 bits. A packed model (:func:`save_packed`) holds the packed
matrices, one float32 scale each, and all other weights as they are (AddLM keeps embeddings, head and norms in float).
It does not hold the latent weights that training changes, so that it is for running and studying, not for training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int8, UInt8
from torch import Tensor

from models.checkpoint import load_weights, save_weights
from models.config import TransformerConfig
from models.errors import UserError, unknown_name
from models.registry import get_spec
from models.transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights
from models.weight_maps.ternary import TernaryMatrix, TernaryWeights

FORMAT = "packed-ternary-1"


@dataclass(frozen=True)
class Packing:
    """``per_byte`` digits in ``base``: byte = sum_i (w_i + 1) base^i, the first weight in the lowest place."""

    name: str
    base: int
    per_byte: int

    @property
    def bytes_per_weight(self) -> float:
        return 1 / self.per_byte

    def n_bytes(self, n_weights: int) -> int:
        return -(-n_weights // self.per_byte)

    def pack(self, values: Int8[Tensor, "*shape"]) -> UInt8[Tensor, " byte"]:
        """Pack values in row-major order; the last byte is padded with zeros.

        Raises:
            UserError: values other than -1, 0 and 1.
        """
        flat = values.reshape(-1)
        if flat.numel() and not bool(((flat >= -1) & (flat <= 1)).all()):
            strange = flat[(flat < -1) | (flat > 1)][0].item()
            raise UserError(f"Only -1, 0 and 1 can be packed, not {strange}.")
        digits = torch.ones(self.n_bytes(flat.numel()) * self.per_byte, dtype=torch.int16, device=flat.device)
        digits[: flat.numel()] = flat.to(torch.int16) + 1
        return (digits.view(-1, self.per_byte) * self._places(flat.device)).sum(1).to(torch.uint8)

    def unpack(self, packed: UInt8[Tensor, " byte"], shape: Sequence[int]) -> Int8[Tensor, "*shape"]:
        """Unpack weights of a shape, which the bytes do not store.

        Raises:
            UserError: more or fewer bytes than the shape needs, a byte that is not a code, padding that is not zero.
        """
        n = math.prod(shape)
        if len(packed) != self.n_bytes(n):
            raise UserError(f"{n} weights are {self.n_bytes(n)} bytes in this packing, not {len(packed)}.")
        digits = packed.to(torch.int16)[:, None] // self._places(packed.device)
        top = digits[:, -1:]
        digits = torch.cat((digits[:, :-1] % self.base, top), 1).reshape(-1)
        if bool((digits > 2).any()):
            byte = int(packed[(digits.view(-1, self.per_byte) > 2).any(1)][0])
            raise UserError(f"{byte} is not the code of {self.per_byte} ternary weights: the bytes are damaged.")
        if bool((digits[n:] != 1).any()):
            raise UserError("The last byte is not filled up with zeros: the bytes belong to another shape.")
        return (digits[:n] - 1).to(torch.int8).view(*shape)

    def _places(self, device: torch.device) -> Tensor:
        return torch.tensor([self.base**i for i in range(self.per_byte)], dtype=torch.int16, device=device)


PACKINGS = {packing.name: packing for packing in (Packing("two-bit", 4, 4), Packing("trits", 3, 5))}


def get_packing(name: str) -> Packing:
    if name not in PACKINGS:
        raise unknown_name("packing", name, PACKINGS)
    return PACKINGS[name]


@dataclass(frozen=True)
class PackedSize:
    """The size of a model's weights. ``ternary`` and ``floats`` count weights; norms and embeddings are floats."""

    ternary: int
    floats: int
    matrices: int  # each with one scale
    ternary_bytes: int  # packed, with scales

    @property
    def total_bytes(self) -> int:
        return self.ternary_bytes + 4 * self.floats

    @property
    def float32_bytes(self) -> int:
        return 4 * (self.ternary + self.floats)

    @property
    def times_smaller(self) -> float:
        """The whole model, embeddings and head included, against float32."""
        return self.float32_bytes / self.total_bytes


def packed_size(model: ArithmeticTransformer, packing: str = "trits") -> PackedSize:
    """How small a packed model is. Raises UserError for a model without ternary weights."""
    ternary, chosen = ternary_matrices(model), get_packing(packing)
    sizes = [matrix.values.numel() for matrix in ternary.values()]
    floats = sum(w.numel() for key, w in model.effective_weights().items() if key not in ternary)
    packed = sum(chosen.n_bytes(n) + 4 for n in sizes)
    return PackedSize(sum(sizes), floats, len(sizes), packed)


def ternary_matrices(model: ArithmeticTransformer) -> dict[str, TernaryMatrix]:
    """Integer values and scale of every ternary weight, by weight name. Raises UserError if there are none."""
    found = model.weight_map.ternary() if isinstance(model.weight_map, TernaryWeights) else {}
    if not found:
        raise UserError(f"{model.name_or_path or 'This model'} has no ternary weights.")
    return found


def save_packed(model: ArithmeticTransformer, path: str | Path, packing: str = "trits") -> PackedSize:
    """Write a ternary model to one safetensors file, atomically: ``KEY.packed``, ``KEY.scale`` and the other weights.

    Raises:
        UserError: no ternary weights, weights not in float32, a model without a registered name, an unknown packing, or
            a file that cannot be written.
    """
    ternary, chosen, size = ternary_matrices(model), get_packing(packing), packed_size(model, packing)
    weights = {key: w.detach() for key, w in model.effective_weights().items()}
    if any(w.dtype != torch.float32 for w in weights.values()):
        raise UserError("Only a float32 model is packed: its scales and the weights next to them are stored as such.")
    spec = get_spec(model.name_or_path or "")
    tensors = {key: w for key, w in weights.items() if key not in ternary}
    for key, matrix in ternary.items():
        tensors |= {f"{key}.packed": chosen.pack(matrix.values), f"{key}.scale": matrix.scale}
    shapes = {key: list(matrix.values.shape) for key, matrix in ternary.items()}
    header = {
        "format": FORMAT,
        "packing": packing,
        "model": spec.name,
        "config": json.dumps(model.config.to_dict()),
        "shapes": json.dumps(shapes),
    }
    save_weights(path, tensors, header)
    return size


def load_packed(path: str | Path) -> ArithmeticTransformer:
    """The model in a file that :func:`save_packed` wrote, with bit-identical effective weights and no parameters.

    Raises:
        UserError: a missing, damaged or other file, or invalid codes.
    """
    tensors, header = load_weights(path)
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not a packed ternary model.")
    packing, weights = get_packing(header["packing"]), dict(tensors)
    for key, shape in json.loads(header["shapes"]).items():
        values = packing.unpack(weights.pop(f"{key}.packed"), shape)
        weights[key] = TernaryMatrix(values, weights.pop(f"{key}.scale")).effective
    config = TransformerConfig(**json.loads(header["config"]))
    spec = get_spec(header["model"])
    return ArithmeticTransformer(ConstantWeights(config, weights), spec.task(**spec.options), name=spec.name)
