"""Where each answer digit looks: attention patterns averaged by what a position *means* to the digit.

A pattern over 33 positions is hard to read by eye. The question is how much weight goes to the digits of the own
column, to the previous column and to the written digit. With the groups of ``task.relative_roles(target)``,

    weight[role]   = sum of the attention weights on the role's positions (the roles' weights sum to 1)
    per_key[role]  = weight[role] / number of positions of the role
    gap            = ln(per_key[own operands] / per_key[previous operands])     in nats

For a softmax over scores the gap is the difference between the scores of the two roles. Addition in base B suggests
ln B: then B units in the previous column weigh as much as one in the own.

A mean over the keys of a role describes a single key only if the keys are alike, and a mean over inputs describes a
head only if it does not choose between keys by value. The finding gives a ratio only where no key of the two roles has
more than ``ALIKE`` times their mean, and the weight on most of them is not bimodal over inputs
(:data:`~interp.core.thresholds.BIMODAL`); the table has the numbers. The control shuffles the keys
within each query.

Limits. Other ways to depend on the input are only in ``spread``. Where it is zero, attention depends on the position
only; the result says so of its sample, which is not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import stdtrit

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.frames import select
from interp.core.key_roles import membership, visible_roles
from interp.core.probe import Summary, at_most, probe
from interp.core.results import Provenance
from interp.core.runs import read_patterns
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.stats import UPPER, mean_interval
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import digit_ids
from interp.core.thresholds import ALIKE, FAINT, MAJORITY, POSITION_ONLY
from interp.core.views import Grid, Line, Picture, Points, Series, View
from interp.probes.pattern_statistics import PatternMoments, shuffled_keys
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import in_percent, number, p_value, small
from models.tasks import OWN, PREVIOUS, TaskLike
from models.transformer import HookedModel, head_name

_FAINTEST = 1e-4  # weights below this have one colour in the pattern
KEYS = ("layer", "head", "target", "role")
MEASURES = (Measure("weight", "share", ("uniform",)), Measure("per_key", "share", title="weight on one key"))


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionByRole(TableResult):
    """Attention by role, for every layer, head and answer target.

    ``table`` is an :class:`xarray.Dataset` over (layer, head, target, role):

    * ``weight``, ``spread``: mean and standard deviation over inputs of the weight on the role; the mean has a
      Student-t 95% interval over inputs (``weight_low``, ``weight_high``)
    * ``n_keys``: how many keys have the role; ``weight_uniform``: the weight that attention would give if it ignored
      roles [target, role]
    * ``per_key``, ``strongest``, ``weakest``: the mean, largest and smallest mean weight on one position of the role
      (NaN for a role without positions)
    * ``lower``, ``higher``: the two values that the weights on most of a role's keys take, where these are bimodal over
      inputs, at the targets of ``columns`` [layer, head, role]
    * ``gap``: ln(per_key[own operands] / per_key[previous operands]) in nats; NaN where either role is missing, empty
      or unattended [layer, head, target]
    * ``gap_error``: standard error of the mean gap over targets, from the spread over inputs [layer, head]
    * ``entropy``, ``entropy_spread``: mean and standard deviation of a row's entropy, nats [layer, head, target]
    * ``p_value``: chance that keys shuffled within each query rank the role's keys as high [layer, head, role]. It
      rules out attention that ignores roles; to see what an untrained model does, run the probe on one

    ``pattern`` [layer, head, target, key] is the mean pattern on the query rows and ``pattern_spread`` its standard
    deviation. ``columns`` are the targets that have operands in their own and in the previous column.
    """

    pattern: xr.DataArray
    pattern_spread: xr.DataArray
    columns: tuple[str, ...]
    base: int

    def mean_gap(self, layer: int | None = None, head: int | None = None) -> Estimate:
        """Mean gap over the targets that have one, with a 95% interval; NaN if no target has one.

        ``half^2 = (t s / sqrt(targets))^2 + (t' gap_error)^2``. The first term is the spread s between targets (zero
        for one target), the second that of the sample of inputs, each with its Student t. All targets see the same
        inputs, whose random choice shifts all of them together; the first term alone does not show that.
        """
        row = self.of_head(layer, head)
        values, name = row.gap.values[~np.isnan(row.gap.values)], head_name(int(row.layer), int(row["head"]))
        if not len(values):
            return Estimate(math.nan, note=name)
        mean, low, _ = mean_interval(values)
        sampled = float(stdtrit(max(self.provenance.n - 1, 1), UPPER) * row.gap_error)
        half = math.hypot(mean - low if len(values) > 1 else 0.0, sampled)
        return Estimate(mean, mean - half, mean + half, note=name, unit="nats")

    @property
    def position_only(self) -> bool:
        """Whether the attention was the same on every sampled input, up to float32 rounding."""
        return bool(self.pattern_spread.max() < POSITION_ONLY)

    @property
    def main_head(self) -> tuple[int, int]:
        """(layer, head) of the head that puts most weight on the own and the previous column, over all targets."""
        column = [r for r in self.table.role.values.tolist() if r == OWN or r.startswith("previous")]
        share = self.table.weight.sel(role=column or self.table.role.values).sum("role").mean("target")
        layer, head = np.unravel_index(int(share.values.argmax()), share.shape)
        return int(layer), int(head)

    def of_head(self, layer: int | None = None, head: int | None = None) -> xr.Dataset:
        """The table of one head, by default the main one. Raises UserError if there is no such head."""
        main = self.main_head
        return select(self.table, layer=main[0] if layer is None else layer, head=main[1] if head is None else head)

    def has_ratio(self, layer: int | None = None, head: int | None = None) -> bool:
        """Whether one ratio describes what the head gives operands of the own and of the previous column: the keys of
        a role are alike, neither role is bimodal over inputs, and every target of ``columns`` has a gap."""
        if not self.columns:
            return False
        row = self.of_head(layer, head).sel(role=[OWN, PREVIOUS], target=list(self.columns))
        per_key, strongest, weakest = (row[name].mean("target") for name in ("per_key", "strongest", "weakest"))
        alike = (strongest <= ALIKE * per_key) | (strongest - weakest < FAINT)
        return bool(alike.all() and row.lower.isnull().all() and np.isfinite(row.gap).all())

    def finding(self, layer: int | None = None, head: int | None = None) -> str:
        """Where one head (default: the main one) looks, in a sentence."""
        row, targets = self.of_head(layer, head), list(self.columns)
        mass = row.weight.sel(target=targets or row.target.values).mean("target")
        role = str((mass.sel(role=[OWN, PREVIOUS]) if targets else mass).idxmax().item())
        control = f"keys shuffled within queries: {p_value(float(row.p_value.sel(role=role)))}"
        start, over = f"{head_name(int(row.layer), int(row['head']))} gives", _span(targets)
        if not targets:
            return f"{start} {role} {in_percent(float(mass.max()))} of its weight, averaged over targets ({control})."
        if self.has_ratio(layer, head):
            gap = self.mean_gap(layer, head)
            return (
                f"{start} operand digits of the answer's own column and of the previous one weights of "
                f"{number(math.exp(gap.value), 3)} to 1: a score gap of {gap} nats over {over} (ln {self.base} = "
                f"{math.log(self.base):.3f}; {control})."
            )
        own, before = (in_percent(float(mass.sel(role=role))) for role in (OWN, PREVIOUS))
        return (
            f"{start} operand digits of the answer's own column {own} of its weight and those of the previous one "
            f"{before}, in parts that differ between keys or inputs, over {over} ({control})."
        )


def _span(targets: Sequence[str]) -> str:
    return f"{targets[0]} to {targets[-1]}" if len(targets) > 1 else "".join(targets) or "all targets"


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
        pattern: chunks of inputs, whose rows sum to 1.
        roles: for each target, positions by role; every visible key is in exactly one role.
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
            raise UserError(f"Patterns of {chunk.shape[3:]} targets and keys do not match their labels.")
        moments.add(chunk)
    if not moments.n:
        raise UserError("There is no attention pattern to average.")
    mean, spread, error = moments.mean, moments.spread, moments.gap_error()
    keys = member.sum(-1)
    columns_of = (keys[:, pair] > 0).all(-1) if pair else np.zeros(len(roles), dtype=bool)
    single = np.where(of_role & (keys > 0)[..., None], mean["key"][..., None, :], np.nan)  # [..., target, role, key]
    modes = _two_values(single[:, :, columns_of], moments.states()[..., columns_of, :])
    per_key = mean["role"] / np.where(keys > 0, keys, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(per_key[..., pair[0]] / per_key[..., pair[1]]) if pair else per_key[..., 0] * np.nan
    chance = shuffled_keys(mean["key"], member, resamples, provenance.resampling_seed)
    more = max(moments.n - 1, 1)  # the spread divides by n
    half = float(stdtrit(more, UPPER)) * spread["role"] / math.sqrt(more)
    axes = KEYS[:3]
    table = xr.Dataset(
        {
            "weight": (KEYS, mean["role"]),
            "weight_low": (KEYS, (mean["role"] - half).clip(0.0, 1.0)),
            "weight_high": (KEYS, (mean["role"] + half).clip(0.0, 1.0)),
            "weight_uniform": (("target", "role"), keys / keys.sum(-1, keepdims=True)),
            "spread": (KEYS, spread["role"]),
            "per_key": (KEYS, per_key),
            "strongest": (KEYS, np.fmax.reduce(single, -1)),
            "weakest": (KEYS, np.fmin.reduce(single, -1)),
            "lower": (("layer", "head", "role"), modes[0]),
            "higher": (("layer", "head", "role"), modes[1]),
            "n_keys": (("target", "role"), keys.astype(int)),
            "gap": (axes, np.where(np.isfinite(gap), gap, np.nan)),
            "gap_error": (("layer", "head"), error),
            "entropy": (axes, mean["entropy"]),
            "entropy_spread": (axes, spread["entropy"]),
            "p_value": (("layer", "head", "role"), chance),
        },
        coords={
            "layer": np.arange(mean["key"].shape[0]),
            "head": np.arange(mean["key"].shape[1]),
            "target": list(target_labels),
            "role": names,
        },
    )
    key = {"key": np.arange(len(key_labels)), "label": ("key", list(key_labels))}
    coords = {axis: table[axis].values for axis in axes} | key
    means, spreads = (xr.DataArray(x, dims=(*axes, "key"), coords=coords) for x in (mean["key"], spread["key"]))
    columns = tuple(label for label, has in zip(target_labels, columns_of, strict=True) if has)
    found = AttentionByRole(
        "", table, provenance, KEYS, MEASURES, pattern=means, pattern_spread=spreads, columns=columns, base=base
    )
    return found.saying(found.finding())


def _two_values(
    weights: Float[np.ndarray, "layer head target role key"], states: Float[np.ndarray, "state layer head target key"]
) -> Float[np.ndarray, "state layer head role"]:
    """The lower and the higher value of a role's weights, averaged, where most that are not faint are bimodal."""
    counted, over = weights >= FAINT, (2, 4)
    known = counted & ~np.isnan(states[0])[..., None, :]
    sums = np.where(known, states[..., None, :], 0.0).sum((3, 5))
    most = known.sum(over) > MAJORITY * counted.sum(over)
    return np.where(most, np.clip(sums / np.maximum(known.sum(over), 1), 0.0, 1.0), np.nan)


@probe(
    "Where does each answer digit look?",
    control=True,
    summary=Summary("attention, own over previous column", "nats", AttentionByRole.mean_gap, 0.05, at_most(256)),
)
def attention_by_role(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> AttentionByRole:
    """Where each answer target looks, by role, for every layer and head: patterns at the targets' queries, with the
    right answer in place (teacher forcing).

    Args:
        model: any model with TransformerLens hooks; only ``cfg`` and ``attn.hook_pattern`` are used.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` uniform ones, drawn with ``seed``.

    Raises:
        UserError: a task that is not the model's, fewer than 2 problems, or a model that diverged.
    """
    sample = prepare(model, task, problems, n, seed)
    return compute_attention_by_role(
        read_patterns(model, sample.tokens, sample.queries),
        [visible_roles(sample.task, target) for target in range(len(sample.queries))],
        sample.labels,
        [role.label for role in sample.task.roles][: sample.tokens.shape[1]],
        sample.provenance,
        len(digit_ids(sample.task)),
    )


@drawing(AttentionByRole)
def attention_view(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> Picture:
    """Weight of one head (default: the main one) by target and role, and the score gap of each target."""
    table = result.of_head(layer, head)
    said = {"keys": table.n_keys.values, "spread": table.spread.values, "uniform": table.weight_uniform.values}
    shown = np.where(table.n_keys.values > 0, table.weight.values, np.nan)
    x, y = "role of the position attended to", "answer token predicted"
    targets, gap = table.target.values.tolist(), table.gap.values
    views: list[View] = [Grid(x, y, "", shown, targets, table.role.values, "weight", said=said)]
    if not np.isnan(gap).all():
        level = math.log(result.base)
        lines = (Line(0), Line(level, f"ln {result.base} = {level:.3f}"))
        views.append(Points("", "ln(own operand / previous), nats", "", (Series("", targets, gap),), "", lines, True))
    return Picture(views, title=result.finding(layer, head), note=_note(result), shared="y")


def _note(result: AttentionByRole) -> str:
    same = "The same on all inputs" if result.position_only else "Means over inputs, on which the weights depend"
    return f"{same} (standard deviation of a weight up to {small(float(result.pattern_spread.max()), 1)})"


@drawing(AttentionByRole, "heads")
def heads_view(result: AttentionByRole) -> Picture:
    """Every head's mean weight by role, over the targets with operands in the own and the previous column."""
    weight, both = result.table.weight, list(result.columns)
    mean = weight.sel(target=both or weight.target.values).mean("target").stack(row=("layer", "head"))
    values, roles = mean.transpose("row", "role").values, mean.role.values.tolist()
    names = [head_name(i, h) for i, h in mean.row.values]
    grid = Grid("role of the position attended to", "head", "", values, names, roles, "weight")
    return Picture([grid], title="Mean weight on each role, by head", note=f"Means over {_span(both)}. {_note(result)}")


@drawing(AttentionByRole, "pattern")
def pattern_view(result: AttentionByRole, layer: int | None = None, head: int | None = None) -> Picture:
    """The mean pattern of one head: one row per answer token, one column per position, coloured by log weight."""
    of = result.of_head(layer, head)
    pattern = result.pattern.sel(layer=of.layer, head=of["head"])
    keys = result.table.n_keys.values.sum(-1)  # as many as the target's roles hold: those up to the query
    visible = np.arange(pattern.sizes["key"])[None] < keys[:, None]
    values = np.where(visible, pattern.values, np.nan)
    shown = np.maximum(values, _FAINTEST)
    title, labels = f"Mean pattern of {head_name(int(of.layer), int(of['head']))}", pattern.label.values.astype(str)
    at = "position attended to", "answer token predicted", "", shown, pattern.target.values, labels, "weight", "log"
    note = f"Grey: not visible. Least colour: {_FAINTEST:g} and below. {_note(result)}"
    return Picture([Grid(*at, text=np.full(shown.shape, ""), grey=~visible)], title=title, note=note)
