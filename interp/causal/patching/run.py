"""One run of a model whose activations are computed when they are first needed.

A sweep needs the unpatched run up to the patched layer, and in the last layer only the rows that a metric reads. The
formulas are those of :mod:`models.fast`; the hooked forward pass is the definition, and tests compare the
two.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core.places import as_slice
from models import ArithmeticTransformer
from models.fast import heads_output, mlp_input
from models.fast import layers as fast
from models.transformer import in_block, rotate


class RunFrame:
    """A model with the number of positions to compute and the rows of its last layer that are read.

    Positions after the last one that is read change nothing and are left out, unless ``n_pos`` says otherwise: a user's
    patterns may attend to later positions. ``first`` and ``last`` bound the rows, inclusive.
    """

    def __init__(self, model: ArithmeticTransformer, read: list[int], n_pos: int | None = None):
        self.model, self.config, self.read = model, model.config, read
        self.first, self.last = min(read), max(read)
        self.n_pos = self.last + 1 if n_pos is None else n_pos
        self.read_rows = as_slice([p - self.first for p in read])  # within the last layer's rows
        self.weights = model.cached_weights()
        self.blocks: list[Any] = list(model.blocks)
        self._future: dict[tuple[int, int], Tensor] = {}

    def rows(self, layer: int, start: int = 0) -> slice:
        """Rows of a layer's output that anything later needs, from ``start`` on."""
        if layer < self.config.n_layers - 1:
            return slice(start, self.n_pos)
        return slice(max(self.first, start), self.last + 1)

    def block(self, layer: int) -> Any:
        return self.blocks[layer]

    @cached_property
    def fire(self) -> Float[Tensor, "head query key"] | None:
        if self.config.positional_embedding_type != "fire":
            return None
        return self.model.fire(self.n_pos, self.weights)

    # ---- a layer's formulas; ``rows`` are the positions of the given rows

    def normalized(self, layer: int, stream: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What attention reads of the stream."""
        return fast.norm_output(self.block(layer).ln1, stream, self.weights) if self.config.has_pre_norm else stream

    def project(
        self, layer: int, letter: str, stream: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Queries, keys or values of a normalised stream, before rotation."""
        return fast.heads(self.block(layer).attn, stream, self.weights, letter)

    def rotated(self, x: Float[Tensor, "batch pos head d_head"], start: int) -> Float[Tensor, "batch pos head d_head"]:
        """Queries or keys at positions from ``start`` on, as the scores take them."""
        cfg = self.config
        if cfg.positional_embedding_type != "rotary":
            return x
        return rotate(x, cfg, torch.arange(start, start + x.shape[1]).to(x.device))

    def scores(
        self,
        layer: int,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key head d_head"],
        rows: slice,
    ) -> Float[Tensor, "batch head query key"]:
        """Masked scores of (rotated) queries at ``rows`` on all keys, as :meth:`Attention.masked_scores` has them."""
        scores = self.block(layer).attn.raw_scores(q, k)
        if self.fire is not None:
            scores = scores + self.fire[:, rows]
        if rows.start + 1 >= self.n_pos:
            return scores  # the last position sees every key
        bounds = rows.start, rows.stop
        if bounds not in self._future:
            keys = torch.arange(self.n_pos, device=q.device)
            self._future[bounds] = keys > keys[rows, None]
        return scores.masked_fill(self._future[bounds], float("-inf"))

    def hidden(self, rows: slice) -> Float[Tensor, "row pos"] | None:
        """-inf at keys after the rows, else 0; None for the last position, which sees every key."""
        if rows.start + 1 >= self.n_pos:
            return None
        shape = rows.stop - rows.start, self.n_pos
        return torch.full(shape, float("-inf"), device=self.model.cfg.device).triu(1 + rows.start)

    def attended(
        self,
        layer: int,
        q: Float[Tensor, "batch query head d_head"],
        k: Float[Tensor, "batch key head d_head"],
        v: Float[Tensor, "batch key head d_head"],
        rows: slice,
        hidden: Float[Tensor, "query key"] | None,
    ) -> Float[Tensor, "batch query head d_head"]:
        """z of (rotated) queries, one or more for each of ``rows``, by torch's attention, which stores no pattern.

        ``hidden`` is added to the scores; it may cover all keys more than once.
        """
        cfg, added = self.config, None if hidden is None else hidden.to(q.dtype)[None, None]
        if self.fire is not None:
            times = q.shape[1] // (rows.stop - rows.start), k.shape[1] // self.n_pos
            fire = self.fire[:, rows].repeat(1, *times)
            added = fire if added is None else added + fire
        if cfg.attn_scores != "dot" or cfg.attn_top_k is not None:
            scores = self.block(layer).attn.raw_scores(q, k)
            scores = scores if added is None else scores + added
            return (self.pattern(layer, scores) @ v.transpose(1, 2)).transpose(1, 2)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, added, scale=1 / cfg.score_scale).transpose(1, 2)

    def pattern(self, layer: int, scores: Tensor) -> Tensor:
        """The attention pattern of scores [..., query, key]; every row must have a finite score."""
        if self.config.attn_top_k is None:
            return scores.softmax(-1)
        return self.block(layer).attn.pattern_of(scores)

    def after_attention(self, layer: int, resid_pre: Tensor, attn_out: Tensor) -> Tensor:
        return fast.add_attention(self.block(layer), resid_pre, attn_out, self.weights)

    def after_mlp(self, layer: int, resid_mid: Tensor, mlp_out: Tensor) -> Tensor:
        return fast.add_mlp(self.block(layer), resid_mid, mlp_out, self.weights)

    def through_mlp(self, layer: int, resid_pre: Tensor, resid_mid: Tensor) -> Tensor:
        return fast.through_mlp(self.block(layer), resid_pre, resid_mid, self.weights)

    def through_block(self, layer: int, resid_pre: Tensor, attn_out: Tensor) -> Tensor:
        return self.through_mlp(layer, resid_pre, self.after_attention(layer, resid_pre, attn_out))

    def w_o(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        return self.weights[in_block(layer, "attn.W_O")]

    def logits(self, stream: Float[Tensor, "*batch row d_model"]) -> Float[Tensor, "*batch row d_vocab"]:
        flat = stream.flatten(0, -3) if stream.ndim > 3 else stream
        out = fast.unembed(self.model, flat, self.weights)
        return out.unflatten(0, stream.shape[:-2]) if stream.ndim > 3 else out


class CachedRun:
    """Activations of one batch of tokens, by the site names of :mod:`interp.causal.patching.patch_sites`.

    Streams before a layer, keys and values hold all positions; all others hold only :meth:`RunFrame.rows` of their
    layer.
    """

    def __init__(self, frame: RunFrame, tokens: Int[Tensor, "batch pos"]):
        self.frame, self.tokens = frame, tokens
        self._kept: dict[tuple[str, int], Tensor] = {}

    def get(self, name: str, layer: int) -> Tensor:
        key = (name, layer)
        if key not in self._kept:
            self._kept[key] = getattr(self, f"_{name}")(layer)
        return self._kept[key]

    def knows(self, name: str, layer: int) -> bool:
        """Whether the activation has been computed."""
        return (name, layer) in self._kept

    def keep(self, name: str, layer: int, value: Tensor) -> None:
        """Store an activation that was computed elsewhere, together with other variants."""
        self._kept[name, layer] = value

    def _resid_pre(self, layer: int) -> Tensor:
        if layer == 0:
            return fast.embed(self.frame.model, self.tokens, self.frame.weights)[:, : self.frame.n_pos]
        return self.get("resid_post", layer - 1)

    def _embed(self, layer: int) -> Tensor:
        return self.frame.weights["embed.W_E"][self.tokens][:, : self.frame.n_pos]

    def _pos_embed(self, layer: int) -> Tensor:
        return self.frame.model.pos_embed(self.tokens, None, self.frame.weights)[:, : self.frame.n_pos]

    def _normalized(self, layer: int) -> Tensor:
        return self.frame.normalized(layer, self.get("resid_pre", layer))

    def _q(self, layer: int) -> Tensor:
        return self.frame.project(layer, "Q", self.get("normalized", layer)[:, self.frame.rows(layer)])

    def _k(self, layer: int) -> Tensor:
        return self.frame.project(layer, "K", self.get("normalized", layer))

    def _v(self, layer: int) -> Tensor:
        return self.frame.project(layer, "V", self.get("normalized", layer))

    def _rot_q(self, layer: int) -> Tensor:
        return self.frame.rotated(self.get("q", layer), self.frame.rows(layer).start)

    def _rot_k(self, layer: int) -> Tensor:
        return self.frame.rotated(self.get("k", layer), 0)

    def _scores(self, layer: int) -> Tensor:
        return self.frame.scores(layer, self.get("rot_q", layer), self.get("rot_k", layer), self.frame.rows(layer))

    def _pattern(self, layer: int) -> Tensor:
        return self.frame.pattern(layer, self.get("scores", layer))

    def _head_out(self, layer: int) -> Tensor:
        v, rows = self.get("v", layer), self.frame.rows(layer)
        if self.knows("scores", layer):
            return (self.get("pattern", layer) @ v.transpose(1, 2)).transpose(1, 2)
        q, k = self.get("rot_q", layer), self.get("rot_k", layer)
        return self.frame.attended(layer, q, k, v, rows, self.frame.hidden(rows))

    def _attn_out(self, layer: int) -> Tensor:
        return heads_output(self.frame.block(layer).attn, self.get("head_out", layer), self.frame.weights)

    def _resid_mid(self, layer: int) -> Tensor:
        stream = self.get("resid_pre", layer)[:, self.frame.rows(layer)]
        return self.frame.after_attention(layer, stream, self.get("attn_out", layer))

    def _neuron(self, layer: int) -> Tensor:
        block = self.frame.block(layer)
        before = self.get("resid_pre", layer)[:, self.frame.rows(layer)]
        stream = mlp_input(block, before, self.get("resid_mid", layer), self.frame.weights)
        return block.mlp.hidden(stream, self.frame.weights)

    def _mlp_out(self, layer: int) -> Tensor:
        return self.frame.block(layer).mlp.write(self.get("neuron", layer), self.frame.weights)

    def _resid_post(self, layer: int) -> Tensor:
        mid = self.get("resid_mid", layer)
        return self.frame.after_mlp(layer, mid, self.get("mlp_out", layer)) if self.frame.config.d_mlp else mid

    def logits(self) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at the positions that are read."""
        return self.get("logits", self.frame.config.n_layers - 1)

    def _logits(self, layer: int) -> Tensor:
        frame = self.frame
        return frame.logits(self.get("resid_post", layer)[:, frame.read_rows])


class CachedActivations:
    """The same interface over a user's cache: hook name -> activation at all positions."""

    def __init__(self, frame: RunFrame, cache: Any, hook_of: dict[str, str]):
        self.frame, self.cache, self.hook_of = frame, cache, hook_of

    def get(self, name: str, layer: int) -> Tensor:
        embedding, hook = name in ("embed", "pos_embed"), self.hook_of[name]
        value = self.cache[hook if embedding else in_block(layer, hook)]
        rows, n_pos = self.frame.rows(layer), self.frame.n_pos
        if embedding or name in ("resid_pre", "k", "v"):
            return value[:, :n_pos]
        return value[:, :, rows, :n_pos] if name == "pattern" else value[:, rows]
