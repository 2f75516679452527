"""Decoders that end in a sum over positions, as brian-naughton/verified-circuits publishes them (JSON, hex floats).

    z = tok[x] + pos;  z += attn(z);  z += mlp(z), layer by layer, causal, ReLU, without norms
    logits = h2 relu(h1 sum_t z_t)

The sum over positions is attention too: scores of zero give each of n keys the weight 1/n, and values multiplied by n
give the sum. So the readout is one more layer, which is read at the last position only: its heads copy n z / n into
coordinates of their own, its MLP is h1, ReLU and h2, and the unembedding reads what that writes. Over the reals the
function is the same, and so it is in floats if n is a power of two, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.errors import UserError
from models.tasks.formats.string_task import function
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.weights import Weights, under
from models.weight_maps.weight_map import WeightMap, normal_

OUTPUTS = 2
_SIZES = ("n", "d", "heads", "ff", "layers")


class PooledDecoder(WeightMap):
    """The weights of such a decoder as a model with one more layer; the parameters have the published names."""

    def __init__(self, n: int, d: int, heads: int, ff: int, layers: int):
        if min(n, d, heads, ff, layers) < 1 or d % heads:
            raise UserError(f"A width of {d} cannot be split among {heads} heads.")
        self.n, self.d, self.ff = n, d, ff
        super().__init__(
            TransformerConfig(
                n_layers=layers + 1, d_model=2 * d + OUTPUTS, n_heads=heads, d_head=d // heads, d_mlp=max(ff, d),
                d_vocab=2, d_vocab_out=OUTPUTS, n_ctx=n, act_fn="relu", normalization_type=None,
            )
        )  # fmt: skip
        shapes = {"tok.weight": (2, d), "pos": (n, d), "h1.weight": (d, d), "h1.bias": (d,)}
        shapes |= {"h2.weight": (OUTPUTS, d), "h2.bias": (OUTPUTS,)}
        for layer in range(layers):
            block = in_block(layer)
            shapes |= {f"{block}.W{x}.weight": (d, d) for x in "qkvo"}
            shapes |= {f"{block}.mlp1.weight": (ff, d), f"{block}.mlp1.bias": (ff,)}
            shapes |= {f"{block}.mlp2.weight": (d, ff), f"{block}.mlp2.bias": (d,)}
        self.shapes = shapes
        self.add_parameters(shapes)

    def forward(self) -> Weights:
        own, cfg, d = self.own(), self.config, self.d
        like = own["pos"]
        found = {
            "embed.W_E": _wide(own["tok.weight"], cfg.d_model),
            "pos_embed.W_pos": _wide(own["pos"], cfg.d_model),
            "unembed.W_U": _placed(
                torch.eye(OUTPUTS, dtype=like.dtype, device=like.device), cfg.d_model, OUTPUTS, 2 * d
            ),
        }
        for layer in range(cfg.n_layers - 1):
            block = in_block(layer)
            for x in "QKV":
                heads = own[f"{block}.W{x.lower()}.weight"].T.unflatten(1, (cfg.n_heads, cfg.d_head))
                found[f"{block}.attn.W_{x}"] = F.pad(heads.transpose(0, 1), (0, 0, 0, cfg.d_model - d))
            written = own[f"{block}.Wo.weight"].T.unflatten(0, (cfg.n_heads, cfg.d_head))
            found[f"{block}.attn.W_O"] = _wide(written, cfg.d_model)
            found |= self._mlp(block, own, f"{block}.mlp1", f"{block}.mlp2")
        return found | self._readout(like) | self._mlp(in_block(cfg.n_layers - 1), own, "h1", "h2", d, 2 * d)

    def _mlp(self, block: str, own: Weights, first: str, second: str, reads: int = 0, writes: int = 0) -> Weights:
        """The weights of an MLP of two matrices that reads and writes at these coordinates."""
        cfg, w_in, w_out = self.config, own[f"{first}.weight"].T, own[f"{second}.weight"].T
        return under(
            f"{block}.mlp",
            W_in=_placed(w_in, cfg.d_model, cfg.d_mlp, reads),
            b_in=_wide(own[f"{first}.bias"], cfg.d_mlp),
            W_out=_placed(w_out.T, cfg.d_model, cfg.d_mlp, writes).T,
            b_out=_placed(own[f"{second}.bias"][:, None], cfg.d_model, 1, writes)[:, 0],
        )

    def _readout(self, like: Tensor) -> Weights:
        """Uniform attention that writes n times the mean over positions into free coordinates of the stream."""
        cfg, d = self.config, self.d
        one = torch.eye(d, dtype=like.dtype, device=like.device)
        block, zeros = in_block(cfg.n_layers - 1, "attn"), one.new_zeros(cfg.n_heads, cfg.d_model, cfg.d_head)
        copied = F.pad(one.unflatten(1, (cfg.n_heads, cfg.d_head)).transpose(0, 1), (0, 0, 0, cfg.d_model - d))
        written = F.pad(self.n * one.unflatten(0, (cfg.n_heads, cfg.d_head)), (d, cfg.d_model - 2 * d))
        return under(block, W_Q=zeros, W_K=zeros, W_V=copied, W_O=written)

    def initialise(self, generator: torch.Generator) -> None:
        for parameter in self.parameters():
            normal_(parameter, 0.02, generator)


def _wide(x: Tensor, width: int) -> Tensor:
    """``x`` padded with zeros along the last axis."""
    return F.pad(x, (0, width - x.shape[-1]))


def _placed(x: Tensor, rows: int, columns: int, first_row: int) -> Tensor:
    """A matrix padded with zeros, so that it starts at ``first_row``."""
    return F.pad(x, (0, columns - x.shape[1], first_row, rows - first_row - x.shape[0]))


def convert(content: Mapping[str, Any], path: Path) -> ArithmeticTransformer:
    """The model that such a JSON object holds, with the task of balanced brackets.

    Raises:
        UserError: another architecture, or weights that do not fit it.
    """
    cfg, weights = content["cfg"], content["state_dict_hex"]
    if not isinstance(cfg, dict) or not isinstance(weights, dict) or not _whole(cfg):
        raise UserError(f"{path} does not say its sizes as whole numbers from 1 to 4096.")
    if cfg.get("causal") is not True or cfg.get("pool") != "sum":
        raise UserError(f"{path} is not a causal decoder that ends in a sum over positions.")
    if not _fits(cfg, weights):
        raise UserError(f"{path} has other weights than its sizes say.")
    maps = PooledDecoder(*(cfg[name] for name in _SIZES))
    if set(weights) != set(maps.shapes):
        raise UserError(f"{path} has other weights than its sizes say.")
    with torch.no_grad():
        for name, parameter in maps.own().items():
            value = _numbers(weights[name], path)
            if value.shape != parameter.shape or not torch.equal(value.float().double(), value):
                raise UserError(f"{path} has {name} in another shape, or not in float32.")
            parameter.copy_(value)
    return ArithmeticTransformer(
        maps, function("01", cfg["n"], "balanced", name=f"balanced-brackets-{cfg['n']}"), name=path.stem.split(".")[0]
    )


def _whole(cfg: dict[str, Any]) -> bool:
    sizes = [cfg.get(name) for name in _SIZES]
    return all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 4096 for size in sizes)


def _fits(cfg: dict[str, Any], weights: dict[str, Any]) -> bool:
    """Whether the file is as large as its sizes say, before anything of these sizes is made."""
    lengths = {"tok.weight": 2, "pos": cfg["n"], "h1.bias": cfg["d"], "blocks.0.mlp1.bias": cfg["ff"]}
    return len(weights) == 6 + 8 * cfg["layers"] and all(
        isinstance(weights.get(name), list) and len(weights[name]) == n for name, n in lengths.items()
    )


def _numbers(value: Any, path: Path) -> Tensor:
    def read(entry: Any) -> Any:
        return [read(one) for one in entry] if isinstance(entry, list) else float.fromhex(entry)

    try:
        found = torch.tensor(read(value), dtype=torch.float64)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise UserError(f"{path} has weights that are not written as float.hex() writes them.") from None
    if not found.isfinite().all():
        raise UserError(f"{path} has weights that are not finite.")
    return found
