"""Measure how often a model is right.

Every score of :func:`score` is *sampled*: it holds for the problems that were tried, and the Clopper-Pearson interval
bounds the accuracy on the distribution they were drawn from, if they were drawn at random. It says nothing about all
inputs; :mod:`interp.proofs.listed.exhaustive`, which tries them all, sets another strength of evidence.

Teacher forcing (one pass over prompt and true answer) and greedy decoding (the model reads its own digits) agree on
whether a *whole* answer is right: both see the same input up to and including the first wrong token. They disagree on
later tokens, and so on per-target accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.calls.argument_kinds import Count, GivenProblems
from models.calls.checked_calls import checked
from models.errors import UserError, unknown_name
from models.problem_score import Failure, Score
from models.rates import Rate
from models.run import Formulas, greedy, has_run, logits_by_formulas
from models.tasks.check_task import domain_of, made_with, require_sound
from models.tasks.held_out import DRAWN, SplitDomain
from models.tasks.paired.pair_constraint import first_rows
from models.tasks.refusals import NoDomain
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike
from models.transformer.hooked import model_name

#: A function from tokens [batch, pos] to logits [batch, pos, d_vocab].
Model = Callable[..., Tensor]
BATCH_SIZE = 512  # so that activations stay in the processor's cache; twice or half as many is slower
KEPT_FAILURES = 20
METHODS = ("teacher_forced", "greedy")
PATTERN_ENTRIES = 2**26


@partial(checked, finite=True)
def score(
    model: Model,
    problems: GivenProblems = None,
    method: str = "teacher_forced",
    batch_size: Count = BATCH_SIZE,
    task: TaskLike | None = None,
) -> Score:
    """Score a model on problems, by default on its task's test set (AdderBoard's 10,010 for ten-digit addition).

    What this package did not train, such as a model of a file, never had the split of the task: it is scored on all
    problems, if these are at most 10,000, else on problems that are drawn.

    Args:
        model: one of this project's models, or any callable from tokens [batch, pos] to logits
            [batch, pos, d_vocab] (a HookedTransformer, say) together with a ``task``. Its hooks stay active.
        problems: problems in any form that the task takes, each of which counts once.
        method: "teacher_forced" or "greedy"; see the module's docstring.
        batch_size: problems per forward pass.
        task: the task, if the model does not carry it.

    Raises:
        UserError: no task, bad problems, an unknown method or batch size, or weights that are not finite numbers.
    """
    task = _task_of(model, task)
    described, strength = "given problems", "sampled"
    if problems is not None:
        problems = task.as_problems(problems)
        problems = problems[first_rows(problems.flatten(1))] if len(problems) else problems
    elif made_with(model, task):
        described, problems = task.held_out.name, task.held_out.problems
    else:
        described, problems, strength = _not_split(task)
    problems = task.as_problems(problems)
    tally = Tally(task)
    tally.add(problems, predict(model, problems, method, batch_size, task))
    found = tally.score(model, described, method, strength)
    if 2 * found.correct >= found.n:
        return found
    from models.task_mismatch import task_mismatch

    return replace(found, task_mismatch=task_mismatch(model, task, predict))


def _not_split(task: Task) -> tuple[str, Any, Literal["sampled", "exhaustive"]]:
    """What a model is scored on that may have been trained on any problem: all, if they are as few as a test set, else
    as many as that; with their name and what they rest on."""
    with suppress(NoDomain):
        if domain_of(task).size <= DRAWN:
            return task.kind_of_problems, task.domain.every(), "exhaustive"
    if isinstance(task.held_out, SplitDomain) and task.held_out.fixed is None:
        drawn = SplitDomain(task, DRAWN, task.held_out.seed).problems
        return f"{len(drawn):,} problems drawn", drawn, "sampled"
    return task.held_out.name, task.held_out.problems, "sampled"


class Tally:
    """Counts right answers, batch by batch, until :meth:`score` sums them up."""

    def __init__(self, task: Task):
        self.task, self.n, self.correct = task, 0, 0
        self.labels = [role.label for role in task.target_roles]
        self.right = torch.zeros(len(self.labels), dtype=torch.int64)
        self.chain: dict[int, tuple[int, int]] = {}
        self.failures: list[Failure] = []
        self.answers = torch.zeros(task.d_vocab, dtype=torch.int64)  # how often each is right, of one token

    def add(
        self,
        problems: Int[Tensor, "n *operands"],
        predicted: Int[Tensor, "n target"],
        targets: Int[Tensor, "n target"] | None = None,
    ) -> None:
        """Count these problems, whose right tokens are ``targets``. A predicted token of -1 is never right."""
        predicted, expected = predicted.cpu(), (self.task.targets(problems) if targets is None else targets).cpu()
        right = predicted == expected
        exact = right.all(1)
        if expected.shape[1] == 1:
            self.answers = self.answers + torch.bincount(expected[:, 0], minlength=self.task.d_vocab)
        chain = self.task.chain_length(problems).cpu()
        self.n, self.correct = self.n + len(exact), self.correct + int(exact.sum())
        self.right = self.right + right.sum(0)
        for length in chain.unique().tolist():
            n, correct = self.chain.get(length, (0, 0))
            where = chain == length
            self.chain[length] = n + int(where.sum()), correct + int(exact[where].sum())
        room = KEPT_FAILURES - len(self.failures)
        self.failures += [
            Failure(
                problem=self.task.numbers(problems[i : i + 1])[0],
                predicted=self._number(predicted[i]),
                expected=self.task.decode(expected[i : i + 1])[0],
                first_wrong_target=self.labels[int((~right[i]).long().argmax())],
            )
            for i in (~exact).nonzero().flatten()[:room].tolist()
        ]

    def _number(self, tokens: Int[Tensor, " target"]) -> int | None:
        """The number that predicted tokens spell, or None if they spell none."""
        return None if (tokens < 0).any() else self.task.decode(tokens[None])[0]

    def score(
        self, model: Model, problems: str, method: str, strength: Literal["sampled", "exhaustive"] = "sampled"
    ) -> Score:
        """The score of everything that was counted. ``problems`` says what was."""
        return Score(
            n=self.n,
            correct=self.correct,
            model=model_name(model),
            task=self.task.name,
            problems=problems,
            method=method,
            by_chain_length={length: Rate(*self.chain[length]) for length in sorted(self.chain)},
            per_target={label: Rate(self.n, int(n)) for label, n in zip(self.labels, self.right, strict=True)},
            failures=tuple(self.failures),
            strength=strength,
            base_rate=int(self.answers.max()) / self.n if int((self.answers > 0).sum()) == 2 else None,
        )


def predict(
    model: Model,
    problems: Any,
    method: str = "teacher_forced",
    batch_size: int = BATCH_SIZE,
    task: Task | None = None,
) -> Int[Tensor, "n target"]:
    """The most likely token for every target of every problem; -1 where a logit is NaN.

    Arguments and errors as in :func:`score`.
    """
    task = _task_of(model, task)
    if method not in METHODS:
        raise unknown_name("scoring method", method, METHODS)
    if batch_size < 1:
        raise UserError(f"The batch size must be positive, not {batch_size}.")
    problems = task.as_problems(problems)
    if len(problems) == 0:
        raise UserError("There are no problems to score on.")
    batches = problems.split(rows_at_once(model, task, batch_size))
    if method == "teacher_forced":
        with teacher_forcing(model, task) as logits:
            return torch.cat([most_likely(logits(batch)) for batch in batches])
    with _ready(model) as forward:
        decode = _greedy
        if task.has_other_sizes and has_run(model):
            decode, forward = _cached, (model, model.effective_weights())
        return torch.cat([decode(forward, task, batch) for batch in batches])


@contextmanager
def teacher_forcing(model: Model, task: Task) -> Iterator[Callable[[Tensor], Float[Tensor, "n target d_vocab"]]]:
    """A context with a function from problems to the logits of their targets, each given the right tokens before it.

    It runs in evaluation mode and without gradients; :func:`rows_at_once` says how many problems it takes at once.
    """
    with _ready(model) as forward:
        if task.has_other_sizes and has_run(model):
            f, first = Formulas(model, model.effective_weights()), task.query_positions[0]
            wanted = [query - first for query in task.query_positions]
            yield lambda problems: logits_by_formulas(f, task.encode(problems).to(model.device), first)[:, wanted]
        else:
            yield lambda problems: forward(task.encode(problems))[:, list(task.query_positions)]


def rows_at_once(model: Model, task: Task, batch_size: int = BATCH_SIZE) -> int:
    """Problems per forward pass: ``batch_size``, or fewer if sequences are long."""
    return min(batch_size, _rows_that_fit(model, task))


def _rows_that_fit(model: Model, task: Task) -> int:
    """How many rows have attention patterns of at most a quarter of a gigabyte per layer."""
    heads = getattr(getattr(model, "cfg", None), "n_heads", 1)
    return max(1, PATTERN_ENTRIES // (heads * task.input_length**2))


def _cached(model_and_weights: Any, task: Task, problems: Tensor) -> Tensor:
    model, weights = model_and_weights
    if model.position_limits:  # a problem too large for the tables is a user's mistake and not a wrong answer
        model.pos_embed.check_ids(task.position_ids(task.encode(problems)))
    return greedy(model, task.encode_prompt(problems), len(task.query_positions), weights=weights)


def _greedy(forward: Any, task: Task, problems: Tensor) -> Tensor:
    tokens = task.encode_prompt(problems)
    predicted: list[Tensor] = []
    for query in task.query_positions:
        if predicted:
            # The -1 of a NaN is not a token; any token will do as input, since the answer is wrong already.
            tokens = torch.cat((tokens, predicted[-1].to(tokens.device).clamp_min(0)[:, None]), 1)
        predicted.append(most_likely(forward(tokens)[:, query]))
    return torch.stack(predicted, 1)


def most_likely(logits: Tensor) -> Tensor:
    """argmax over the last axis; -1 if one of the logits is NaN, which argmax would call the most likely."""
    highest, token = logits.max(-1)  # max passes NaN on
    return torch.where(highest.isnan(), -1, token)


def margins(logits: Float[Tensor, "n row d_vocab"], targets: Int[Tensor, "n row"]) -> Float[Tensor, "n row"]:
    """The right token's logit minus the best other's [n, row], in float64; -inf where one is NaN.

    Raises:
        UserError: a right token that has no logit.
    """
    if targets.numel() and (largest := int(targets.max())) >= logits.shape[-1]:
        raise UserError(f"The right tokens go up to {largest}, and the model predicts {logits.shape[-1]}, from 0 on.")
    logits = logits.double()
    right = logits.gather(-1, targets[..., None])
    others = logits.scatter(-1, targets[..., None], float("-inf")).amax(-1, keepdim=True)
    return (right - others)[..., 0].nan_to_num(nan=float("-inf"))


@contextmanager
def _ready(model: Model) -> Iterator[Any]:
    """A context with the model as a function from tokens to logits, in evaluation mode and without gradients."""
    training = getattr(model, "training", False)
    if training:
        model.eval()
    try:
        with torch.inference_mode():
            yield lambda tokens: _logits(model(_to_device(tokens, model)))
    finally:
        if training:
            model.train()


def _logits(output: Any) -> Tensor:
    """A model's logits; Hugging Face models return them inside an object.

    Raises:
        UserError: the model returns something else.
    """
    found = getattr(output, "logits", output)
    if not isinstance(found, Tensor):
        raise UserError(f"The model must return logits, and not a {type(output).__name__}.")
    return found


def _to_device(tokens: Tensor, model: Model) -> Tensor:
    parameter = next(iter(getattr(model, "parameters", list)()), None)
    return tokens if parameter is None else tokens.to(parameter.device)


def _task_of(model: Model, task: Task | None) -> Task:
    task = task or getattr(model, "task", None)
    if task is None:
        raise UserError("This model does not carry a task; give one, for example task=TenDigitAddition().")
    return require_sound(task)
