"""A circuit as a model of its own: what it keeps is computed, and what it cuts is a constant in its weights.

Every receiver (a head's query, key and value input, an MLP, the logits) gets a stream of its own, a block of d_model
entries, in which only the senders write whose edges the circuit keeps. What a cut edge carries, the same in every
problem but not at every position, is added to the position embeddings of the block. So

    W_E, W_pos, W_O, b_O, W_out, b_out    have one block per receiver: the model's own numbers, or zeros where it is cut
    W_Q, W_K, W_V, W_in, W_gate, W_U      read their own block
    norms                                 are RMS norms of each block by itself (``norm_groups``), gains repeated

and the circuit is an ordinary transformer, about which any question can be asked, proofs included: its logits are those
of :class:`interp.causal.edges.masked_model.MaskedModel`, up to the order of sums. A LayerNorm is the RMS norm of what
is centred: writers are centred, and its bias is moved into those of its readers.

A stream of the same width would not do: a norm divides what it reads by the length of all of it, and receivers that
read different sums have different lengths. Edges that are split by groups of positions would need weights that depend
on the position, and are refused; so are constants in models whose positions have no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from interp.causal.edges.edge_graph import LOGITS, EdgeGraph
from interp.causal.edges.masked_model import MaskedModel
from interp.causal.edges.optimal_ablation import fit_constants
from models import ArithmeticTransformer
from models.calls import Count, Seed, checked
from models.errors import UserError, known_name
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, TransformerConfig, Weights, head_name, layer_part, model_name
from models.weight_maps import DenseWeights

CONSTANTS = ("mean", "zero", "optimal")
N_FITTED = 256

Constants = Float[Tensor, "sender seen d_model"]


@checked
def circuit_as_model(
    model: HookedModel,
    edges: Iterable[str],
    constants: str | Sequence[int] | Constants = "mean",
    *,
    n: Count = N_FITTED,
    seed: Seed = 0,
    task: TaskLike | None = None,
) -> ArithmeticTransformer:
    """The circuit of these edges ("embed->L0H0.v", "L0H0->L0.mlp", ...) as a model.

    Args:
        constants: what cut edges carry at each position: a sender's "mean" over ``n`` problems or "zero"; the "optimal"
            constants, fitted on them (:mod:`interp.causal.edges.optimal_ablation`); a problem, such as ``(0, 0)``: what
            is written in it; or numbers of your own.

    Cost: one run over ``n`` problems for "mean"; for "optimal" 100 forward and backward passes.

    Raises:
        UserError: an edge that does not exist, norms after the sums, constants where positions have no table, or a
            LayerNorm with a bias before a gated MLP, which has no bias to take it.
    """
    masked = MaskedModel(model, None, None, task)
    mask = masked.graph.mask(edges)
    if not isinstance(constants, Tensor):
        constants = constants_of(masked, mask[None], constants, n, seed)[0]
    return masked_as_model(masked, mask, constants)


def constants_of(
    masked: MaskedModel, masks: Bool[Tensor, "variant edge"], constants: str | Sequence[int], n: int, seed: int
) -> Float[Tensor, "#variant sender seen d_model"]:
    """What cut edges carry; with "optimal" each mask has its own."""
    task = masked.model.task
    if not isinstance(constants, str):
        return masked.values(task.encode([tuple(constants)]))[:, :1].transpose(0, 1)
    known_name("kind of constant", constants, CONSTANTS)
    tokens = task.encode(task.sample(n, torch.Generator().manual_seed(seed)))
    if constants == "optimal":
        return fit_constants(masked, masks, tokens)[:, :, 0]
    return masked.replacement(constants, tokens)[:, :1].transpose(0, 1)


@torch.no_grad()
def masked_as_model(masked: MaskedModel, mask: Bool[Tensor, " edge"], constants: Constants) -> ArithmeticTransformer:
    """The model of a mask over the edges of a masked model; see the module."""
    graph, cfg, shapes = masked.graph, masked.model.config, masked.model.weight_shapes
    own = {name: value for name, value in masked.weights.items() if name in shapes}  # a map may also give factors
    if graph.groups is not None:
        raise UserError("Edges that are split by groups of positions are no model: its weights know no positions.")
    n = len(graph.receivers)
    kept, cut = torch.zeros(2, n, len(graph.senders), dtype=masked.model.dtype)
    _, receivers, senders = graph.edge_index.T
    kept[receivers, senders], cut[receivers, senders] = mask.to(kept), (~mask).to(kept)

    def centred(value: Tensor) -> Tensor:
        return value - value.mean(-1, keepdim=True) if cfg.normalization_type == "LN" else value

    def blocks(value: Tensor, shares: Iterable[Tensor | float]) -> Tensor:
        """A weight that writes to the stream, times its share in each receiver's block."""
        return torch.cat([centred(value) * share for share in shares], -1)

    def sent(sender: str, value: Tensor) -> Tensor:
        return blocks(value, kept[:, graph.senders.index(sender)])

    def read(receiver: str, value: Tensor) -> Tensor:
        """A weight [d_model, *] that reads the stream, as one that reads its block."""
        zero = torch.zeros_like(value)
        return torch.cat([value if name == receiver else zero for name in graph.receivers])

    found = dict(own)
    for name, value in own.items():
        place, _, kind = name.rpartition(".")
        layer = int(name.split(".")[1]) if name.startswith("blocks.") else cfg.n_layers
        heads = [head_name(layer, head) for head in range(cfg.n_heads)]
        part = LOGITS if layer == cfg.n_layers else layer_part(layer, "mlp")
        if place == "fire":
            continue
        if kind in ("W_E", "W_pos"):
            found[name] = sent(place, value)
        elif kind == "W_O":
            found[name] = torch.stack([sent(*each) for each in zip(heads, value, strict=True)])
        elif kind == "b_O":
            found[name] = blocks(value, [float(_reads_bias(graph, layer, receiver)) for receiver in graph.receivers])
        elif kind in ("W_out", "b_out"):
            found[name] = sent(part, value)
        elif kind in ("W_Q", "W_K", "W_V"):
            inputs = [f"{head}.{kind[-1].lower()}" for head in heads]
            found[name] = torch.stack([read(*each) for each in zip(inputs, value, strict=True)])
        elif kind in ("W_in", "W_gate", "W_U"):
            found[name] = read(part, value)
        elif kind == "w" and "ln" in place:
            found[name] = value.repeat(n)
    if cfg.normalization_type == "LN":
        _move_biases(found, own, cfg)
    carried = torch.cat([centred(constants[row].to(cut).sum(0)) for row in cut.bool()], -1)
    if carried.any():
        if cfg.positional_embedding_type != "standard":
            raise UserError(
                f"{model_name(masked.model)} has no table of positions that could hold what cut edges carry; "
                'constants="zero" needs none.'
            )
        found["pos_embed.W_pos"] = found["pos_embed.W_pos"] + F.pad(carried, (0, 0, 0, cfg.n_ctx - len(carried)))
    groups = 1 if cfg.normalization_type is None else n
    norms = {"normalization_type": "RMS", "norm_groups": groups} if groups > 1 else {}
    dense = DenseWeights.holding(cfg.replace(d_model=n * cfg.d_model, **norms), found)
    dense.position_limits = masked.model.position_limits
    name = f"{model_name(masked.model)}, circuit of {int(mask.sum())} edges"
    return ArithmeticTransformer(dense, masked.model.task, name=name)


def _reads_bias(graph: EdgeGraph, layer: int, receiver: str) -> bool:
    """Whether a receiver gets a layer's ``b_O``, which is no sender's: all later ones do, whatever is cut."""
    stage = graph.stage_of[receiver] - 2 * layer
    return stage > 1 or (stage == 1 and not graph.parallel)


def _move_biases(found: Weights, own: Weights, cfg: TransformerConfig) -> None:
    """Take the biases of LayerNorms into those of their readers."""
    for name in [name for name in own if name.endswith(".b") and ".ln" in f".{name}"]:
        del found[name]
        block, _, norm = name[:-2].rpartition(".")
        readers = {"ln1": ("attn.W_Q", "attn.W_K", "attn.W_V"), "ln2": ("mlp.W_in",), "ln_final": ("unembed.W_U",)}
        for reader in readers[norm]:
            key = f"{block}.{reader}".lstrip(".")
            bias = key.replace(".W_", ".b_")
            moved = own[name] @ own[key]
            if norm == "ln2" and cfg.gated_mlp and moved.any():
                raise UserError("The bias of a LayerNorm before a gated MLP cannot be moved: the gate has none.")
            found[bias] = moved + own.get(bias, 0)
