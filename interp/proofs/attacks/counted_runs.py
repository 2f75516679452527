"""Run problems through a model and count the runs: margins, and each token's first-order effect on a margin.

The margin of a problem at one target is the logit of the right token minus the largest other one, with the right
answer before it as input (teacher forcing). A problem counts as wrong if one of its margins is negative or zero (a
tie): up to the first wrong token, greedy decoding reads the same input.

One run is one sequence through the model. A gradient counts as :data:`GRADIENT_RUNS` runs, as its backward pass costs
about two forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import UserError
from models.evaluation import BATCH_SIZE, PATTERN_ENTRIES
from models.tasks import Task
from models.transformer import HookedModel

GRADIENT_RUNS = 3
EMBED = "hook_embed"


@dataclass(frozen=True, eq=False)
class Margins:
    """The margin of every problem at every target (-inf where logits are not numbers), the token that the query reads
    there, the right token, and the best of the others."""

    values: Float[Tensor, "n target"]
    read: Int[Tensor, "n target"]
    right: Int[Tensor, "n target"]
    rival: Int[Tensor, "n target"]


@dataclass(frozen=True, eq=False)
class Gradients:
    """First-order effects on the margins of some problems, each at one target.

    Attributes:
        margins: the margins themselves.
        effects: ``gradient of the margin . W_E[token]`` for every token at every position. The effect of a change is
            the new token's entry minus the present token's.
        caught: gradients at other hooks, by name.
    """

    margins: Float[Tensor, " n"]
    effects: Float[Tensor, "n pos token"]
    caught: dict[str, Tensor]


class Runner:
    """A model and its task; ``runs`` counts the runs that were spent."""

    def __init__(self, model: HookedModel, task: Task) -> None:
        self.model, self.task, self.runs = model, task, 0
        self.queries = list(task.query_positions)
        fitting = PATTERN_ENTRIES // (getattr(model.cfg, "n_heads", 1) * task.input_length**2)
        self.batch_size = max(1, min(BATCH_SIZE, fitting))
        self.device = getattr(model.cfg, "device", None)
        with torch.no_grad():
            self.W_E = model.W_E.detach()

    @torch.no_grad()
    def margins(self, problems: Int[Tensor, "n *operands"]) -> Margins:
        """The margins of every problem at every target; each problem costs one run."""
        self.runs += len(problems)
        tokens, right = self.task.encode(problems), self.task.targets(problems)
        values, rivals = [], []
        for batch, answers in zip(tokens.split(self.batch_size), right.split(self.batch_size), strict=True):
            logits = self.model(batch.to(self.device))[:, self.queries]
            value, rival = margin_of(logits, answers.to(logits.device))
            values.append(value.cpu())
            rivals.append(rival.cpu())
        return Margins(torch.cat(values), tokens[:, self.queries], right, torch.cat(rivals))

    def gradients(
        self, problems: Int[Tensor, "n *operands"], targets: Int[Tensor, " n"], hooks: tuple[str, ...] = ()
    ) -> Gradients:
        """First-order effects on the margin of problem i at target ``targets[i]``, and its gradients at ``hooks``.

        Cost: :data:`GRADIENT_RUNS` runs per problem.
        """
        self.runs += GRADIENT_RUNS * len(problems)
        tokens, right = self.task.encode(problems), self.task.targets(problems)
        right = right.gather(1, targets[:, None])
        queries = torch.tensor(self.queries)[targets]
        margins, effects, caught = [], [], {name: [] for name in hooks}
        for rows in torch.arange(len(problems)).split(self.batch_size):
            found: dict[str, Tensor] = {}

            # Store under the name that was asked for: a bridge's hook points have other names of their own.
            def leaf(value: Tensor, hook: Any, found: dict[str, Tensor] = found) -> Tensor:
                found[EMBED] = value.detach().requires_grad_()
                return found[EMBED]

            def watch(value: Tensor, hook: Any, name: str, found: dict[str, Tensor] = found) -> Tensor:
                found[name] = value
                return value

            with torch.enable_grad():
                fwd_hooks = [(EMBED, leaf), *((name, partial(watch, name=name)) for name in hooks)]
                logits = self.model.run_with_hooks(tokens[rows].to(self.device), fwd_hooks=fwd_hooks)
                asked = logits[torch.arange(len(rows)), queries[rows].to(logits.device)][:, None]
                value = margin_of(asked, right[rows].to(logits.device))[0][:, 0]
                wanted = [found[name] for name in (EMBED, *hooks)]
                gradients = _gradients(value.sum(), wanted)
            margins.append(value.detach().cpu())
            effects.append((gradients[0] @ self.W_E.T.to(gradients[0].dtype)).double().cpu())
            for name, gradient in zip(hooks, gradients[1:], strict=True):
                caught[name].append(gradient.cpu())
        return Gradients(torch.cat(margins), torch.cat(effects), {k: torch.cat(v) for k, v in caught.items()})

    @torch.no_grad()
    def catch(self, tokens: Int[Tensor, "n pos"], hooks: tuple[str, ...]) -> dict[str, Tensor]:
        """Activations at ``hooks`` of any token sequences; each sequence costs one run."""
        self.runs += len(tokens)
        found: dict[str, list[Tensor]] = {name: [] for name in hooks}

        def keep(value: Tensor, hook: Any, name: str) -> None:
            found[name].append(value.detach().cpu())

        for batch in tokens.split(self.batch_size):
            fwd_hooks = [(name, partial(keep, name=name)) for name in hooks]
            self.model.run_with_hooks(batch.to(self.device), fwd_hooks=fwd_hooks)
        return {name: torch.cat(values) for name, values in found.items()}


def _gradients(value: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    """Gradients of a scalar with respect to ``wanted``. Raises UserError where a hook on the model cuts them off."""
    found = torch.autograd.grad(value, wanted, allow_unused=True) if value.requires_grad else [None]
    kept = [gradient for gradient in found if gradient is not None]
    if len(kept) < len(wanted):
        raise UserError("No gradient reaches the embeddings, along which the search goes: a hook may cut it off.")
    return kept


def margin_of(
    logits: Float[Tensor, "n target d_vocab"], right: Int[Tensor, "n target"]
) -> tuple[Float[Tensor, "n target"], Int[Tensor, "n target"]]:
    """(right logit - best other logit, which other); -inf where a logit is NaN, as that is never a right answer."""
    logits = logits.double()
    own = logits.gather(-1, right[..., None])[..., 0]
    best, rival = logits.scatter(-1, right[..., None], -torch.inf).max(-1)
    margin = own - best
    return torch.where(margin.isnan() | logits.isnan().any(-1), -torch.inf, margin), rival


def estimates(
    margins: Float[Tensor, " n"],
    effects: Float[Tensor, "n pos token"],
    old: Int[Tensor, "n pos"],
    new: Int[Tensor, "n pos"],
) -> Float[Tensor, " n"]:
    """First-order estimate of the margin after all of a sequence's tokens changed from ``old`` to ``new``.

    It is ``margin + sum_pos gradient[pos] . (W_E[new] - W_E[old])``, over the operands and the teacher-forced answer.
    The right token stays the same, so that the estimate is only for problems with the same answer at the target.
    """
    effect = effects.gather(2, new[..., None]) - effects.gather(2, old[..., None])
    return margins + effect[..., 0].sum(1)
