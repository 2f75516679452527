"""The carry's path through a two-digit adder: interchange interventions between sums that differ in nothing else.

A *base* and a *source* have the same tens digits and the same units digit of the sum, but opposite carries: 12 + 34 and
17 + 39 both end in 6. One activation of the base's run at one position is replaced by the source's, and the tens digit
that comes out is the source's (it *follows* the carry), the base's (it *stays*), or another.

    streams     the residual stream before layer 0 ("embed") and after every layer ("L0", "L1", ...): everything a
                position knows at that depth
    sublayers   ``attn_out`` and ``mlp_out``: what one sublayer adds there
    heads       ``attn.hook_z`` of one head

Read along the stream, b0 shows which layer *gathers* there what decides the carry, and s0, the position that predicts
the tens, which layer *moves* it on: the largest rise of the share that follows. It is the layer's attention each time:
an MLP works on each position by itself, so that replacing a stream before or after it comes to the same. That the MLP
makes a carry of two digits is for :mod:`interp.papers.toygpt.probes` to see.

Bases are all pairs whose units do not sum to 9 (9,000; a sum of 9 has no partner), each with one source drawn uniformly
from its partners, kept where the model has units and tens of both right. The control for breakage replaces the same
activation by that of another pair with the same tens digits and the *same* carry: the tens digit should not change
(streams and sublayers only; a head is a part of one). At "embed" it may: b0's digit alone does not have a carry.
Intervals are Clopper-Pearson over bases.

``emitted`` asks whether the carry is recomputed from the units digit that the model has just written (s0 < a0 exactly
if there is one, and s0 < b0 likewise): that token is replaced by another digit that says the *opposite* carry by either
comparison, and as a control by a wrong digit that says the *same*. If it is recomputed, the first flips the tens digit
to that of the other carry and the second does not.

Limits. A stream at s0 also holds the tens digits, but these are the same in base and source. Interchange of one place
misses what two places hold redundantly. Source: interchange interventions, Geiger et al. (2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.core.stats import clopper_pearson
from interp.papers.toygpt.problems import A0, B0, LABELS, S0, batches, resolve_two_digit_task, teacher_forced_logits
from models.errors import UserError, unknown_name
from models.tasks.two_digit import TwoDigitAddition, all_problems

STREAM_POSITIONS = (A0, B0, S0)
SUBLAYER_POSITIONS = (B0, S0)
LEAST_RISE = 0.05  # of the share that follows, for a layer to be said to gather
CONTROL_COLUMNS = ("control_changed", "control_share", "control_low", "control_high")


@dataclass(frozen=True)
class Site:
    """One activation at one position: what it is called in tables, its hook, and the layer from which a run with it
    replaced must be computed; the head, if it is a head's."""

    kind: str  # "stream", "sublayer" or "head"
    label: str
    layer: int
    hook: str
    enter: int
    position: int
    head: int | None = None


@dataclass(frozen=True)
class CarryPairs:
    """Bases [n, 2] and as many sources with the opposite carry, and as many controls with the same."""

    base: Int[Tensor, "n 2"]
    source: Int[Tensor, "n 2"]
    control: Int[Tensor, "n 2"]


@dataclass(frozen=True, eq=False)
class CarryPath(Result):
    """``table``: a row a site with ``kind``, ``site``, ``layer``, ``position``, ``n``, the counts ``follows``,
    ``stays`` and ``other``, the ``share`` that follows with ``low`` and ``high``; ``control_changed`` with
    ``control_share``, ``control_low``, ``control_high``. ``points``: the streams in order. ``emitted``: for a written
    units digit that says the "opposite" and the "same" carry, tens digits that are ``kept`` and ``flipped``, of ``n``.
    ``bases``: before dropping wrong ones.
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
        """Which layer's attention brings the units digits together at b0, in words; none if the share never rises."""
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

    def to_dataframe(self) -> pd.DataFrame:
        """A row a site."""
        return self.table.copy()


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


def sites(layers: int, heads: int) -> list[Site]:
    """Every activation that is replaced, in a model of this size."""
    found = [Site("stream", "embed", 0, "blocks.0.hook_resid_pre", 0, p) for p in STREAM_POSITIONS]
    for layer in range(layers):
        block = f"blocks.{layer}"
        hook, enter = f"{block}.hook_resid_post", layer
        if layer + 1 < layers:  # the same stream, from where less is left to compute
            hook, enter = f"blocks.{layer + 1}.hook_resid_pre", layer + 1
        found += [Site("stream", f"L{layer}", layer, hook, enter, p) for p in STREAM_POSITIONS]
        for part in ("attn", "mlp"):
            name = f"{part}_out"
            found += [
                Site("sublayer", f"L{layer} {name}", layer, f"{block}.hook_{name}", layer, p)
                for p in SUBLAYER_POSITIONS
            ]
        found += [
            Site("head", f"L{layer}H{head}", layer, f"{block}.attn.hook_z", layer, p, head)
            for head in range(heads)
            for p in SUBLAYER_POSITIONS
        ]
    return found


def carry_path(model: HookedModel, task: Any = None, seed: int = 0, bases: int | None = None) -> CarryPath:
    """Trace the carry through a two-digit adder; see the module.

    ``bases``: look at so many bases, and written digits of so many sums, drawn with ``seed``, in place of all.

    Cost: for each of 63 sites of a four-layer model a pass of 9,000 sums from that layer on, and for streams and
    sublayers a second; about a minute and a half of one CPU core.

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
        rows = _some(len(pairs.base), bases, seed)
        pairs = CarryPairs(pairs.base[rows], pairs.source[rows], pairs.control[rows])
    kept = _right(model, task, pairs.base) & _right(model, task, pairs.source) & _right(model, task, pairs.control)
    base, source, control = (x[kept] for x in (pairs.base, pairs.source, pairs.control))
    found, points = [], []
    for site in sites(model.cfg.n_layers, model.cfg.n_heads):
        if site.kind == "stream" and site.label not in points:
            points.append(site.label)
        found.append(_Counter(site))
    for rows in batches(len(base)):
        _replace(model, task, base[rows], source[rows], found, control=False)
        _replace(model, task, base[rows], control[rows], found, control=True)
    written = all_problems()
    written = written if bases is None else written[_some(len(written), bases, seed)]
    written = written[_right(model, task, written)]
    return CarryPath(
        name=model_name(model),
        table=pd.DataFrame([counter.row(len(base)) for counter in found]),
        points=tuple(points),
        emitted={key: _emitted(model, task, written, key == "opposite", seed) for key in ("opposite", "same")},
        bases=len(pairs.base),
        provenance=Provenance(len(base), seed, "pairs with units not summing to 9, both right, one source each"),
    )


class _Counter:
    """Outcomes at one site."""

    def __init__(self, site: Site):
        self.site, self.follows, self.stays, self.changed = site, 0, 0, 0

    def row(self, n: int) -> dict[str, Any]:
        low, high = clopper_pearson(self.follows, n)
        share = lambda count: count / n if n else float("nan")  # noqa: E731
        asked = self.site.kind != "head"
        control = (
            (self.changed, share(self.changed), *clopper_pearson(self.changed, n)) if asked else (float("nan"),) * 4
        )
        return {
            "kind": self.site.kind,
            "site": self.site.label,
            "layer": self.site.layer,
            "position": LABELS[self.site.position],
            "n": n,
            "follows": self.follows,
            "stays": self.stays,
            "other": n - self.follows - self.stays,
            "share": share(self.follows),
            "low": low,
            "high": high,
        } | dict(zip(CONTROL_COLUMNS, control, strict=True))


def _some(n: int, count: int, seed: int) -> Int[Tensor, " count"]:
    """``count`` of ``n`` rows, without replacement."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count]


def _right(model: HookedModel, task: TwoDigitAddition, problems: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
    """Whether units and tens are right."""
    predicted = teacher_forced_logits(model, task, problems).argmax(-1)
    return (predicted == task.targets(problems))[:, :2].all(1)


def _inputs(model: HookedModel, task: TwoDigitAddition, problems: Int[Tensor, "n 2"]) -> Int[Tensor, "n pos"]:
    """Tokens up to s0, at which the tens are predicted."""
    return task.encode(problems)[:, : S0 + 1].to(model.cfg.device)


def _replace(
    model: HookedModel,
    task: TwoDigitAddition,
    base: Int[Tensor, "n 2"],
    other: Int[Tensor, "n 2"],
    counters: list[_Counter],
    control: bool,
) -> None:
    """Replace every site of the base runs by the other runs' and count."""
    hooks = {counter.site.hook for counter in counters}
    entering = [f"blocks.{layer}.hook_resid_pre" for layer in range(model.cfg.n_layers)]
    here = task.targets(base)[:, 1].to(model.cfg.device)
    there = task.targets(other)[:, 1].to(model.cfg.device)
    with torch.no_grad():
        _, own = model.run_with_cache(_inputs(model, task, base), names_filter=entering)
        _, foreign = model.run_with_cache(_inputs(model, task, other), names_filter=list(hooks))
        for counter in counters:
            site = counter.site
            if control and site.kind == "head":
                continue
            hook: Callable[..., Tensor] = partial(
                _put, value=foreign[site.hook], position=site.position, head=site.head
            )
            logits = model.run_with_hooks(
                own[entering[site.enter]], start_at_layer=site.enter, fwd_hooks=[(site.hook, hook)]
            )
            tens = logits[:, S0].argmax(-1)
            if control:
                counter.changed += int((tens != here).sum())
            else:
                counter.follows += int((tens == there).sum())
                counter.stays += int((tens == here).sum())


def _put(activation: Tensor, hook: Any, value: Tensor, position: int, head: int | None) -> Tensor:
    activation = activation.clone()
    if head is None:
        activation[:, position] = value[:, position]
    else:
        activation[:, position, head] = value[:, position, head]
    return activation


def written_digits(problems: Int[Tensor, "n 2"], opposite: bool, generator: torch.Generator) -> Int[Tensor, " n"]:
    """A wrong units digit that says the opposite carry, or the same, by comparison with either operand's units.

    Digits from max(a0, b0) on say that there is no carry, digits below min(a0, b0) that there is one; uniform among
    them, -1 where there is none.
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
    """Tens digits that keep the operands' carry, and that flip to the other, with another units digit written."""
    digit = written_digits(problems, opposite, torch.Generator().manual_seed(seed + 1))
    problems, digit = problems[digit >= 0], digit[digit >= 0]
    counts = {"n": len(problems), "kept": 0, "flipped": 0}
    with torch.no_grad():
        for part in batches(len(problems)):
            tokens = _inputs(model, task, problems[part])
            tokens = torch.cat((tokens[:, :S0], digit[part, None].to(tokens.device)), 1)
            claimed = model(tokens)[:, S0].argmax(-1).cpu()
            variables = task.variables(problems[part])
            tens, carry = variables["s"][:, 1], variables["carry_out"][:, 0]
            counts["kept"] += int((claimed == tens).sum())
            counts["flipped"] += int((claimed == (tens + 1 - 2 * carry) % 10).sum())
    return counts
