"""Polish the end of a run by BFGS: where Adam leaves a small model is often a badly conditioned valley, not a wrong
circuit.

A model with some dozens of parameters can afford what a large one cannot: the whole inverse Hessian, estimated from
gradients. Adam alone leaves the best of 16 adders with 36 parameters at 99.3% of the problems after 60,000 steps; some
hundred iterations of BFGS on one large batch bring it to all of them. BFGS cannot leave a wrong basin, so that it comes
after Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError

#: The estimate of the inverse Hessian has at most this many rows: 32 MB, and a tenth of a second per iteration.
MOST_PARAMETERS = 2_000


@dataclass(frozen=True)
class Polish:
    """BFGS on one batch of each seed's own problems, after the last step."""

    problems: int = 65_536  # in that batch; a small batch would be memorised
    iterations: int = 400  # at most; it ends when no step along the line helps any more
    drawn_at: int | None = None  # problems are drawn as at this step of the schedule; None: as at the last one
    # times the sum of squares, added to the loss: numbers that only scale logits stay where float32 rounds little
    penalty: float = 1e-7
    #: Take every number in units of its own size. BFGS begins with a step along the gradient, which says little where
    #: numbers of 0.1 and of 100 stand side by side, and in float32 the search may then end where it began.
    relative: bool | None = None  # None: no

    def __post_init__(self) -> None:
        for name, most in (("problems", 2**24), ("iterations", 10**6)):
            if not 1 <= getattr(self, name) <= most:
                raise UserError(f"polish.{name} must be at least 1 and at most {most:,}, not {getattr(self, name)}.")
        if not 0 <= self.penalty < math.inf:
            raise UserError(f"polish.penalty must be finite and not negative, not {self.penalty}.")
        if self.drawn_at is not None and self.drawn_at < 0:
            raise UserError(f"polish.drawn_at is a step and cannot be {self.drawn_at}.")


def polished(
    loss: Callable[[Float[Tensor, " parameter"]], Float[Tensor, ""]],
    theta: Float[Tensor, " parameter"],
    iterations: int,
    relative: bool = False,
) -> Float[Tensor, " parameter"]:
    """Lower a loss by BFGS from ``theta``, until the loss's own rounding ends the search.

    With ``relative``, every number counts in units of its size in ``theta`` (one that is 0, as it is).

    Returns:
        The end point, or ``theta`` if the loss is not lower there or not finite. An iteration costs n^2 operations for
        n parameters, and one or two evaluations of loss and gradient.
    """
    from scipy.optimize import minimize  # imported here: it takes as long as the rest of this package

    units = theta.detach().abs() if relative else torch.ones_like(theta)
    units = units.where(units > 0, torch.ones_like(units))

    def loss_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.as_tensor(flat, dtype=theta.dtype, device=theta.device).requires_grad_()
        value = loss(units * point)
        (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.double().cpu().numpy()

    start = (theta.detach() / units).double().cpu().numpy()
    before, _ = loss_and_gradient(start)
    with np.errstate(all="ignore"):  # a line search may try numbers that overflow, and then steps back
        found = minimize(loss_and_gradient, start, jac=True, method="BFGS", options={"maxiter": iterations, "gtol": 0})
    end = units * torch.as_tensor(found.x, dtype=theta.dtype, device=theta.device)
    better = math.isfinite(found.fun) and found.fun < before and bool(torch.isfinite(end).all())
    return end if better else theta.detach().clone()
