"""Named pieces of activations, and the checks that an intervention makes of a model before it starts.

A :class:`Site` reads its piece of the activation at its hook point, and writes another in its place.
:mod:`interp.core.runs` runs a model with such edits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models import ArithmeticTransformer
from models.errors import UserError, known_name
from models.importers.stock import from_transformer_lens
from models.tasks import Task
from models.transformer.hooked import HookedModel
from models.transformer.hooked import model_name as model_name

#: Hook points whose axis 2 is the heads; all others but the query-by-key ones are [batch, pos, width].
_BY_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k", "hook_result", "hook_attn_in",
            "hook_q_input", "hook_k_input", "hook_v_input")  # fmt: skip
_BY_KEY = ("hook_pattern", "hook_attn_scores")  # [batch, head, query, key]: a position is a query's row
#: The position that predicts the column that is asked about.
QUERY = "query"
#: An edit at a hook point: (its name, function from activation and rows of the sample to the new activation).
Edit = tuple[str, Callable[[Tensor, slice], Tensor]]


@dataclass(frozen=True)
class Site:
    """A piece of an activation: one head, one neuron, a subspace, or all of it, at some positions of a hook point.

    ``at`` are positions (for a pattern: the queries' rows), or None for all of them. A hypothesis about a column may
    name places instead (:mod:`interp.causal.interchange.interchange_sites`), which stand for other positions in each
    column. With ``basis`` [width, k] of orthonormal directions, the piece is the activation's coordinates along them.
    """

    hook: str
    at: int | str | tuple[int | str, ...] | None = QUERY
    head: int | None = None
    neuron: int | None = None
    basis: Float[Tensor, "width k"] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        places = self.at if isinstance(self.at, tuple) else (self.at,)
        part = "" if self.head is None else f" head {self.head}"
        part += "" if self.neuron is None else f" neuron {self.neuron}"
        return self.hook + part + ("" if self.at is None else f" at {', '.join(map(str, places))}")

    @property
    def axes(self) -> str:
        """How the activation is laid out: "key" [batch, head, query, key], "head" [batch, pos, head, ...], "plain"."""
        last = self.hook.rsplit(".", 1)[-1]
        return "key" if last in _BY_KEY else "head" if last in _BY_HEAD else "plain"

    @property
    def positions(self) -> tuple[int, ...] | None:
        """The positions, or None for all. Raises UserError for places that are only named."""
        if self.at is None:
            return None
        places = self.at if isinstance(self.at, tuple) else (self.at,)
        found = tuple(place for place in places if isinstance(place, int))
        if len(found) < len(places):
            raise UserError(f"{self} names places, which are positions of a column only.")
        return found

    @property
    def _index(self) -> tuple[Any, ...]:
        every, positions = slice(None), self.positions
        rows = every if positions is None else list(positions)
        head = every if self.head is None else slice(self.head, self.head + 1)
        if self.axes == "key":
            return (every, head, rows)
        if self.axes == "head":
            return (every, rows, head)
        return (every, rows) if self.neuron is None else (every, rows, slice(self.neuron, self.neuron + 1))

    def read(self, activation: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The piece, with the activation's axes (one head and one neuron are axes of size 1)."""
        held = activation[self._index]
        return held if self.basis is None else held @ self._basis_of(held)

    def _basis_of(self, held: Tensor) -> Float[Tensor, "width k"]:
        assert self.basis is not None
        if len(self.basis) != held.shape[-1]:
            raise UserError(
                f"The direction has {len(self.basis)} entries and the activation at {self.hook} has {held.shape[-1]}."
            )
        return self.basis.to(held)

    def write(self, activation: Float[Tensor, "batch ..."], value: Tensor | float) -> Float[Tensor, "batch ..."]:
        """A copy of the activation with the piece replaced; gradients flow to both.

        ``value`` has the shape of :meth:`read`, or one that broadcasts to it; without a basis, also as many numbers.
        """
        index = self._index
        held = activation[index]
        new = torch.as_tensor(value, dtype=activation.dtype, device=activation.device)
        if self.basis is not None:
            basis = self._basis_of(held)
            new = held - (held @ basis) @ basis.T + new.expand(*held.shape[:-1], basis.shape[1]) @ basis.T
        elif new.numel() == held.numel():
            new = new.reshape(held.shape)
        copy = activation.clone()
        copy[index] = new
        return copy

    def put(self, value: Tensor | float | Callable[[Tensor, slice], Tensor]) -> Edit:
        """The edit that writes ``value`` here: one value for all examples, or a function of (piece, rows)."""
        if callable(value):
            return self.hook, lambda activation, rows: self.write(activation, value(self.read(activation), rows))
        return self.hook, lambda activation, rows: self.write(activation, value)

    def check(self, model: HookedModel, length: int) -> None:
        """Raise UserError where the model has no such piece, or a run of ``length`` tokens no such positions."""
        if self.head is not None and not 0 <= self.head < model.cfg.n_heads:
            raise UserError(f"There is no head {self.head}: each layer has {model.cfg.n_heads}, counted from 0.")
        if self.neuron is not None and not has_mlp(model):
            raise UserError("This model has no MLP, so it has no neurons.")
        if self.neuron is not None and not 0 <= self.neuron < model.cfg.d_mlp:
            raise UserError(f"There is no neuron {self.neuron}: each layer has {model.cfg.d_mlp}, counted from 0.")
        check_positions(self.positions, length)
        require_hook(model, self.hook)


def check_positions(positions: tuple[int, ...] | None, length: int) -> None:
    """Raise UserError for positions that a run of ``length`` tokens does not have."""
    wrong = [position for position in positions or () if not 0 <= position < length]
    if wrong or positions == ():
        said = f"position {wrong[0]}" if wrong else "an empty list of positions"
        raise UserError(f"There is nothing to ablate at {said}: the runs have {length} positions, counted from 0.")


def has_mlp(model: HookedModel) -> bool:
    """Whether the model's layers have an MLP."""
    return bool(model.cfg.d_mlp) and not getattr(model.cfg, "attn_only", False)


def require_hook(model: HookedModel, name: str) -> str:
    """``name``, if the model has such a hook point.

    Raises:
        UserError: there is no such hook point; the message names the closest.
    """
    return known_name("hook point", name, model.hook_dict)


def require_layer(model: HookedModel, layer: int) -> int:
    """A layer counted from 0; negative ones count from the end. Raises UserError where there is none."""
    n = model.cfg.n_layers
    if not -n <= layer < n:
        raise UserError(f"There is no layer {layer}: this model has {n}, counted from 0.")
    return layer % n


def require_evaluation_mode(model: HookedModel) -> None:
    """Raise UserError for a model in training mode: dropout would change what is not patched."""
    if model.training:
        raise UserError("The model is in training mode; call model.eval() first.")


def require_sums(model: HookedModel, what: str) -> None:
    """Raise UserError where the residual stream is not the sum of what is written to it (post-norm)."""
    config = getattr(model, "config", None)
    after = getattr(model.cfg, "use_normalization_before_and_after", False)
    if after or not getattr(config, "residual_stream_adds_up", True):
        raise UserError(
            f"{what} needs a residual stream that is the sum of what is written to it; this model's norms come after "
            "the sums, so that the parts do not add up."
        )


def pair_names(a: HookedModel, b: HookedModel) -> tuple[str, str]:
    """The names by which results call two models, marked (a) and (b) where they are the same."""
    first, second = model_name(a), model_name(b)
    return (f"{first} (a)", f"{second} (b)") if first == second else (first, second)


@torch.no_grad()
def stream_is_written(model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: Sequence[str]) -> bool:
    """Whether what is written at these hooks reaches the residual stream, in a run of the first tokens.

    In transformer_lens 4's ``TransformerBridge``, ``hook_resid_mid`` is the MLP's input: what is written there reaches
    the MLP and not the stream, so half of an intervention would silently not happen. Two runs find out.
    """
    if isinstance(model, ArithmeticTransformer):
        return True
    mids = [name for name in hooks if name.endswith("hook_resid_mid") and name in model.hook_dict]
    if not mids:
        return True
    block = mids[0].removesuffix("hook_resid_mid")
    seen: list[dict[str, Tensor]] = []
    for shift in (0.0, 1.0):
        caught: dict[str, Tensor] = {}
        hooked: list[tuple[str, Any]] = [(mids[0], lambda value, hook, shift=shift: value + shift)]
        for name in ("hook_mlp_out", "hook_resid_post"):
            hooked.append((block + name, lambda value, hook, c=caught, name=name: c.update({name: value.detach()})))
        model.run_with_hooks(tokens[:2], fwd_hooks=hooked)
        seen.append(caught)
    stream = [caught["hook_resid_post"] - caught["hook_mlp_out"] for caught in seen]
    return float((stream[1] - stream[0]).abs().mean()) > 0.5


def with_writable_stream(model: HookedModel, task: Task, hooks: Sequence[str]) -> Any:
    """The model, or a copy with equal logits where writing at one of the hooks would be lost.

    Raises:
        UserError: such a model that cannot be copied.
    """
    tokens = task.encode(task.sample(2, torch.Generator().manual_seed(0))).to(model.cfg.device)
    if stream_is_written(model, tokens, hooks):
        return model
    try:
        return from_transformer_lens(model, task)
    except UserError as error:
        raise UserError(
            f"What is written to hook_resid_mid does not reach the stream of this {type(model).__name__}, and no copy "
            f"can be made where it does: {error}"
        ) from None
