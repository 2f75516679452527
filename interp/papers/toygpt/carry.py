"""The carry's path through a two-digit adder: interchange interventions between sums that differ only in the carry.

A *base* and a *source* have the same tens digits and the same units digit of the sum, but opposite carries: 12 + 34 and
17 + 39 both end in 6. One activation of the base's run at one position is replaced by the source's, and the tens digit
that comes out is the source's (it *follows* the carry), the base's (it *stays*), or another.

    streams     the residual stream before layer 0 ("embed") and after every layer ("L0", "L1", ...): everything that
                a position knows at that depth
    sublayers   ``attn_out`` and ``mlp_out``: what one sublayer adds there
    heads       ``attn.hook_z`` of one head

Along the stream, the largest rise of the share that follows shows at b0 which layer *gathers* what decides the carry,
and at s0, the position that predicts the tens, which layer *moves* it on. Each time it is the layer's attention: an MLP
works on each position separately, so that replacing a stream before or after it has the same effect.
:func:`interp.linear_probes` shows whether the MLP makes a carry from two digits.

Bases are all pairs whose units do not sum to 9 (9,000; a sum of 9 has no partner), each with one source drawn uniformly
from its partners, kept if the model has units and tens of both right. The control for breakage replaces the same
activation by that of another pair with the same tens digits and the *same* carry: the tens digit should not change
(streams and sublayers only; a head is a part of one). At "embed" it may, as b0's digit alone does not have a carry.
Intervals are Clopper-Pearson over bases.

``emitted`` tests whether the carry is recomputed from the units digit that the model has just written (there is one
exactly if s0 < a0, and exactly if s0 < b0). That token is replaced by another digit that says the *opposite* carry by
both comparisons, and as a control by a wrong digit that says the *same*. If the carry is recomputed, the first flips
the tens digit to that of the other carry and the second does not.

Limits: a stream at s0 also holds the tens digits, but these are the same in base and source. Interchange at one place
misses what two places hold redundantly. Source: interchange interventions, Geiger et al. (2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Int
from torch import Tensor

from interp.causal.patching.sweep import activation_patching
from interp.core import runs
from interp.core.metrics import exact_match
from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.core.stats import clopper_pearson
from interp.core.thresholds import LEAST_RISE
from interp.papers.toygpt.problems import A0, B0, LABELS, S0, resolve_two_digit_task
from models.errors import UserError, unknown_name
from models.evaluation import predict
from models.tasks.paired_problems import ProblemPairs
from models.tasks.two_digit import TwoDigitAddition, all_problems

STREAM_POSITIONS = (A0, B0, S0)
SUBLAYER_POSITIONS = (B0, S0)
TENS = 1  # the target that is predicted at s0
CONTROL_COLUMNS = ("control_changed", "control_share", "control_low", "control_high")


@dataclass(frozen=True)
class CarryPairs:
    """Bases [n, 2], and as many sources with the opposite carry and controls with the same carry."""

    base: Int[Tensor, "n 2"]
    source: Int[Tensor, "n 2"]
    control: Int[Tensor, "n 2"]


@dataclass(frozen=True, eq=False)
class CarryPath(Result):
    """``table``: one row per site with ``kind``, ``site``, ``layer``, ``position``, ``n``, the counts ``follows``,
    ``stays`` and ``other``, the ``share`` that follows with ``low`` and ``high``; ``control_changed`` with
    ``control_share``, ``control_low``, ``control_high``. ``points``: the streams in order. ``emitted``: for a written
    units digit that says the "opposite" and the "same" carry, tens digits that are ``kept`` and ``flipped``, of ``n``.
    ``bases``: how many there were before wrong ones were dropped.
    """

    name: str
    table: pd.DataFrame
    points: tuple[str, ...]
    emitted: dict[str, dict[str, int]]
    bases: int
    provenance: Provenance

    def stream(self, position: str) -> pd.DataFrame:
        """The streams at one position ("a0", "b0" or "s0"), in order."""
        table = self.table[(self.table.kind == "stream") & (self.table.position == position)]
        if table.empty:
            raise UserError(f"No stream was replaced at {position!r}; there is a0, b0 and s0.")
        return table.set_index("site").loc[list(self.points)].reset_index()

    def largest_rise(self, position: str) -> tuple[int, float, float]:
        """The layer across which the share that follows rises most at a position, and the share before and after."""
        share = self.stream(position)["share"].tolist()
        rises = [after - before for before, after in pairwise(share)]
        i = max(range(len(rises)), key=rises.__getitem__)
        return i, share[i], share[i + 1]

    def gathering(self) -> str:
        """Which layer's attention gathers the units digits at b0, in words; no layer if the share never rises."""
        layer, before, after = self.largest_rise("b0")
        if after - before < LEAST_RISE:
            return "no layer gathers the units digits there"
        return f"layer {layer}'s attention gathers the units digits there"

    def at(self, site: str, position: str) -> pd.Series:
        """The row of one site. Raises UserError if it was not replaced."""
        rows = self.table[(self.table.site == site) & (self.table.position == position)]
        if rows.empty:
            raise unknown_name(f"site at {position}", site, set(self.table.site))
        return rows.iloc[0]

    def sentence(self) -> str:
        if not self.provenance.n:
            return f"{self.name} has no pair of sums with opposite carries both right: there is no path to trace."
        moves, *_ = self.largest_rise("s0")
        control = self.at(f"L{moves}", "s0").control_share
        alone = self.at(f"L{moves} attn_out", "s0").share
        shares = {p: ", ".join(f"{x:.1%}" for x in self.stream(p)["share"]) for p in ("b0", "s0")}
        written = {key: counts["flipped"] for key, counts in self.emitted.items()}
        low, high = clopper_pearson(written["opposite"], self.emitted["opposite"]["n"])
        return (
            f"{self.name}: the stream replaced at b0 alone takes the carry along in {shares['b0']} of sums "
            f"(embeddings, then after each layer), so that {self.gathering()}; at s0 in {shares['s0']}, most of it "
            f"moved there by layer {moves}'s attention (its output at s0 alone: {alone:.1%}). A "
            f"source with the same carry changes the tens digit in {control:.1%}. A written units digit that says the "
            "opposite "
            f"carry flips the tens digit to that carry in {written['opposite']:,} of {self.emitted['opposite']['n']:,} "
            f"([{low:.3f}, {high:.3f}]), one that is wrong but says the same in {written['same']:,} of "
            f"{self.emitted['same']['n']:,}."
        )


def carry_pairs(seed: int = 0) -> CarryPairs:
    """All 9,000 bases, with one source and one control each, uniform among those allowed."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.arange(100) // 10  # units pairs, by 10 a0 + b0
    right = torch.arange(100) % 10
    total = left + right
    partner = (total[:, None] - total).abs() == 10  # [base cell, source cell]
    same = ((total[:, None] >= 10) == (total >= 10)) & ~torch.eye(100, dtype=torch.bool)
    problems = all_problems()
    tens, units = problems // 10, problems % 10
    cell = units[:, 0] * 10 + units[:, 1]
    rows = total[cell] != 9
    tens, cell = tens[rows], cell[rows]

    def drawn(allowed: Bool[Tensor, "cell other"]) -> Int[Tensor, "n 2"]:
        chosen = torch.multinomial(allowed[cell].float(), 1, generator=generator)[:, 0]
        return tens * 10 + torch.stack((left[chosen], right[chosen]), 1)

    return CarryPairs(problems[rows], drawn(partner), drawn(same))


def sites(layers: int, heads: int) -> Iterator[tuple[str, str, int, str, int | None]]:
    """Yield (kind, label, layer, site of :mod:`interp.causal.patching.sites`, head) for everything that is replaced."""
    yield "stream", "embed", 0, "resid_pre", None
    for layer in range(layers):
        yield "stream", f"L{layer}", layer, "resid_post", None
        for part in ("attn_out", "mlp_out"):
            yield "sublayer", f"L{layer} {part}", layer, part, None
        for head in range(heads):
            yield "head", f"L{layer}H{head}", layer, "head_out", head


def carry_path(model: HookedModel, task: Any = None, seed: int = 0, bases: int | None = None) -> CarryPath:
    """Trace the carry through a two-digit adder; see the module.

    ``bases``: use only this many bases, and written digits of this many sums, drawn with ``seed``.

    Cost: nine sweeps of :func:`interp.activation_patching` over 9,000 pairs, about three minutes of one CPU core.

    Raises:
        UserError: a model without hooks or MLPs, another task, or more bases than there are.
    """
    task = resolve_two_digit_task(model, task)
    if getattr(model.cfg, "attn_only", False):
        raise UserError("The carry's path is read between attention and MLP, and this model has no MLPs.")
    pairs = carry_pairs(seed)
    if bases is not None:
        if not 1 <= bases <= len(pairs.base):
            raise UserError(f"There are {len(pairs.base):,} bases, so that {bases} cannot be drawn.")
        some = _some(len(pairs.base), bases, seed)
        pairs = CarryPairs(pairs.base[some], pairs.source[some], pairs.control[some])
    kept = _right(model, task, pairs.base) & _right(model, task, pairs.source) & _right(model, task, pairs.control)
    base, source, control = (x[kept] for x in (pairs.base, pairs.source, pairs.control))
    wanted = list(sites(model.cfg.n_layers, model.cfg.n_heads))
    found = _Patched(model, task, base, source, seed, [site for *_, site, _ in wanted])
    same = _Patched(model, task, base, control, seed, [site for kind, *_, site, _ in wanted if kind != "head"])
    rows = []
    for kind, label, layer, site, head in wanted:
        for position in STREAM_POSITIONS if kind == "stream" else SUBLAYER_POSITIONS:
            at = (site, layer, head, position)
            changed = None if kind == "head" else len(base) - same.count("stays", *at)
            row = {"kind": kind, "site": label, "layer": layer, "position": LABELS[position]}
            rows.append(row | _outcomes(found.count("follows", *at), found.count("stays", *at), changed, len(base)))
    written = all_problems()
    written = written if bases is None else written[_some(len(written), bases, seed)]
    written = written[_right(model, task, written)]
    return CarryPath(
        name=model_name(model),
        table=pd.DataFrame(rows),
        points=tuple(label for kind, label, *_ in wanted if kind == "stream"),
        emitted={key: _emitted(model, task, written, key == "opposite", seed) for key in ("opposite", "same")},
        bases=len(pairs.base),
        provenance=Provenance(len(base), seed, "pairs with units not summing to 9, both right, one source each"),
    )


class _Patched:
    """Tens digits after each site of the base's run was replaced, at each position, by the other problem's."""

    def __init__(
        self,
        model: HookedModel,
        task: TwoDigitAddition,
        base: Int[Tensor, "n 2"],
        other: Int[Tensor, "n 2"],
        seed: int,
        wanted: Iterable[str],
    ):
        self.tables: dict[str, xr.DataArray] = {}
        if not len(base):
            return
        pairs = ProblemPairs(task, base, other, TENS, "the carry out of the units", seed)
        metrics = [replace(exact_match(pairs), name="stays"), replace(exact_match(pairs.swapped()), name="follows")]
        for site in dict.fromkeys(wanted):
            layers = 0 if site == "resid_pre" else None
            found = activation_patching(
                model, pairs, site=site, metrics=metrics, direction="noise", layers=layers, allow_equal=True
            )
            self.tables[site] = found.values.isel(direction=0).sum("pair")

    def count(self, metric: str, site: str, layer: int, head: int | None, position: int) -> int:
        """How many pairs have a tens digit that "stays" the base's or "follows" the other problem's."""
        if not self.tables:
            return 0
        table = self.tables[site].sel(metric=metric, layer=layer).isel(pos=position)
        return int(table if head is None else table.sel(head=head))


def _outcomes(follows: int, stays: int, changed: int | None, n: int) -> dict[str, Any]:
    """Counts and shares for one site; ``changed``: how many the control changed, None if it was not run."""

    def shown(count: int) -> tuple[float, float, float]:
        return (count / n if n else float("nan"), *clopper_pearson(count, n))

    share, low, high = shown(follows)
    control = (float("nan"),) * 4 if changed is None else (changed, *shown(changed))
    counts = {"n": n, "follows": follows, "stays": stays, "other": n - follows - stays}
    return counts | {"share": share, "low": low, "high": high} | dict(zip(CONTROL_COLUMNS, control, strict=True))


def _some(n: int, count: int, seed: int) -> Int[Tensor, " count"]:
    """``count`` of ``n`` rows, without replacement."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count]


def _right(model: HookedModel, task: TwoDigitAddition, problems: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
    """Whether units and tens are right."""
    return (predict(model, problems, task=task) == task.targets(problems))[:, :2].all(1)


def written_digits(problems: Int[Tensor, "n 2"], opposite: bool, generator: torch.Generator) -> Int[Tensor, " n"]:
    """A wrong units digit that says the opposite carry, or the same, by comparison with both operands' units.

    Digits from max(a0, b0) on say that there is no carry, digits below min(a0, b0) that there is one. The digit is
    uniform among those, or -1 if there are none.
    """
    units = problems % 10
    digit, total = torch.arange(10), units.sum(1)
    no_carry, carry = digit >= units.max(1).values[:, None], digit < units.min(1).values[:, None]
    says_carry = (total >= 10) != opposite
    allowed = torch.where(says_carry[:, None], carry, no_carry) & (digit != (total % 10)[:, None])
    possible = allowed.any(1)
    weights = torch.where(possible[:, None], allowed, True).float()
    return torch.where(possible, torch.multinomial(weights, 1, generator=generator)[:, 0], -1)


def _emitted(
    model: HookedModel, task: TwoDigitAddition, problems: Int[Tensor, "n 2"], opposite: bool, seed: int
) -> dict[str, int]:
    """How many tens digits keep the operands' carry, and how many flip, if another units digit is written."""
    digit = written_digits(problems, opposite, torch.Generator().manual_seed(seed + 1))
    problems, digit = problems[digit >= 0], digit[digit >= 0]
    tokens = torch.cat((task.encode(problems)[:, :S0], digit[:, None]), 1)
    claimed = runs.run(model, tokens, (), [S0]).argmax(-1)[:, 0].cpu() if len(problems) else digit
    variables = task.variables(problems)
    tens, carry = variables["s"][:, 1], variables["carry_out"][:, 0]
    kept, flipped = claimed == tens, claimed == (tens + 1 - 2 * carry) % 10
    return {"n": len(problems), "kept": int(kept.sum()), "flipped": int(flipped.sum())}
