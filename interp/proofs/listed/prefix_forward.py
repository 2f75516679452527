"""Forward passes of causal models in balls, over the nodes of :mod:`interp.proofs.listed.prefix_tree`.

A forward pass of :mod:`interp.proofs.numbers.rounded_operations` runs over the nodes of some problems at a time, and
attention at a node reads the nodes of its own prefix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.listed.prefix_tree import Tree
from interp.proofs.listed.top_key_choices import cases
from interp.proofs.numbers.enclosed_forward import EnclosedForward, MLPRoute, turned
from interp.proofs.numbers.enclosure import Attended, Chosen, Enclosure, Normed
from interp.proofs.numbers.rounding_errors import LARGEST, OWN, OWN_OF_RADII, scale_roundings
from models.transformer import in_block


@dataclass(frozen=True, eq=False)
class Stream:
    """The last residual stream, and the last MLP where leads are followed through it."""

    whole: Enclosure
    mlp: MLPRoute | None = None

    def __getitem__(self, rows: Tensor) -> Stream:
        return Stream(self.whole[rows], None if self.mlp is None else self.mlp[rows])


class PrefixForward(EnclosedForward):
    """The forward pass over the nodes of a tree of prefixes, and bounds of leads at its end."""

    def final(self, tree: Tree, queries: tuple[int, ...]) -> tuple[Stream, Tree]:
        """What the last norm (or without one the unembedding) reads at the nodes of the queries, and the tree.

        A tree whose rows are apart is split into cases where the choice of attended keys is open.
        """
        x, n = self.embedded(tree.tokens, tree.ids, tree.position), self.config.n_layers
        for layer in range(n - 1):
            stream, tree = self._block(in_block(layer), x, tree, None)
            x = stream.whole
        return self._block(in_block(n - 1), x, tree, queries)

    def _block(self, name: str, x: Enclosure, tree: Tree, queries: tuple[int, ...] | None) -> tuple[Stream, Tree]:
        """The residual stream after a block, at the nodes of the queries' positions or at all nodes; and the tree."""
        cfg, add = self.config, self.rounding.add
        z, tree, nodes = self._attention(f"{name}.attn", self._before(x, f"{name}.ln1"), tree, queries)
        x = add(x[nodes], self.linear(z, f"{name}.attn.W_O", f"{name}.attn.b_O"))
        if cfg.has_post_norm:
            x = self._normed(x, f"{name}.ln1_post").whole
        if not cfg.d_mlp:
            return Stream(x), tree
        out, mlp = self.mlp(name, x)
        x = add(x, out)
        if cfg.has_post_norm:
            return Stream(self._normed(x, f"{name}.ln2_post").whole), tree
        return Stream(x, mlp if cfg.act_fn == "relu" and not cfg.gated_mlp else None), tree

    def _attention(
        self, name: str, x: Normed, tree: Tree, queries: tuple[int, ...] | None
    ) -> tuple[Enclosure, Tree, Int[Tensor, " node"]]:
        """z [node, head x d_head] at the queries or at all nodes, the tree as it is now, and the nodes' old numbers."""
        cfg, rounding = self.config, self.rounding
        q, k, v = self._queries_keys_values(name, x)
        if cfg.positional_embedding_type == "rotary":
            q, k = turned(rounding, cfg, (q, k), tree.position)
        q, k, v = (y.heads_first() for y in (q, k, v))
        keys, values, written = rounding.keys(k), rounding.values(v, len(tree.above)), []
        above = {p: prefixes for p, prefixes in enumerate(tree.above) if queries is None or p in queries}
        scores = {p: self._scores(q, keys, prefixes) for p, prefixes in above.items()}
        chosen = {p: Chosen.of(here, cfg.attn_top_k) for p, here in scores.items()}
        if tree.apart and cfg.attn_top_k is not None:
            rows, chosen = cases(scores, chosen, cfg.attn_top_k, tree.problem)
            above = {p: prefixes[rows] for p, prefixes in above.items()}
            scores = {p: here.heads_first()[rows].heads_first() for p, here in scores.items()}
            tree = tree.split(rows)
        for p, prefixes in above.items():
            written.append(rounding.mixed(rounding.softmax(scores[p], chosen[p]), values.at(prefixes)))
        mid, rad, norm = (torch.cat([getattr(z, name) for z in written], 1) for name in ("mid", "rad", "norm"))
        z = self.side_by_side(Enclosure(mid, rad, norm))
        nodes = torch.cat([prefixes[:, -1] for prefixes in above.values()])
        return z, tree, nodes

    def _scores(self, q: Enclosure, keys: Attended, above: Int[Tensor, "query key"]) -> Enclosure:
        """Scaled scores [head, query, key] for the nodes at one position."""
        found = self.rounding.scores(q[:, above[:, -1]], keys.at(above), self.config.attn_scores)
        return self.rounding.scaled(found, self.config.score_scale)

    def _through_last_mlp(self, stream: Stream, vectors: Float[Tensor, "d other"]) -> Float[Tensor, "n other"] | float:
        """How far products of the last residual stream with some vectors may be off, after an MLP of ReLUs.

        Lemma: a unit's output moves by a slope times what its input moves by. The slope is 1 where the input is surely
        positive, 0 where it is surely negative, and otherwise in [0, 1], within 1/2 of 1/2. So the error of what the
        MLP reads goes through one vector for each product, and not through the worst one of each matrix.
        """
        block, mlp = in_block(self.config.n_layers - 1), stream.mlp
        if mlp is None:
            return math.inf
        name, grown = f"{block}.mlp", self.rounding.growth
        before, read, pre = mlp.x, mlp.read, mlp.pre
        w_in, w_out = self.matrices[f"{name}.W_in"], self.matrices[f"{name}.W_out"]
        whole, units, d = read.whole, pre.mid.shape[-1], len(vectors)
        slope = torch.where(pre.low > 0, 1.0, torch.where(pre.high < 0, 0.0, 0.5)).double()
        unsure = torch.where(slope == 0.5, 0.5 * pre.rad, 0.0)
        back = torch.zeros(units, vectors.shape[1], dtype=torch.float64)
        back[w_out.used] = w_out.values @ vectors
        through = (slope[:, None] * back.T) @ w_in.values.T  # [n, other, d]
        ball, used, length = read.ball, w_in.used, vectors.norm(dim=0)
        # The error of what the MLP reads, through the slopes: by entries, or by its length.
        off = (through.abs() @ ball.rad[:, used, None])[..., 0]
        off = torch.minimum(off, through.norm(dim=-1) * ball.norm[:, None])
        # What the norm before the MLP shares among its entries, along known vectors.
        for vector, reach in read.along:
            off = off + (through @ vector[:, used, None])[..., 0].abs() * reach
        b_in, b_out = (self.weights.get(f"{name}.{bias}", torch.zeros(())).abs() for bias in ("b_in", "b_out"))
        own = grown(d + 3) * (whole.size[:, used] @ w_in.sizes + b_in)
        # Units whose slope is not known, and what the first product rounds itself.
        off = off + (unsure + (own + (d + 3) * self.rounding.tiny) * slope) @ back.abs()
        # The error of the stream that the MLP's output is added to.
        off = off + torch.minimum(before.rad @ vectors.abs(), before.norm[:, None] * length)
        # What the second product and the two sums round.
        size = torch.zeros(units, d, dtype=torch.float64)
        size[w_out.used] = w_out.sizes
        sums = pre.high.clamp_min(0.0) @ size + b_out  # bounds the MLP's products and the bias
        largest = sums + before.size
        off = off + (grown(units + 4) * sums + grown(4) * largest + (units + 4) * self.rounding.tiny) @ vectors.abs()
        # The float64 rounding of products of known numbers, which may cancel.
        known = (whole.norm[:, None] * w_in.columns) @ back.abs() + (pre.rad @ size.norm(dim=1))[:, None] * length
        return off * (1 + OWN_OF_RADII) + OWN * known

    def margins(self, stream: Stream, tokens: Int[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Bounds of the lead of ``tokens`` over the best other token, from what :meth:`final` returns.

        Lemma: a lead is ``N / s + constant``. N is linear in what the norm reads after centring, so that the error of
        this goes through one vector for each pair of tokens; s is the norm's scale, which lies between its ends, or 1
        without a norm. The roundings are those of :meth:`Rounding.norm`, relative to each number of the normed vector
        (at most sqrt d before the gain), and those of a sum of d products and a bias.
        """
        cfg, w, grown, x = self.config, self.matrices["unembed.W_U"], self.rounding.growth, stream.whole
        d, roundings, shift = x.mid.shape[-1], x.mid.shape[-1] + 2.0, self.weights.get("ln_final.b")
        centred, shared = cfg.has_final_norm and cfg.normalization_type == "LN", torch.zeros_like(x.mid[:, :1])
        if cfg.has_final_norm:
            gain, roundings = self.weights["ln_final.w"], roundings + scale_roundings(d) + 4
            if centred:
                x, shared = self.rounding.centred(x)
                x = x.with_errors([shared.expand_as(x.mid)])
            least, _, most, lost = self.rounding.scales(x.mid, x.norm, cfg.eps, cfg.norm_eps_outside)
            size = torch.minimum(x.size / least, x.size.new_tensor(math.sqrt(d) * (1 + OWN_OF_RADII))) * gain.abs()
        else:
            gain, size = torch.ones_like(x.mid[0]), x.size
            least, most, lost = (torch.full_like(x.mid[:, :1], value) for value in (1.0, 1.0, 0.0))
        columns, sizes = torch.zeros(2, d, w.values.shape[1], dtype=torch.float64)
        columns[w.used], sizes[w.used] = w.values, w.sizes
        bias = self.weights.get("unembed.b_U", torch.zeros_like(w.columns))
        reached = size if shift is None else size + shift.abs()
        # What the norm, the product with the unembedding and the bias round, and what underflows there.
        own = (grown(roundings) * 1.001 * (1 + lost) + lost) * (reached @ sizes + bias.abs())
        own = own + (4 * (1 + gain.abs()) @ sizes + d + 4) * self.rounding.tiny
        known = (torch.maximum(x.size, reached).amax(-1, keepdim=True) < LARGEST) & (least > 0)
        known = known & (reached @ sizes + bias.abs() < LARGEST)  # logits, and their partial sums
        own = torch.where(known, own, torch.inf)
        constant = bias if shift is None else bias + shift @ columns
        low = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
        high = torch.full_like(low, torch.inf)
        for token in tokens.unique().tolist():
            rows = (tokens == token).nonzero()[:, 0]
            others = [other for other in range(w.values.shape[1]) if other != token]
            away = gain[:, None] * (columns[:, [token]] - columns[:, others])
            both = gain.abs()[:, None] * (sizes[:, [token]] + sizes[:, others])
            lead, here = x.mid[rows] @ away, x[rows]
            # The error of what the norm reads: along the pair's vector, by entries or by its length,
            off = torch.minimum(here.rad @ away.abs(), here.norm[:, None] * away.norm(dim=0)) * (1 + OWN)
            # or followed back through the last MLP, with the roundings of centring,
            direct = self._through_last_mlp(stream[rows], away - away.mean(0) if centred else away)
            if centred:
                direct = direct + grown(2) * (here.size @ away.abs()) + shared[rows] * away.sum(0).abs()
            off = torch.minimum(off, torch.as_tensor(direct, dtype=torch.float64).nan_to_num(nan=math.inf))
            # and the float64 rounding of the lead itself.
            off = off + 8 * (d + 4) * 2.0**-53 * (here.size @ both)
            below, above = lead - off, lead + off
            # Where the least scale is 0, ``own`` is infinite, and a quotient by it is infinite or NaN: no bound.
            below = torch.where(below > 0, below / most[rows], below / least[rows])
            above = torch.where(above > 0, above / least[rows], above / most[rows])
            fixed = constant[token] - constant[others]
            # After the scale: the float32 roundings of both logits, and the float64 rounding of the rest.
            off = own[rows][:, [token]] + own[rows][:, others]
            off = off + 8 * (d + 4) * 2.0**-53 * (
                below.abs() + above.abs() + reached[rows] @ (sizes[:, [token]] + sizes[:, others])
            )
            low[rows], high[rows] = (below + fixed - off).amin(1), (above + fixed + off).amin(1)
        return low.nan_to_num(nan=-torch.inf), high.nan_to_num(nan=torch.inf)
