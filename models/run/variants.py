"""Variants of a run: alternatives times groups of positions, each computed from the first place where it differs.

    Variants(run, groups, emit).patched("z", layer, other.get("z", layer))      # another run's, head by head
    Variants(run, groups, emit).alternatives("attn_out", layer, new)            # new [alternative, batch, row, d_model]

An *alternative* is another activation at one site of one layer, as if everywhere; a *group* is a set of positions.
Variant (a, g) has alternative a at the positions of g, and the run's own activation elsewhere. Three facts make it
cheap:

1. Until the next attention positions do not mix: an alternative is one more row of the batch, whatever the groups are.
   In the last layer only rows that are read are computed, and each group picks its rows at the very end.
2. In the first attention after the change, variant (a, g) mixes two known sequences: its queries attend to both
   sequences' keys, under a mask that shows one of the two at each position. One attention serves all groups.
3. After that every variant has a stream of its own, from its first changed position on, as earlier positions cannot see
   it; the keys and values of these are the run's.

Parts of the run itself that have not been computed yet are computed as one more variant, at almost no cost. At small
batches the number of operations decides, not their size; at large ones whether activations stay in the processor's
cache, so that variants are run in chunks.

Of L > 1 layers, with P positions, a patch of the stream into layer l changes (P + 1) / 2 positions on average, in that
layer and in all later ones but the last, where only their keys and values are needed. One by one, all that is L P runs
of L P positions per layer; here it is about L (L - 1) / 2 * P (P + 1) / 2: 4 L / (L - 1) times fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import isfinite
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from models.run.blocks import block
from models.run.groups import Chunk, Groups, chunks, read_by
from models.run.run import Run
from models.run.score_bias import repeated

#: Numbers in the widest activation of variants that are run together; 2^17 to 2^20 were about equally fast, and twice
#: as many leave the cache. In wide models the rows of a product count: with fewer its weights are read too often.
NUMBERS_AT_ONCE, ROWS_AT_ONCE = 2**18, 512
#: From so many examples times groups on, keys have a formula of their own.
MANY_KEYS = 2**11

#: ``emit(parts, groups, logits)`` takes the logits [part, group, batch, read, d_vocab] of some variants. Variants that
#: cannot differ from the run are not emitted.
Emit = Callable[[slice, list[int], Tensor], None]
#: Alternatives of a stream, or of what a sublayer writes.
Alternatives = Float[Tensor, "alternative batch row d_model"]
#: Sites with one alternative for a whole run; the others have one for each head or neuron.
WHOLE = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")


class Variants:
    """Variants of one run at the positions of each of ``groups``.

    Every method costs each weight once for each alternative (or each head's, neuron's) rows, and after the next
    attention once for each variant.
    """

    def __init__(self, run: Run, groups: Groups, emit: Emit, numbers: int | None = None):
        self.run, self.frame, self.f, self.groups, self.emit = run, run.frame, run.f, groups, emit
        self.numbers = max(NUMBERS_AT_ONCE, ROWS_AT_ONCE * run.frame.width) if numbers is None else numbers
        self.n_pos, self.n_heads = run.frame.n_pos, run.f.cfg.n_heads
        self.whole = len(groups) == 1 and len(groups[0]) >= self.n_pos

    def patched(self, site: str, layer: int, new: Tensor, only: Sequence[int] | None = None) -> None:
        """Variants with another run's activation at a site (a name of :mod:`models.run.run`): each head or neuron by
        itself, if the site has any. "pattern_dest_src" takes a pattern's columns apart as well: part number
        ``head * len(groups) + source`` has the sources of one group alone. Of "z" and "post", ``only`` chooses heads or
        neurons, which are then counted in its order."""
        if site in ("k", "v"):
            self._keys_or_values(site, layer, new)
        elif site in ("embed", "pos_embed"):  # the stream is their sum
            self.alternatives("resid_pre", 0, (self.run.get("resid_pre") + (new - self.run.get(site)))[None])
        elif site in WHOLE:
            self.alternatives(site, layer, new[None])
        else:
            written, n, make = self._parts(site, layer, new)
            for parts in self._slices(n if only is None else len(only), layer):
                self._through(written, layer, parts, make(parts if only is None else only[parts]))

    def alternatives(self, site: str, layer: int, new: Alternatives) -> None:
        """Variants with other streams, or other outputs of a sublayer, at the rows of a site of :data:`WHOLE`."""
        if site == "resid_pre":
            self._enter(layer, slice(0, len(new)), new)
        else:
            for parts in self._slices(len(new), layer):
                self._through(site, layer, parts, new[parts])

    def _slices(self, n: int, layer: int) -> Iterator[slice]:
        rows = self.frame.rows(layer)
        step = max(1, self.numbers // (self.run.batch * (rows.stop - rows.start) * self.frame.width))
        return (slice(a, min(a + step, n)) for a in range(0, n, step))

    # ---- one head or neuron at a time: what the sublayer then writes

    def _parts(self, site: str, layer: int, new: Tensor) -> tuple[str, int, Callable[[Any], Alternatives]]:
        """What the sublayer writes, how many alternatives of it there are, and a function that makes some."""
        run, f = self.run, self.f
        if site == "post":
            change, out, w = new - run.get("post", layer), run.get("mlp_out", layer), f.of(layer, "mlp.W_out")
            return (
                "mlp_out",
                w.shape[0],
                lambda parts: out + (change[..., parts].movedim(-1, 0)[..., None] * w[parts, None, None]),
            )
        if site == "pattern_dest_src":
            return "attn_out", self.n_heads * len(self.groups), self._by_source(layer, new)
        if site == "z":
            z = new
        elif site == "q":
            q = f.turned(layer, "Q", new, self.frame.rows(layer).start)
            z = f.attend(q, run.get("rot_k", layer), run.get("v", layer), run.added(layer))
        elif site == "pattern":
            z = (new @ run.get("v", layer).transpose(1, 2)).transpose(1, 2)
        else:
            raise ValueError(f"A run has no alternatives at {site}.")
        change = z - run.get("z", layer)
        return (
            "attn_out",
            self.n_heads,
            lambda parts: (
                run.get("attn_out", layer) + torch.einsum("bphe,hed->hbpd", change[:, :, parts], f.w_o(layer)[parts])
            ),
        )

    def _by_source(self, layer: int, new: Tensor) -> Callable[[slice], Alternatives]:
        run, n, w_o = self.run, len(self.groups), self.f.w_o(layer)
        change, v = new - run.get("pattern", layer), run.get("v", layer)  # change: [batch, head, row, key]
        own = run.get("attn_out", layer)
        if self.groups == tuple((i,) for i in range(n)):
            # Each source is one key: what it writes, times the change of its weight.
            pad = n - self.n_pos  # keys after the last position that is read change nothing
            by_key = F.pad(change, (0, pad)).permute(1, 3, 0, 2).flatten(0, 1)[..., None]  # [part, batch, row, 1]
            writes = F.pad(torch.einsum("bkhe,hed->hkbd", v, w_o), (0, 0, 0, 0, 0, pad)).flatten(0, 1)[:, :, None]
            return lambda parts: own + by_key[parts] * writes[parts]
        sources = torch.zeros(n, self.n_pos, dtype=change.dtype, device=change.device)
        for row, group in zip(sources, self.groups, strict=True):
            row[[p for p in group if p < self.n_pos]] = 1

        def make(parts: slice) -> Alternatives:
            heads, origin = (x.tolist() for x in _divided(parts, n))
            z = (change[:, heads] * sources[origin][:, None]) @ v.transpose(1, 2)[
                :, heads
            ]  # [batch, part, row, d_head]
            return own + torch.einsum("bpre,ped->pbrd", z, w_o[heads])

        return make

    # ---- positions do not mix: the stream after the layer, as if alternatives were made everywhere

    def _through(self, site: str, layer: int, parts: slice, new: Alternatives) -> None:
        run, f = self.run, self.f
        rides = site != "resid_post" and not run.knows("resid_post", layer)
        new = torch.cat((new, run.get(site, layer)[None])) if rides else new
        if site == "resid_post":
            streams = new
        elif site == "mlp_out":
            streams = f.add_mlp(layer, run.before(layer), run.get("resid_mid", layer), new)
        elif site == "resid_mid":
            streams = f.through_mlp(layer, run.before(layer), new)
        else:
            streams = f.after_attention(layer, run.before(layer), new)
        if rides:
            run.keep(layer, resid_post=streams[-1])
        if self.frame.is_last(layer):
            self._read(parts, streams)
        else:
            self._enter(layer + 1, parts, streams[: parts.stop - parts.start])

    def _read(self, parts: slice, streams: Tensor) -> None:
        """Emit logits of streams after the last layer: each variant's at its positions, the run's elsewhere."""
        run, n, last = self.run, parts.stop - parts.start, self.frame.n_layers - 1
        logits = self.frame.logits(streams)[:, None]
        if len(logits) > n:
            run.keep(last, logits=logits[-1, 0])
            logits = logits[:n]
        touched, of_read = read_by(self.groups, tuple(self.frame.read), logits.device)
        if touched:
            self.emit(parts, touched, logits if of_read is None else torch.where(of_read, logits, run.logits()))

    # ---- the first attention after the change

    def _enter(self, layer: int, parts: slice, other: Alternatives) -> None:
        """``other`` enters the layer in place of the run's stream at the positions of each group."""
        run, f, n = self.run, self.f, len(other)
        width = run.batch * max(self.frame.width, self.n_heads * self.n_pos)
        if self.whole:  # a stream of its own from the beginning on
            step = max(1, self.numbers // (width * self.n_pos))
            for a in range(0, n, step):
                logits = self._onwards(layer, other[a : a + step].flatten(0, 1), 0).unflatten(0, (-1, 1, run.batch))
                self.emit(slice(parts.start + a, parts.start + a + len(logits)), [0], logits)
            return
        q, k, v = self._both(layer, other)
        joined = isfinite(float(other.sum()))
        for chunk in self._chunks(layer, n * width):
            z = self._mixed(layer, q, k, v, chunk, n, joined)  # [part * batch, group * row, head, d_head]
            attn_out = f.attn_out(layer, z).unflatten(0, (n, run.batch)).unflatten(2, (chunk.n, -1)).transpose(1, 2)
            pre = run.get("resid_pre", layer)[:, chunk.rows]
            if chunk.of_rows is not None:
                pre = torch.where(chunk.of_rows, other[:, None, :, chunk.rows], pre)
            stream = f.after_attention(layer, pre.expand(attn_out.shape).flatten(0, 2), attn_out.flatten(0, 2))
            self._emit_chunk(layer, parts, chunk, stream)

    def _both(self, layer: int, other: Alternatives) -> tuple[Tensor, ...]:
        """Queries, keys and values of the run followed by those of each part, [part * batch, 2 * pos, head, d_head]."""
        run, f, rows, n, names = self.run, self.f, self.frame.rows(layer), len(other), ("rot_q", "rot_k", "v")
        if n == 1 and not run.knows("v", layer):  # the run's own, together with one part's
            x = torch.stack((run.get("resid_pre", layer), other[0]), 1).flatten(0, 1)
            found = [x.unflatten(0, (-1, 2)) for x in f.qkv(layer, f.attn_in(layer, x), 0, rows)]
            run.keep(layer, **{name: x[:, 0] for name, x in zip(names, found, strict=True)})
            return tuple(x.flatten(1, 2) for x in found)
        new = f.qkv(layer, f.attn_in(layer, other.flatten(0, 1)), 0, rows)
        old = (run.get(name, layer).repeat(n, 1, 1, 1) for name in names)
        return tuple(torch.cat(pair, 1) for pair in zip(old, new, strict=True))

    def _chunks(self, layer: int, width: int) -> list[Chunk]:
        frame, rows = self.frame, self.frame.rows(layer)
        rides = frame.is_last(layer) and not self.run.knows("logits", layer)
        bounds, device = (rows.start, rows.stop), self.run.tokens.device
        return chunks(self.groups, self.n_pos, frame.first, bounds, width, self.numbers, rides, device)

    def _mixed(self, layer: int, q: Tensor, k: Tensor, v: Tensor, chunk: Chunk, n: int, joined: bool) -> Tensor:
        """z of every group's rows: its queries on the keys of both sequences, of which each position shows one."""
        f, run, rows = self.f, self.run, chunk.rows
        if not joined:  # infinities and NaN would leak through the mask: every group gets keys of its own, copied
            q, k, v = (
                x.index_select(1, at).unflatten(1, (chunk.n, -1)).flatten(0, 1)
                for x, at in ((q, chunk.queries), (k, chunk.keys), (v, chunk.keys))
            )
            window = repeated(repeated(run.window, n), chunk.n, inner=True)
            z = f.attend(q, k, v, f.added(layer, rows, self.n_pos, window, q))
            return z.unflatten(0, (-1, chunk.n)).flatten(1, 2)
        added, bias = chunk.hidden, f.score_bias(layer, rows, rows.stop, run.window)
        if bias is not None:
            bias = F.pad(bias, (0, self.n_pos - bias.shape[-1]))
            bias = bias.repeat(*[1] * (bias.ndim - 2), chunk.n, 2)
            added = added + (bias.repeat(n, 1, 1, 1) if bias.ndim == 4 and len(bias) > 1 else bias)
        return f.attend(q.index_select(1, chunk.queries), k, v, added)

    def _keys_or_values(self, site: str, layer: int, new: Tensor) -> None:
        """Keys or values of one head at the positions of each group, for every head: one formula for all heads, of
        which each variant takes its own."""
        run, f, heads, w_o = self.run, self.f, self.n_heads, self.f.w_o(layer)
        width = heads * run.batch * max(self.frame.width, heads * self.n_pos)
        change_of = self._change_of_keys(layer, new) if site == "k" else self._change_of_values(layer, new)
        for chunk in self._chunks(layer, width):
            more = torch.einsum("bgrhe,hed->hgbrd", change_of(chunk), w_o)
            attn_out = (run.get("attn_out", layer)[:, chunk.skip :] + more).flatten(0, 2)
            pre = run.get("resid_pre", layer)[:, chunk.rows].expand(more.shape).flatten(0, 2)
            self._emit_chunk(layer, slice(0, heads), chunk, f.after_attention(layer, pre, attn_out))

    def _change_of_keys(self, layer: int, new: Tensor) -> Callable[[Chunk], Tensor]:
        """From a chunk to the change of z, [batch, group, row, head, d_head]."""
        run, new = self.run, self.f.turned(layer, "K", new, 0)
        q, k, v = (run.get(name, layer) for name in ("rot_q", "rot_k", "v"))

        many = len(self.groups) * run.batch >= MANY_KEYS

        @cache
        def both() -> tuple[Tensor, Tensor, Tensor, bool]:
            return torch.cat((q, q), 1), torch.cat((k, new), 1), torch.cat((v, v), 1), isfinite(float(new.sum()))

        def change(chunk: Chunk) -> Tensor:
            if self.whole:
                z = self.f.attend(q, new, v, run.added(layer)) - run.get("z", layer)
                return _with_own(z[:, None, chunk.skip :], chunk)
            found = self._change_of_single_keys(layer, new, chunk) if many else None
            if found is None:
                old_q, old_k, old_v, joined = both()
                z = self._mixed(layer, old_q, old_k, old_v, chunk, 1, joined).unflatten(1, (chunk.n, -1))
                found = z - run.get("z", layer)[:, None, chunk.skip :]
            return found

        return change

    def _change_of_single_keys(self, layer: int, new: Tensor, chunk: Chunk) -> Tensor | None:
        """The same where each group is one key, from the run's softmax; None where that would lose digits.

        With ``w = exp(s) / S`` and ``d = exp(s') / S``, S the sum of the exponentials of the run's scores s, the change
        is ``(d - w) (v - z) / (1 - w + d)``: a few numbers for each variant instead of a softmax over all keys, which
        takes 1.4 times as long in one layer and batches of hundreds. It is computed in float64, and used only where the
        denominator keeps its digits.
        """
        run, f, place, skip = self.run, self.f, chunk.place, chunk.skip
        if not f.plain or place is None or new.device.type == "mps":  # which has no float64
            return None
        scores, v, z = (run.get(name, layer) for name in ("attn_scores", "v", "z"))
        total = scores[:, :, skip:].double().logsumexp(-1, keepdim=True)
        other = f.scores(run.get("rot_q", layer)[:, skip:], new, run.added(layer, chunk.rows))
        more = (other[..., place] - total).exp() - (scores[:, :, skip:][..., place] - total).exp()
        denominator = 1 + more  # [batch, head, row, group], as ``more``
        least, most = torch.stack(denominator.aminmax()).tolist()
        if not 1e-6 < least <= most < 1e200:
            return None
        by = (more / denominator).to(v.dtype).permute(0, 3, 2, 1)[..., None]  # [batch, group, row, head, 1]
        return _with_own(by * (v[:, place, None] - z[:, None, skip:]), chunk)

    def _change_of_values(self, layer: int, new: Tensor) -> Callable[[Chunk], Tensor]:
        """The same for values, whose pattern stays: pattern times the change. The formula of the keys takes 1.4 times
        as long in one layer and batches of hundreds."""
        pattern, more = self.run.get("pattern", layer), new - self.run.get("v", layer)

        def change(chunk: Chunk) -> Tensor:
            own = pattern[:, :, chunk.skip :]
            if chunk.place is None:
                values = torch.where(chunk.mask[..., None, None], more[:, None], 0.0)  # [batch, group, key, ...]
                return (own[:, None] @ values.transpose(2, 3)).transpose(2, 3)
            weight = own[..., chunk.place].permute(0, 3, 2, 1)  # [batch, group, row, head]
            return _with_own(weight[..., None] * more[:, chunk.place, None], chunk)

        return change

    # ---- after it

    def _emit_chunk(self, layer: int, parts: slice, chunk: Chunk, stream: Tensor) -> None:
        """Run on from streams [part * group * batch, row, d_model] after the layer."""
        last = self.frame.is_last(layer)
        logits = self.frame.logits(stream) if last else self._onwards(layer + 1, stream, chunk.start)
        logits = logits.unflatten(0, (parts.stop - parts.start, -1, self.run.batch))
        if chunk.rides:
            self.run.keep(layer, logits=logits[0, -1])
            logits = logits[:, :-1]
        self.emit(parts, chunk.which, logits)

    def _onwards(self, layer: int, x: Tensor, start: int) -> Float[Tensor, "some read d_vocab"]:
        """Logits of streams of their own at positions from ``start`` on; earlier keys and values are the run's."""
        frame, run, times = self.frame, self.run, len(x) // self.run.batch
        window = repeated(run.window, times)
        for here in range(layer, frame.n_layers):
            before, rows = None, None
            if start:
                before = (
                    run.get("rot_k", here)[:, :start].repeat(times, 1, 1, 1),
                    run.get("v", here)[:, :start].repeat(times, 1, 1, 1),
                )
            if frame.is_last(here):
                rows = slice(frame.first - start, frame.last + 1 - start)
            x = block(self.f, here, x, rows, start, before, window)
        return frame.logits(x)


def _with_own(change: Float[Tensor, "batch group row head d_head"], chunk: Chunk) -> Tensor:
    """The changes of a chunk's groups and, if the run is one of the variants, its own: none."""
    return F.pad(change, (0, 0, 0, 0, 0, 0, 0, 1)) if chunk.rides else change


def _divided(parts: slice, by: int) -> tuple[Tensor, Tensor]:
    number = torch.arange(parts.start, parts.stop)
    return number // by, number % by
