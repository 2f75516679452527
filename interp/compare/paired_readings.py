"""What one model does on a comparison's problems, from one forward pass, and its weights scaled by the norms' gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.key_roles import membership, target_labels, visible_roles
from interp.core.places import Place
from models import ArithmeticTransformer
from models.errors import UserError
from models.tasks import Task
from models.transformer import head_name, in_block, neuron_name

CELL = ("digit_sum", "carry_in")  # the intermediate values by which logits are tabulated


@dataclass(frozen=True, eq=False)
class ReadingFrame:
    """Where both models are read: the task's targets, their roles, and the intermediate values behind each target.

    ``member`` [target, role, key]: which visible keys have a role for a target. ``cells`` [n, target]: index into
    ``cell_values`` [cell, 2] of the (digit sum, carry in) of the target's column, -1 if it has none (delimiters,
    columns without operands). ``answers``: the tokens that are right at such targets.
    """

    task: Task
    tokens: Int[Tensor, "n pos"]
    queries: tuple[int, ...]
    targets: tuple[str, ...]
    roles: tuple[str, ...]
    member: Bool[np.ndarray, "target role key"]
    cells: Int[np.ndarray, "n target"]
    cell_values: Int[np.ndarray, "cell 2"]
    answers: tuple[int, ...]


def common_columns(task: Task, problems: Any, tokens: Int[Tensor, "n pos"]) -> ReadingFrame:
    """The frame of a task's problems, for any task; without digit sums and carries there are no cells."""
    queries, length = list(task.query_positions), tokens.shape[1]
    groups = [visible_roles(task, target) for target in range(len(queries))]
    roles, member = membership(groups, length)
    values = _column_values(task, problems, len(tokens))
    cells, cell_values = np.full((len(tokens), len(queries)), -1), np.zeros((0, 2), dtype=np.int64)
    answers: tuple[int, ...] = ()
    if values is not None and (values >= 0).any():
        has = (values >= 0).all(-1)
        cell_values, index = np.unique(values[has], axis=0, return_inverse=True)
        cells[has] = index.reshape(-1)
        answers = tuple(np.unique(task.targets(problems).numpy()[has]).tolist())
    labels = tuple(target_labels(task))
    return ReadingFrame(
        task, tokens, tuple(queries), labels, tuple(roles), member, cells, cell_values.astype(np.int64), answers
    )


def _column_values(task: Task, problems: Any, n: int) -> Int[np.ndarray, "n target 2"] | None:
    """Digit sum and carry in of every target's column (and step, if there are many); -1 if it has none."""
    try:
        variables = task.variables(problems)
    except (UserError, NotImplementedError):
        return None
    if any(name not in variables for name in CELL):
        return None
    parts = [variables[name].numpy() for name in CELL]
    found = np.full((n, len(task.target_roles), 2), -1, dtype=np.int64)
    for target, role in enumerate(task.target_roles):
        if role.kind not in ("answer", "scratchpad") or role.column is None:
            continue
        step = (role.index or 0) - 1  # with many operands, b_i is the sum after step i, and b_0 belongs to no step
        for which, part in enumerate(parts):
            if role.column >= part.shape[-1] or (part.ndim == 3 and not 0 <= step < part.shape[1]):
                continue
            found[:, target, which] = part[:, step, role.column] if part.ndim == 3 else part[:, role.column]
    return found


@dataclass(frozen=True, eq=False)
class Readings:
    """One model's readings in a :class:`ReadingFrame`; heads and units of all layers are joined, layer by layer.

    ``roles`` [n, head, target, role]: attention summed over the keys of a role. ``units`` [n, target, unit]:
    ``mlp.hook_post``. ``responses``: for attention, MLP and logits the mean over problems [cell, answer token] of what
    the part adds to the logits, without the norms' division. ``places`` [pos, d_model]: what positions add to the
    stream; None if they add nothing.
    """

    model: ArithmeticTransformer
    roles: Float[np.ndarray, "n head target role"]
    units: Float[np.ndarray, "n target unit"]
    responses: Mapping[str, Float[np.ndarray, "cell answer"]]
    places: Float[np.ndarray, "pos d_model"] | None

    @property
    def heads(self) -> list[str]:
        cfg = self.model.cfg
        return [head_name(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]

    @property
    def unit_names(self) -> list[str]:
        cfg = self.model.cfg
        return [neuron_name(layer, unit) for layer in range(cfg.n_layers) for unit in range(cfg.d_mlp)]


@torch.no_grad()
def read(model: ArithmeticTransformer, at: ReadingFrame) -> Readings:
    """Run a model on the frame's tokens. Cost: one forward pass; memory [n, target, d_mlp].

    Raises:
        UserError: the model has diverged.
    """
    cfg, queries = model.cfg, list(at.queries)
    blocks = [in_block(layer) + "." for layer in range(cfg.n_layers)]
    names = [block + part for block in blocks for part in ("attn.hook_pattern", "hook_attn_out")]
    names += [block + part for block in blocks for part in ("mlp.hook_post", "hook_mlp_out") if cfg.d_mlp]
    names += [name for name in ("hook_pos_embed",) if name in model.hook_dict]
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    logits = []
    for _, out, held in runs.passes(model, at.tokens, keep=names):
        logits.append(out[:, queries].detach().cpu().double())
        for name, value in held.items():
            part = value[:1] if name == "hook_pos_embed" else Place(name, at.queries).read(value)
            kept[name].append(part.detach().cpu().double())
    found = {name: torch.cat(parts).numpy() for name, parts in kept.items()}
    runs.require_finite(found)
    patterns = np.concatenate([found[block + "attn.hook_pattern"] for block in blocks], 1)
    roles = np.einsum("nhtk,trk->nhtr", patterns, at.member.astype(np.float64), optimize=True)
    units = [found[block + "mlp.hook_post"] for block in blocks] if cfg.d_mlp else []
    weights = weights_of(model)
    parts = {"attention": [found[block + "hook_attn_out"] for block in blocks]}
    if cfg.d_mlp:
        parts["MLP"] = [found[block + "hook_mlp_out"] for block in blocks]
    written: dict[str, np.ndarray] = {"logits": torch.cat(logits).numpy()}
    for part, outs in parts.items():
        gains = [write_gain(weights, layer, part == "MLP", cfg.n_layers) for layer in range(cfg.n_layers)]
        written[part] = np.sum([out * gain for out, gain in zip(outs, gains, strict=True)], 0) @ weights["unembed.W_U"]
    places = found["hook_pos_embed"][0] if "hook_pos_embed" in found else None
    return Readings(
        model,
        roles,
        np.concatenate(units, -1) if units else np.zeros((len(at.tokens), len(queries), 0)),
        {part: _cell_means(values, at) for part, values in written.items()} if at.answers else {},
        places,
    )


def _cell_means(values: Float[np.ndarray, "n target d_vocab"], at: ReadingFrame) -> Float[np.ndarray, "cell answer"]:
    has = at.cells >= 0
    rows, index = values[has][:, list(at.answers)], at.cells[has]
    sums = np.zeros((len(at.cell_values), rows.shape[1]))
    np.add.at(sums, index, rows)
    return sums / np.bincount(index, minlength=len(sums))[:, None]


def weights_of(model: ArithmeticTransformer) -> dict[str, np.ndarray]:
    """Effective weights in float64."""
    return {name: value.detach().cpu().double().numpy() for name, value in model.all_weights().items()}


def write_gain(weights: Mapping[str, np.ndarray], layer: int, mlp: bool, n_layers: int) -> Any:
    """Product of the gains of all norms between a sublayer's output and the logits: [d_model], or 1."""
    names: list[str] = [in_block(layer, "ln1_post")] if not mlp else []
    names += [in_block(layer, "ln2_post")]
    names += [in_block(later, norm) for later in range(layer + 1, n_layers) for norm in ("ln1_post", "ln2_post")]
    return _product(weights, [*names, "ln_final"])


def read_gain(weights: Mapping[str, np.ndarray], layer: int, norm: str) -> Any:
    """Gain of the norm before a sublayer, including the post-norms of earlier layers: [d_model], or 1."""
    earlier = [in_block(i, name) for i in range(layer) for name in ("ln1_post", "ln2_post")]
    return _product(weights, [*earlier, in_block(layer, norm)])


def _product(weights: Mapping[str, np.ndarray], norms: Sequence[str]) -> Any:
    gain: Any = 1.0
    for norm in norms:
        gain = gain * weights.get(f"{norm}.w", 1.0)
    return gain
