"""Where each answer digit looks: attention patterns averaged by what a position *means* to the digit.

A pattern over 33 positions is read badly by eye; the question is how much weight goes to the digits of the own
column, to the previous column, to the last output. ``task.relative_roles(target)`` groups the positions so, and

    weight[role]   = sum of the attention weights on the role's positions (the roles' weights sum to 1)
    per_key[role]  = weight[role] / number of positions of the role
    gap            = ln(per_key[own operands] / per_key[previous column])     in nats

For a softmax over scores the gap is the difference between the scores of the two roles. Addition in base B suggests
ln B: then ten units in the previous column weigh as much as one in the own.

Limits. A mean over inputs hides heads that choose between keys by value: read ``spread``. Where it is zero the
attention depends on the position only, which the result states from its sample, not as a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from interp.problems import chunks, digit_tokens, draw, resolve_task
from interp.results import Provenance, Result
from interp.stats import mean_interval
from models.errors import UserError

POSITION_ONLY = 1e-5  # largest standard deviation over inputs that float32 rounding of the norms can cause
OWN, PREVIOUS = "own operands", "previous"  # role names: exactly this, and every one that starts so


@dataclass(frozen=True, eq=False)
class AttentionByRole(Result):
    """Attention by role, for every layer, head and answer target.

    ``table`` is an :class:`xarray.Dataset` over (layer, head, target, role):

    * ``weight``, ``spread``: mean and standard deviation over inputs of the weight on the role
    * ``per_key``: mean weight on one position of the role (NaN for a role without positions)
    * ``uniform``: the weight an attention that ignores roles would give [target, role]
    * ``entropy``, ``entropy_spread``: of the whole row, nats [layer, head, target]
    * ``p_value``: chance that keys shuffled within each query rank the role's keys as high [layer, head, role]. It
      rules out attention that ignores roles; for what an untrained model does, run the probe on one

    ``pattern`` [layer, head, target, key] is the mean pattern on the query rows and ``pattern_spread`` its standard
    deviation.
    """

    table: xr.Dataset
    pattern: xr.DataArray
    pattern_spread: xr.DataArray
    base: int
    provenance: Provenance

    @property
    def gap(self) -> xr.DataArray:
        """``ln(per_key[own] / per_key[previous column])`` [layer, head, target], nats.

        The previous column holds both its operands and its output. NaN where either group is empty or unattended.
        """
        return self.log_ratio([OWN], [role for role in self.table.role.values.tolist() if role.startswith(PREVIOUS)])

    def log_ratio(self, roles: Sequence[str], others: Sequence[str]) -> xr.DataArray:
        """Log ratio of the mean weight of one key of ``roles`` to one of ``others`` [layer, head, target], nats."""
        known = self.table.role.values.tolist()
        missing = [role for role in (*roles, *others) if role not in known]
        if missing:
            raise UserError(f"There is no role {missing[0]!r}; there is {', '.join(known)}.")
        per_key = []
        for group in (list(roles), list(others)):
            part = self.table.sel(role=group)
            n_keys = part.n_keys.sum("role")
            per_key.append(part.weight.sum("role") / n_keys.where(n_keys > 0))
        ratio = per_key[0] / per_key[1].where(per_key[1] > 0)
        return np.log(ratio.where(ratio > 0)).rename("gap")

    def mean_gap(self, layer: int | None = None, head: int | None = None) -> tuple[float, float, float]:
        """Mean gap over the targets that have one, with its Student-t interval *over targets*; NaNs if none has."""
        values = self.gap.sel(self._head(layer, head)).values
        values = values[~np.isnan(values)]
        return mean_interval(values) if len(values) else (math.nan, math.nan, math.nan)

    @property
    def max_spread(self) -> float:
        """Largest standard deviation over inputs of any single attention weight."""
        return float(self.pattern_spread.max())

    @property
    def position_only(self) -> bool:
        """Whether the attention was the same on every sampled input, up to float32 rounding."""
        return self.max_spread < POSITION_ONLY

    @property
    def main_head(self) -> tuple[int, int]:
        """(layer, head) that puts most weight on the own and the previous column, over all targets."""
        column = [r for r in self.table.role.values.tolist() if r == OWN or r.startswith(PREVIOUS)]
        share = self.table.weight.sel(role=column or self.table.role.values).sum("role").mean("target")
        layer, head = np.unravel_index(int(share.values.argmax()), share.shape)
        return int(share["layer"][layer]), int(share["head"][head])

    def _head(self, layer: int | None, head: int | None) -> dict[str, int]:
        chosen: dict[str, int] = dict(zip(("layer", "head"), self.main_head, strict=True))
        for name, value in (("layer", layer), ("head", head)):
            if value is not None:
                if value not in self.table[name].values:
                    raise UserError(f"There is no {name} {value}; there are {self.table.sizes[name]}, counted from 0.")
                chosen[name] = value
        return chosen

    def sentence(self, layer: int | None = None, head: int | None = None) -> str:
        chosen = self._head(layer, head)
        name = f"L{chosen['layer']}H{chosen['head']}"
        gap, (mean, low, high) = self.gap.sel(chosen).dropna("target"), self.mean_gap(layer, head)
        row = self.table.sel(chosen)
        if gap.size:
            targets = gap.target.values
            own = float(row.per_key.sel(role=OWN, target=targets).mean())
            previous = own / math.exp(mean)
            span = f"{targets[0]} to {targets[-1]}" if len(targets) > 1 else str(targets[0])
            text = (
                f"{name} gives each operand digit of the answer's own column {own:.3f} of its weight and each digit of "
                f"the previous column {previous:.3f}: {times(mean)} to 1, a score gap of {mean:.3f} nats"
                f"{gap_interval(low, high)} over {span} (ln {self.base} = {math.log(self.base):.3f})"
            )
        else:
            mass = row.weight.mean("target")
            top = mass.role.values[int(np.argmax(mass.values))]
            text = f"{name} puts {float(mass.max()):.3f} of its weight on {top}, averaged over targets"
        if self.position_only:
            return f"{text}; it was the same on every input (largest standard deviation {self.max_spread:.0e})."
        return f"{text}; it depends on the input (standard deviation of a weight up to {self.max_spread:.2g})."

    def to_dataframe(self) -> pd.DataFrame:
        """One row a layer, head, target and role, with a normal 95% interval of the mean weight over inputs."""
        frame = self.table[["weight", "spread", "per_key", "uniform", "n_keys"]].to_dataframe().reset_index()
        half = 1.96 * frame["spread"] / math.sqrt(self.provenance.n)
        frame.insert(frame.columns.get_loc("spread") + 1, "low", frame["weight"] - half)
        frame.insert(frame.columns.get_loc("low") + 1, "high", frame["weight"] + half)
        for extra in (self.table.p_value.rename("p_role"), self.table.entropy, self.gap):
            frame = frame.merge(extra.to_dataframe().reset_index())
        order = ["layer", "head", "target", "role", "n_keys"]
        return frame[order + [column for column in frame.columns if column not in order]]

    def figure(self, layer: int | None = None, head: int | None = None) -> Any:
        """Weight by target and role of one head (the main one unless said), with the gap beside it."""
        from interp.figures import attention_by_role

        return attention_by_role(self, **self._head(layer, head))

    def heads_figure(self) -> Any:
        """Every head's mean weight by role."""
        from interp.figures.attention import attention_heads

        return attention_heads(self)

    def pattern_figure(self, layer: int | None = None, head: int | None = None) -> Any:
        """The mean pattern over all positions of one head, labelled by token role."""
        from interp.figures import attention_pattern

        return attention_pattern(self, **self._head(layer, head))


def times(gap: float) -> str:
    """exp(gap) to as many digits as mean something: "9.9", "165,672", "0.0021"."""
    ratio = math.exp(gap)
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"


def gap_interval(low: float, high: float) -> str:
    """The interval behind a number, with a space before it; nothing where one value gives no interval."""
    return f" [{low:.3f}, {high:.3f}]" if math.isfinite(low) and math.isfinite(high) else ""


def compute_attention_by_role(
    pattern: Iterable[Float[np.ndarray, "chunk layer head target key"]],
    roles: Sequence[Mapping[str, Sequence[int]]],
    target_labels: Sequence[str],
    key_labels: Sequence[str],
    provenance: Provenance,
    base: int = 10,
    permutations: int = 999,
) -> AttentionByRole:
    """Attention by role from query rows of patterns.

    Args:
        pattern: chunks of inputs, each [chunk, layer, head, target, key]; rows sum to 1. One array in a list will do.
        roles: for each target, positions by role; every visible key in exactly one role.
        target_labels, key_labels: names for the axes.
        provenance: what the inputs are.
        base: of the number system, for the reference value ln(base).
        permutations: draws of the control that shuffles keys within each query.

    Raises:
        UserError: no input, NaN weights, or a number of targets that differs from ``roles``.
    """
    names = list(dict.fromkeys(name for groups in roles for name in groups))
    member: np.ndarray | None = None
    shift: dict[str, np.ndarray] = {}
    sums: dict[str, np.ndarray] = {}
    squares: dict[str, np.ndarray] = {}
    n = 0
    for chunk in pattern:
        chunk = np.asarray(chunk, dtype=np.float64)
        if member is None:
            if chunk.shape[3] != len(roles) or len(target_labels) != len(roles) or chunk.shape[4] != len(key_labels):
                raise UserError(
                    f"Patterns of {chunk.shape[3]} targets and {chunk.shape[4]} keys do not match their labels."
                )
            member = np.zeros((len(roles), len(names), chunk.shape[4]))
            for target, groups in enumerate(roles):
                for name, positions in groups.items():
                    member[target, names.index(name), list(positions)] = 1
            if (member.sum(1) > 1).any():
                raise UserError("A position has two roles for one target; weights by role would not sum to 1.")
        if np.isnan(chunk).any():
            raise UserError("The attention pattern holds NaN: a query attends to nothing, or the model has diverged.")
        log = np.log(np.where(chunk > 0, chunk, 1.0))
        parts = {"key": chunk, "role": np.einsum("nlhtk,trk->nlhtr", chunk, member), "entropy": -(chunk * log).sum(-1)}
        for key, part in parts.items():  # moments about the first input, so that a constant has spread exactly 0
            shift.setdefault(key, part[0])
            sums[key] = sums.get(key, 0.0) + (part - shift[key]).sum(0)
            squares[key] = squares.get(key, 0.0) + ((part - shift[key]) ** 2).sum(0)
        n += len(chunk)
    if member is None:
        raise UserError("There is no attention pattern to average.")
    mean = {key: shift[key] + sums[key] / n for key in sums}
    spread = {key: np.sqrt(np.maximum(squares[key] / n - (sums[key] / n) ** 2, 0.0)) for key in sums}
    keys = member.sum(-1)
    p_value = _shuffled_keys(mean["key"], member, permutations, provenance.seed or 0)
    axes = ("layer", "head", "target")
    table = xr.Dataset(
        {
            "weight": ((*axes, "role"), mean["role"]),
            "spread": ((*axes, "role"), spread["role"]),
            "per_key": ((*axes, "role"), mean["role"] / np.where(keys > 0, keys, np.nan)),
            "n_keys": (("target", "role"), keys.astype(int)),
            "uniform": (("target", "role"), keys / keys.sum(-1, keepdims=True)),
            "entropy": (axes, mean["entropy"]),
            "entropy_spread": (axes, spread["entropy"]),
            "p_value": (("layer", "head", "role"), p_value),
        },
        coords={
            "layer": np.arange(mean["key"].shape[0]),
            "head": np.arange(mean["key"].shape[1]),
            "target": list(target_labels),
            "role": names,
        },
    )
    coords = {
        **{a: table[a].values for a in axes},
        "key": np.arange(len(key_labels)),
        "label": ("key", list(key_labels)),
    }
    patterns = [xr.DataArray(x, dims=(*axes, "key"), coords=coords) for x in (mean["key"], spread["key"])]
    return AttentionByRole(table, *patterns, base=base, provenance=provenance)


def _shuffled_keys(pattern: np.ndarray, member: np.ndarray, permutations: int, seed: int) -> np.ndarray:
    """Permutation p-value [layer, head, role] of the summed rank of a role's keys within each query."""
    from scipy.stats import rankdata

    rng = np.random.default_rng(seed)
    observed = np.zeros((*pattern.shape[:2], member.shape[1]))
    null = np.zeros((permutations, *observed.shape))
    for target in range(pattern.shape[2]):
        visible = member[target].sum(0) > 0
        groups = member[target][:, visible]
        ranks = rankdata(pattern[:, :, target, visible], axis=-1)
        shuffle = np.argsort(rng.random((permutations, int(visible.sum()))), axis=1)
        observed += np.einsum("lhk,rk->lhr", ranks, groups)
        null += np.einsum("lhk,rpk->plhr", ranks, groups[:, shuffle])
    at_least = (null >= observed).sum(0)  # ranks are halves: sums are exact
    return (1 + at_least) / (permutations + 1)


def visible_roles(groups: Mapping[str, Sequence[int]], query: int) -> dict[str, list[int]]:
    """A target's roles with every position up to its query in one of them: those of no role are "rest"."""
    visible = {name: [p for p in positions if p <= query] for name, positions in groups.items()}
    taken = {position for positions in visible.values() for position in positions}
    left = [position for position in range(query + 1) if position not in taken]
    return visible | {"rest": sorted(visible.get("rest", []) + left)}


def with_rows(
    pattern: Float[Tensor, "batch head query key"], head: int, rows: Float[Tensor, "... key"], queries: Sequence[int]
) -> Float[Tensor, "batch head query key"]:
    """The pattern with the rows of one head at these queries replaced: [row, key], or [batch, row, key]."""
    pattern = pattern.clone()
    pattern[:, head, torch.tensor(list(queries), device=pattern.device, dtype=torch.long)] = rows.to(pattern)
    return pattern


def attention_by_role(
    model: Any,
    task: Any = None,
    problems: Any = None,
    n: int = 2048,
    seed: int = 0,
) -> AttentionByRole:
    """Where each answer target looks, by role, for every layer and head of a hooked model.

    Args:
        model: any model with TransformerLens hooks; only ``cfg`` and ``attn.hook_pattern`` are used.
        task: what its tokens mean; ``model.task`` unless given.
        problems: problems to look at; ``n`` uniform ones drawn with ``seed`` unless given.

    The patterns are read with the right answer in place (teacher forcing), at the query of each target.

    Raises:
        UserError: another task's model, fewer than 2 problems, or a model that diverged.
    """
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    queries = list(task.query_positions)
    layers = range(model.cfg.n_layers)

    def patterns() -> Iterable[np.ndarray]:
        for tokens in chunks(sample.tokens, model):
            rows: dict[int, np.ndarray] = {}

            def keep(pattern: torch.Tensor, hook: Any, layer: int, into: dict[int, np.ndarray]) -> None:
                into[layer] = pattern[:, :, queries].float().cpu().numpy()

            hooks = [(f"blocks.{layer}.attn.hook_pattern", partial(keep, layer=layer, into=rows)) for layer in layers]
            with torch.no_grad():
                model.run_with_hooks(tokens, return_type=None, fwd_hooks=hooks)
            yield np.stack([rows[layer] for layer in layers], 1)

    length = sample.tokens.shape[1]
    return compute_attention_by_role(
        patterns(),
        [visible_roles(task.relative_roles(target), query) for target, query in enumerate(queries)],
        [role.label for role in task.target_roles],
        [role.label for role in task.roles][:length],
        sample.provenance,
        digit_tokens(task),
    )
