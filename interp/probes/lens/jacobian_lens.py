"""The Jacobian lens: a stream, carried to the last one by the mean derivative of the last one by it.

    logits_at(stream) = ln_final(stream J) W_U + b_U
    J[i, j] = mean over problems and answer digits t of  sum over answer digits t' of  d last[t', j] / d stream[t, i]

t' is t or later, as nothing reaches an earlier position. So J says what the rest of the model does with a small change
of the stream on average, also to later digits, as in the source. Nothing is trained and nothing is known of the right
answers; at the last stream J is the identity, and without layers in between the lens is the logit lens.

The ``control`` has matrices with the singular values of J and random directions, which read a stream of the same size.

Limits. J is a mean of derivatives, so that what the model computes by products or switches (a digit sum modulo ten, a
carry) is lost on the way; no bias is fitted. Compare :mod:`interp.probes.lens.tuned_lens`. Source: Gurnee et al.
(2026), "Verbalizable Representations Form a Global Workspace in Language Models"; TransformerLens has it as
``JacobianLens``."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.places import Replacement
from interp.core.probe import Summary, at_most, probe
from interp.core.runs import passes, require_finite
from interp.core.samples import N_PROBLEMS
from interp.core.table_result import TableResult
from interp.core.task_checks import resolve_task
from interp.probes.lens.affine_lens import best_reading, translated
from interp.probes.lens.logit_lens import Translators
from models.calls import Count, GivenProblems, Seed
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

CONTROL = "random directions"
AVERAGED = 128  # so many problems give the Jacobians, or half of them all where these are fewer


@probe(
    "What would each stream answer, by the mean derivative of the rest?",
    summary=Summary(
        "right before the last sublayer, by the mean Jacobian", "share", best_reading, 0.01,
        at_most(256), asked_by=(),
    ),
)  # fmt: skip
def jacobian_lens(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> TableResult:
    """The Jacobian lens at the queries of every target; see the module.

    Args:
        model: any model with TransformerLens hooks, ``ln_final`` (if it has a final norm) and ``unembed``.
        task: what its tokens mean; default ``model.task``.
        problems: problems, of which the first half gives the Jacobians (128, if it has more) and the other is read; by
            default ``n`` uniform ones, drawn with ``seed``. Each is counted once.

    Cost: a forward pass of 128 problems and ``d_model`` backward passes, and one pass over the others.

    Raises:
        UserError: as :func:`interp.probes.lens.logit_lens`; fewer than 32 different problems.
    """
    task = resolve_task(model, task)

    def find(tokens: Int[Tensor, "n pos"], points: dict[str, str], queries: list[int]) -> Any:
        matrix = mean_jacobians(model, tokens, list(points.values()), queries)
        return tuple(
            Translators(each, torch.zeros_like(each[:, 0])) for each in (matrix, _turned_at_random(matrix, seed))
        )

    return translated(model, task, problems, n, seed, "Jacobian lens", CONTROL, find, AVERAGED)


def mean_jacobians(
    model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: list[str], queries: list[int]
) -> Float[Tensor, "point d_model d_model"]:
    """J of the module for the stream at each hook; the last hook's is the identity.

    Raises:
        UserError: a derivative that is not finite.
    """
    leaf = Replacement(hooks[0], lambda stream, rows: stream.detach().requires_grad_())  # the only one: no weight's
    total = torch.zeros(0)
    with torch.enable_grad():
        for _, _, kept in passes(model, tokens, [leaf], hooks, gradients=True):
            streams = [kept[hook] for hook in hooks]
            of_last = streams[-1][:, queries].sum((0, 1))  # [d_model]: summed over later digits
            columns = []
            for j, each in enumerate(of_last):
                gradients = torch.autograd.grad(each, streams, retain_graph=j < len(of_last) - 1)
                columns.append(torch.stack([gradient[:, queries].mean(1).sum(0) for gradient in gradients]))
            of_chunk = torch.stack(columns, -1)
            total = of_chunk if not total.numel() else total + of_chunk
    require_finite({"the derivative of the last stream": total})
    return total.detach().to(torch.promote_types(total.dtype, torch.float32)) / len(tokens)


def _turned_at_random(
    matrix: Float[Tensor, "point d_model d_model"], seed: int
) -> Float[Tensor, "point d_model d_model"]:
    """Matrices of the same singular values in random directions; the last one as it is."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, *matrix[:-1].shape, generator=generator).to(matrix)
    left, right = torch.linalg.qr(drawn)[0]
    size = torch.linalg.svdvals(matrix[:-1])
    return torch.cat((left * size[:, None] @ right.mT, matrix[-1:]))
