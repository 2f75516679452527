"""What a certifier of one-layer adders reads: effective weights and the layout of the task, and nothing else.

No architecture is named here. A model is given by its weights ``W_E ... W_U`` and the switches of its config, so that
a user's own weight map, a rounded copy and a stock TransformerLens model are all judged in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float

from interp.core.task_checks import resolve_task
from interp.proofs.columns.digit_layout import TokenLayout, read_layout
from interp.proofs.verdict.identity import fingerprint, require_plain
from interp.proofs.verdict.verdict import Targets
from models import ArithmeticTransformer
from models.errors import UserError, unknown_name
from models.importers import from_transformer_lens
from models.tasks import Task
from models.transformer import HookedModel, model_name
from models.transformer.config import ANY, PLAIN, uncovered

#: The activations of a plain MLP (False), and of a gated one (True).
ACTIVATIONS = {False: ("gelu", "relu"), True: ("gelu", "relu", "silu")}
#: What the bounds are stated for; what activations there are depends on the MLP's kind.
COVERS = PLAIN | {
    "act_fn": ANY,
    "gated_mlp": ANY,
    "normalization_type": ("LN", "RMS", None),
    "norm_eps_outside": ANY,
    "norm_groups": ANY,
    "final_gain": ANY,
    "use_qk_norm": ANY,
    "positional_embedding_type": ("standard", "rotary", "none"),
    "rotary_scaling_factor": ANY,
}
NO_NORMS = {"norm_placement": ANY, "final_norm": ANY}  # which then change nothing
FEW = 2  # digits: numbers of so few make problems that can be gone through one by one
FEW_OF_TWO = 3  # and of so few in models of two layers, as only all problems tell how their layers work together


@dataclass(frozen=True, eq=False)
class AdderWeights:
    """The effective weights of a pre-norm decoder of one layer, as float64 copies of the stored numbers.

    A missing bias is an array of zeros, and so is ``W_pos`` without learned positions. Refutations are replayed through
    ``model``, with the weights ``stored`` as they were read. The norms are RMS norms or, if ``centred``, LayerNorms.
    ``q_norm`` and ``k_norm`` are gains of RMS norms of each head's queries and keys, and ``W_gate`` is what a gated
    MLP's activation reads; each is None in models without it.
    """

    model: ArithmeticTransformer
    layout: TokenLayout
    fingerprint: str
    stored: dict[str, torch.Tensor]
    W_E: Float[np.ndarray, "vocab d"]
    W_pos: Float[np.ndarray, "pos d"]
    ln1: Float[np.ndarray, " d"]
    W_Q: Float[np.ndarray, "head d e"]
    W_K: Float[np.ndarray, "head d e"]
    W_V: Float[np.ndarray, "head d e"]
    W_O: Float[np.ndarray, "head e d"]
    b_Q: Float[np.ndarray, "head e"]
    b_K: Float[np.ndarray, "head e"]
    b_V: Float[np.ndarray, "head e"]
    b_O: Float[np.ndarray, " d"]
    ln2: Float[np.ndarray, " d"]
    W_in: Float[np.ndarray, "d m"]
    b_in: Float[np.ndarray, " m"]
    W_out: Float[np.ndarray, "m d"]
    b_out: Float[np.ndarray, " d"]
    ln_final: Float[np.ndarray, " d"]
    W_U: Float[np.ndarray, "d vocab"]
    b_U: Float[np.ndarray, " vocab"]
    ln1_b: Float[np.ndarray, " d"]
    ln2_b: Float[np.ndarray, " d"]
    ln_final_b: Float[np.ndarray, " d"]
    q_norm: Float[np.ndarray, " e"] | None = None
    k_norm: Float[np.ndarray, " e"] | None = None
    W_gate: Float[np.ndarray, "d m"] | None = None

    @property
    def has_norms(self) -> bool:
        """Whether there are norms. Without them ``ln1`` and ``ln2`` are ones, and ``ln_final`` is the final gain."""
        return self.model.config.normalization_type is not None

    @property
    def centred(self) -> bool:
        """Whether the norms subtract the mean (LayerNorm)."""
        return self.model.config.normalization_type == "LN"

    def normed(self, x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Vectors normalised over the last axis, in float64. Without norms they are multiplied by the gain alone."""
        if not self.has_norms:
            return x * gain + bias
        if self.centred:
            x = x - x.mean(-1, keepdims=True)
        grouped = x.reshape(*x.shape[:-1], self.groups, -1)
        square = (grouped**2).mean(-1, keepdims=True)
        eps, outside = self.model.config.eps, self.model.config.norm_eps_outside
        scale = np.sqrt(square) + eps if outside else np.sqrt(square + eps)
        return (grouped / scale).reshape(x.shape) * gain + bias

    def after_attention(self, token: int, position: int, written: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The stream that the (last) MLP reads at a position, in float64, from what attention writes there."""
        return self.W_E[token] + self.W_pos[position] + self.b_O + written

    @property
    def groups(self) -> int:
        """How many groups of the stream are normalised by themselves."""
        return self.model.config.norm_groups

    def group_of(self, *readers: Float[np.ndarray, "d m"]) -> slice:
        """The entries of the one group that these matrices read.

        Raises:
            UserError: they read several, and so need several norms.
        """
        width = len(self.W_in) // self.groups
        read = np.flatnonzero(np.logical_or.reduce([matrix.any(1) for matrix in readers])) // width
        if len(np.unique(read)) > 1:
            raise UserError(f"The certifier needs an MLP and logits of {model_name(self.model)} that read one group.")
        first = int(read[0]) * width if len(read) else 0
        return slice(first, first + width)


def require_unchanged(adder: AdderWeights) -> None:
    """Raise UserError if the model's weights are not the same as when it was read."""
    if fingerprint(adder.model) != adder.fingerprint:
        raise UserError(f"The weights of {model_name(adder.model)} change from one call to the next.")


def one_layer_adder(model: HookedModel, task: Any) -> str:
    """What probes need: an adder that :func:`read_adder` can read."""
    try:
        known_layout(model, task, 1)
    except UserError as error:
        return str(error).rstrip(".")
    return ""


def read_adder(model: HookedModel, task: Task | None = None, targets: Targets = "all") -> AdderWeights:
    """The weights and the layout of a model of one layer that adds or subtracts two numbers column by column.

    ``targets``: "all" tokens that the task asks for, or the "digits" of the answer alone. The weights are computed
    twice, to check that they stay the same.

    Raises:
        UserError: says in one sentence what about this model the certifier cannot judge.
    """
    (adder,) = read_layers(model, task, targets, 1)
    return adder


def known_layout(
    model: HookedModel, task: Task | None, layers: Literal[1, 2]
) -> tuple[ArithmeticTransformer, TokenLayout]:
    """The layout of a model's task, and the model as one of this project, whose parts are all known. Weights are not
    looked at.

    Raises:
        UserError: as :func:`read_adder`, but for what is wrong with weights.
    """
    task = resolve_task(model, task)
    layout = read_layout(task)
    if model.cfg.n_layers != layers:
        raise UserError(
            f"The certifier judges adders and subtractors of {'one layer' if layers == 1 else 'one or two layers'}, "
            f"and {model_name(model)} has {model.cfg.n_layers}."
        )
    require_plain(model)
    if not isinstance(model, ArithmeticTransformer):
        model = from_transformer_lens(model, task)
    elif model.task is not task and model.task.name != task.name:
        raise UserError(f"{model_name(model)} was built for {model.task.name}, and not for {task.name}.")
    config = model.config
    if more := uncovered(config, COVERS if config.normalization_type else COVERS | NO_NORMS):
        raise UserError(f"The certifier of columns does not know {', '.join(more)}, which {model_name(model)} has.")
    known = ACTIVATIONS[config.gated_mlp]
    if not config.d_mlp:
        raise UserError(f"The certifier needs an MLP, and {model_name(model)} has none.")
    if config.act_fn not in known:
        kind = "a gated MLP" if config.gated_mlp else "an MLP"
        raise UserError(f"The certifier needs {kind} with {' or '.join(known)}, not {config.act_fn}.")
    if layers == 2 and config.use_qk_norm and config.normalization_type is None:
        raise UserError(f"The certifier knows norms of queries and keys beside others, unlike {model_name(model)}'s.")
    if (largest := max(9, layout.eos or 0)) >= config.n_logits:
        raise UserError(f"The right tokens go up to {largest}, and {model_name(model)} predicts {config.n_logits}.")
    return model, layout


def read_layers(model: HookedModel, task: Task | None, targets: Targets, layers: Literal[1, 2]) -> list[AdderWeights]:
    """As :func:`read_adder`, for a model of one or two layers: one adder for each, with what comes before and after all
    layers in both."""
    if targets not in get_args(Targets):
        raise unknown_name("choice of targets", targets, get_args(Targets))
    model, layout = known_layout(model, task, layers)
    config = model.config
    with torch.no_grad():
        stored = {name: value.detach().clone() for name, value in model.effective_weights().items()}
    weights: dict[str, np.ndarray] = {}
    for name, shape in model.weight_shapes.items():
        value = stored.get(name)
        weights[name] = np.zeros(shape) if value is None else value.detach().cpu().double().numpy()
        if weights[name].shape != tuple(shape):
            raise UserError(f"{name} has shape {list(weights[name].shape)}, and the config says {list(shape)}.")
        if not np.isfinite(weights[name]).all():
            raise UserError(f"{model_name(model)} has NaN or infinite numbers in {name}.")
    unit = {"": np.ones(config.d_model), "_b": np.zeros(config.d_model)}
    identity = fingerprint(model, stored)
    if targets == "digits":
        layout = replace(layout, queries=layout.queries[: layout.rule.written], eos=None)
    found = []
    for layer in range(layers):
        parts: dict[str, np.ndarray] = {"W_pos": np.zeros((config.n_ctx, config.d_model))}
        parts |= {f"{norm}{part}": unit[part] for norm in ("ln1", "ln2", "ln_final") for part in unit}
        for name, value in weights.items():
            *_, part, last = name.split(".")
            if not name.startswith("blocks.") or name.startswith(f"blocks.{layer}."):
                parts[{"w": part, "b": f"{part}_b"}.get(last, last)] = value
        adder = AdderWeights(model=model, layout=layout, fingerprint=identity, stored=stored, **parts)
        for readers in ((adder.W_in,) if adder.W_gate is None else (adder.W_in, adder.W_gate), (adder.W_U,)):
            adder.group_of(*readers)
        found.append(adder)
    require_unchanged(found[0])
    return found
