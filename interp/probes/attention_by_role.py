"""Where each answer digit looks: attention patterns averaged by what a position *means* to the digit.

A pattern over 33 positions is hard to read by eye. The question is how much weight goes to the digits of the own
column, to the previous column and to the written digit. With the groups of ``task.relative_roles(target)``,

    weight[role]   = sum of the attention weights on the role's positions (the roles' weights sum to 1)
    per_key[role]  = weight[role] / number of positions of the role
    gap            = ln(per_key[own operands] / per_key[previous operands])     in nats

For a softmax over scores the gap is the difference between the scores of the two roles. Addition in base B suggests
ln B: then B units in the previous column weigh as much as one in the own.

A mean over the keys of a role describes a single key only if the keys are alike. The statement lists keys separately
where the strongest has more than ``ALIKE`` times the mean, and gives a ratio only between roles whose keys are alike.
The previous output digit is not an operand: it is listed separately from the previous operands unless its weight is
the same.

A mean over inputs does not describe a head that chooses between keys by value. The statement says so where the weight
on most keys of a role is bimodal over inputs (:data:`~interp.core.thresholds.BIMODAL`), with the two values.

Limits. Other ways to depend on the input are only in ``spread``. Where it is zero, attention depends on the position
only; the result says so of its sample, which is not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.frames import as_frame, leading, select
from interp.core.key_roles import membership, target_labels, visible_roles
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.runs import read_patterns
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import mean_interval
from interp.core.task_checks import digit_ids, resolve_task
from interp.core.thresholds import FAINT, MAJORITY, POSITION_ONLY
from interp.core.views import Grid, Line, Picture, Points, Series, View
from interp.probes.attention_keys import Keys, gap_interval, shuffled_keys, times
from interp.probes.pattern_statistics import PatternMoments
from models.errors import UserError, known_name
from models.number_format import in_percent, small
from models.tasks import OUTPUT, OWN, PREVIOUS, Task
from models.transformer import HookedModel, head_name

_FAINTEST = 1e-4  # weights below this have one colour in the pattern


@dataclass(frozen=True, eq=False)
class AttentionByRole(Result):
    """Attention by role, for every layer, head and answer target.

    ``table`` is an :class:`xarray.Dataset` over (layer, head, target, role):

    * ``weight``, ``spread``: mean and standard deviation over inputs of the weight on the role
    * ``per_key``: mean weight on one position of the role (NaN for a role without positions)
    * ``member``: whether a key has the role [target, role, key]; ``n_keys``: how many have it [target, role]
    * ``uniform``: the weight that attention would give if it ignored roles [target, role]
    * ``gap_error``: standard error of the mean gap over targets, from the spread over inputs [layer, head]
    * ``entropy``, ``entropy_spread``: mean and standard deviation of a row's entropy, nats [layer, head, target]
    * ``p_value``: chance that keys shuffled within each query rank the role's keys as high [layer, head, role]. It
      rules out attention that ignores roles; to see what an untrained model does, run the probe on one

    ``pattern`` [layer, head, target, key] is the mean pattern on the query rows and ``pattern_spread`` its standard
    deviation. ``states`` [state, layer, head, target, key]: the lower and the higher value where a weight is bimodal
    over inputs, as two values with its mean, spread and skewness; NaN elsewhere.
    """

    table: xr.Dataset
    pattern: xr.DataArray
    pattern_spread: xr.DataArray
    states: xr.DataArray
    base: int
    provenance: Provenance

    @property
    def gap(self) -> xr.DataArray:
        """``ln(per_key[own operands] / per_key[previous operands])`` [layer, head, target], nats.

        NaN where either role is missing, empty or unattended.
        """
        if {OWN, PREVIOUS} - set(self.table.role.values.tolist()):
            return xr.full_like(self.table.entropy, math.nan).rename("gap")
        return self.log_ratio([OWN], [PREVIOUS])

    def log_ratio(self, roles: Sequence[str], others: Sequence[str]) -> xr.DataArray:
        """Log ratio of the mean weight of one key of ``roles`` to one of ``others`` [layer, head, target], nats."""
        for role in (*roles, *others):
            known_name("role", role, self.table.role.values.tolist())
        per_key = []
        for group in (list(roles), list(others)):
            part = self.table.sel(role=group)
            n_keys = part.n_keys.sum("role")
            per_key.append(part.weight.sum("role") / n_keys.where(n_keys > 0))
        ratio = per_key[0] / per_key[1].where(per_key[1] > 0)
        return np.log(ratio.where(ratio > 0)).rename("gap")

    def mean_gap(self, layer: int | None = None, head: int | None = None) -> tuple[float, float, float]:
        """Mean gap over the targets that have one, and a 95% interval; NaNs if no target has one.

        ``half^2 = (t s / sqrt(targets))^2 + (t' gap_error)^2``. The first term is the spread s between targets (zero
        for one target), the second that of the sample of inputs, each with its Student t. All targets see the same
        inputs, whose random choice shifts all of them together; the first term alone does not show that.
        """
        chosen = self.chosen_head(layer, head)
        values = self.gap.sel(chosen).values
        values = values[~np.isnan(values)]
        if not len(values):
            return math.nan, math.nan, math.nan
        mean, low, _ = mean_interval(values)
        sampled = float(stdtrit(max(self.provenance.n - 1, 1), 0.975) * self.table.gap_error.sel(chosen))
        half = math.hypot(mean - low if len(values) > 1 else 0.0, sampled)
        return mean, mean - half, mean + half

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
        """(layer, head) of the head that puts most weight on the own and the previous column, over all targets."""
        column = [r for r in self.table.role.values.tolist() if r == OWN or r.startswith("previous")]
        share = self.table.weight.sel(role=column or self.table.role.values).sum("role").mean("target")
        layer, head = np.unravel_index(int(share.values.argmax()), share.shape)
        return int(share["layer"][layer]), int(share["head"][head])

    def chosen_head(self, layer: int | None = None, head: int | None = None) -> dict[str, int]:
        """Coordinates of a head, by default the main one. Raises UserError if there is no such head."""
        main = self.main_head
        chosen = {"layer": main[0] if layer is None else layer, "head": main[1] if head is None else head}
        select(self.table, **chosen)  # raises, and says which heads exist
        return chosen

    def statement(self, layer: int | None = None, head: int | None = None) -> str:
        """Where one head (default: the main one) looks, as a sentence without its full stop."""
        chosen = self.chosen_head(layer, head)
        name, row = head_name(chosen["layer"], chosen["head"]), self.table.sel(chosen)
        roles = [OWN, PREVIOUS]
        both = (row.n_keys.sel(role=roles) > 0).all("role") if {*roles} <= {*row.role.values.tolist()} else None
        if both is None or not both.any():
            mass = row.weight.mean("target")
            top = mass.role.values[int(np.argmax(mass.values))]
            return f"{name} puts {in_percent(float(mass.max()))} of its weight on {top}, averaged over targets"
        targets = row.target.values[both.values].tolist()
        if OUTPUT in row.role.values and bool((row.n_keys.sel(role=OUTPUT, target=targets) > 0).all()):
            roles.append(OUTPUT)
        pattern = self.pattern.sel(chosen).sel(target=targets).values
        member = row.member.sel(target=targets).astype(bool)
        keys = {role: Keys.of(pattern, member.sel(role=role).values, self.pattern.label.values) for role in roles}
        below = Keys.of(pattern, member.sel(role=roles[1:]).any("role").values, self.pattern.label.values)
        modes = {role: self._modes(chosen, targets, member.sel(role=role).values) for role in roles}
        column = "of the answer's own column"
        own = f"{'each operand digit' if keys[OWN].alike else 'the operand digits'} {column} {keys[OWN]}"
        if below.alike and not (modes[PREVIOUS] or modes.get(OUTPUT)):
            parts = [f"{own} of its weight{modes[OWN]}", f"each digit of the previous column {below}"]
        else:
            each = "each operand digit" if keys[PREVIOUS].alike else "the operand digits"
            parts = [
                f"{own} of its weight{modes[OWN]}",
                f"{each} of the previous column {keys[PREVIOUS]}{modes[PREVIOUS]}",
            ]
            parts += [f"the previous output digit {keys[OUTPUT]}{modes[OUTPUT]}"] if OUTPUT in keys else []
        text = f"{name} gives {', '.join(parts[:-1])} and {parts[-1]}"
        span = f"{targets[0]} to {targets[-1]}" if len(targets) > 1 else str(targets[0])
        mean, low, high = self.mean_gap(layer, head)
        alike = keys[OWN].alike and keys[PREVIOUS].alike and not (modes[OWN] or modes[PREVIOUS])
        if not alike or not np.isfinite(self.gap.sel(chosen).sel(target=targets).values).all():
            return f"{text}, over {span}"
        between = "" if below.alike else " between operands"
        return (
            f"{text}: {times(mean)} to 1{between}, a score gap of {mean:.3f} nats{gap_interval(low, high)} over {span} "
            f"(ln {self.base} = {math.log(self.base):.3f})"
        )

    def _modes(self, head: dict[str, int], targets: list[str], member: Bool[np.ndarray, "target key"]) -> str:
        """The two values that a role's keys take, in words; empty unless most of its keys with weight are bimodal."""
        states = self.states.sel(head).sel(target=targets).transpose("target", "key", "state").values[member]
        weight = self.pattern.sel(head).sel(target=targets).values[member]
        states = states[weight >= FAINT]
        known = states[~np.isnan(states).any(1)]
        if len(known) <= MAJORITY * len(states):
            return ""
        low, high = np.clip(known.mean(0), 0.0, 1.0)
        return f" on average (bimodal over inputs: near {low:.2f} or {high:.2f})"

    def sentence(self, layer: int | None = None, head: int | None = None) -> str:
        text = self.statement(layer, head)
        if self.position_only:
            same = f"the same on all {self.provenance.n:,} inputs"
            return f"{text}; it was {same} (largest standard deviation {small(self.max_spread, 1)})."
        return f"{text}; it depends on the input (standard deviation of a weight up to {self.max_spread:.2g})."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, head, target and role, with a Student-t 95% interval of the mean weight over inputs."""
        frame = as_frame(self.table[["weight", "spread", "per_key", "uniform", "n_keys"]])
        more = max(self.provenance.n - 1, 1)  # the spread divides by n
        half = float(stdtrit(more, 0.975)) * frame["spread"] / math.sqrt(more)
        frame.insert(frame.columns.get_loc("spread") + 1, "low", (frame["weight"] - half).clip(0.0, 1.0))
        frame.insert(frame.columns.get_loc("low") + 1, "high", (frame["weight"] + half).clip(0.0, 1.0))
        for extra in (self.table.p_value.rename("p_role"), self.table.entropy, self.gap):
            frame = frame.merge(extra.to_dataframe().reset_index())
        return leading(frame, ("layer", "head", "target", "role", "n_keys"))


def compute_attention_by_role(
    pattern: Iterable[Float[np.ndarray, "chunk layer head target key"]],
    roles: Sequence[Mapping[str, Sequence[int]]],
    target_labels: Sequence[str],
    key_labels: Sequence[str],
    provenance: Provenance,
    base: int = 10,
    resamples: int = 999,
) -> AttentionByRole:
    """Attention by role from query rows of patterns.

    Args:
        pattern: chunks of inputs, each [chunk, layer, head, target, key], or a list of one array; rows sum to 1.
        roles: for each target, positions by role; every visible key is in exactly one role.
        target_labels, key_labels: names for the axes.
        provenance: what the inputs are.
        base: base of the number system, for the reference value ln(base).
        resamples: draws of the control that shuffles keys within each query.

    Raises:
        UserError: no input, weights that do not sum to 1, or a number of targets that differs from ``roles``.
    """
    names, of_role = membership(roles, len(key_labels))
    if (of_role.sum(1) > 1).any():
        raise UserError("A position has two roles for one target; weights by role would not sum to 1.")
    member = of_role.astype(float)
    pair = [names.index(OWN), names.index(PREVIOUS)] if {OWN, PREVIOUS} <= set(names) else None
    moments = PatternMoments(member, pair)
    for chunk in pattern:
        chunk = np.asarray(chunk, dtype=np.float64)
        if chunk.shape[3] != len(roles) or len(target_labels) != len(roles) or chunk.shape[4] != len(key_labels):
            raise UserError(
                f"Patterns of {chunk.shape[3]} targets and {chunk.shape[4]} keys do not match their labels."
            )
        moments.add(chunk)
    if not moments.n:
        raise UserError("There is no attention pattern to average.")
    mean, spread, states, error = moments.mean, moments.spread, moments.states(), moments.gap_error()
    keys = member.sum(-1)
    p_value = shuffled_keys(mean["key"], member, resamples, provenance.resampling_seed)
    axes = ("layer", "head", "target")
    table = xr.Dataset(
        {
            "weight": ((*axes, "role"), mean["role"]),
            "spread": ((*axes, "role"), spread["role"]),
            "per_key": ((*axes, "role"), mean["role"] / np.where(keys > 0, keys, np.nan)),
            "member": (("target", "role", "key"), of_role),
            "n_keys": (("target", "role"), keys.astype(int)),
            "uniform": (("target", "role"), keys / keys.sum(-1, keepdims=True)),
            "entropy": (axes, mean["entropy"]),
            "entropy_spread": (axes, spread["entropy"]),
            "p_value": (("layer", "head", "role"), p_value),
            "gap_error": (("layer", "head"), error),
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
    pattern_mean, pattern_spread = (
        xr.DataArray(x, dims=(*axes, "key"), coords=coords) for x in (mean["key"], spread["key"])
    )
    low_high = xr.DataArray(states, dims=("state", *axes, "key"), coords=coords | {"state": ["low", "high"]})
    return AttentionByRole(table, pattern_mean, pattern_spread, low_high, base, provenance)


def _gap(found: AttentionByRole) -> Estimate:
    layer, head = found.main_head
    return Estimate(*found.mean_gap(), note=head_name(layer, head))


@probe(
    "Where does each answer digit look?",
    control=True,
    scalar=Scalar("attention, own over previous column", "nats", _gap, 0.05, lambda _, __, n, ___: {"n": min(n, 256)}),
)
def attention_by_role(
    model: HookedModel,
    *,
    task: Task | None = None,
    problems: Any = None,
    n: int = N_PROBLEMS,
    seed: int = 0,
) -> AttentionByRole:
    """Where each answer target looks, by role, for every layer and head of a hooked model.

    Args:
        model: any model with TransformerLens hooks; only ``cfg`` and ``attn.hook_pattern`` are used.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` uniform ones, drawn with ``seed``.

    The patterns are read with the right answer in place (teacher forcing), at the query of each target.

    Raises:
        UserError: a task that is not the model's, fewer than 2 problems, or a model that diverged.
    """
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    queries = list(task.query_positions)
    length = sample.tokens.shape[1]
    return compute_attention_by_role(
        read_patterns(model, sample.tokens, queries),
        [visible_roles(task, target) for target in range(len(queries))],
        target_labels(task),
        [role.label for role in task.roles][:length],
        sample.provenance,
        len(digit_ids(task)),
    )


@drawing(AttentionByRole)
def attention_view(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> Picture:
    """Weight of one head (default: the main one) by target and role, and the score gap of each target."""
    layer, head = result.chosen_head(layer, head).values()
    table = result.table.sel(layer=layer, head=head)
    said = {name.replace("_", " "): table[name].values for name in ("n_keys", "spread", "uniform")}
    shown = np.where(table.n_keys.values > 0, table.weight.values, np.nan)
    x, y = "role of the position attended to", "answer token predicted"
    targets = table.target.values.tolist()
    views: list[View] = [Grid(x, y, "", shown, targets, table.role.values, "weight", said=said)]
    gap = result.gap.sel(layer=layer, head=head).values
    if not np.isnan(gap).all():
        level = math.log(result.base)
        lines = (Line(0), Line(level, f"ln {result.base} = {level:.3f}"))
        views.append(Points("", "ln(own operand / previous), nats", "", (Series("", targets, gap),), "", lines, True))
    return Picture(views, title=result.statement(layer, head), note=_note(result), shared="y")


def _note(result: AttentionByRole) -> str:
    if result.position_only:
        return (
            f"The same on all {result.provenance.n:,} inputs (largest standard deviation {small(result.max_spread, 1)})"
        )
    return f"Means over inputs; the weights depend on them (standard deviation up to {result.max_spread:.2g})"


@drawing(AttentionByRole, "heads")
def heads_view(result: AttentionByRole) -> Picture:
    """Every head's mean weight by role, over the targets with operands in the own and the previous column."""
    weight, keys = result.table.weight, result.table.n_keys
    needed = [role for role in weight.role.values if role == OWN or str(role).startswith("previous")]
    both = [target for target in weight.target.values if (keys.sel(target=target, role=needed) > 0).all()]
    mean = weight.sel(target=both or weight.target.values).mean("target").stack(row=("layer", "head"))
    values, roles = mean.transpose("row", "role").values, mean.role.values.tolist()
    names = [head_name(i, h) for i, h in mean.row.values]
    most = [roles[int(row.argmax())] for row in values]
    ranked = sorted(set(most), key=lambda role: (-most.count(role), roles.index(role)))
    counted = [f"{most.count(role)} at {role}" for role in ranked]
    counted[0] = f"{most.count(ranked[0])} of {len(names)} heads look mostly at {ranked[0]}"
    span = f"{both[0]} to {both[-1]}" if len(both) > 1 else ", ".join(map(str, both)) or "all targets"
    grid = Grid("role of the position attended to", "head", "", values, names, roles, "weight")
    return Picture([grid], title=", ".join(counted), note=f"Means over {span}. {_note(result)}")


@drawing(AttentionByRole, "pattern")
def pattern_view(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> Picture:
    """The mean pattern of one head: one row per answer token, one column per position, coloured by log weight."""
    layer, head = result.chosen_head(layer, head).values()
    pattern = result.pattern.sel(layer=layer, head=head)
    keys = result.table.n_keys.values.sum(-1)  # as many as the target's roles hold: those up to the query
    visible = np.arange(pattern.sizes["key"])[None] < keys[:, None]
    values = np.where(visible, pattern.values, np.nan)
    shown = np.maximum(values, _FAINTEST)
    share = float(np.sort(np.nan_to_num(values), axis=-1)[:, -5:].sum(-1).mean())
    title = (
        f"{head_name(layer, head)}: the five strongest positions hold {in_percent(share)} of the weight of an answer "
        "token, on average"
    )
    labels = pattern.label.values.astype(str)
    at = "position attended to", "answer token predicted", "", shown, pattern.target.values, labels, "weight", "log"
    note = f"Grey: not visible. Least colour: {_FAINTEST:g} and below. {_note(result)}"
    return Picture([Grid(*at, text=np.full(shown.shape, ""), grey=~visible)], title=title, note=note)
