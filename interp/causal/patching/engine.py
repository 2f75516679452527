"""The engine of patching sweeps: from effective weights, it computes only what changes and only what is read.

A patch changes some positions of one layer. Everything before it is the same as in the unpatched run and is computed
once. After the patch:

* A patch that mixes no positions (attention's and the MLP's output, z, q, a pattern's row, neurons, resid_mid) gives
  another stream at its positions after the layer. That stream is the same for every variant and is computed once for
  all positions; in the last layer nothing else is computed, and only at the rows that are read.
* A changed stream at some positions enters attention as other queries, keys and values there. Scores of old and new
  queries on old and new keys are computed once, and each variant picks its rows and columns from them.
* A patch of keys or values does the same, in its own head.
* Later layers are recomputed from the first changed position on (earlier positions cannot see it), and in the last
  layer only at the rows that are read.

Variants are stacked as long as their widest activation stays in the processor's cache. A sweep over the positions of
the last layer costs about one run for all variants together, where patching one by one takes one run each.

Over all layers less can be saved: what a patch changes must be computed. With P positions, a patch of the stream into
layer l of L changes (P + 1) / 2 positions on average, in that layer and in all later ones but the last, where only
their keys and values are needed. One by one, that is L P runs of L P positions per layer; here it is about
L (L - 1) / 2 * P (P + 1) / 2: 4 L / (L - 1) times fewer, 8 in two layers and 5.3 in four, before keys, values and the
read rows of the last layer are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from interp.causal.patching.chunks import Chunk, chunks, weighted, with_columns, z_of_changed_values
from interp.causal.patching.patch_sites import Groups, SweepSite, parts_of
from interp.causal.patching.run import CachedActivations, CachedRun, RunFrame
from interp.core.places import as_slice
from interp.core.problems import slices
from models.fast import heads_output
from models.fast import layers as fast
from models.transformer import in_block

#: Numbers in the widest activation of variants that are stacked; 2^17 to 2^20 were about equally fast.
NUMBERS_AT_ONCE = 2**18

#: ``emit(parts, groups, logits)`` takes the logits [part, group, batch, read, d_vocab] of some variants.
Emit = Callable[[slice, list[int], Tensor], None]


class Engine:
    """Sweeps over one batch: ``base`` is run and patched with activations of ``source``."""

    def __init__(
        self, frame: RunFrame, base: CachedRun, source: CachedRun | CachedActivations, numbers: int = NUMBERS_AT_ONCE
    ):
        self.frame, self.config, self.base, self.source, self.numbers = frame, frame.config, base, source, numbers
        self.batch = len(base.tokens)
        self._exact: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def sweep(self, site: SweepSite, layer: int, groups: Groups, emit: Emit) -> None:
        """Emit the logits of every variant that can differ from the base at a row that is read.

        With ``site.by_source`` a part is a (head, source group): number ``head * len(groups) + source``.
        """
        if site.name == "resid_pre":
            self._stream(layer, slice(0, 1), self.source.get("resid_pre", layer)[None], groups, emit)
        elif site.embedding:  # the stream is their sum
            change = self.source.get(site.name, 0) - self.base.get(site.name, 0)
            self._stream(0, slice(0, 1), (self.base.get("resid_pre", 0) + change)[None], groups, emit)
        elif site.name in ("k", "v"):
            self._keys_or_values(site.name, layer, groups, emit)
        else:
            mask = groups.mask[:, : self.frame.n_pos].to(self.base.tokens.device)
            n_parts = parts_of(site, self.config) * (len(groups) if site.by_source else 1)
            width = self._width(self.frame.rows(layer)) * (1 if self._last(layer) else min(4, len(mask)))
            for parts in slices(n_parts, max(1, self.numbers // width)):
                other = self._streams_after(site, layer, parts, mask)
                if self._last(layer):
                    self._read(parts, other, groups, emit)
                else:
                    self._stream(layer + 1, parts, other[: parts.stop - parts.start], groups, emit)

    # ---- patches that mix no positions: the stream after the layer, as if the patch were made everywhere

    def _streams_after(
        self, site: SweepSite, layer: int, parts: slice, mask: Bool[Tensor, "group pos"]
    ) -> Float[Tensor, "part batch row d_model"]:
        """The streams, with the base's own as one more part if it is not known yet, which then costs little."""
        frame, base, rows = self.frame, self.base, self.frame.rows(layer)
        if site.name == "resid_post":
            return self.source.get("resid_post", layer)[None]
        rides = not base.knows("resid_post", layer)

        def along(new: Tensor, name: str) -> Tensor:
            return torch.cat((new, base.get(name, layer)[None])) if rides else new

        if site.name == "resid_mid":
            mid = along(self.source.get("resid_mid", layer)[None], "resid_mid")
            pre = base.get("resid_pre", layer)[:, rows].expand(mid.shape)
            streams = self._flat(frame.through_mlp, layer, pre, mid)
        elif site.name in ("mlp_out", "neuron"):
            if site.name == "mlp_out":
                new = self.source.get("mlp_out", layer)[None]
            else:
                change = (self.source.get("neuron", layer) - base.get("neuron", layer))[..., parts].movedim(-1, 0)
                w_out = frame.weights[in_block(layer, "mlp.W_out")][parts]  # [part, d_model]
                new = base.get("mlp_out", layer) + change[..., None] * w_out[:, None, None]
            out = along(new, "mlp_out")
            streams = self._flat(frame.after_mlp, layer, base.get("resid_mid", layer).expand(out.shape), out)
        else:
            if site.name == "attn_out":
                new = self.source.get("attn_out", layer)[None]
            else:
                new = base.get("attn_out", layer) + self._z_change(site, layer, parts, mask)
            out = along(new, "attn_out")
            pre = base.get("resid_pre", layer)[:, rows].expand(out.shape)
            streams = self._flat(frame.through_block, layer, pre, out)
        if rides:
            base.keep("resid_post", layer, streams[-1])
        return streams

    def _z_change(
        self, site: SweepSite, layer: int, parts: slice, mask: Bool[Tensor, "group pos"]
    ) -> Float[Tensor, "part batch row d_model"]:
        """The change of what attention writes, relative to the base, with each head patched by itself."""
        frame, base, v = self.frame, self.base, self.base.get("v", layer)
        w_o = frame.w_o(layer)
        if site.by_source:
            change = self.source.get("pattern", layer) - base.get("pattern", layer)  # [batch, head, row, key]
            found = []
            for part in range(parts.start, parts.stop):
                head, source = divmod(part, len(mask))
                z = (change[:, head] * mask[source]) @ v[:, :, head]
                found.append(z @ w_o[head])
            return torch.stack(found)
        if site.name == "head_out":
            z = self.source.get("head_out", layer)
        elif site.name == "q":
            rows = frame.rows(layer)
            q = frame.rotated(self.source.get("q", layer), rows.start)
            z = frame.attended(layer, q, base.get("rot_k", layer), v, rows, frame.hidden(rows))
        else:
            z = (self.source.get("pattern", layer) @ v.transpose(1, 2)).transpose(1, 2)
        change = (z - base.get("head_out", layer))[:, :, parts]
        return _written(change, w_o[parts])

    def _read(self, parts: slice, stream: Tensor, groups: Groups, emit: Emit) -> None:
        """Logits from streams after the last layer: each variant's own at its positions, the base's elsewhere."""
        n_parts, layer = parts.stop - parts.start, self.config.n_layers - 1
        logits = self.frame.logits(stream[:, :, self.frame.read_rows])[:, None]  # [part, 1, batch, read, d_vocab]
        if len(logits) > n_parts:
            self.base.keep("logits", layer, logits[-1, 0])
            logits = logits[:n_parts]
        touched, of_read = read_by(groups, tuple(self.frame.read), logits.device)
        if touched:
            emit(parts, touched, torch.where(of_read, logits, self.base.logits()))

    # ---- a stream that differs at some positions, through attention

    def _stream(
        self,
        layer: int,
        parts: slice,
        other: Float[Tensor, "part batch pos d_model"],
        groups: Groups,
        emit: Emit,
    ) -> None:
        """``other`` enters the layer in place of the base's stream at the positions of each group."""
        frame, base, n = self.frame, self.base, len(other)
        q, k, v = self._old_and_new(layer, other)
        scores = None
        for chunk in self._chunks(layer, groups, n, other):
            if chunk.is_small:
                mine = q.flatten(1, 2).index_select(1, chunk.queries)
                z = frame.attended(layer, mine, k.flatten(1, 2), v.flatten(1, 2), chunk.rows, chunk.hidden)
                z = z.unflatten(1, (len(chunk.mask), -1))
            else:
                if scores is None:
                    many_q, many_k = (
                        torch.cat([x[:, i] for i in which]) for x, which in ((q, (0, 0, 1, 1)), (k, (0, 1, 0, 1)))
                    )
                    scores = frame.scores(layer, many_q, many_k, frame.rows(layer)).unflatten(0, (4, -1)).unbind()
                change = None
                if n == 1 and len(chunk.touched) < len(chunk.groups):
                    change = self._one_key(layer, scores[1], v[:, 1], chunk)
                if change is None:
                    z = self._mixed(layer, scores, v, chunk)
                else:  # exact where a row's own query is not touched
                    z = base.get("head_out", layer)[:, None, chunk.skip :] + change
                    if chunk.touched:
                        z[:, chunk.touched] = self._mixed(layer, scores, v, chunk.only(chunk.touched))
            attn_out = heads_output(frame.block(layer).attn, z, frame.weights)  # [part * batch, group, row, d_model]
            attn_out = attn_out.unflatten(0, (n, self.batch)).transpose(1, 2).flatten(0, 2)
            before = torch.where(
                chunk.of_rows[:, None], other[:, None, :, chunk.rows], base.get("resid_pre", layer)[:, chunk.rows]
            )
            self._onwards(layer, parts, chunk, before, attn_out, emit)

    def _old_and_new(
        self, layer: int, other: Float[Tensor, "part batch pos d_model"]
    ) -> list[Float[Tensor, "run 2 _ head d_head"]]:
        """(Rotated) queries, keys and values of the base and of ``other``. Where the base's are not known yet, they are
        computed together with those of a single part."""
        frame, base, n = self.frame, self.base, len(other)
        rides = n == 1 and not base.knows("v", layer)
        stream = torch.stack((base.get("resid_pre", layer), other[0]), 1) if rides else other
        normalized, rows = frame.normalized(layer, stream.flatten(0, 1)), frame.rows(layer)
        new = (
            frame.rotated(frame.project(layer, "Q", normalized[:, rows]), rows.start),
            frame.rotated(frame.project(layer, "K", normalized), 0),
            frame.project(layer, "V", normalized),
        )
        names = ("rot_q", "rot_k", "v")
        if not rides:
            return [
                torch.stack((base.get(name, layer).repeat(n, 1, 1, 1), x), 1)
                for name, x in zip(names, new, strict=True)
            ]
        found = [x.unflatten(0, (self.batch, 2)) for x in new]
        for name, x in zip(names, found, strict=True):
            base.keep(name, layer, x[:, 0])
        return found

    def _mixed(
        self, layer: int, scores: tuple[Tensor, ...], v: Tensor, chunk: Chunk
    ) -> Float[Tensor, "batch group row head d_head"]:
        """z where a group's positions have the new queries, keys and values, and all others the old ones.

        ``scores``: old queries on old keys, old on new, new on old, new on new.
        """
        old_old, old_new, new_old, new_new = (x[:, :, chunk.skip :] for x in scores)
        mixed = with_columns(old_old, old_new, chunk)
        if chunk.touched:
            part = chunk.only(chunk.touched)
            mixed[:, :, chunk.touched] = torch.where(
                part.of_rows, with_columns(new_old, new_new, part), mixed[:, :, chunk.touched]
            )
        pattern = self.frame.pattern(layer, mixed)
        return weighted(pattern, v[:, 0]) + z_of_changed_values(pattern, v[:, 1] - v[:, 0], chunk)

    def _one_key(
        self,
        layer: int,
        new_scores: Float[Tensor, "batch head row key"],
        new_v: Float[Tensor, "batch key head d_head"] | None,
        chunk: Chunk,
    ) -> Float[Tensor, "batch group later head d_head"] | None:
        """The change of z in the chunk's rows when one key and (unless None) its value are replaced, from the old
        softmax; None where that would lose digits.

        With S the sum of the old row's exponentials, ``w = exp(s) / S`` and ``d = exp(s') / S``,
        ``z' - z = ((d - w) (v - z) + d (v' - v)) / (1 - w + d)``: a few numbers per variant instead of a softmax over
        all keys. It is computed in float64, and used only where the denominator keeps its digits.
        """
        place, skip, v = chunk.place, chunk.skip, self.base.get("v", layer)
        if place is None or self.config.attn_top_k is not None or v.device.type == "mps":  # mps has no float64
            return None
        top, total, weight, z = (x[:, :, skip:] for x in self._in_float64(layer))
        d = (new_scores[:, :, skip:, place].double() - top).exp() / total  # [batch, head, row, group]
        more = d - weight[..., place]
        denominator = 1 + more
        least, most = torch.stack(denominator.aminmax()).tolist()
        if not 1e-6 < least <= most < 1e200:
            return None
        of_place = v[:, place].transpose(1, 2)[:, :, None]  # [batch, head, 1, group, d_head]
        change = (more / denominator)[..., None] * (of_place - z[..., None, :])
        if new_v is not None:
            of_new = new_v[:, place].transpose(1, 2)[:, :, None]
            change = change + (d / denominator)[..., None] * (of_new.double() - of_place.double())
        return change.permute(0, 3, 2, 1, 4).to(v.dtype)

    def _in_float64(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The base's largest score and the sum of exponentials relative to it [batch, head, row, 1], its pattern, and
        its z [batch, head, row, d_head], in float64."""
        if layer not in self._exact:
            scores, v = self.base.get("scores", layer).double(), self.base.get("v", layer).double()
            top = scores.amax(-1, keepdim=True)
            numerators = (scores - top).exp()
            total = numerators.sum(-1, keepdim=True)
            pattern = numerators / total
            z = pattern @ v.transpose(1, 2)
            self._exact[layer] = top, total, pattern, z
            self.base.keep("head_out", layer, z.transpose(1, 2).to(self.base.get("v", layer).dtype))
        return self._exact[layer]

    def _keys_or_values(self, name: str, layer: int, groups: Groups, emit: Emit) -> None:
        """Replace keys or values of one head at the positions of each group, for every head."""
        frame, base, heads = self.frame, self.base, self.config.n_heads
        old_v, new = base.get("v", layer), self.source.get(name, layer)
        if name == "k":
            new_scores = frame.scores(layer, base.get("rot_q", layer), frame.rotated(new, 0), frame.rows(layer))
        for chunk in self._chunks(layer, groups, heads, new):
            if name == "v":
                pattern = base.get("pattern", layer)[:, :, None, chunk.skip :]
                change = z_of_changed_values(pattern.expand(-1, -1, len(chunk.groups), -1, -1), new - old_v, chunk)
            else:
                change = self._one_key(layer, new_scores, None, chunk)
                if change is None:
                    old, mine = (x[:, :, chunk.skip :] for x in (base.get("scores", layer), new_scores))
                    z = weighted(frame.pattern(layer, with_columns(old, mine, chunk)), old_v)
                    change = z - base.get("head_out", layer)[:, None, chunk.skip :]
            if chunk.rides:
                change = F.pad(change, (0, 0, 0, 0, 0, 0, 0, 1))
            more = _written(change, frame.w_o(layer)).transpose(1, 2)  # [head, group, batch, row, d_model]
            attn_out = (base.get("attn_out", layer)[:, chunk.skip :] + more).flatten(0, 2)
            before = base.get("resid_pre", layer)[:, chunk.rows].expand(more.shape)
            self._onwards(layer, slice(0, heads), chunk, before, attn_out, emit)

    def _onwards(self, layer: int, parts: slice, chunk: Chunk, before: Tensor, attn_out: Tensor, emit: Emit) -> None:
        """Run on to the logits from the stream before a layer, [part, group, batch, row, d_model], and its attention's
        output, flat."""
        stream = self.frame.through_block(layer, before.flatten(0, 2), attn_out)
        if self._last(layer):
            logits = self.frame.logits(stream[:, self.frame.read_rows])
        else:
            logits = self._continue(layer + 1, stream, chunk.start)
        logits = logits.unflatten(0, (parts.stop - parts.start, -1, self.batch))
        if chunk.rides:
            self.base.keep("logits", layer, logits[0, -1])
            logits = logits[:, :-1]
        emit(parts, chunk.groups, logits)

    def _continue(
        self, layer: int, stream: Float[Tensor, "row_of_batch suffix d_model"], start: int
    ) -> Float[Tensor, "row_of_batch read d_vocab"]:
        """Run the remaining layers for positions from ``start`` on; keys and values before it are the base's."""
        frame, base, weights = self.frame, self.base, self.frame.weights
        variants = len(stream) // self.batch
        bias = fast.fire_bias(frame.model, weights, frame.n_pos) if frame.fire is not None else None
        for here in range(layer, self.config.n_layers):
            block = frame.block(here)
            normalized = frame.normalized(here, stream)
            k, v = fast.keys_and_values(block, normalized, weights, start)
            if start:
                before = [base.get(name, here)[:, :start].repeat(variants, 1, 1, 1) for name in ("rot_k", "v")]
                k, v = torch.cat((before[0], k), 1), torch.cat((before[1], v), 1)
            if self._last(here):
                stream, normalized = (x[:, frame.first - start :] for x in (stream, normalized))
            stream = fast.finish_block(block, stream, normalized, k, v, weights, bias)
        return frame.logits(stream[:, frame.read_rows])

    # ---- chunk sizes

    def _last(self, layer: int) -> bool:
        return layer == self.config.n_layers - 1

    def _width(self, rows: slice) -> int:
        """Numbers in the widest activation of one variant."""
        cfg = self.config
        return self.batch * (rows.stop - rows.start) * max(cfg.d_model, cfg.d_mlp, cfg.n_heads * self.frame.n_pos)

    def _chunks(self, layer: int, groups: Groups, parts: int, new: Tensor) -> list[Chunk]:
        """Groups in chunks that are run together. Old and new keys are not joined if ``new`` holds infinities or NaN,
        which would leak through the mask."""
        frame, base, rows = self.frame, self.base, self.frame.rows(layer)
        rides = self._last(layer) and not base.knows("logits", layer)
        width, few = parts * self._width(slice(0, 1)), isfinite(float(new.sum()))
        return chunks(
            groups, frame.n_pos, frame.first, rows.start, rows.stop, width, self.numbers, rides, few, new.device
        )

    def _flat(self, formula: Callable[..., Tensor], layer: int, *streams: Tensor) -> Tensor:
        """A layer's formula over [part, batch, row, d_model]."""
        parts = streams[0].shape[0]
        return formula(layer, *(x.flatten(0, 1) for x in streams)).unflatten(0, (parts, -1))


@lru_cache(maxsize=64)
def read_by(
    groups: Groups, read: tuple[int, ...], device: torch.device
) -> tuple[list[int], Bool[Tensor, "touched 1 read 1"]]:
    """The groups that have a position which is read, and which of those read each has."""
    of_read = groups.mask[:, as_slice([*read])]
    touched = [i for i, any_read in enumerate(of_read.any(1).tolist()) if any_read]
    return touched, of_read[as_slice(touched), None, :, None].to(device)


def _written(z: Float[Tensor, "*batch head d_head"], w_o: Tensor) -> Float[Tensor, "head *batch d_model"]:
    """What each head writes to the stream."""
    by_head = z.movedim(-2, 0)
    return torch.bmm(by_head.flatten(1, -2), w_o).unflatten(1, by_head.shape[1:-1])


def read_positions(positions: Sequence[Sequence[int] | None], n_pos: int) -> list[int]:
    """All positions that some metric reads, in ascending order; None reads all."""
    if any(p is None for p in positions):
        return list(range(n_pos))
    return sorted({p % n_pos for read in positions for p in read or ()})
