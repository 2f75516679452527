"""The parts that write to a query's residual stream, each projected on a direction of the unembedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.batches import chunks
from interp.core.key_roles import membership, visible_roles
from interp.probes.lens.residual_points import carry_flipped
from models import ArithmeticTransformer
from models.calls import dense
from models.errors import UserError, known_name
from models.tasks import Task
from models.transformer import head_name, in_block, layer_part

#: Columns of the table of parts.
PARTS_AXES = ("part", "kind", "layer", "head", "role")
RIVALS = {
    "others": "the mean of the other digits",
    "carry": "the digit that the other carry would give",
    "all": "the mean of all tokens",
}


def choose_rivals(
    task: Task,
    problems: Any,
    targets: Sequence[int],
    right: Int[Tensor, "n target"],
    rival: Any,
    n_logits: int | None = None,
) -> tuple[Float[Tensor, "n target d_vocab"], str]:
    """(each logit's coefficient in the lead, the rival in words): +1 for the right digit, -1 shared by its rivals.

    Raises:
        UserError: an unknown name (with the closest), tokens of another shape, or a rival that is the right digit.
    """
    n_logits = task.d_vocab if n_logits is None else n_logits
    one_hot = torch.nn.functional.one_hot(right, n_logits).float()
    if isinstance(rival, str):
        known_name("rival", rival, RIVALS)
        if rival == "all":
            return one_hot - 1 / n_logits, RIVALS[rival]
        if rival == "others":
            digits = torch.zeros(n_logits)
            digits[list(task.digit_tokens)] = 1.0
            others = digits * (1 - one_hot)
            return one_hot - others / others.sum(-1, keepdim=True), RIVALS[rival]
        variables = task.variables(problems)
        values = [carry_flipped(variables, task.target_roles[target], task.domain.base) for target in targets]
        tokens = torch.tensor(task.digit_tokens)[torch.stack(values, 1)]
        over = RIVALS[rival]
    else:
        try:
            tokens, over = dense("rival", torch.as_tensor(rival)).cpu(), "the given rival"
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"Rivals are a name or tokens, not a {type(rival).__name__}.") from None
        if tokens.shape != right.shape or tokens.is_floating_point():
            raise UserError(
                f"Rivals are one token an example and digit, {list(right.shape)}, not {list(tokens.shape)}."
            )
        if tokens.min() < 0 or tokens.max() >= n_logits:
            raise UserError(f"Rivals are tokens from 0 to {n_logits - 1}.")
    if same := int((tokens == right).sum()):
        raise UserError(f"{same:,} rivals are the right digit itself, over which it cannot lead.")
    return one_hot - torch.nn.functional.one_hot(tokens.long(), n_logits).float(), over


def attributed(
    model: ArithmeticTransformer,
    task: Task,
    tokens: Int[Tensor, "n pos"],
    targets: Sequence[int],
    coefficients: Float[Tensor, "n target d_vocab"],
) -> tuple[
    Float[np.ndarray, "part target n"],
    pd.DataFrame,
    Float[np.ndarray, "layer unit target n"] | None,
    Float[np.ndarray, "target n"],
]:
    """(logits by part, what the parts are, logits by unit, the model's own lead)."""
    wide = torch.promote_types(model.dtype, torch.float32)  # half precision is the model's, not the sums'
    weights = {name: value.to(wide) for name, value in model.all_weights().items()}
    queries = [task.query_positions[target] for target in targets]
    roles = [visible_roles(task, target) for target in targets]
    names, of_role = membership(roles, tokens.shape[1])
    member = torch.from_numpy(of_role).float().to(model.device)
    found: dict[tuple[Any, ...], list[Tensor]] = {}
    units: dict[int, list[Tensor]] = {}
    leads = []
    start = 0
    for batch in chunks(tokens, model, 256):
        logits, cache = model.run_with_cache(batch, return_cache_object=False)
        logits, cache = logits.to(wide), {name: value.to(wide) for name, value in cache.items()}
        c = coefficients[start : start + len(batch)].to(logits)
        start += len(batch)
        leads.append((logits[:, queries] * c).sum(-1))
        u, constant = directions(model, weights, cache, queries, c)
        found.setdefault(("embed", "embed", -1, -1, ""), []).append(_dot(cache["hook_embed"][:, queries], u))
        if "hook_pos_embed" in cache:
            found.setdefault(("pos", "pos", -1, -1, ""), []).append(_dot(cache["hook_pos_embed"][:, queries], u))
        for layer in range(model.config.n_layers):
            for key, value in _heads(cache, weights, layer, queries, u, member, names):
                found.setdefault(key, []).append(value)
            for key, value in _biases(weights, layer, u):
                found.setdefault(key, []).append(value)
            if model.config.d_mlp:
                by_unit = unit_writes(cache, weights, layer, queries, u)
                units.setdefault(layer, []).append(by_unit)
                found.setdefault((layer_part(layer, "mlp"), "mlp", layer, -1, ""), []).append(by_unit.sum(-1))
        found.setdefault(("constant", "bias", -1, -1, ""), []).append(constant)

    values = torch.stack([torch.cat(parts) for parts in found.values()]).transpose(1, 2)
    of_units = torch.stack([torch.cat(parts) for parts in units.values()]).permute(0, 3, 2, 1) if units else None
    table = pd.DataFrame(list(found), columns=list(PARTS_AXES))
    return (
        values.cpu().numpy(),
        table,
        None if of_units is None else of_units.cpu().numpy(),
        torch.cat(leads).T.cpu().numpy(),
    )


def _dot(x: Float[Tensor, "n target d_model"], u: Float[Tensor, "n target d_model"]) -> Float[Tensor, "n target"]:
    return (x * u).sum(-1)


def directions(
    model: ArithmeticTransformer,
    weights: dict[str, Tensor],
    cache: dict[str, Tensor],
    queries: list[int],
    coefficients: Float[Tensor, "n target d_vocab"],
) -> tuple[Float[Tensor, "n target d_model"], Float[Tensor, "n target"]]:
    """(u, constant) with  lead = stream . u + constant  at the frozen scale of the final norm."""
    u = coefficients @ weights["unembed.W_U"].T
    constant = coefficients @ weights["unembed.b_U"]
    if not model.config.has_final_norm:
        return u, constant
    if "ln_final.b" in weights:
        constant = constant + u @ weights["ln_final.b"]
    u = u * weights["ln_final.w"]
    if model.config.normalization_type == "LN":
        u = u - u.mean(-1, keepdim=True)
    return u / cache["ln_final.hook_scale"][:, queries], constant


def _heads(
    cache: dict[str, Tensor],
    weights: dict[str, Tensor],
    layer: int,
    queries: list[int],
    u: Float[Tensor, "n target d_model"],
    member: Float[Tensor, "target role key"],
    names: Sequence[str],
) -> Iterator[tuple[tuple[Any, ...], Float[Tensor, "n target"]]]:
    """What each head of a layer contributes through the keys of each role; NaN where a target has no such key."""
    attn = in_block(layer, "attn")
    read = torch.einsum("ntm,hdm->nthd", u, weights[f"{attn}.W_O"])
    by_key = torch.einsum("nthd,nkhd->nthk", read, cache[f"{attn}.hook_v"])
    by_key = by_key * cache[f"{attn}.hook_pattern"][:, :, queries].transpose(1, 2)
    by_role = torch.einsum("nthk,trk->nthr", by_key, member.to(by_key))
    by_role = by_role.masked_fill((member.sum(-1) == 0)[:, None], float("nan"))
    for head in range(by_role.shape[2]):
        for i, role in enumerate(names):
            yield (f"{head_name(layer, head)} {role}", "head", layer, head, role), by_role[:, :, head, i]


def _biases(
    weights: dict[str, Tensor], layer: int, u: Float[Tensor, "n target d_model"]
) -> Iterator[tuple[tuple[Any, ...], Float[Tensor, "n target"]]]:
    for name in ("attn.b_O", "mlp.b_out"):
        if in_block(layer, name) in weights:
            part = layer_part(layer, name.partition(".")[2])
            yield (part, "bias", layer, -1, ""), u @ weights[in_block(layer, name)]


def unit_writes(
    cache: dict[str, Tensor],
    weights: dict[str, Tensor],
    layer: int,
    queries: list[int],
    u: Float[Tensor, "n target d_model"],
) -> Float[Tensor, "n target unit"]:
    """What each neuron contributes: its activation times its row of ``W_out``."""
    return cache[in_block(layer, "mlp.hook_post")][:, queries] * (u @ weights[in_block(layer, "mlp.W_out")].T)
