"""Subspaces of a site that may hold a variable: fitted on training pairs, or drawn at random as a control.

With an orthonormal basis U [width, k] the intervention moves a base's activation h to ``h + U U^T (h_source - h)``: the
part in the subspace comes from the source, the rest stays.

    das            U by gradient descent on the cross-entropy of the causal model's counterfactual answer (distributed
                   alignment search: Geiger et al., 2024, arXiv 2303.02536); U is the Q of a QR decomposition
    dbm            coordinates, not directions: a mask between 0 and 1 over the site's numbers, by the same descent,
                   with a slope that sharpens and a price on every number taken (desiderata-based masking: Davies et
                   al., 2023, arXiv 2307.03637); the k numbers with the largest mask
    least squares  the directions from which the variable is best read: regression of its one-hot values on activations
    means          the directions in which it moves activations: the span of its values' mean activations, centred
    random         the orthonormal basis of a Gaussian matrix
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core import runs
from interp.core.places import Place
from models.errors import UserError
from models.transformer import HookedModel

METHODS = ("das", "dbm", "least squares", "means", "random")
_BATCH = 128
_PRICE, _SHARPEST = 0.01, 0.1
_RANDOM_STARTS = 8


class NoDirections(UserError):
    """Activations distinguish too few values of a variable for a subspace of this size."""


def orthonormal(directions: Float[Tensor, "width k"]) -> Float[Tensor, "width k"]:
    """An orthonormal basis of the directions' span, which must have full rank.

    Raises:
        UserError: not a matrix with at most as many directions as the site is wide, or linearly dependent directions.
    """
    if directions.ndim != 2 or not 1 <= directions.shape[1] <= directions.shape[0]:
        raise UserError(
            f"A subspace is given by directions [width, k] with 1 <= k <= width, not {list(directions.shape)}."
        )
    q, r = torch.linalg.qr(directions.cpu().double())
    size = r.diagonal().abs()
    if not torch.isfinite(directions).all() or size.min() <= 1e-9 * size.max():
        raise UserError(f"The {directions.shape[1]} directions are not linearly independent.")
    return q.to(directions)


def random_basis(width: int, k: int, generator: torch.Generator) -> Float[Tensor, "width k"]:
    """A uniformly random k-dimensional subspace."""
    return orthonormal(torch.randn(width, k, generator=generator, dtype=torch.float64)).float()


def least_squares_basis(
    activations: Float[Tensor, "n width"], values: Int[Tensor, " n"], k: int
) -> Float[Tensor, "width k"]:
    """The k leading left singular vectors of ``B`` in ``Y = X B + noise`` (centred, minimum norm).

    Directions in which activations vary by less than 1e-4 of the most are left out: in float32 a coordinate that is
    constant but for rounding could otherwise get any coefficient.
    """
    x = _centred(activations)
    coefficients = torch.linalg.lstsq(x, _one_hot(values), rcond=1e-4, driver="gelsd").solution
    return _leading(coefficients, k, values).to(activations)


def means_basis(activations: Float[Tensor, "n width"], values: Int[Tensor, " n"], k: int) -> Float[Tensor, "width k"]:
    """The k leading singular directions between the mean activations of the variable's values."""
    x, y = _centred(activations), _one_hot(values)
    coefficients = torch.linalg.lstsq(y, x, driver="gelsd").solution
    return _leading(coefficients.T, k, values).to(activations)


def _centred(activations: Float[Tensor, "n width"]) -> Float[Tensor, "n width"]:
    """Centred activations in float64 on the CPU, which has the solver for rank-deficient matrices (and float64)."""
    return (activations - activations.mean(0)).cpu().double()


def _one_hot(values: Int[Tensor, " n"]) -> Float[Tensor, "n value"]:
    _, index = values.cpu().unique(return_inverse=True)
    y = F.one_hot(index).double()
    return y - y.mean(0)


def _leading(matrix: Float[Tensor, "width value"], k: int, values: Int[Tensor, " n"]) -> Float[Tensor, "width k"]:
    u, s, _ = torch.linalg.svd(matrix, full_matrices=False)
    rank = int((s > 1e-9 * s[0].clamp(min=1e-300)).sum())
    if rank < k:
        raise NoDirections(
            f"The variable has {len(values.unique())} values in the training pairs and activations tell at most {rank} "
            f"directions of them apart; a subspace of {k} needs more."
        )
    return u[:, :k]


@dataclass(frozen=True, eq=False)
class TrainingPairs:
    """What a subspace is fitted to: base ``tokens``, what a ``place`` holds in their sources, and the causal model's
    ``answers`` at ``queries`` where the place takes its part from there."""

    model: HookedModel
    place: Place
    tokens: Int[Tensor, "n pos"]
    source: Float[Tensor, "n width"]
    answers: Int[Tensor, "n read"]
    queries: Sequence[int]

    def loss(self, rows: Int[Tensor, " row"], take: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Cross-entropy of the answers in some rows where the place holds ``take(its own value, the source's)``."""
        own = rows.to(self.source.device)
        held = self.source[own]
        change = lambda value, part: take(value.flatten(1), held[part])  # noqa: E731
        logits = runs.run(self.model, self.tokens[rows], [self.place.put(change)], self.queries, gradients=True)
        return F.cross_entropy(logits.flatten(0, 1), self.answers.to(self.source.device)[own].flatten())

    def drawn(self, generator: torch.Generator) -> Int[Tensor, " row"]:
        """A batch of rows."""
        return torch.randint(len(self.tokens), (min(_BATCH, len(self.tokens)),), generator=generator)


def das_basis(
    pairs: TrainingPairs,
    starts: Sequence[Float[Tensor, "width k"]],
    generator: torch.Generator,
    steps: int = 200,
    lr: float = 0.02,
) -> Float[Tensor, "width k"]:
    """The subspace whose interchange makes the model give the answers, by Adam on the training pairs.

    The loss is the cross-entropy of the answers, averaged over pairs and queries, on batches of 128 pairs drawn from
    ``generator``. The basis is the Q of a QR decomposition and so stays orthonormal; the learning rate falls linearly
    to zero. Descent begins at the start with the least loss over all training pairs: these losses have plateaus (a
    saturated unit has no gradient), where a single random start gets stuck. If descent ends with a larger loss, the
    start is returned. Where a model's answers change in steps (the hand-built transformer has kinks, and one logit with
    a weight of 100), descent does not help, and the result is the best start.

    Cost: one run over the training pairs per start, and ``steps`` runs and backward passes over a batch.
    """

    def loss_of(basis: Tensor, rows: Tensor) -> Tensor:
        return pairs.loss(rows, lambda value, held: project(value, held, basis))

    everything = torch.arange(len(pairs.tokens))
    with torch.no_grad():
        losses = [float(loss_of(start, everything)) for start in starts]
    best = int(torch.tensor(losses).argmin())
    raw = starts[best].clone().requires_grad_()
    optimiser = torch.optim.Adam([raw], lr=lr)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = lr * (1 - step / steps)
        (raw.grad,) = torch.autograd.grad(loss_of(torch.linalg.qr(raw)[0], pairs.drawn(generator)), [raw])
        optimiser.step()
    with torch.no_grad():
        found = torch.linalg.qr(raw.detach())[0]
        return found if float(loss_of(found, everything)) < losses[best] else starts[best]


def mask_basis(
    pairs: TrainingPairs, k: int, generator: torch.Generator, steps: int = 200, lr: float = 0.1
) -> Float[Tensor, "width k"]:
    """The k numbers of a site that a mask takes from the source, as columns of the identity; see the module.

    Cost: ``steps`` runs and backward passes over a batch.
    """
    source, width = pairs.source, pairs.source.shape[1]
    mask = torch.zeros(width, dtype=source.dtype, device=source.device, requires_grad=True)
    optimiser = torch.optim.Adam([mask], lr=lr)
    for step in range(steps):
        rows = pairs.drawn(generator)
        taken = (mask / _SHARPEST ** (step / steps)).sigmoid()
        loss = pairs.loss(rows, lambda value, held, taken=taken: value + taken * (held - value))
        (mask.grad,) = torch.autograd.grad(loss + _PRICE * taken.sum(), [mask])
        optimiser.step()
    return torch.eye(width, dtype=source.dtype, device=source.device)[:, mask.detach().argsort(descending=True)[:k]]


def das_starts(
    source: Float[Tensor, "n width"], values: Int[Tensor, " n"], k: int, generator: torch.Generator
) -> list[Float[Tensor, "width k"]]:
    """Starts for DAS: random subspaces, and those of least squares and of means if they have k directions."""
    starts = [random_basis(source.shape[1], k, generator).to(source) for _ in range(_RANDOM_STARTS)]
    for basis in (least_squares_basis, means_basis):
        with suppress(NoDirections):
            starts.append(basis(source, values, k))
    return starts


def project(
    base: Float[Tensor, "batch width"], source: Float[Tensor, "batch width"], basis: Float[Tensor, "width k"] | None
) -> Float[Tensor, "batch width"]:
    """The base's activation with the part in the subspace taken from the source; without a basis, all of it."""
    return source if basis is None else base + ((source - base) @ basis) @ basis.T


def control_basis(width: int, basis: Float[Tensor, "width k"] | None, generator: torch.Generator) -> Tensor:
    """What :func:`matched_move` moves along: as many random directions, or a rotation if the whole site is taken.

    A site of one number has no other direction; there the sign of its change is flipped.
    """
    k = width if basis is None else basis.shape[1]
    return -torch.ones(1, 1) if width == 1 else random_basis(width, k, generator)


def matched_move(
    base: Float[Tensor, "batch width"],
    source: Float[Tensor, "batch width"],
    basis: Float[Tensor, "width k"] | None,
    other: Float[Tensor, "width k"],
) -> Float[Tensor, "batch width"]:
    """The control's activation: moved along another subspace, as far as the intervention itself moves it.

    Each example's move in ``other`` is scaled to the norm of its move in ``basis``. Without a basis, or with a full
    one, the whole difference is rotated by the orthogonal matrix ``other`` [width, width], which keeps its norm.
    """
    delta = source - base
    if basis is None or basis.shape[1] == len(basis):
        return base + delta @ other.T
    size = (delta @ basis).norm(dim=1, keepdim=True)
    move = (delta @ other) @ other.T
    return base + move * size / move.norm(dim=1, keepdim=True).clamp(min=1e-30)
