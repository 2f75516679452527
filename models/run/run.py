"""One run of a batch as a lazy table, (site, layer) -> activation, and the same run with some activations replaced.

Streams before a layer, keys and values hold all positions up to the last that is read; everything else holds only the
rows that anything later needs: all, but in the last layer those that are read. Sites are named as hooks are, without
"hook_": resid_pre, q, k, v, rot_q, rot_k, attn_scores, pattern, z, attn_out, resid_mid, pre, pre_linear and post (the
neurons), mlp_out, resid_post; of the whole model embed, pos_embed and logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.lens.lens_contract import LensContract
from models.run.blocks import block, seen_block
from models.run.formulas import At, Formulas
from models.run.score_bias import Window
from models.transformer.parts.shapes import Stream, Tokens
from models.transformer.parts.weights import Weights

#: A hook's name, and what becomes of its activation: ``change(activation)``.
Change = tuple[str, Callable[[Tensor], Tensor]]
#: What holds all positions in the last layer too.
_AT_ALL_POSITIONS = ("embed", "pos_embed", "resid_pre", "k", "v", "rot_k")
#: Where a layer is taken up again in its middle.
_LATE = {"attn.hook_z", "hook_attn_out", "mlp.hook_post", "hook_mlp_out"}
#: Numbers in the widest activation of examples that run on together. Twice as many take twice as long each, as they
#: leave the processor's cache and get new memory at every step.
AT_ONCE = 2**19


class Frame:
    """A model's formulas with the positions that are read; positions after the last of them change nothing and are left
    out, unless ``n_pos`` says otherwise. ``first`` and ``last`` bound the rows of the last layer, inclusive."""

    def __init__(
        self, model: LensContract, read: Sequence[int], n_pos: int | None = None, weights: Weights | None = None
    ):
        self.f, self.cfg, self.read = Formulas(model, weights), model.config, sorted({*read})
        self.first, self.last = self.read[0], self.read[-1]
        self.n_pos = self.last + 1 if n_pos is None else n_pos
        self.n_layers = self.cfg.n_layers
        places = [p - self.first for p in self.read]  # within the last layer's rows
        self.read_rows = slice(0, len(places)) if places == list(range(len(places))) else places

    @property
    def width(self) -> int:
        """Numbers in the widest activation of one row, attention's pattern aside."""
        return max(self.cfg.d_model, self.cfg.d_mlp)

    def is_last(self, layer: int) -> bool:
        return layer == self.n_layers - 1

    def rows(self, layer: int, start: int = 0) -> slice:
        """Rows of a layer's output that anything later needs, from ``start`` on."""
        if not self.is_last(layer):
            return slice(start, self.n_pos)
        return slice(max(self.first, start), self.last + 1)

    def at_rows(self, x: Float[Tensor, "*batch pos width"], layer: int) -> Float[Tensor, "*batch row width"]:
        """A stream at the rows of a layer's output."""
        rows = self.rows(layer)
        return x if rows.stop - rows.start == x.shape[-2] else x[..., rows, :]

    def logits(self, x: Float[Tensor, "*batch row d_model"]) -> Float[Tensor, "*batch read d_vocab"]:
        """Logits at the positions that are read, of a stream at the last layer's rows."""
        return self.f.logits(x[..., self.read_rows, :])


class Run:
    """Activations of one batch of tokens, each computed when it is first asked for."""

    def __init__(self, frame: Frame, tokens: Tokens, ids: Int[Tensor, "#batch pos level"] | None = None):
        self.frame, self.f, self.tokens, self.ids, self.batch = frame, frame.f, tokens, ids, len(tokens)
        self._kept: dict[tuple[str, int], Tensor] = {}

    @cached_property
    def window(self) -> Window | None:
        return self.f.model.window_bias(self.tokens, self.ids) if self.f.cfg.attn_window is not None else None

    def get(self, site: str, layer: int = 0) -> Tensor:
        """The activation with its hook's shape, at the rows that are needed (see the module)."""
        found = self._kept.get((site, layer))
        if found is None:
            getattr(self, f"_{site}")(layer)
            found = self._kept[site, layer]
        return found

    def knows(self, site: str, layer: int) -> bool:
        """Whether it has been computed."""
        return (site, layer) in self._kept

    def keep(self, layer: int, **found: Tensor) -> None:
        """Take activations that were computed elsewhere, together with those of variants."""
        for site, x in found.items():
            self._kept[site, layer] = x

    # ---- each of these keeps one site's activation, or several that are computed together

    def _embed(self, layer: int) -> None:
        self.keep(0, embed=self.f.weights["embed.W_E"][self.tokens[:, : self.frame.n_pos]])

    def _pos_embed(self, layer: int) -> None:
        self.keep(0, pos_embed=self.f.model.pos_embed(self.tokens, self.ids, self.f.weights)[:, : self.frame.n_pos])

    def _resid_pre(self, layer: int) -> None:
        x = self.get("resid_post", layer - 1) if layer else self.f.embed(self.tokens, self.ids)[:, : self.frame.n_pos]
        self.keep(layer, resid_pre=x)

    def _v(self, layer: int) -> None:
        f, rows, x = self.f, self.frame.rows(layer), self.f.attn_in(layer, self.get("resid_pre", layer))
        q, k, v = f.unturned(layer, x, rows)
        self.keep(layer, q=q, k=k, v=v, rot_q=f.turned(layer, "Q", q, rows.start), rot_k=f.turned(layer, "K", k, 0))

    _q = _k = _rot_q = _rot_k = _v

    def added(self, layer: int, rows: slice | None = None) -> Tensor | None:
        """What is added to the scores of queries at ``rows`` (default: the layer's) on all keys."""
        rows = self.frame.rows(layer) if rows is None else rows
        return self.f.added(layer, rows, self.frame.n_pos, self.window, self.get("resid_pre"))

    def _z(self, layer: int) -> None:
        q, k, v = (self.get(name, layer) for name in ("rot_q", "rot_k", "v"))
        self.keep(layer, z=self.f.attend(q, k, v, self.added(layer)))

    def _pattern(self, layer: int) -> None:
        found = {}

        def see(name: str, layer: int, x: Tensor) -> Tensor:
            return found.setdefault(name.removeprefix("attn.hook_"), x)

        q, k, v = (self.get(name, layer) for name in ("rot_q", "rot_k", "v"))
        z = self.f.attend(q, k, v, self.added(layer), see, layer)
        self.keep(layer, **found)
        if not self.knows("z", layer):
            self.keep(layer, z=z)

    _attn_scores = _pattern

    def _attn_out(self, layer: int) -> None:
        self.keep(layer, attn_out=self.f.attn_out(layer, self.get("z", layer)))

    def before(self, layer: int) -> Stream:
        """The stream before the layer, at the rows of its output."""
        return self.frame.at_rows(self.get("resid_pre", layer), layer)

    def _resid_mid(self, layer: int) -> None:
        self.keep(layer, resid_mid=self.f.add_attention(layer, self.before(layer), self.get("attn_out", layer)))

    def _post(self, layer: int) -> None:
        x = self.f.mlp_in(layer, self.before(layer), self.get("resid_mid", layer))
        self.keep(layer, post=self.f.neurons(layer, x))

    def _pre(self, layer: int) -> None:
        found = {}

        def see(name: str, layer: int, x: Tensor) -> Tensor:
            return found.setdefault(name.removeprefix("mlp.hook_"), x)

        self.f.neurons(layer, self.f.mlp_in(layer, self.before(layer), self.get("resid_mid", layer)), see)
        self.keep(layer, **found)

    _pre_linear = _pre

    def _mlp_out(self, layer: int) -> None:
        self.keep(layer, mlp_out=self.f.written(layer, self.get("post", layer)))

    def _resid_post(self, layer: int) -> None:
        out = self.get("mlp_out", layer) if self.f.cfg.d_mlp else None
        self.keep(layer, resid_post=self.f.add_mlp(layer, self.before(layer), self.get("resid_mid", layer), out))

    def _logits(self, layer: int) -> None:
        self.keep(layer, logits=self.frame.logits(self.get("resid_post", layer)))

    def logits(self) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at the positions that are read."""
        return self.get("logits", self.frame.n_layers - 1)

    def of(self, frame: Frame, examples: slice) -> Run:
        """The run of some of the examples, in which ``frame`` reads no more than this one's does and as many positions
        matter; what is known is not computed again."""
        assert frame.n_pos == self.frame.n_pos and frame.first >= self.frame.first
        run = Run(frame, self.tokens[examples], self.ids)
        rows = frame.rows(frame.n_layers - 1)
        rows = slice(rows.start - self.frame.first, rows.stop - self.frame.first)
        for (site, layer), x in self._kept.items():
            if not frame.is_last(layer) or site in _AT_ALL_POSITIONS:
                run._kept[site, layer] = x[examples]
            elif site != "logits":
                run._kept[site, layer] = (
                    x[examples, :, rows] if site in ("pattern", "attn_scores") else x[examples, rows]
                )
        return run

    # ---- any replacements at any hooks, which act together

    def replaced(
        self, changes: Sequence[Change], see: At | None = None, frame: Frame | None = None
    ) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at the positions read with these changes, all in one run, from the first layer that has one.

        Args:
            changes: hooks of blocks (not of their norms), whose activations are changed at the layer's rows.
            see: sees, and may change, every activation from that layer on, after the changes.
            frame: what is read, if that is less than the run's own frame says.
        """
        frame, by_hook = frame or self.frame, dict[tuple[int, str], list[Callable[[Tensor], Tensor]]]()
        for hook, change in changes:
            layer, name = hook.split(".", 2)[1:]
            by_hook.setdefault((int(layer), name), []).append(change)

        def at(name: str, layer: int, x: Tensor) -> Tensor:
            for change in by_hook.get((layer, name), ()):
                x = change(x)
            return x if see is None else see(name, layer, x)

        layers = {layer for layer, _ in by_hook}
        start, last = min(layers, default=0), max(layers, default=-1)
        if layers == {start} and see is None and {name for _, name in by_hook} <= _LATE:
            x, start = self._resumed(start, {name for _, name in by_hook}, at, frame), start + 1
        else:
            x = self.get("resid_pre", start)
            for layer in range(start, last + 1 if see is None else frame.n_layers):
                x, start = frame.at_rows(seen_block(self.f, layer, x, self.window, at), layer), layer + 1
        step = max(1, AT_ONCE // (frame.n_pos * max(frame.width, self.f.cfg.n_heads * frame.n_pos)))
        found = []
        for a in range(0, self.batch, step):
            some, window = x[a : a + step], self.window
            if window is not None and len(window.ids) > 1:
                window = type(window)(window.ids[a : a + step], window.offsets)
            for layer in range(start, frame.n_layers):
                some = block(self.f, layer, some, frame.rows(layer), window=window)
            found.append(frame.logits(some))
        return found[0] if len(found) == 1 else torch.cat(found)

    def _resumed(self, layer: int, sites: set[str], at: At, frame: Frame) -> Stream:
        """The stream after a layer of which heads or neurons, or what a sublayer writes, are changed: what comes before
        is the run's. In the last layer only the rows of ``frame`` go on, but a change sees all that there are."""
        f, pre, of_mlp = self.f, self.before(layer), bool(sites & {"mlp.hook_post", "hook_mlp_out"})
        cut = (lambda x: x[:, frame.first - self.frame.first :]) if frame.is_last(layer) else lambda x: x
        out = None
        if "attn.hook_z" in sites:
            out = f.attn_out(layer, at("attn.hook_z", layer, self.get("z", layer)))
        elif "hook_attn_out" in sites:
            out = self.get("attn_out", layer)
        if out is None:
            mid, neurons = self.get("resid_mid", layer), self.get("post", layer)
        else:
            mid = f.add_attention(layer, pre, at("hook_attn_out", layer, out))
            if not of_mlp:
                return f.through_mlp(layer, cut(pre), cut(mid))
            neurons = f.neurons(layer, f.mlp_in(layer, pre, mid))
        if "mlp.hook_post" in sites or out is not None:
            written = f.written(layer, at("mlp.hook_post", layer, neurons))
        else:
            written = self.get("mlp_out", layer)
        return f.add_mlp(layer, cut(pre), cut(mid), cut(at("hook_mlp_out", layer, written)))


class JoinedRun(Run):
    """Runs of some examples each as one of all: for changes that are to see all of them at once."""

    def __init__(self, runs: Sequence[Run]):
        super().__init__(runs[0].frame, torch.cat([run.tokens for run in runs]))
        self.runs = runs

    def get(self, site: str, layer: int = 0) -> Tensor:
        if not self.knows(site, layer):
            self._kept[site, layer] = torch.cat([run.get(site, layer) for run in self.runs])
        return self._kept[site, layer]


def layer_of(hook: str) -> int:
    """The layer of a hook in a block."""
    return int(hook.split(".", 2)[1])
