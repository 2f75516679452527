"""Edges of a run as variants: what one receiver reads differs, and nothing else.

Every part of a model without norms after its sums reads the sum of all that was written before it. If what *one*
receiver reads changes, a patch of what it computes from that (queries, keys or values of one head, what an MLP writes,
the last stream) is all that follows, which is a variant like any other.

Stages are counted as they read: layer l's attention is stage 2 l, its MLP 2 l + 1, the logits 2 n_layers. *Senders*
write in this order: the embeddings, then in each layer its heads and its MLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from models.run.groups import everywhere
from models.run.run import Run
from models.run.variants import Alternatives, Variants

#: ``emit(letter, head, alternatives, logits)``: the receiver, such as ("q", 1) or, of an MLP and of the logits,
#: ("", 0), and the logits [alternative, batch, read, d_vocab] of some alternatives.
EmitPath = Callable[[str, int, slice, Tensor], None]


def receive(run: Run, stage: int, change: Alternatives, emit: EmitPath) -> None:
    """Emit logits of runs in which each receiver of a stage by itself reads ``change`` more than it does.

    Cost: the receivers' own formulas once for each alternative, and what follows once for each and each receiver.

    Args:
        change: [alternative, batch, row, d_model], at the rows that the stage reads: all positions for attention, else
            those of the layer's output.
    """
    f, frame, layer = run.f, run.frame, stage // 2
    variants = Variants(run, everywhere(frame.n_pos), lambda *emitted: None)
    step = max(1, variants.numbers // (run.batch * frame.n_pos * frame.width))
    for some in (slice(a, min(a + step, len(change))) for a in range(0, len(change), step)):

        def take(parts: slice, _: list[int], logits: Tensor, at: int = some.start) -> None:
            emit("", 0, slice(at + parts.start, at + parts.stop), logits[:, 0])

        if stage % 2:
            pre, mid = run.before(layer), run.get("resid_mid", layer)
            moved = (pre + change[some], mid) if f.cfg.parallel_attn_mlp else (pre, mid + change[some])
            variants.emit = take
            written = f.written(layer, f.neurons(layer, f.mlp_in(layer, *moved)))
            variants.alternatives("mlp_out", layer, written)
        elif layer == frame.n_layers:
            variants.emit = take
            variants.alternatives("resid_post", layer - 1, run.get("resid_post", layer - 1) + change[some])
        else:
            _receive_in_attention(variants, layer, change[some], some.start, emit)


def _receive_in_attention(variants: Variants, layer: int, change: Tensor, first: int, emit: EmitPath) -> None:
    run, f, n = variants.run, variants.f, len(change)
    names = ("rot_q", "rot_k", "v")
    own = [run.get(name, layer).repeat(n, 1, 1, 1) for name in names]
    x = f.attn_in(layer, (run.get("resid_pre", layer) + change).flatten(0, 1))
    new = f.qkv(layer, x, 0, run.frame.rows(layer))
    for i, letter in enumerate("qkv"):
        q, k, v = (new[j] if i == j else own[j] for j in range(3))
        z = f.attend(q, k, v, _added(run, layer, n))
        z = z.unflatten(0, (n, run.batch)) - run.get("z", layer)

        def take(parts: slice, _: list[int], logits: Tensor, letter: str = letter) -> None:
            for head in range(parts.start // n, -(-parts.stop // n)):
                a, b = max(parts.start, head * n), min(parts.stop, (head + 1) * n)
                at = slice(first + a - head * n, first + b - head * n)
                emit(letter, head, at, logits[a - parts.start : b - parts.start, 0])

        variants.emit = take
        written = torch.einsum("sbphe,hed->hsbpd", z, f.w_o(layer)) + run.get("attn_out", layer)
        variants.alternatives("attn_out", layer, written.flatten(0, 1))


def _added(run: Run, layer: int, times: int) -> Tensor | None:
    """What is added to the scores of a batch that is repeated, whose examples may have a window of their own."""
    added = run.added(layer)
    return added if added is None or added.ndim < 4 or len(added) == 1 else added.repeat(times, 1, 1, 1)


def patched_senders(run: Run, change: Float[Tensor, "sender batch pos d_model"]) -> Iterator[tuple[int, Alternatives]]:
    """(stage, how much more it reads where one sender after the other writes ``change`` more than it does), stage by
    stage: an alternative for each sender that writes before it, as :func:`receive` takes them.

    Cost: one run for each sender, from where it writes.
    """
    f, frame, cfg = run.f, run.frame, run.f.cfg
    n_embeddings = 2 if f.kind in ("standard", "coupled") else 1
    streams, done = run.get("resid_pre") + change[:n_embeddings], n_embeddings
    for layer in range(frame.n_layers):
        pre, rows = run.get("resid_pre", layer), frame.rows(layer)
        yield 2 * layer, streams - pre
        n, cut = len(streams), frame.at_rows(streams, layer)
        q, k, v = f.qkv(layer, f.attn_in(layer, streams.flatten(0, 1)), 0, rows)
        attn_out = f.attn_out(layer, f.attend(q, k, v, _added(run, layer, n))).unflatten(0, (n, run.batch))
        of_heads = frame.at_rows(change[done : done + cfg.n_heads], layer)
        done += cfg.n_heads
        mid = torch.cat((f.add_attention(layer, cut, attn_out), run.get("resid_mid", layer) + of_heads))
        before = torch.cat((cut, run.before(layer).expand(of_heads.shape)))
        if cfg.d_mlp:
            reads = cut - run.before(layer) if cfg.parallel_attn_mlp else mid - run.get("resid_mid", layer)
            yield 2 * layer + 1, reads
        streams = f.through_mlp(layer, before, mid)
        if cfg.d_mlp:
            own = run.get("resid_post", layer) + frame.at_rows(change[done : done + 1], layer)
            streams, done = torch.cat((streams, own)), done + 1
    yield 2 * frame.n_layers, streams - run.get("resid_post", frame.n_layers - 1)
