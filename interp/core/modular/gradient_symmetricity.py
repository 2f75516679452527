"""Two marks of clocks and pizzas: gradient symmetricity and distance irrelevance (Zhong et al. 2023, section 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core import runs
from interp.core.modular.group_spectra import pair_values, right_logs
from interp.core.places import Replacement
from interp.core.stats import mean_interval
from interp.core.thresholds import CLOCK_MARKS, PIZZA_MARKS
from models.errors import UserError
from models.tasks import CyclicGroup, Task
from models.transformer import HookedModel

_ALIKE = 1e-5  # of their size: logits that differ by no more do so by rounding


@dataclass(frozen=True)
class GroupMarks:
    """``symmetricity``: the mean cosine of ``n`` pairs and answers, with its 95% interval. ``irrelevance``: NaN where
    all right answers have one logit. ``undefined``: pairs left out, as a gradient is zero and has no direction.
    ``all_pairs``: whether there are no other pairs and answers."""

    symmetricity: tuple[float, float, float]
    irrelevance: float
    n: int
    undefined: int = 0
    all_pairs: bool = False

    @property
    def program(self) -> str:
        """The program whose marks these are: "clock", "pizza", or "" for neither."""
        value = self.symmetricity[0]
        if value >= PIZZA_MARKS[0] and self.irrelevance < PIZZA_MARKS[1]:
            return "pizza"
        return "clock" if value < CLOCK_MARKS[0] and not self.irrelevance < CLOCK_MARKS[1] else ""

    def clause(self) -> str:
        """Both in words."""
        value, low, high = self.symmetricity
        distances = f"{self.irrelevance:.3f}" if math.isfinite(self.irrelevance) else "not defined (one logit for all)"
        left_out = f" (without {self.undefined:,} whose gradient is zero)" if self.undefined else ""
        return f"gradient symmetricity {value:.3f} [{low:.3f}, {high:.3f}]{left_out}, distance irrelevance {distances}"


def group_marks(
    model: HookedModel,
    task: Task,
    of: CyclicGroup,
    n: int,
    seed: int,
    logits: Float[np.ndarray, "order order answer"] | None = None,
) -> GroupMarks:
    """Both marks, from ``n`` different pairs with an answer (at most all there are), and from all pairs.

    ``logits``: those of :func:`interp.core.modular.group_spectra.pair_values`, if they are known.

    Raises:
        UserError: logits that are the same for all pairs, or that hardly any operand moves: neither mark is defined.
    """
    values = pair_values(model, task, of, "logits") if logits is None else logits
    if np.ptp(values, axis=(0, 1)).max() <= _ALIKE * max(np.abs(values).max(), np.finfo(float).tiny):
        raise UserError("The logits are the same for all pairs: they do not depend on the operands.")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(of.order**3, generator=generator)[:n]
    pairs, answers = of.pairs()[drawn // of.order], drawn % of.order
    tokens = torch.tensor([task.digit_tokens[element] for element in of.elements])[answers]
    places = [i for i, role in enumerate(task.roles) if role.kind == "operand"]
    both = _gradients(model, task.encode(pairs), task.query_positions[0], tokens)[:, places].double()
    defined = (both.norm(dim=-1) > 0).all(-1)
    if int(defined.sum()) < 2:
        raise UserError("Hardly any logit has a gradient with respect to both operands, and so an angle between them.")
    cosines = torch.nn.functional.cosine_similarity(*both[defined].unbind(1), dim=-1).numpy()
    right = np.take_along_axis(values, right_logs(of)[..., None], -1)[..., 0]
    at = np.arange(of.order)
    by_distance = right[at[None], (at[None] - of.sign * at[:, None]) % of.order]  # [distance, pair]
    spread = float(right.std())
    return GroupMarks(
        mean_interval(cosines, (-1.0, 1.0)),
        float(by_distance.std(1).mean()) / spread if spread > 0 else math.nan,
        len(cosines),
        int((~defined).sum()),
        len(drawn) == of.order**3,
    )


def _gradients(model: Any, tokens: Tensor, query: int, answers: Tensor) -> Float[Tensor, "n pos d_model"]:
    """Gradient of each row's logit of its answer with respect to its embeddings."""
    seen: list[Tensor] = []

    def lead(value: Tensor, chunk: slice) -> Tensor:
        seen.append(value.detach().requires_grad_())
        return seen[-1]

    with torch.enable_grad():
        logits = runs.run(model, tokens, [Replacement("hook_embed", lead)], [query], gradients=True)[:, 0]
        total = logits.gather(1, answers.to(logits.device)[:, None]).sum()
        if not total.requires_grad:
            raise UserError("The logits do not depend on the embeddings.")
        return torch.cat(torch.autograd.grad(total, seen)).cpu()
