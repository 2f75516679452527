"""Validation during training, on fixed problems outside the test set."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from models.tasks.task import Task
from models.training.stacked_objective import GeneralObjective, ParameterLayout, PerSeed, Theta

ROWS = 256  # as in training, so that one compiled or cached shape serves both


class Validator:
    """Teacher-forced accuracy on the task's validation problems; their first half is from its natural distribution.

    Teacher forcing and greedy decoding agree on "all digits right", as both make the same first wrong digit.
    """

    def __init__(self, task: Task, n: int, device: torch.device):
        problems = task.held_out.validation(n, seed=0).to(device)
        self.tokens, self.targets = task.encode(problems).T, task.targets(problems).T  # [pos, n], [target, n]
        self.n_uniform = n - n // 2

    @torch.no_grad()
    def measure(self, objective: GeneralObjective, layout: ParameterLayout, theta: Theta) -> dict[str, PerSeed]:
        """Exact and token accuracy over all problems, and over those from the natural (uniform) distribution."""
        parameters = layout.unflatten(theta.detach())
        right = []
        for start in range(0, self.tokens.shape[1], ROWS):
            tokens = self.tokens[:, start : start + ROWS].expand(theta.shape[0], -1, -1)
            right.append(objective.predictions(parameters, tokens) == self.targets[:, start : start + ROWS])
        table = torch.cat(right, -1).float()  # [seed, target, n]
        exact, token = table.min(1).values, table.mean(1)
        return {
            "exact": exact.mean(1),
            "token": token.mean(1),
            "exact_uniform": exact[:, : self.n_uniform].mean(1),
            "token_uniform": token[:, : self.n_uniform].mean(1),
        }


class LossValidator:
    """Mean cross-entropy on the task's validation problems, for tasks that are :attr:`~Task.selected_by` their loss."""

    rows = 32  # 32 windows of 128 characters and their logits stay in the processor's cache

    def __init__(self, task: Task, n: int, device: torch.device):
        problems = task.held_out.validation(n, seed=0).to(device)
        self.tokens, self.targets = task.encode_rows(problems)  # [pos, n], [target, n]

    @torch.no_grad()
    def measure(self, objective: GeneralObjective, layout: ParameterLayout, theta: Theta) -> dict[str, PerSeed]:
        """loss: nats per target. exact, token: the share of rows and of targets whose most likely token is right."""
        parameters = layout.unflatten(theta.detach())
        losses, exact, token = [], [], []
        for tokens, targets in zip(self.tokens.split(self.rows, 1), self.targets.split(self.rows, 1), strict=True):
            logits = objective.logits(parameters, tokens.expand(len(theta), -1, -1)).float()
            wanted = targets.long().expand(len(theta), -1, -1)
            losses.append(F.cross_entropy(logits, wanted, reduction="none").mean(1))
            right = logits.argmax(1) == wanted
            exact.append(right.all(1).float())
            token.append(right.float().mean(1))
        found = {"loss": losses, "exact": exact, "token": token}  # [seed, row] each
        return {key: torch.cat(parts, 1).mean(1) for key, parts in found.items()}
