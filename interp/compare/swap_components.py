"""Component swaps: parts of one model are replaced by another's, to see what the two have in common.

Both models run on the same tokens. One part of ``a`` (:mod:`interp.compare.swapped_parts` lists them) is replaced
by b's, through a map that was fitted on other problems (:mod:`interp.compare.activation_maps`), and the rest of a is
recomputed. Activations may be similar only in what no later layer reads; a swap tests them on a's own later layers.

The column ``source`` says what replaces the part:

    swapped      b's part, on the same problem
    ablated      nothing of b: the part's mean over the fit's problems, at each position; equal weights on all visible
                 keys for a pattern
    shuffled     b's part on another of the held-out problems, through the same map
    untrained    the part of a freshly initialised model, with heads and units matched and maps fitted again: what a
                 linear map makes of features that no training or construction chose. Parts without a partner are
                 ablated
    itself       a's own part, through a map fitted in the same way: the cost of matching and fitting alone

Measures, on problems that the fit has not seen:

    exact        share of problems of which every target is right, teacher-forced (equal to greedy decoding of whole
                 answers), with the Clopper-Pearson interval; also by carry chain
    loss         cross-entropy of the right tokens, mean over targets, nats; margin: their logit minus the best other's
    recovered    (loss ablated - loss here) / (loss ablated - loss of the whole model): 1 nothing lost, 0 no better than
                 ablated, below 0 worse; percentile bootstrap over problems. NaN where ablating does no harm
    r2           1 - |a's part - its replacement|^2 / |a's part - its mean|^2 at the places where it is replaced,
                 measured in what the part writes to the stream: values and outputs times W_O, units times W_out (their
                 inputs as they are)
    overlap      for patterns: weight in common with a's at the queries, 1 - total variation distance
    p_untrained  share of the untrained models whose loss is as low, with the swap counted as one

Limits. Sampled. ``fitted`` says how many numbers a linear map can choose (d_b x d_a, or fewer if b's part does not vary
in all directions), and a whole stream or MLP in which b has already solved the problem hands a the answer: compare with
``untrained`` and ``shuffled``, and look at parts before wholes. If a pattern does not depend on the problem, another
problem's is as good: then ``ablated`` and ``untrained`` are the controls. Matching is done on the fit's problems. A
swap that fails through least squares may succeed through a map that is fitted to a's loss (model stitching), or through
a nonlinear one; the part then holds what is needed, but not as its largest variation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from interp.compare.activation_maps import PartMap, activations, fit_maps
from interp.compare.compare import require_one_format
from interp.compare.paired_readings import ReadingFrame, Readings, common_columns, read
from interp.compare.swap_result import CLEAN, SwapOutcome, Swaps, compute_swaps
from interp.compare.swapped_parts import PATTERNS, SwappedPart, by_role, components_of, parts_beside
from interp.core.batches import chunks, derangement, distinct
from interp.core.controls import copies_to_draw
from interp.core.model_checks import pair_names
from interp.core.probe import probe
from interp.core.results import Provenance
from interp.core.runs import Activations, passes
from interp.core.samples import draw, every_problem
from interp.core.task_checks import resolve_task
from models import ArithmeticTransformer
from models.calls import Count, Index, Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, model_name


@probe("What survives when one model's parts replace the other's?")
def swap_components(
    a: HookedModel,
    b: HookedModel,
    *,
    task: TaskLike | None = None,
    components: Sequence[str] | None = None,
    n: Count = 256,
    n_fit: Count = 256,
    seed: Seed = 0,
    untrained: Index = 9,
) -> Swaps:
    """Replace parts of ``a`` by those of ``b`` and count what ``a`` still answers; see the module.

    Args:
        a, b: models with TransformerLens hooks on the same tokens: trained and hand-built, or two seeds. Widths, heads
            and layers may differ.
        task: what their tokens mean, in the shape to look at; default ``a.task``.
        components: names such as "L0H0 pattern" or "L0N0 + L0N1"; default all kinds of them.
        n, n_fit: numbers of problems to measure on, and of others to match and fit on (256 each by default, as every
            component is run on them in ten models); half of both are rich in carry
            chains. If a task has fewer problems, they are split in this proportion, and the result says how.
        untrained: how many fresh copies of b to draw as controls (of a if b's numbers are set by hand; none if both
            models' are).

    Cost: two runs of b and one of each control over the held-out problems, and for every component one run of a for
    each of them; about 100 runs for one layer with one head.

    Raises:
        UserError: models of different formats, a model that diverged, an unknown component (with the closest), fewer
            than 2 problems, or more problems than a task without a domain draws.
    """
    task = resolve_task(a, task)
    names = pair_names(a, b)
    require_one_format(task, b, names)
    resolve_task(b, task)
    fit, held_out, source = two_samples(task, n_fit, n, seed)
    at = common_columns(task, fit, task.encode(fit))
    left = read(from_transformer_lens(a, task), at)
    parts = parts_beside(left, read(from_transformer_lens(b, task), at))
    chosen = components_of(parts, components)

    copies, of = copies_to_draw((b, a), untrained, seed)
    swapped = _Donor(left, b, at, chosen)
    tokens = task.encode(held_out)
    sources = [
        _DonorRun("swapped", 0, swapped, tokens),
        _DonorRun("shuffled", 0, swapped, tokens[derangement(len(tokens), seed)]),
        _DonorRun("itself", 0, _Donor(left, a, at, chosen), tokens),
    ]
    sources += [_DonorRun("untrained", i, _Donor(left, copy, at, chosen), tokens) for i, copy in enumerate(copies)]
    outcomes = _outcomes(left.model, tokens, task.targets(held_out), at, chosen, sources)
    return compute_swaps(
        outcomes,
        {name: _listed([parts[member].partner for member in members]) for name, members in chosen.items()},
        {name: sum(swapped.maps[member].fitted for member in members) for name, members in chosen.items()},
        task.chain_length(held_out).numpy(),
        names,
        ("" if of is None else model_name((b, a)[of]), len(copies)),
        len(fit),
        Provenance(len(held_out), seed, source),
    )


def _listed(partners: Sequence[str]) -> str:
    found = list(dict.fromkeys(partners))
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def two_samples(task: Task, n_fit: int, n: int, seed: int) -> tuple[Tensor, Tensor, str]:
    """Different problems, in random order, to fit on and to measure on, and what they are in words.

    If the task's domain has fewer, all its problems are split in the same proportion.
    """
    if min(n_fit, n) < 2:
        raise UserError(f"Swaps need at least 2 problems to fit on and 2 to measure on, not {n_fit} and {n}.")
    total, problems = n_fit + n, None
    if (every := every_problem(task, total - 1)) is not None:
        if len(every) < 4:
            raise UserError(f"Swaps need 2 problems to fit on and 2 to measure on; {task.name} has {len(every)}.")
        every = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))]
        kept = min(max(round(len(every) * n_fit / total), 2), len(every) - 2)
        which = f"{len(every):,} problems of the task, maps fitted on the {kept:,} others"
        return every[:kept], every[kept:], f"held-out problems of all {which}"
    for extra in range(8):  # a small domain gives the same problem several times
        drawn = draw(task, None, total, seed + 7_919 * extra, carry_heavy=0.5).problems
        order = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(seed + extra))
        problems = drawn[order] if problems is None else torch.cat((problems, drawn[order]))
        problems = distinct(problems)
        if len(problems) >= total:
            source = f"held-out problems (half rich in carry chains), maps fitted on {n_fit:,} others"
            return problems[:n_fit], problems[n_fit:total], source
    raise UserError(f"{task.name} gave {len(problems) if problems is not None else 0} different problems, not {total}.")


class _Donor:
    """A source of parts for a: a model, its counterparts of a's parts, and the maps."""

    def __init__(self, left: Readings, other: HookedModel, at: ReadingFrame, chosen: Mapping[str, tuple[str, ...]]):
        self.model = from_transformer_lens(other, at.task)
        found = parts_beside(left, read(self.model, at))
        alone = {name: replace(part, source=None) for name, part in parts_beside(left, left).items()}
        needed = dict.fromkeys(name for members in chosen.values() for name in members)
        self.parts = {name: found.get(name, alone[name]) for name in needed}
        self.maps = fit_maps(left.model, self.model, list(self.parts.values()), at.tokens, at.queries)
        self.hooks = [part.source.hook for part in self.parts.values() if part.source is not None]


@dataclass(frozen=True, eq=False)
class _DonorRun:
    name: str
    copy: int
    other: _Donor
    tokens: Int[Tensor, "n pos"]  # the tokens on which the other model runs


@torch.no_grad()
def _outcomes(
    a: ArithmeticTransformer,
    tokens: Int[Tensor, "n pos"],
    targets: Int[Tensor, "n target"],
    at: ReadingFrame,
    chosen: Mapping[str, tuple[str, ...]],
    sources: Sequence[_DonorRun],
) -> dict[tuple[str, str, int], SwapOutcome]:
    """The answers of a, by (component, source, copy); ("", CLEAN, 0) is the whole model."""
    found: dict[tuple[str, str, int], SwapOutcome] = {}
    reference = sources[0].other
    hooks = [part.place.hook for part in reference.parts.values()]
    start = 0
    for batch in chunks(tokens, a):
        rows = slice(start, start := start + len(batch))
        right = targets[rows].to(batch.device)

        def judge(key: tuple[str, str, int], logits: Tensor, right: Tensor = right) -> SwapOutcome:
            outcome = found.setdefault(key, SwapOutcome())
            outcome.add(logits[:, list(at.queries)], right)
            return outcome

        logits, own = activations(a, batch, hooks)
        judge(("", CLEAN, 0), logits)
        for name, members in chosen.items():
            new = {member: _ablated(reference.parts[member], reference.maps[member], own) for member in members}
            judge((name, "ablated", 0), _run(a, batch, reference, new))
        for source in sources:
            other = source.other
            _, theirs = activations(other.model, source.tokens[rows].to(other.model.cfg.device), other.hooks)
            news = {name: _new(part, other.maps[name], own, theirs, at) for name, part in other.parts.items()}
            near = {
                name: _closeness(a, other.parts[name], other.maps[name], own, new, at) for name, new in news.items()
            }
            for name, members in chosen.items():
                logits = _run(a, batch, other, {member: news[member] for member in members})
                judge((name, source.name, source.copy), logits).add_fidelity([near[member] for member in members])
    return found


def _ablated(part: SwappedPart, of: PartMap, own: Activations) -> Tensor:
    value = own[part.place.hook]
    if part.kind not in PATTERNS:
        return of.ablated(len(value))
    visible = torch.ones(value.shape[-2:], dtype=value.dtype, device=value.device).tril()
    return (visible / visible.sum(-1, keepdim=True))[list(of.places)]


def _new(part: SwappedPart, of: PartMap, own: Activations, theirs: Activations, at: ReadingFrame) -> Tensor:
    """The activation that replaces the part, at the map's places."""
    if part.source is None:
        return _ablated(part, of, own)
    other = part.counterpart(theirs).to(own[part.place.hook].device)
    if part.kind not in PATTERNS:
        return of(other)
    other = other[:, list(of.places)]
    return by_role(part.of(own)[:, list(of.places)], other, at) if part.kind == "pattern by role" else other


def _run(a: ArithmeticTransformer, batch: Tensor, other: _Donor, new: Mapping[str, Tensor]) -> Tensor:
    """Logits of a with these replacements."""
    places = {name: replace(other.parts[name].place, at=other.maps[name].places) for name in new}
    ((_, logits, _),) = passes(a, batch, [place.put(new[name]) for name, place in places.items()])
    return logits


def _closeness(
    a: ArithmeticTransformer, part: SwappedPart, of: PartMap, own: Activations, new: Tensor, at: ReadingFrame
) -> tuple[str, float, float]:
    """("overlap", sum, rows) for a pattern; ("r2", squared error of the map, total square) for other parts, measured in
    what they write to the stream."""
    mine = part.of(own)[:, list(of.places)].double()
    if part.kind in PATTERNS:
        read_at = [of.places.index(query) for query in at.queries]
        far = (mine - new).abs()[:, read_at].sum(-1) / 2
        return "overlap", float((1 - far).sum()), float(far.numel())
    assert of.mean is not None
    left, all_of_it = mine - new, mine - of.mean
    if part.kind in ("values", "output"):
        write = a.W_O[part.layer, part.place.head].double()
        left, all_of_it = left @ write, all_of_it @ write
    elif part.kind == "unit":
        size = a.W_out[part.layer, part.place.neuron].double().norm()
        left, all_of_it = left * size, all_of_it * size
    return "r2", float(left.square().sum()), float(all_of_it.square().sum())
