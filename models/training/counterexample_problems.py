"""Training on what a judge gave back: problems that a seed answers wrong, or that nothing could be proved of.

They take the place of the last rows of every batch of their seed, so that a batch keeps its size. Which of them stand
there depends only on the seed, the step and what was given back, as all problems do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from models.tasks.counter_rng import row_keys, uniform
from models.tasks.task import Task
from models.training.training_batches import Batch, TrainingStream

#: The share of a batch that problems given back take.
SHARE = 1 / 8
Rows = tuple[Integer[Tensor, "pos problem"], Integer[Tensor, "target problem"]]
_DRAW = 2**22  # the number of the draw that chooses among them; tasks use lower ones


class WithReturned(TrainingStream):
    """Batches in which each seed's last rows are problems that its judge gave back, if there are any.

    Args:
        returned: the problems of every seed of the stream, as they are now.
    """

    def __init__(self, *stream: Any, returned: Callable[[], Sequence[list[list[int]]]]):
        super().__init__(*stream)
        self.returned = returned
        self._encoded: dict[int, tuple[list[list[int]], Rows]] = {}

    def batch(self, step: int) -> Batch:
        """[seed, pos, row] tokens and [seed, target, row] targets."""
        tokens, targets = super().batch(step)
        rows = round(SHARE * tokens.shape[-1])
        lists = self.returned()
        if not rows or not any(lists):
            return tokens, targets
        ends = [(own[..., -rows:], right[..., -rows:]) for own, right in zip(tokens, targets, strict=True)]
        for i, problems in enumerate(lists):
            if problems:
                inputs, answers = self._rows(i, problems)
                keys = row_keys(self.seeds[i], step, rows, inputs.device)
                chosen = (uniform(keys, _DRAW) * len(problems)).long()
                ends[i] = inputs[:, chosen].to(tokens.dtype), answers[:, chosen].to(targets.dtype)
        last = [torch.stack(part) for part in zip(*ends, strict=True)]
        return torch.cat((tokens[..., :-rows], last[0]), -1), torch.cat((targets[..., :-rows], last[1]), -1)

    def _rows(self, i: int, problems: list[list[int]]) -> Rows:
        """What was given back to a seed, encoded once."""
        known, encoded = self._encoded.get(i, (None, None))
        if encoded is None or known is not problems:
            rows = torch.tensor(problems, device=self.device)
            encoded = self.task.encode_rows(rows)
            self._encoded[i] = problems, encoded
        return encoded


def trainable(task: Task, problems: Sequence[Sequence[int]]) -> list[list[int]]:
    """Those of some problems that are not in the task's test set."""
    if not problems:
        return []
    held = task.held_out.holds(torch.tensor(problems)).tolist()
    return [list(one) for one, out in zip(problems, held, strict=True) if not out]
