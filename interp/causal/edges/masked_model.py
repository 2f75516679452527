"""Runs of a model with some of its edges cut: each edge carries this run's value or a replacement.

    input_r = sum over senders s of (mask[s, r] ? value_s in this very run : replacement_s) + b_O's of earlier layers

An edge that is cut alone is a variant of one run (:mod:`interp.causal.edges.path_patching`). This stays beside the one
run for arbitrary masks, where every receiver reads a sum of its own, so that nothing is shared before it; and for their
gradients, which methods of attribution change by hooks on the model's own parts.

Kept values are those of the masked run itself, so a cut edge's effect propagates through everything after it. With all
edges kept this is the model; with all cut it is the run that the replacements come from. Many masks are run at once, in
chunks that fit a core's cache, from the first stage at which a mask cuts anything, and in the last layer only at the
positions whose logits are read.

In shapes, ``seen`` stands for the positions up to the last one read, and ``read`` for those whose logits are read.

The replacements (:meth:`MaskedModel.replacement`) for every sender, example and position are:

    corrupted   what the sender wrote in the run of another problem
    resample    the same, where the other problem is another example of the same sample (a seeded derangement)
    mean        its mean over the examples, at each position
    zero        zero
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.edges.edge_graph import EdgeGraph
from interp.causal.edges.sender_values import Writes, batches, written
from interp.core.batches import derangement
from interp.core.model_checks import require_evaluation_mode, require_sums
from models.errors import UserError, known_name
from models.importers import from_transformer_lens
from models.run import KNOWN, Frame, Run
from models.tasks import Task
from models.transformer import ArithmeticTransformer, Block, HookedModel, in_block, require_unaltered
from models.transformer.config import uncovered

REPLACEMENTS = ("corrupted", "resample", "mean", "zero")
#: Numbers that the values and inputs of one chunk of variants may hold.
NUMBERS_AT_ONCE = 2**20


@dataclass
class Inputs:
    """What the receivers read at one stage: ``[variant, receiver, batch, seen, d_model]``, one tensor each for q, k and
    v in attention, else one tensor. Queries, MLP and logits of the last layer hold only the positions read."""

    stage: int
    parts: list[Tensor]


class MaskedModel:
    """A model whose edges can be cut, for logits at the positions ``read``.

    Args:
        model: a model of this project, or a stock TransformerLens model (of which a checked copy is made).
        read: positions whose logits are wanted (negative ones count from the end); None means all.
        groups: split every edge by groups of positions; see :mod:`interp.causal.edges.edge_graph`.
        task: the task of a stock model.

    Weights are copied when this is built; later changes of the model's parameters have no effect.

    Raises:
        UserError: the model is in training mode, is altered (by hooks, for example), has norms after its sums, or
            cannot be expressed here.
    """

    def __init__(
        self,
        model: HookedModel,
        read: Sequence[int] | None = None,
        groups: Mapping[str, Sequence[int]] | None = None,
        task: Task | None = None,
    ):
        require_sums(model, "An edge graph")
        require_evaluation_mode(model)
        require_unaltered(model, "An edge graph")
        if not isinstance(model, ArithmeticTransformer) and task is None:
            raise UserError("A stock TransformerLens model needs its task: pass task=....")
        self.model = from_transformer_lens(model, model.task if task is None else task).eval()
        self.length = self.model.task.input_length
        places = range(self.length) if read is None else [p + self.length if p < 0 else p for p in read]
        if not all(0 <= p < self.length for p in places):
            raise UserError(f"Positions to read lie between 0 and {self.length - 1}; not {list(read or ())}.")
        self.graph = EdgeGraph.of(self.model.config, sorted(set(places)), groups)
        if switches := uncovered(self.model.config, KNOWN):
            raise UserError(f"An edge graph does not know {switches[0]}, which this model's config sets.")
        n, weights = self.graph.n_positions, self.model.effective_weights()
        self.weights = {key: value.detach() for key, value in weights.items()}
        self.frame = Frame(self.model, range(n), weights=self.weights)
        fire = self.model.config.positional_embedding_type == "fire"
        self._fire = self.model.fire(n, self.weights).detach() if fire else None
        self._read = torch.tensor(self.graph.read)
        self._group_of = torch.zeros(n, dtype=torch.long)
        for i, group in enumerate((self.graph.groups or {}).values()):
            self._group_of[list(group)] = i
        self._n_groups = len(self.graph.groups or {None: ()})

    # ---- values

    def embeddings(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "sender batch seen d_model"]:
        """What the embeddings write, at the graph's positions."""
        if tokens.ndim != 2 or tokens.shape[1] < self.graph.n_positions:
            raise UserError(f"These tokens have shape {list(tokens.shape)}; [batch, {self.length}] is needed.")
        tokens = self.model.as_tokens(tokens)
        parts = [self.model.embed(tokens, self.weights)]
        if self.graph.has_positions:
            parts.append(self.model.pos_embed(tokens, None, self.weights))
        return torch.stack(parts)[:, :, : self.graph.n_positions]

    def shape(self, n: int) -> tuple[int, int, int, int]:
        """The shape of what the senders write in ``n`` examples: [sender, n, seen, d_model]."""
        return len(self.graph.senders), n, self.graph.n_positions, self.model.config.d_model

    def batches(self, n: int) -> list[slice]:
        """Examples that are run at once: all that is written and read in one run of them is held."""
        senders, _, places, width = self.shape(n)
        return batches(n, (senders + len(self.graph.receivers)) * places * width)

    def values(self, tokens: Int[Tensor, "n pos"]) -> Writes:
        """What every sender writes in the model's own run [sender, n, seen, d_model]; by batches if that is much."""
        return written(lambda at: self._values(tokens[at]), self.shape(len(tokens)))

    @torch.no_grad()
    def _values(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "sender batch seen d_model"]:
        """The same of one batch."""
        run, parts = Run(self.frame, self.model.as_tokens(tokens)), [self.embeddings(tokens)]
        for layer in range(self.graph.n_layers):
            parts.append(torch.einsum("bphe,hed->hbpd", run.get("z", layer), self.frame.f.w_o(layer)))
            if self.graph.has_mlp:
                parts.append(run.get("mlp_out", layer)[None])
        return torch.cat(parts)

    def replacement(self, kind: str, tokens: Int[Tensor, "n pos"], seed: int = 0) -> Writes:
        """What cut edges carry [sender, n, seen, d_model]: "corrupted" from the run on ``tokens``, the other kinds from
        statistics of that run.

        Raises:
            UserError: an unknown kind, or "resample" with a single example.
        """
        known_name("replacement", kind, REPLACEMENTS)
        if kind == "corrupted":
            return self.values(tokens)
        if kind == "resample":
            return self.values(tokens[derangement(len(tokens), seed)])
        shape = self.shape(len(tokens))
        total = torch.zeros((shape[0], 1, *shape[2:]), dtype=torch.float64)
        if kind == "mean":
            values = self.values(tokens)
            for at in self.batches(len(tokens)):
                total += values[:, at].sum(1, keepdim=True, dtype=torch.float64).cpu()
        return (total / len(tokens)).to(self.weights["embed.W_E"]).expand(shape)

    # ---- runs

    @torch.no_grad()
    def run(
        self,
        tokens: Int[Tensor, "batch pos"],
        masks: Bool[Tensor, "variant edge"],
        replacement: Writes,
    ) -> Float[Tensor, "variant batch read d_vocab"]:
        """Logits at the positions read, for every mask. For large results use :meth:`chunks`."""
        if not len(tokens) or not len(masks):
            raise UserError(f"A run needs sequences and masks, not {len(tokens)} and {len(masks)}.")
        tokens = tokens.to(self.model.device)
        columns = []
        for at in self.batches(len(tokens)):
            found = list(self._run_variants(tokens, masks, replacement, at))
            order = torch.cat([which for which, _ in found]).argsort()
            columns.append(torch.cat([logits for _, logits in found])[order])
        return torch.cat(columns, 1)

    @torch.no_grad()
    def chunks(
        self,
        tokens: Int[Tensor, "batch pos"],
        masks: Bool[Tensor, "variant edge"],
        replacement: Writes,
    ) -> Iterator[tuple[Int[Tensor, " variant"], slice, Float[Tensor, "variant batch read d_vocab"]]]:
        """(which variants, which examples, their logits), chunk by chunk, which bounds the memory."""
        for at in self.batches(len(tokens)):
            for which, logits in self._run_variants(tokens.to(self.model.device), masks, replacement, at):
                yield which, at, logits

    def _run_variants(
        self, tokens: Tensor, masks: Tensor, replacement: Writes, at: slice
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of variants of some examples, ordered by the first stage at which they differ from the model's run.

        The stages are embed, attention 0, MLP 0, attention 1, MLP 1, ..., logits. A variant whose first cut edge enters
        stage s begins at s, with what the run without masks wrote before it:

            embed   attention 0   MLP 0   attention 1   MLP 1   logits
            [-------- the run without masks --------]   [- this variant -]      first cut edge: into MLP 1
        """
        graph = self.graph
        if masks.ndim != 2 or masks.shape[1] != len(graph) or masks.dtype != torch.bool:
            raise UserError(
                f"Masks are truth values [variant, {len(graph)}], one for each edge; these are {masks.dtype} "
                f"{list(masks.shape)}."
            )
        shape = self.shape(len(tokens))
        if replacement.shape != shape:
            raise UserError(f"Replacements have shape {list(shape)} here, not {list(replacement.shape)}.")
        carried = replacement[:, at]
        masks = masks.cpu()  # the graph's tensors are there
        embeddings = self.embeddings(tokens[at])
        # An embedding that is the same in both runs is never cut: its effect is then zero and not a rounding error.
        same = (embeddings == carried[: len(embeddings)]).flatten(1).all(1).nonzero()[:, 0].cpu()
        masks = masks | torch.isin(graph.edge_index[:, 2], same)
        base, logits, _ = self.run_from_stage([embeddings[None]], 0)
        never = len(graph.receivers)
        cut = ~masks  # edges are in the order of their receivers, and these in that of stages
        first = torch.where(cut.any(1), graph.edge_index[cut.byte().argmax(1), 1], never)
        if len(unchanged := (first == never).nonzero()[:, 0]):
            yield unchanged, logits.expand(len(unchanged), *logits.shape[1:])
        order = first.argsort(stable=True)[: len(first) - len(unchanged)]
        for which in order.split(self._variants_at_once(embeddings.shape[1])) if len(order) else ():
            begins = int(first[which[0]])
            start = graph.stage_of[graph.receivers[begins]]
            begun = [part.expand(len(which), *part.shape[1:]) for part in base[: self._parts_before(start)]]
            yield which, self.run_from_stage(begun, start, self.table(masks[which]), carried)[1]

    def table(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, "variant group receiver sender"]:
        """Masks as a table of numbers: 1 where this run's value is kept (and where there is no edge), else 0."""
        graph = self.graph
        shape = (len(masks), self._n_groups, len(graph.receivers), len(graph.senders))
        group, receiver, sender = graph.edge_index.T
        table = torch.ones(shape, dtype=self.model.dtype)
        table[:, group, receiver, sender] = masks.to(table.dtype)
        return table.to(self.model.device)

    def run_from_stage(
        self,
        values: list[Tensor],
        start: int,
        table: Float[Tensor, "variant group receiver sender"] | None = None,
        replacement: Float[Tensor, "*variant sender #batch seen d_model"] | None = None,
        record: bool = False,
    ) -> tuple[list[Tensor], Tensor, list[Inputs]]:
        """The run from stage ``start`` on: (what was written, logits [variant, batch, read, d_vocab], what was read).

        ``values`` holds what was written before, stage by stage, [variant, sender, batch, seen, d_model] each; senders
        of the last layer hold only the positions read. Without a table every edge is kept. Differentiable.
        """
        graph, values, inputs = self.graph, list(values), []
        for stage in range(start, graph.n_stages):
            parts = [
                self._read_by(stage, names, values, only_read, table, replacement).expand(
                    -1, len(names) if record else -1, -1, -1, -1
                )
                for names, only_read in graph.reads(stage)
            ]
            if not parts:
                continue
            if record:
                inputs.append(Inputs(stage, parts))
            if stage == 2 * graph.n_layers:
                return values, self._logits(parts[0]), inputs
            values.append(self._mlp(stage // 2, parts[0]) if stage % 2 else self.attention(stage // 2, parts))
        raise AssertionError("the logits are the last stage")

    def _parts_before(self, stage: int) -> int:
        """How many stages (counting the embeddings) have written before this one."""
        return 1 + sum(bool(self.graph.reads(earlier)) for earlier in range(stage))

    def _variants_at_once(self, n_examples: int) -> int:
        graph, cfg = self.graph, self.model.config
        a_variant = (len(graph.senders) + 4 * graph.n_heads) * n_examples * graph.n_positions * cfg.d_model
        return max(1, NUMBERS_AT_ONCE // a_variant)

    def _at_read(self, x: Float[Tensor, "*batch seen d_model"]) -> Float[Tensor, "*batch read d_model"]:
        """``x`` at the positions read; ``x`` itself if it holds only these."""
        return x if x.shape[-2] == len(self._read) else x.index_select(-2, self._read.to(x.device))

    def at_all_positions(self, x: Float[Tensor, "*batch seen d_model"]) -> Float[Tensor, "*batch all_seen d_model"]:
        """``x`` at the positions read and zeros elsewhere; ``x`` itself if it holds all positions."""
        if x.shape[-2] == self.graph.n_positions:
            return x
        shape = (*x.shape[:-2], self.graph.n_positions, x.shape[-1])
        return x.new_zeros(shape).index_copy(-2, self._read.to(x.device), x)

    def _read_by(
        self,
        stage: int,
        names: tuple[str, ...],
        values: list[Tensor],
        only_read: bool,
        table: Tensor | None,
        replacement: Tensor | None,
    ) -> Float[Tensor, "variant #receiver batch seen d_model"]:
        """What these receivers read: the sum over edges and the biases; one tensor for all where nothing is cut."""
        graph = self.graph
        pick = self._at_read if only_read else lambda x: x
        written = torch.cat([pick(part) for part in values], 1)[:, : graph.senders_before(stage)]
        n, first = written.shape[1], graph.receivers.index(names[0])
        keep = None if table is None else table[:, :, first : first + len(names), :n]
        if keep is None or bool(keep.all()):
            total = written.sum(1, keepdim=True)
        else:
            assert replacement is not None
            groups = self._group_of[self._read] if only_read else self._group_of
            other = replacement if replacement.ndim == 5 else replacement[None]
            total = _mixed(keep, written, groups) + _mixed(1 - keep, pick(other[:, :n]), groups)
        biases = [self.weights.get(in_block(layer, "attn.b_O")) for layer in range((stage + (not graph.parallel)) // 2)]
        for bias in biases:
            total = total if bias is None else total + bias
        return total

    def attention(self, layer: int, parts: list[Tensor]) -> Float[Tensor, "variant head batch seen d_model"]:
        """What each head writes, given what its queries, keys and values read."""
        block, (variants, _, examples) = self._block(layer), parts[0].shape[:3]
        projected = []
        for letter, x in zip("QKV", parts, strict=True):
            x = block.ln1(x, self.weights) if block.config.has_pre_norm else x
            w = self.weights[in_block(layer, f"attn.W_{letter}")]  # [head, d_model, d_head]
            if x.shape[1] == 1:  # one input for all heads: one product
                x = (x[:, 0] @ w.transpose(0, 1).flatten(1)).unflatten(-1, (len(w), -1)).flatten(0, 1)
            else:
                x = (x.flatten(2, 3) @ w).unflatten(2, (examples, -1)).permute(0, 2, 3, 1, 4).flatten(0, 1)
            bias = self.weights.get(in_block(layer, f"attn.b_{letter}"))
            projected.append(x if bias is None else x + bias)  # [variant * batch, pos, head, d_head]
        q, k, v = projected
        places = None if q.shape[1] == k.shape[1] else self._read.to(q.device)
        bias = self._fire if self._fire is None or places is None else self._fire[:, places]
        z = block.attn.mix(q, k, v, bias, places).unflatten(0, (variants, -1)).permute(0, 3, 1, 2, 4)
        w_o = self.weights[in_block(layer, "attn.W_O")]
        return (z.flatten(2, 3) @ w_o).unflatten(2, (examples, -1))

    def _mlp(self, layer: int, x: Tensor) -> Float[Tensor, "variant one batch seen d_model"]:
        block, flat = self._block(layer), x.flatten(0, 2)
        flat = block.ln2(flat, self.weights) if block.config.has_pre_norm else flat
        return block.mlp(flat, self.weights).view(x.shape)

    def _logits(self, x: Tensor) -> Float[Tensor, "variant batch read d_vocab"]:
        x, flat = x[:, 0], x.flatten(0, 2)
        flat = self.model.ln_final(flat, self.weights) if self.model.config.has_final_norm else flat
        return self.model.unembed(flat, self.weights).unflatten(0, x.shape[:2])

    def _block(self, layer: int) -> Block:
        block = self.model.blocks[layer]
        assert isinstance(block, Block)
        return block


def _mixed(
    table: Float[Tensor, "variant group receiver sender"],
    values: Float[Tensor, "#variant sender #batch seen d_model"],
    group_of: Int[Tensor, " pos"],
) -> Float[Tensor, "variant receiver batch seen d_model"]:
    """Sums over senders, weighted by the table of each position's group."""
    if table.shape[1] > 1:
        return torch.einsum("vprs,vsbpd->vrbpd", table[:, group_of], values.expand(len(table), *values.shape[1:]))
    flat = table[:, 0]
    if values.shape[0] == 1:
        return torch.tensordot(flat, values[0], 1)
    return (flat @ values.flatten(2)).unflatten(-1, values.shape[2:])
