"""Scoring of one cell of an exact-match grid: problems of one shape, position offsets, verdicts.

Teacher forcing is exact for "the whole response is right". Until its first wrong token, a model reads the same whether
it is given the true tokens or its own, so that token is the same in both. Teacher forcing is *not* exact for "the final
number is right" after a scratchpad, which a model may get wrong by its own earlier slips, or right in spite of them:
there, problems whose response is not exact are decoded greedily.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models import ArithmeticTransformer
from models.errors import UserError
from models.evaluation import PATTERN_ENTRIES
from models.run import Formulas, greedy, has_run, hooked_logits, logits_by_formulas, responses_right
from models.tasks import SequenceTask, TokenSequences
from models.transformer import HookedModel

BLOCK = 50  # problems are drawn in blocks, so a larger n extends the problems of a smaller one
TOKENS_A_BATCH = {"cpu": 2**13, "cuda": 2**17}  # on a CPU 4,096 to 16,384 cost the same
CACHED_TOKENS = {"cpu": 2**16, "cuda": 2**20}  # tokens whose keys and values decoding keeps at a time


@dataclass(frozen=True)
class Offsets:
    """Which ids a problem's tokens get at test time; results depend strongly on this.

    ``start``: the first id of every level (the paper tests with 1); None: uniform among those that the tables have
    room for, drawn again for every problem and level, as in training.
    """

    start: tuple[int, ...] | None

    @classmethod
    def parse(cls, value: str | int | tuple[int, ...] | Offsets, levels: int) -> Offsets:
        """From "random", "start 1", 1 or one number per level. Raises UserError for anything else."""
        if isinstance(value, Offsets):
            return value
        if value == "random":
            return cls(None)
        words = value.removeprefix("start").replace(",", " ").split() if isinstance(value, str) else value
        try:
            starts = tuple(int(word) for word in ((words,) if isinstance(words, int) else words))
        except (TypeError, ValueError):
            starts = ()
        starts = starts * levels if len(starts) == 1 else starts
        if len(starts) != levels or min(starts, default=0) < 1:
            raise UserError(
                f"Offsets are 'random', 'start 1', a number from 1 on or {levels} of them (one a level), not {value!r}."
            )
        return cls(starts)

    def __str__(self) -> str:
        if self.start is None:
            return "random offsets"
        if not self.start:
            return "no position ids"
        each = sorted(set(self.start))
        return f"ids start at {each[0]}" if len(each) == 1 else f"ids start at {', '.join(map(str, self.start))}"


@dataclass(frozen=True)
class Verdicts:
    """For each problem, whether the whole response is right, and the final answer given the true tokens before it."""

    exact: Bool[Tensor, " n"]
    answer_forced: Bool[Tensor, " n"]


def cell_problems(task: SequenceTask, n: int, seed: int) -> Int[Tensor, "n operand column"]:
    """The first ``n`` problems of this task's shape; they depend on nothing but (seed, shape)."""
    blocks = [task.sample(BLOCK, generator(seed, *task.shape, block, 0)) for block in range(-(-n // BLOCK))]
    return torch.cat(blocks)[:n]


def generator(*key: int) -> torch.Generator:
    state = np.random.SeedSequence(list(key)).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))


class CellScorer:
    """Scores cells of one model under one offset policy; weights and FIRE's bias are computed once.

    An altered model (with hooks, for example) is run as it is, at all positions, which takes several times as long.
    """

    def __init__(
        self, model: HookedModel, task: SequenceTask, offsets: str | int | tuple[int, ...] | Offsets = "start 1"
    ):
        if not task.has_other_sizes:
            raise UserError(f"Grids are for tasks with problems of many lengths, not for {task.name}.")
        if not isinstance(model, ArithmeticTransformer):
            raise UserError("Grids are computed for this project's models.")
        if model.config.d_vocab != task.d_vocab:
            raise UserError(f"{task.name} has {task.d_vocab} tokens and the model {model.config.d_vocab}.")
        self.model, self.task, cfg = model, task, model.config
        self.as_it_is = not has_run(model)
        self.coupled = cfg.positional_embedding_type == "coupled"
        self.limits: tuple[int, ...] = model.position_limits
        self.offsets = Offsets.parse(offsets, len(self.limits)) if self.coupled else Offsets(())
        with torch.no_grad():
            self.weights = {key: weight.detach() for key, weight in model.effective_weights().items()}
            self.formulas = Formulas(model, self.weights)  # which share FIRE's bias
        self.device = self.weights["embed.W_E"].device

    # ---- reach

    def reaches(self, task: SequenceTask) -> bool:
        """Whether the model's tables have all ids of this shape under this policy."""
        if self.coupled:
            starts = self.offsets.start or (1,) * len(self.limits)
            ids = zip(task.highest_ids(), starts, self.limits, strict=True)
            return all(highest + start - 1 <= limit for highest, start, limit in ids)
        if self.model.config.positional_embedding_type == "standard":
            longest = torch.full((1, task.n_operands, task.n_digits), task.base - 1)
            return task.sequences(longest).inputs.shape[1] <= self.model.config.n_ctx
        return True

    def shifts(self, task: SequenceTask, n: int, seed: int) -> Int[Tensor, "n level"] | None:
        """The numbers that are added to the ids of the first ``n`` problems; None where there are no ids."""
        if not self.coupled:
            return None
        if self.offsets.start is not None:
            return torch.tensor([self.offsets.start], device=self.device).expand(n, -1) - 1
        room = torch.tensor([limit + 1 - high for limit, high in zip(self.limits, task.highest_ids(), strict=True)])
        draws = [
            torch.rand(BLOCK, len(room), generator=generator(seed, *task.shape, block, 1))
            for block in range(-(-n // BLOCK))
        ]
        return (torch.cat(draws)[:n] * room).long().to(self.device)

    # ---- verdicts

    @torch.inference_mode()
    def verdicts(
        self, task: SequenceTask, problems: Int[Tensor, "n operand column"], shifts: Int[Tensor, "n level"] | None
    ) -> Verdicts:
        """Teacher-forced verdicts, in batches of a few thousand tokens.

        The cost of a problem, for one layer, is keys and values of all tokens, and everything else of the response.
        """
        exact, answer = [], []
        for part, sequences in self._batches(task, problems, TOKENS_A_BATCH):
            mask = sequences.mask
            first = int(mask.long().argmax(1).min())
            ids = self._ids(task, sequences.inputs, None if shifts is None else shifts[part])
            logits = self._logits(sequences.inputs, first, ids)
            highest, predicted = logits.max(-1)  # max returns NaN if there is one; argmax would call it the most likely
            wrong = (predicted != sequences.targets[:, first:]) | highest.isnan()
            exact.append(~(wrong & mask[:, first:]).any(1))
            answer.append(~(wrong & answer_mask(task, sequences)[:, first:]).any(1))
        return Verdicts(torch.cat(exact).cpu(), torch.cat(answer).cpu())

    @torch.inference_mode()
    def exact(
        self, task: SequenceTask, problems: Int[Tensor, "n operand column"], shifts: Int[Tensor, "n level"] | None
    ) -> Bool[Tensor, " n"]:
        """:meth:`verdicts` on whole responses only; it stops at each problem's first wrong token."""
        if self.as_it_is:
            return self.verdicts(task, problems, shifts).exact
        found = []
        for part, sequences in self._batches(task, problems, TOKENS_A_BATCH):
            ids = self._ids(task, sequences.inputs, None if shifts is None else shifts[part])
            inputs, targets, mask = sequences.inputs, sequences.targets, sequences.mask
            found.append(responses_right(self.formulas, inputs, targets, mask, ids))
        return torch.cat(found).cpu()

    @torch.inference_mode()
    def greedy_verdicts(
        self, task: SequenceTask, problems: Int[Tensor, "n operand column"], shifts: Int[Tensor, "n level"] | None
    ) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """(whole response right, final answer right) of each problem when the model reads its own tokens.

        As many tokens are decoded as the true response has; the final answer is read at the positions of the true one.
        """
        exact = torch.zeros(len(problems), dtype=torch.bool)
        answer = exact.clone()
        for part, sequences in self._batches(task, problems, CACHED_TOKENS):
            start = sequences.mask.long().argmax(1)
            for first in start.unique().tolist():  # without padding, prompts differ in length
                rows = start == first
                chosen = part[rows.cpu()]
                prompts = sequences.tokens[rows, : first + 1]
                moved = None if shifts is None else shifts[chosen]
                ids_of = None if moved is None else self._shifted(task, moved)
                targets, mask = sequences.targets[rows, first:], sequences.mask[rows, first:]
                options: dict[str, Any] = {} if self.as_it_is else {"weights": self.weights}
                found = greedy(self.model, prompts, targets.shape[1], position_ids=ids_of, **options)
                wrong = found != targets
                exact[chosen] = ~(wrong & mask).any(1).cpu()
                answer[chosen] = ~(wrong & answer_mask(task, sequences)[rows, first:]).any(1).cpu()
        return exact, answer

    def _logits(self, tokens: Tensor, first: int, ids: Tensor | None) -> Float[Tensor, "batch query d_vocab"]:
        """Logits at positions from ``first`` on."""
        if not self.as_it_is:
            return logits_by_formulas(self.formulas, tokens, first, ids)
        return hooked_logits(self.model, tokens, first, position_ids=ids)

    def _batches(
        self, task: SequenceTask, problems: Tensor, budget: dict[str, int]
    ) -> Iterator[tuple[Tensor, TokenSequences]]:
        length = task.sequences(problems[:1]).tokens.shape[1]
        rows = max(1, budget[self.device.type] // length)
        if self.as_it_is:  # then all patterns are kept in memory
            rows = min(rows, max(1, PATTERN_ENTRIES // (self.model.config.n_heads * length**2)))
        for part in torch.arange(len(problems)).split(rows):
            yield part, task.sequences(problems[part].to(self.device))

    def _ids(self, task: SequenceTask, tokens: Tensor, shifts: Tensor | None) -> Tensor | None:
        if shifts is None:
            return None
        rows = tokens[:1] if task.has_fixed_layout else tokens  # with a fixed layout, one row of ids serves all
        if self.offsets.start is not None:
            shifts = shifts[:1]
        ids = task.position_ids(rows)
        return torch.where(ids > 0, ids + shifts[:, None], 0)

    def _shifted(self, task: SequenceTask, shifts: Tensor) -> Callable[[Tensor], Tensor]:
        def ids_of(tokens: Tensor) -> Tensor:
            ids = task.position_ids(tokens)
            return torch.where(ids > 0, ids + shifts[:, None], 0)

        return ids_of


def answer_mask(task: SequenceTask, sequences: TokenSequences) -> Bool[Tensor, "n pos"]:
    """Mask of input positions that predict a digit of the final answer: b_m, the product, or the last parity."""
    if task.has_fixed_layout:
        kinds = torch.tensor([role.kind == "answer" for role in task.roles[1:]], device=sequences.tokens.device)
        return kinds.expand(len(sequences.tokens), -1)
    last = sequences.segment.amax(1, keepdim=True)
    return ((sequences.segment == last) & (sequences.column >= 0))[:, 1:]
