"""One run of a batch as a lazy table, (site, layer) -> activation, and the same run with some activations replaced.

Streams before a layer, keys and values hold all positions up to the last that is read; everything else holds only the
rows that anything later needs: all, but in the last layer those that are read. Sites are named as hooks are, without
"hook_": resid_pre, q, k, v, rot_q, rot_k, attn_scores, pattern, z, attn_out, resid_mid, post (the neurons), mlp_out,
resid_post; of the whole model embed, pos_embed and logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

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
_IN_BLOCK = ("attn.", "mlp.", "")


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
        if rows.stop - rows.start < self.frame.n_pos:
            (q,), (k, v) = f.project(layer, "Q", x[:, rows]), f.project(layer, "KV", x)
        else:
            q, k, v = f.project(layer, "QKV", x)
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

    def pre(self, layer: int) -> Stream:
        """The stream before the layer, at the rows of its output."""
        return self.frame.at_rows(self.get("resid_pre", layer), layer)

    def _resid_mid(self, layer: int) -> None:
        self.keep(layer, resid_mid=self.f.add_attention(layer, self.pre(layer), self.get("attn_out", layer)))

    def _post(self, layer: int) -> None:
        x = self.f.mlp_in(layer, self.pre(layer), self.get("resid_mid", layer))
        self.keep(layer, post=self.f.neurons(layer, x))

    def _mlp_out(self, layer: int) -> None:
        self.keep(layer, mlp_out=self.f.written(layer, self.get("post", layer)))

    def _resid_post(self, layer: int) -> None:
        out = self.get("mlp_out", layer) if self.f.cfg.d_mlp else None
        self.keep(layer, resid_post=self.f.add_mlp(layer, self.pre(layer), self.get("resid_mid", layer), out))

    def _logits(self, layer: int) -> None:
        self.keep(layer, logits=self.frame.logits(self.get("resid_post", layer)))

    def logits(self) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at the positions that are read."""
        return self.get("logits", self.frame.n_layers - 1)

    # ---- any replacements at any hooks, which act together

    def replaced(self, changes: Sequence[Change], see: At | None = None) -> Float[Tensor, "batch read d_vocab"]:
        """Logits at the positions read with these changes, all in one run, from the first layer that has one.

        Args:
            changes: hooks of blocks (not of their norms), whose activations are changed at all positions.
            see: sees, and may change, every activation from that layer on, after the changes.
        """
        f, frame, by_hook = self.f, self.frame, dict[str, list[Callable[[Tensor], Tensor]]]()
        for hook, change in changes:
            by_hook.setdefault(hook, []).append(change)

        def at(name: str, layer: int, x: Tensor) -> Tensor:
            for change in by_hook.get(f"blocks.{layer}.{name}", ()):
                x = change(x)
            return x if see is None else see(name, layer, x)

        layers = [layer_of(hook) for hook, _ in changes]
        start, last = min(layers, default=0), max(layers, default=-1)
        x = self.get("resid_pre", start)
        for layer in range(start, frame.n_layers):
            if layer <= last or see is not None:
                x = frame.at_rows(seen_block(f, layer, x, self.window, at), layer)
            else:
                x = block(f, layer, x, frame.rows(layer), window=self.window)
        return frame.logits(x)


def layer_of(hook: str) -> int:
    """The layer of a hook in a block."""
    return int(hook.split(".", 2)[1])
