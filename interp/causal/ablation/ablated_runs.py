"""Zero, mean and resample ablation of a model's components by hooks.

    zero        the part is removed
    mean        the part is set to its mean over the sample, at each position
    resample    the part is taken from the run of another example of the sample: example i gets that of example
                pi(i), with pi a seeded permutation that leaves no example in its place

Zero takes the model off its distribution; mean keeps what is the same for all inputs; resample keeps the part's
distribution and destroys only what it says about the input.

"zero:0.5" goes half of the way, and so on: the dose d of a replacement r gives x + d (r - x). The dose 0 is a sham: the
same hooks and formulas run, and nothing is changed. Doses above 1 go beyond.

The control of each is a change of the same length in a random direction: at every example and position (for a pattern:
at every query) the activation moves as far as the ablation moved it, along normal noise over all features there. If an
ablation does no more than its control, the disturbance matters and not what was removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from interp.causal.ablation.components import Component
from interp.core.batches import derangement
from interp.core.model_checks import require_evaluation_mode
from interp.core.places import Place, Replacement
from interp.core.runs import Activations, base_runs, require_numbers
from models.errors import UserError, known_name
from models.transformer import HookedModel

REPLACEMENTS = ("zero", "mean", "resample")
#: A part that moves by no more than this many units in the last place of its largest entry counts as unchanged. A
#: softmax over large scores magnifies the rounding of the norms this much.
_ROUNDING = 1024

#: component (None: the whole model), replacement, whether it is the control, rows, logits
Receive = Callable[[int | None, int, bool, slice, Tensor], None]


def kind_and_dose(replacement: str) -> tuple[str, float]:
    """("zero", 0.5) of "zero:0.5"; without a number the dose is 1. Raises UserError for any other text."""
    kind, colon, number = replacement.partition(":")
    known_name("replacement", kind, REPLACEMENTS)
    try:
        dose = float(number) if colon else 1.0
    except ValueError:
        dose = math.nan
    if not 0 <= dose < math.inf:
        raise UserError(f"The dose of a replacement is a number from 0 on, as in '{kind}:0.5', not {number!r}.")
    return kind, dose


def in_words(replacement: str) -> str:
    """What is done to a component, such as "moved half of the way to its mean"."""
    kind, dose = kind_and_dose(replacement)
    if dose == 1:
        return {"zero": "set to zero", "mean": "set to its mean", "resample": "taken from another example"}[kind]
    towards = {"zero": "zero", "mean": "its mean", "resample": "that of another example"}[kind]
    return f"moved {dose:.4g} of the way to {towards}" if dose else f"left as it is (a sham of {kind})"


def check_replacement(replacement: str | Sequence[str]) -> list[str]:
    """A list of replacements. Raises UserError for an unknown one (with the closest), none, or one named twice."""
    found = [replacement] if isinstance(replacement, str) else list(replacement)
    for each in found:
        kind_and_dose(each)
    if not found or len(set(found)) < len(found):
        raise UserError(f"Give one or more different replacements of {', '.join(REPLACEMENTS)}.")
    return found


@dataclass
class _Watch:
    """How far an ablation moved its part, and how large the part was."""

    moved: float = 0.0
    size: float = 0.0
    epsilon: float = 0.0

    def see(self, part: Place, old: Tensor, new: Tensor) -> None:
        # A component along directions is a product, whose rounding error is on the scale of all of the activation.
        size = (old if part.basis is not None else part.read(old)).abs().max()
        self.add(float((new - old).abs().nan_to_num(torch.inf).max()), float(size), old)

    def add(self, moved: float, size: float, like: Tensor) -> None:
        """Take note of one batch. Of what is not a number ``moved`` is infinite: that is a change."""
        self.moved, self.size = max(self.moved, moved), max(self.size, size)
        self.epsilon = torch.finfo(like.dtype).eps

    @property
    def changed(self) -> bool:
        return self.moved > _ROUNDING * self.epsilon * self.size


def mean_activations(model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: Sequence[str]) -> Activations:
    """Mean over examples of each hook's activation, without the batch axis, summed in float64. Cost: one run."""
    totals: Activations = {}
    for base in base_runs(model, tokens):
        for name, value in base.held(hooks).items():
            part = value.cpu().double().sum(0)  # not every device has float64
            totals[name] = part if name not in totals else totals[name] + part
    return {name: total / len(tokens) for name, total in totals.items()}


def run_ablations(
    model: HookedModel,
    tokens: Int[Tensor, "n pos"],
    components: Sequence[Component],
    replacement: Sequence[str],
    seed: int,
    receive: Receive,
    unchanged: str = "error",
    control: bool = False,
    first: int = 0,
) -> dict[tuple[int, int], bool]:
    """Run every component with every replacement.

    ``receive(component, replacement, is_control, rows, logits)`` gets the logits of each batch, first those of the
    whole model, with component None; ``control`` adds the control of each. Returns whether each (component,
    replacement) changed anything in any example. ``first`` is the first position whose logits are read; before it they
    may be NaN. Cost: one run per component and replacement (two with control), from the component's layer on where that
    is known (:class:`interp.core.runs.BaseRun`), one for the whole model, one for the means, one for the sources of a
    resample. Whole heads and neurons are replaced together, and cost no more than what comes after them.

    Raises:
        UserError: a model in training mode or one that has diverged; a hook that never fires, or at which activations
            are infinite; with ``unchanged="error"``, an ablation that changes nothing in any example (beyond rounding).
    """
    require_evaluation_mode(model)
    hooks = list(dict.fromkeys(part.hook for component in components for part in component.parts))
    kinds = [kind_and_dose(each) for each in replacement]
    needed = {kind for kind, _ in kinds}
    means = mean_activations(model, tokens, hooks) if "mean" in needed else {}
    order = derangement(len(tokens), seed) if "resample" in needed else None
    watches = {(i, j): _Watch() for i in range(len(components)) for j in range(len(replacement))}
    whole = _whole_parts(components)
    apart = sorted(set(range(len(components))) - {i for of_part in whole.values() for i in of_part.values()})
    for base in base_runs(model, tokens, first):
        rows, logits = base.rows, base.logits()
        require_numbers(model, base.tokens, logits[:, first:])
        receive(None, 0, False, rows, logits)
        sources = {} if order is None else _held(model, tokens[order[rows]], hooks)
        others = {"zero": {}, "mean": means, "resample": sources}
        for j, (kind, dose) in enumerate(kinds):
            for hook, of_part in whole.items():
                watch = {part: watches[i, j] for part, i in of_part.items()}
                new = _seen_parts(base.held([hook])[hook], others[kind].get(hook), dose, watch)
                for part, logits in base.each(hook, list(of_part), new):
                    receive(of_part[part], j, False, rows, logits)
            for i in range(len(components)):
                ablated = partial(_replacements, components[i], others[kind], dose)
                if i in apart:
                    receive(i, j, False, rows, base.replaced(ablated(watches[i, j], None)))
                if control:
                    noise = torch.Generator().manual_seed(hash((seed, i, j, rows.start)) % 2**63)
                    receive(i, j, True, rows, base.replaced(ablated(_Watch(), noise)))
    for (i, j), watch in watches.items():
        if not math.isfinite(watch.moved):
            raise UserError(
                f"The {replacement[j]} ablation of {components[i].label} gives values that are not finite: activations "
                "there are infinite, as masked attention scores are, so that no part of them can be taken."
            )
        if unchanged == "error" and kinds[j][1] and not watch.changed:
            raise UserError(
                f"The {replacement[j]} ablation of {components[i].label} changes nothing in any of {len(tokens):,} "
                f"examples: {_reason(replacement[j])}. Pass unchanged='keep' to have it in the table all the same."
            )
    return {key: watch.changed for key, watch in watches.items()}


def _held(model: HookedModel, tokens: Int[Tensor, "chunk pos"], hooks: Sequence[str]) -> Activations:
    """The activations of one chunk."""
    (base,) = base_runs(model, tokens)
    return base.held(hooks)


def _whole_parts(components: Sequence[Component]) -> dict[str, dict[int, int]]:
    """By hook, the heads and neurons that are ablated at all positions, each with the number of its component."""
    found: dict[str, dict[int, int]] = {}
    for i, component in enumerate(components):
        place, *more = component.parts
        if more:
            continue
        part = {"attn.hook_z": place.head, "mlp.hook_post": place.neuron}.get(place.hook.split(".", 2)[-1])
        whole = place.basis is None and place == Place(place.hook, None, place.head, place.neuron, name=place.name)
        if part is not None and whole:
            found.setdefault(place.hook, {}).setdefault(part, i)
    return found


def _seen_parts(old: Tensor, other: Tensor | None, dose: float, watches: dict[int, _Watch]) -> Tensor:
    """The activation of which each head or neuron is taken by itself, [chunk, pos, part, ...], seen by its watch."""
    new = torch.zeros_like(old) if other is None else other.to(old).expand_as(old)
    new = new if dose == 1 else old + dose * (new - old)
    axes = [axis for axis in range(old.ndim) if axis != 2]
    moved, size = (new - old).abs().nan_to_num(torch.inf).amax(axes).tolist(), old.abs().amax(axes).tolist()
    for part, watch in watches.items():
        watch.add(moved[part], size[part], old)
    return new


def _reason(replacement: str) -> str:
    return "it is zero already" if replacement.startswith("zero") else "it is the same in all of them"


def as_far(part: Place, old: Tensor, new: Tensor, noise: torch.Generator) -> Tensor:
    """``old`` moved in a random direction by the distance from ``old`` to ``new``, at every example and position."""
    axes = (-2, -1) if part.axes == "head" else (-1,)
    drawn = torch.randn(old.shape, generator=noise, dtype=torch.float64).to(old.dtype).to(old.device)
    drawn = drawn.tril() if part.axes == "key" else drawn  # no query may attend to a later position
    far = (new - old).square().sum(axes, keepdim=True).sqrt()
    return old + drawn * far / drawn.square().sum(axes, keepdim=True).sqrt()


def _replacements(
    component: Component, others: Activations, dose: float, watch: _Watch, noise: torch.Generator | None
) -> list[Replacement]:
    def act(part: Place) -> Callable[[Tensor, slice], Tensor]:
        def change(value: Tensor, rows: slice) -> Tensor:
            new = part.take(value, others.get(part.hook))
            new = new if dose == 1 else value + dose * (new - value)
            watch.see(part, value, new)
            return new if noise is None else as_far(part, value, new, noise)

        return change

    return [Replacement(part.hook, act(part)) for part in component.parts]
