"""The tuned lens: an affine translator for each stream, trained to say what the model says in the end.

    logits_at(stream) = ln_final(stream + A stream + b) W_U + b_U

A and b of a point minimise the mean of KL(final || logits_at(stream)) over problems and answer digits, from A = 0 and
b = 0, which is the logit lens. The minimiser is L-BFGS on all of them at once with a small penalty on A and b (in units
of the stream's root mean square), so that it needs no step size and gives the same result every time.

The ``control`` has translators of the same form, which are trained to give the final distributions of other problems.
The problems are shuffled for each answer digit, so that the control can learn how common a digit is, and nothing about
a problem.

Limits. A translator reads what is linearly there, whether or not the model uses it, as
:mod:`interp.probes.lens.linear_probes` does; it is one map for all positions. Source: Belrose et al. (2023),
"Eliciting Latent Predictions from Transformers with the Tuned Lens", who train it by stochastic gradients on text."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.probe import Summary, at_most, probe
from interp.core.samples import N_PROBLEMS
from interp.core.table_result import TableResult
from interp.core.task_checks import resolve_task
from interp.probes.lens.affine_lens import best_reading, translated
from interp.probes.lens.logit_lens import Translators, unembedded
from interp.probes.lens.residual_points import read
from models.calls import Count, GivenProblems, Seed
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

CONTROL = "trained on other problems' answers"
PENALTY = 1e-3  # on the mean square of a row of A, and of b


@probe(
    "What would each stream answer in the last one's words?",
    summary=Summary(
        "right before the last sublayer, tuned", "share", best_reading, 0.01,
        at_most(256, steps=20), asked_by=(),
    ),
)  # fmt: skip
def tuned_lens(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
    steps: Count = 60,
) -> TableResult:
    """The tuned lens at the queries of every target; see the module.

    Args:
        model: any model with TransformerLens hooks, ``ln_final`` (if it has a final norm) and ``unembed``.
        task: what its tokens mean; default ``model.task``.
        problems: problems, of which one half trains the translators and the other is read; by default ``n`` uniform
            ones, drawn with ``seed``. Each is counted once.
        steps: steps of the minimiser for each translator.

    Cost: one pass over the problems, and for each stream about ``2.5 steps`` products of [n targets / 2, d_model] by
    [d_model, d_model], twice for the control: 12 s for four layers of width 128.

    Raises:
        UserError: as :func:`interp.probes.lens.logit_lens`; fewer than 32 different problems.
    """
    task = resolve_task(model, task)

    def find(tokens: Int[Tensor, "n pos"], points: dict[str, str], queries: list[int]) -> Any:
        final, streams = _streams(model, tokens, points, queries)
        generator = torch.Generator().manual_seed(seed)
        dealt = final[torch.randperm(len(final), generator=generator)]
        return tuple(trained(model, streams, towards, steps) for towards in (final, dealt))

    return translated(model, task, problems, n, seed, "tuned lens", CONTROL, find)


def trained(
    model: HookedModel,
    streams: Float[Tensor, "point n target d_model"],
    final: Float[Tensor, "n target d_vocab"],
    steps: int,
) -> Translators:
    """Translators towards these logits; the last stream's is the identity."""
    width = streams.shape[-1]
    wanted = final.flatten(0, 1).log_softmax(-1)
    found = [
        _translator(model, stream.flatten(0, 1), wanted, steps)
        if point < len(streams) - 1
        else (torch.eye(width).to(stream), torch.zeros(width).to(stream))
        for point, stream in enumerate(streams)
    ]
    return Translators(*(torch.stack(each) for each in zip(*found, strict=True)))


def _translator(
    model: HookedModel, stream: Float[Tensor, "row d_model"], wanted: Float[Tensor, "row d_vocab"], steps: int
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, " d_model"]]:
    """(1 + A, b) of one stream."""
    width, size = stream.shape[-1], float(stream.pow(2).mean().sqrt().clamp(min=1e-12))
    with torch.enable_grad():
        a = torch.zeros(width, width).to(stream).requires_grad_()
        b = torch.zeros(width).to(stream).requires_grad_()
        minimiser = torch.optim.LBFGS(
            [a, b], max_iter=steps, history_size=10, line_search_fn="strong_wolfe", tolerance_change=1e-7
        )

        def loss() -> Tensor:
            minimiser.zero_grad()
            logits = unembedded(model, (stream + stream @ a + size * b)[None])[0]
            apart = (wanted.exp() * (wanted - logits.log_softmax(-1))).sum(-1).mean()
            total = apart + PENALTY * (a.pow(2).sum() + b.pow(2).sum()) / width
            a.grad, b.grad = torch.autograd.grad(total, (a, b))
            return total.detach()

        minimiser.step(loss)
    return torch.eye(width).to(stream) + a.detach(), size * b.detach()


def _streams(
    model: HookedModel, tokens: Int[Tensor, "n pos"], points: dict[str, str], queries: list[int]
) -> tuple[Float[Tensor, "n target d_vocab"], Float[Tensor, "point n target d_model"]]:
    """The final logits at the queries, and every stream there."""
    chunks = list(read(model, tokens, points.values(), queries))
    final = torch.cat([logits for logits, _ in chunks]).detach()
    streams = [torch.stack([of_chunk[hook] for hook in points.values()]) for _, of_chunk in chunks]
    return final, torch.cat(streams, 1).detach()
