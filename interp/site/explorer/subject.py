"""A model made ready to be asked again and again: its answer to one problem, whole or with components ablated.

The answer is the model's own (greedy: it reads the tokens that it wrote), and so are all activations. It is found
without decoding token by token. Attention looks back only and a token's position id never changes, so a run over a
whole guessed answer gives the right next token wherever everything before it was guessed right. Starting from some
answer and running again on what came out therefore ends at the greedy answer: one run where the guess is right, one
more for every place at which an error changes what follows, at most one a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.ablation import Head, Neuron, Part, mean_activations
from interp.core.problems import draw, resolve_task
from interp.core.sites import model_name, require_evaluation_mode
from interp.probes.lens.reading import stream_points
from models.errors import UserError, unknown_name
from models.evaluation import most_likely
from models.importers.stock import from_transformer_lens
from models.partial_forward import NOTHING
from models.tasks.base import Task
from models.tasks.problem_space import ProblemSpace
from models.tasks.sequences import SequenceTask
from models.unaltered import alterations

METHODS = ("zero", "mean")
MOST_TOKENS = 512  # of one problem's sequence: a page of cells, and far beyond what a view is good for
MEAN_SAMPLE = 256


def component(name: str) -> Part:
    """ "L0H1" is head 1 of layer 0, "L0U3" unit 3 of its MLP.

    Raises:
        UserError: neither.
    """
    match = re.fullmatch(r"L(\d{1,3})([HU])(\d{1,6})", str(name))
    if match is None:
        raise UserError(
            f"{name!r} is not a head or unit; write one like 'L0H1' (head 1 of layer 0) or 'L0U3' (unit 3)."
        )
    layer, index = int(match[1]), int(match[3])
    return Head(layer, index) if match[2] == "H" else Neuron(layer, index)


def problem_of(task: Task, text: str) -> Int[Tensor, "1 *operands"]:
    """The problem that a text means: as the task writes it where its problems are numbers, else as it reads it."""
    with suppress(UserError):
        return ProblemSpace.of(task).find(text)
    return task.as_problems([text])


@dataclass(frozen=True, eq=False)
class Run:
    """One problem's run: what :class:`Subject` returns. Activations are those at the queries, in the order of targets.

    ``tokens`` are the prompt and the model's own answer, as far as it is read again; ``answer`` holds
    :data:`models.partial_forward.NOTHING` where the model cannot go on. ``cache`` has a batch axis of one and, instead
    of positions, the queries; patterns are [1, head, target, key]. ``streams`` names the residual streams by depth.
    """

    task: Task
    problem: Int[Tensor, "1 *operands"]
    tokens: Int[Tensor, " pos"]
    answer: Int[Tensor, " target"]
    right: Int[Tensor, " target"]
    logits: Float[Tensor, "target d_vocab"]
    cache: dict[str, Tensor]
    streams: dict[str, str]
    runs: int  # forward passes that it took


class Subject:
    """A model with its task; its weights are computed once, when it is made, and later changes to them not seen.

    Args:
        model: one of this project's models, or a TransformerLens model with a ``task``, which is copied.
        task: what its tokens mean, if the model does not say.
        seed: draws the problems over which mean ablation averages.

    Raises:
        UserError: a model without hooks, in training mode, or whose task has no answers (text).
    """

    def __init__(self, model: Any, task: Task | None = None, seed: int = 0):
        task = resolve_task(model, task)
        if task.compared_by == "loss":
            raise UserError(
                f"{model_name(model)} predicts text: its task has no problems to type and answers to step to."
            )
        require_evaluation_mode(model)
        self.model, self.task, self.seed = from_transformer_lens(model, task), task, seed
        self.name = model_name(model)
        with torch.no_grad():
            self.weights = self.model.effective_weights()
            self.all_weights = self.model.all_weights()
        self.streams = stream_points(self.model)
        self._tasks: dict[tuple[int, ...], Task] = {}
        self._means: dict[tuple[int, ...], dict[str, Tensor]] = {}

    def parse(self, problem: str) -> tuple[Task, Int[Tensor, "1 *operands"]]:
        """The task in the problem's shape, and the problem.

        Raises:
            UserError: no problem of the task, or one too large for the model.
        """
        task = self.task.for_problems([problem])
        if isinstance(task, SequenceTask):
            task = self._tasks.setdefault(task.shape, task)  # a shape's layout is worked out once
        parsed = problem_of(task, problem)
        if task.input_length > MOST_TOKENS:
            raise UserError(f"{problem!r} takes {task.input_length} tokens; the explorer shows at most {MOST_TOKENS}.")
        if self.model.position_limits:
            self.model.pos_embed.check_ids(task.position_ids(task.encode(parsed)))
        elif task.input_length > self.model.config.n_ctx:
            raise UserError(
                f"{problem!r} takes {task.input_length} tokens, and {self.name} has {self.model.config.n_ctx}."
            )
        return task, parsed

    @torch.no_grad()
    def run(
        self,
        problem: str,
        ablated: Sequence[str] = (),
        method: str = "zero",
        guess: Int[Tensor, " target"] | None = None,
    ) -> Run:
        """The model's answer to one problem without some of its components, with what it computes on the way.

        Args:
            problem: text such as "57+48".
            ablated: heads and units, as :func:`component` reads them.
            method: "zero" or "mean", the mean by position over 256 uniform problems of the same shape, drawn once.
            guess: an answer to start from, such as the whole model's; the right one by default. It changes how many
                runs are needed and nothing else.

        Raises:
            UserError: not a problem, an unknown method, or a component that the model does not have.
        """
        if method not in METHODS:
            raise unknown_name("ablation method", method, METHODS)
        task, parsed = self.parse(problem)
        hooks = self._ablation(task, ablated, method)
        right = task.targets(parsed)[0]
        queries = list(task.query_positions)
        prompt = task.encode_prompt(parsed)
        expected = right if guess is None or guess.shape != right.shape else guess
        for runs in range(len(right) + 1):
            read_again = expected[: task.input_length - prompt.shape[1]].clamp_min(0)
            tokens = torch.cat((prompt, read_again[None]), 1).to(self.model.device)
            logits, cache, alive = self._forward(tokens, queries, hooks)
            answer = torch.where(alive, most_likely(logits[0].cpu()), NOTHING)
            if torch.equal(answer, expected):
                return Run(task, parsed, tokens[0].cpu(), answer, right, logits[0], cache, self.streams, runs + 1)
            expected = answer
        raise RuntimeError("The greedy answer was not reached: the model looks ahead, or is not deterministic.")

    def _forward(
        self, tokens: Int[Tensor, "1 pos"], queries: list[int], hooks: list[tuple[str, Any]]
    ) -> tuple[Float[Tensor, "1 target d_vocab"], dict[str, Tensor], Tensor]:
        """(logits at the queries, activations there, where the model can go on): it cannot from where a token has no
        row in the tables of positions."""
        options: dict[str, Any] = {} if alterations(self.model) else {"weights": self.weights}
        alive = torch.ones(len(queries), dtype=torch.bool)
        if self.model.position_limits:
            ids = self.model.task.position_ids(tokens)
            within = (ids <= torch.tensor(self.model.position_limits, device=ids.device)).all(2)[0].cumprod(0).bool()
            options["position_ids"] = torch.where(within[None, :, None], ids, 0)
            alive = within[queries].cpu()
        cache: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any, name: str) -> None:
            cache[name] = value[:, :, queries] if name.endswith("hook_pattern") else value[:, queries]

        kept = [(name, partial(keep, name=name)) for name in self._kept]
        logits = self.model.run_with_hooks(tokens, fwd_hooks=[*hooks, *kept], **options)
        return logits[:, queries], cache, alive

    @property
    def _kept(self) -> list[str]:
        cfg, names = self.model.config, list(self.streams.values())
        for layer in range(cfg.n_layers):
            names += [f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.attn.hook_z"]
            names += [f"blocks.{layer}.mlp.hook_post"] if cfg.d_mlp else []
        return names + (["ln_final.hook_scale"] if cfg.has_final_norm else [])

    def _ablation(self, task: Task, ablated: Sequence[str], method: str) -> list[tuple[str, Any]]:
        parts = [component(name) for name in dict.fromkeys(ablated)]
        for part in parts:
            part.check(self.model, task.input_length)
        means = self._mean_activations(task) if method == "mean" and parts else {}

        def act(value: Tensor, hook: Any, part: Part) -> Tensor:
            return part.replace(value, means.get(part.hook))

        return [(part.hook, partial(act, part=part)) for part in parts]

    def _mean_activations(self, task: Task) -> dict[str, Tensor]:
        """Of every head and unit by position, over problems of this shape. Kept: the next question costs nothing."""
        shape = task.shape if isinstance(task, SequenceTask) else ()
        if shape not in self._means:
            hooks = [name for name in self._kept if name.endswith(("attn.hook_z", "mlp.hook_post"))]
            tokens = draw(task, None, MEAN_SAMPLE, self.seed).tokens
            self._means[shape] = mean_activations(self.model, tokens, hooks)
        return self._means[shape]
