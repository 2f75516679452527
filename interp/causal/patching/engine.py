"""Patched runs from effective weights: only what changes, and only what is read.

A patch changes some positions of one layer. Everything before it is the same as in the unpatched run and is computed
once. After the patch:

* A patch that mixes no positions (attention's and the MLP's output, z, q, a pattern's row, neurons, resid_mid) leads
  to another stream at its positions after the layer. That stream is the same for every variant and computed once for
  all positions; in the last layer this is all, and only at the rows that are read.
* A stream at some positions enters attention as other queries, keys and values there. Scores of old and new queries
  on old and new keys are computed once, and each variant picks its rows and columns from them.
* A patch of keys or values does the same, in its own head.
* Later layers are recomputed from the first changed position on (what is before it cannot see it), and in the last
  layer only the rows that are read.

Variants are stacked as long as their widest activation stays in the processor's cache. Cost of a sweep over the
positions of the last layer: about one run for all variants together, where patching one by one takes one run each.

Over all layers less can be saved: what a patch changes must be computed. With P positions a patch of the stream into
layer l of L changes (P + 1) / 2 positions on average, in that layer and in all after it but the last, of which keys
and values are needed there. One by one, L P runs of L P positions per layer; here about L (L - 1) / 2 * P (P + 1) / 2:
4 L / (L - 1) times fewer, 8 in two layers and 5.3 in four, before keys, values and the read rows of the last layer
are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.patching.run import CachedActivations, Frame, Run, as_slice
from interp.causal.patching.sites import Groups, Site, parts_of
from models.partial_forward import layers as fast
from models.partial_forward.layers import heads_output

#: Numbers in the widest activation of variants that are stacked; 2^17 to 2^20 were about equally fast.
NUMBERS_AT_ONCE = 2**18

#: Up to so many, the number of operations counts and not their size: all variants take part in each, where more would
#: be copied, indexed, or have one key exchanged.
FEW_NUMBERS = 2**15

#: ``emit(parts, groups, logits)`` takes the logits [part, group, batch, read, d_vocab] of some variants.
Emit = Callable[[slice, list[int], Tensor], None]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Groups of positions whose variants are run together.

    ``place``: the positions of the groups, where each has just one and they follow one another. Rows from ``start``,
    the first changed position, are computed: ``rows`` of the sequence, without the first ``skip`` of the layer.
    ``touched``: those of the groups with a position among the rows, whose own queries change. ``numbers`` are in the
    widest activation.
    """

    groups: list[int]
    mask: Bool[Tensor, "group pos"]
    place: slice | None
    start: int
    rows: slice
    skip: int
    of_rows: Bool[Tensor, "group row 1"]
    touched: list[int]
    numbers: int

    @property
    def is_small(self) -> bool:
        """Whether the number of operations counts."""
        return self.numbers <= FEW_NUMBERS

    def only(self, chosen: list[int]) -> Chunk:
        """Some of the groups, all of them touched."""
        return replace(
            self,
            groups=[self.groups[i] for i in chosen],
            mask=self.mask[as_slice(chosen)],
            place=None if self.place is None else _run_of([self.place.start + i for i in chosen]),
            of_rows=self.of_rows[as_slice(chosen)],
            touched=list(range(len(chosen))),
        )


class Engine:
    """Sweeps over one batch: ``base`` is run, and patched with what ``source`` has in its place."""

    def __init__(self, frame: Frame, base: Run, source: Run | CachedActivations, numbers: int = NUMBERS_AT_ONCE):
        self.frame, self.config, self.base, self.source, self.numbers = frame, frame.config, base, source, numbers
        self.batch = len(base.tokens)
        self._exact: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def sweep(self, site: Site, layer: int, groups: Groups, emit: Emit) -> None:
        """Emit the logits of every variant that can differ from the base at a row that is read.

        With ``site.by_source`` a part is a (head, source group): part ``head * len(groups) + source``.
        """
        if site.name == "resid_pre":
            self._stream(layer, slice(0, 1), self.source.get("resid_pre", layer)[None], groups, emit)
        elif site.name in ("k", "v"):
            self._keys_or_values(site.name, layer, groups, emit)
        else:
            mask = groups.mask[:, : self.frame.n_pos].to(self.base.tokens.device)
            n_parts = parts_of(site, self.config) * (len(groups) if site.by_source else 1)
            width = self._width(self.frame.rows(layer)) * (1 if self._last(layer) else min(4, len(mask)))
            for parts in _steps(n_parts, max(1, self.numbers // width)):
                other = self._streams_behind(site, layer, parts, mask)
                if self._last(layer):
                    self._read(parts, other, mask, emit)
                else:
                    self._stream(layer + 1, parts, other, groups, emit)

    # ---- patches that mix no positions: the stream behind the layer, had the patch been made everywhere

    def _streams_behind(
        self, site: Site, layer: int, parts: slice, mask: Bool[Tensor, "group pos"]
    ) -> Float[Tensor, "part batch row d_model"]:
        frame, base, rows = self.frame, self.base, self.frame.rows(layer)
        if site.name in ("resid_mid", "resid_post", "mlp_out", "attn_out"):
            new = self.source.get(site.name, layer)
            if site.name == "resid_post":
                return new[None]
            if site.name == "resid_mid":
                return frame.behind_mlp(layer, new)[None]
            if site.name == "mlp_out":
                return frame.behind_mlp(layer, base.get("resid_mid", layer), new)[None]
            mid = frame.behind_attention(layer, base.get("resid_pre", layer)[:, rows], new)
            return frame.behind_mlp(layer, mid)[None]
        if site.name == "neuron":
            change = (self.source.get("neuron", layer) - base.get("neuron", layer))[..., parts].movedim(-1, 0)
            w_out = frame.weights[f"blocks.{layer}.mlp.W_out"][parts]  # [part, d_model]
            out = base.get("mlp_out", layer) + change[..., None] * w_out[:, None, None]
            mid = base.get("resid_mid", layer).expand(out.shape)
            return self._flat(frame.behind_mlp, layer, mid, out)
        change = self._z_change(site, layer, parts, mask)  # [part, batch, row, d_model]
        attn_out = base.get("attn_out", layer) + change
        pre = base.get("resid_pre", layer)[:, rows].expand(attn_out.shape)
        return self._flat(frame.behind_mlp, layer, self._flat(frame.behind_attention, layer, pre, attn_out))

    def _z_change(
        self, site: Site, layer: int, parts: slice, mask: Bool[Tensor, "group pos"]
    ) -> Float[Tensor, "part batch row d_model"]:
        """What attention writes more than in the base, for each head patched alone."""
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
            q = frame.rotated(self.source.get("q", layer), frame.rows(layer).start)
            scores = frame.scores(layer, q, base.get("rot_k", layer), frame.rows(layer))
            z = torch.einsum("bhqk,bkhe->bqhe", frame.pattern(layer, scores), v)
        else:
            z = torch.einsum("bhqk,bkhe->bqhe", self.source.get("pattern", layer), v)
        change = (z - base.get("head_out", layer))[:, :, parts]
        return torch.einsum("bqhe,hed->hbqd", change, w_o[parts])

    def _read(self, parts: slice, stream: Tensor, mask: Bool[Tensor, "group pos"], emit: Emit) -> None:
        """Logits from streams behind the last layer: each variant's own at its positions, the base's elsewhere."""
        logits = self.frame.logits(stream[:, :, self.frame.read_rows])[:, None]  # [part, 1, batch, read, d_vocab]
        of_read = mask[:, as_slice(self.frame.read)]  # [group, read]
        groups = [i for i, touched in enumerate(of_read.any(1).tolist()) if touched]
        if groups:
            emit(parts, groups, torch.where(of_read[as_slice(groups), None, :, None], logits, self.base.logits()))

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
        rows = frame.rows(layer)
        normalized = frame.normalized(layer, other.flatten(0, 1))
        new_q = frame.rotated(frame.project(layer, "Q", normalized[:, rows]), rows.start)
        new_k = frame.rotated(frame.project(layer, "K", normalized), 0)
        new_v = frame.project(layer, "V", normalized)
        old_q, old_k, old_v = (base.get(name, layer) for name in ("rot_q", "rot_k", "v"))
        if n > 1:
            old_q, old_k, old_v = (x.repeat(n, 1, 1, 1) for x in (old_q, old_k, old_v))
        pairs = torch.cat((old_q, old_q, new_q, new_q)), torch.cat((old_k, new_k, old_k, new_k))
        scores = frame.scores(layer, *pairs, rows).unflatten(0, (4, -1)).unbind()
        for chunk in self._chunks(layer, groups, n):
            z = None
            if n == 1 and not chunk.is_small and len(chunk.touched) < len(chunk.groups):
                z = self._one_key(layer, scores[1], new_v, chunk)  # right where a row's own query is not touched
            if z is None:
                z = self._mixed(layer, scores, old_v, new_v, chunk)
            elif chunk.touched:
                z[:, chunk.touched] = self._mixed(layer, scores, old_v, new_v, chunk.only(chunk.touched))
            attn_out = heads_output(frame.block(layer).attn, z, frame.weights)  # [part * batch, group, row, d_model]
            attn_out = attn_out.unflatten(0, (n, self.batch)).transpose(1, 2).flatten(0, 2)
            before = torch.where(
                chunk.of_rows[:, None], other[:, None, :, chunk.rows], base.get("resid_pre", layer)[:, chunk.rows]
            )
            mid = frame.behind_attention(layer, before.flatten(0, 2), attn_out)
            self._onwards(layer, parts, chunk, frame.behind_mlp(layer, mid), emit)

    def _mixed(
        self, layer: int, scores: tuple[Tensor, ...], old_v: Tensor, new_v: Tensor, chunk: Chunk
    ) -> Float[Tensor, "batch group row head d_head"]:
        """z where a group's positions have the new queries, keys and values, and all others the old ones.

        ``scores``: old queries on old keys, old on new, new on old, new on new.
        """
        old_old, old_new, new_old, new_new = (x[:, :, chunk.skip :] for x in scores)
        mixed = _columns(old_old, old_new, chunk)
        if chunk.touched and chunk.is_small:
            mixed = torch.where(chunk.of_rows, _columns(new_old, new_new, chunk), mixed)
        elif chunk.touched:
            part = chunk.only(chunk.touched)
            mixed[:, :, chunk.touched] = torch.where(
                part.of_rows, _columns(new_old, new_new, part), mixed[:, :, chunk.touched]
            )
        pattern = self.frame.pattern(layer, mixed)
        return _weighted(pattern, old_v) + _changed_values(pattern, new_v - old_v, chunk)

    def _one_key(
        self,
        layer: int,
        new_scores: Float[Tensor, "batch head row key"],
        new_v: Float[Tensor, "batch key head d_head"],
        chunk: Chunk,
    ) -> Float[Tensor, "batch group later head d_head"] | None:
        """z of the chunk's rows with one key and its value replaced, from the softmax without it; None where that would
        lose digits.

        With L the log of the old row's sum, ``z' = (z - w v + d v') / (1 - w + d)``, ``w = exp(s - L)``,
        ``d = exp(s' - L)``: a few numbers a variant in place of a softmax over all keys. In float64, and only where the
        denominator keeps its digits.
        """
        place, skip = chunk.place, chunk.skip
        if place is None or self.config.attn_top_k is not None or new_v.device.type == "mps":  # which has no float64
            return None
        total, weight, z = (x[:, :, skip:] for x in self._in_float64(layer))
        w = weight[..., place]  # [batch, head, row, group]
        d = (new_scores[:, :, skip:][..., place].double() - total).exp()
        denominator = 1 - w + d
        if not 1e-6 < float(denominator.min()) <= float(denominator.max()) < 1e200:
            return None
        old, new = (x[:, place].double().permute(0, 2, 1, 3)[:, :, None] for x in (self.base.get("v", layer), new_v))
        changed = (z[..., None, :] - w[..., None] * old + d[..., None] * new) / denominator[..., None]
        return changed.permute(0, 3, 2, 1, 4).to(new_v.dtype)

    def _in_float64(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of the base: log of the sum of exponentials [batch, head, row, 1], pattern, z [batch, head, row, d_head]."""
        if layer not in self._exact:
            scores, v = self.base.get("scores", layer).double(), self.base.get("v", layer).double()
            total = scores.logsumexp(-1, keepdim=True)
            pattern = (scores - total).exp()
            self._exact[layer] = total, pattern, pattern @ v.transpose(1, 2)
        return self._exact[layer]

    def _keys_or_values(self, name: str, layer: int, groups: Groups, emit: Emit) -> None:
        """Keys or values of one head replaced at the positions of each group, for every head."""
        frame, base, heads = self.frame, self.base, self.config.n_heads
        old_v, z = base.get("v", layer), base.get("head_out", layer)
        new = self.source.get(name, layer)
        if name == "k":
            new_scores = frame.scores(layer, base.get("rot_q", layer), frame.rotated(new, 0), frame.rows(layer))
        for chunk in self._chunks(layer, groups, heads):
            if name == "v":
                pattern = base.get("pattern", layer)[:, :, None, chunk.skip :]
                change = _changed_values(pattern.expand(-1, -1, len(chunk.groups), -1, -1), new - old_v, chunk)
            else:
                changed = None if chunk.is_small else self._one_key(layer, new_scores, old_v, chunk)
                if changed is None:
                    old, new_s = (x[:, :, chunk.skip :] for x in (base.get("scores", layer), new_scores))
                    changed = _weighted(frame.pattern(layer, _columns(old, new_s, chunk)), old_v)
                change = changed - z[:, None, chunk.skip :]
            more = torch.einsum("bgqhe,hed->hgbqd", change, frame.w_o(layer))
            attn_out = (base.get("attn_out", layer)[:, chunk.skip :] + more).flatten(0, 2)
            before = base.get("resid_pre", layer)[:, chunk.rows].repeat(heads * len(chunk.groups), 1, 1)
            mid = frame.behind_attention(layer, before, attn_out)
            self._onwards(layer, slice(0, heads), chunk, frame.behind_mlp(layer, mid), emit)

    def _onwards(self, layer: int, parts: slice, chunk: Chunk, stream: Tensor, emit: Emit) -> None:
        """From the stream behind a layer, [part * group * batch, row, d_model], to logits."""
        if self._last(layer):
            logits = self.frame.logits(stream[:, self.frame.read_rows])
        else:
            logits = self._continue(layer + 1, stream, chunk.start)
        emit(parts, chunk.groups, logits.unflatten(0, (parts.stop - parts.start, len(chunk.groups), self.batch)))

    def _continue(
        self, layer: int, stream: Float[Tensor, "row_of_batch suffix d_model"], start: int
    ) -> Float[Tensor, "row_of_batch read d_vocab"]:
        """Through the remaining layers, for positions from ``start`` on; keys and values before it are the base's."""
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

    # ---- how many at once

    def _last(self, layer: int) -> bool:
        return layer == self.config.n_layers - 1

    def _width(self, rows: slice) -> int:
        """Numbers in the widest activation of one variant."""
        cfg = self.config
        return self.batch * (rows.stop - rows.start) * max(cfg.d_model, cfg.d_mlp, cfg.n_heads * self.frame.n_pos)

    def _chunks(self, layer: int, groups: Groups, parts: int) -> Iterator[Chunk]:
        """Groups whose variants are run together, by their first position; those behind all reads are left out."""
        frame, device = self.frame, self.base.tokens.device
        places = [[p for p in group if p < frame.n_pos] for group in groups.places]
        todo = sorted((group[0], i) for i, group in enumerate(places) if group)
        while todo:
            start = min(todo[0][0], frame.first)
            rows = frame.rows(layer, start)
            width = parts * self._width(rows)
            chosen = [i for _, i in todo[: max(1, self.numbers // width)]]
            todo = todo[len(chosen) :]
            single = all(len(places[i]) == 1 for i in chosen)
            mask = groups.mask[as_slice(chosen), : frame.n_pos].to(device)
            yield Chunk(
                groups=chosen,
                mask=mask,
                place=_run_of([places[i][0] for i in chosen]) if single else None,
                start=start,
                rows=rows,
                skip=rows.start - frame.rows(layer).start,
                of_rows=mask[:, rows, None],
                touched=[g for g, i in enumerate(chosen) if any(rows.start <= p < rows.stop for p in places[i])],
                numbers=len(chosen) * width,
            )

    def _flat(self, formula: Callable[..., Tensor], layer: int, *streams: Tensor) -> Tensor:
        """A layer's formula over [part, batch, row, d_model]."""
        parts = streams[0].shape[0]
        return formula(layer, *(x.flatten(0, 1) for x in streams)).unflatten(0, (parts, -1))


def _steps(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _run_of(places: list[int]) -> slice | None:
    """Places that follow one another, as a slice."""
    found = as_slice(places)
    return found if isinstance(found, slice) else None


def _changed_values(
    pattern: Float[Tensor, "batch head group row key"], change: Float[Tensor, "batch key head d_head"], chunk: Chunk
) -> Float[Tensor, "batch group row head d_head"]:
    """What a change of the values at the keys of each group adds to z."""
    if chunk.place is None:
        return _weighted(pattern * chunk.mask[:, None, :], change)
    weight = pattern.diagonal(chunk.place.start, 2, 4)  # [batch, head, row, group]
    return weight.permute(0, 3, 2, 1)[..., None] * change[:, chunk.place, None]


def _columns(
    old: Float[Tensor, "batch head row key"], new: Float[Tensor, "batch head row key"], chunk: Chunk
) -> Float[Tensor, "batch head group row key"]:
    """``old`` for each group, with its columns taken from ``new``."""
    if chunk.place is None:
        return torch.where(chunk.mask[:, None, :], new[:, :, None], old[:, :, None])
    out = old[:, :, None].repeat(1, 1, len(chunk.groups), 1, 1)  # a copy and few writes: much faster than torch.where
    out.diagonal(chunk.place.start, 2, 4).copy_(new[..., chunk.place])
    return out


def _weighted(
    pattern: Float[Tensor, "batch head group row key"], v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch group row head d_head"]:
    groups = pattern.shape[2]
    z = pattern.flatten(2, 3) @ v.transpose(1, 2)  # [batch, head, group * row, d_head]
    return z.unflatten(2, (groups, -1)).permute(0, 2, 3, 1, 4)


def read_positions(positions: Sequence[Sequence[int] | None], n_pos: int) -> list[int]:
    """All positions that some metric reads, ascending; None reads all."""
    if any(p is None for p in positions):
        return list(range(n_pos))
    return sorted({p % n_pos for read in positions for p in read or ()})
