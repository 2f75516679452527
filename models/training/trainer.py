"""The state of one run and what happens to it: steps, evaluations, verdicts on seeds, and checkpoints.

Seeds are trained in lockstep in groups of equal size, so one compiled step serves them all. Every seed has its own
initialisation, data stream, gradient clip, weight decay and status (:mod:`models.training.seed_state`).
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from typing import Any

import torch

from models.errors import UserError
from models.registry import build
from models.tasks.counter_rng import row_keys, uniform
from models.training.acceptance import AcceptanceTest, Candidates
from models.training.bfgs_polish import polished
from models.training.choose_objective import even_group_size, make_objective
from models.training.counterexample_problems import WithReturned
from models.training.data_parallel import Share
from models.training.devices import multiplies_bfloat16
from models.training.provenance import continued, surroundings
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder, log_spaced_steps
from models.training.seed_state import SeedState
from models.training.sequence_objective import SequenceStream, SequenceValidator
from models.training.sequence_problems import SequenceSource
from models.training.stacked_adamw import StackedAdamW
from models.training.stacked_objective import ParameterLayout, PerSeed, Theta
from models.training.training_batches import TrainingStream
from models.training.unstacked_objective import OneByOne
from models.training.validation import LossValidator, Validator
from models.training.warm_start import Start

_STARTS = -2  # the step whose draws are starts, so that no batch has them


class Trainer:
    """One run: state, stepping, evaluation, saving. :func:`models.training.loop.train` drives it."""

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        seeds: list[int],
        folder: RunFolder,
        device: torch.device,
        compile: bool | None,
        share: Share | None = None,
        start: Start | None = None,
        judge: AcceptanceTest | None = None,
    ):
        self.name, self.recipe, self.folder, self.device = name, recipe, folder, device
        self.share = share or Share()
        self.model = build(name).to(device)
        self.model.train()
        self.layout = ParameterLayout(self.model)
        self.objective = make_objective(self.model, recipe)
        compiled = getattr(self.objective, "kernel", None) is not None  # which reads float32 and would not notice
        self.autocast = recipe.autocast and multiplies_bfloat16(device) and not compiled
        self.candidates = None if judge is None else Candidates(judge, name, self.layout, folder)
        # With a judge, a perfect seed ends only when the judge accepts it.
        self.stopping_recipe = recipe if judge is None else recipe.replace(stop_after_perfect=None)
        self.decays = self.layout.decays.to(device)
        self.states = [SeedState(seed) for seed in seeds]
        if start is None:
            first = [self.layout.flatten(build(name, seed)) for seed in seeds]
        else:
            first = [start.row(self.layout, seed) for seed in seeds]
        self.theta = torch.stack(first).to(device)
        self.held_until = self._begin()
        self.moments = (torch.zeros_like(self.theta), torch.zeros_like(self.theta))
        self.best_theta = self.theta.clone()
        self.losses = [float("nan")] * len(seeds)  # the loss of each seed's last training batch
        self.step_number = 0
        self.started, self.seconds_before = time.monotonic(), 0.0
        self.group_size = even_group_size(self.objective, len(seeds), device)
        self.snapshot_steps = set(log_spaced_steps(recipe.steps, recipe.snapshots))
        self.validator = self._make_validator()
        self.compiled = self._worth_compiling() if compile is None else compile
        if self.compiled:
            self.objective.compile()
        here = surroundings(self.model, self.objective, self.compiled, self.share.size)
        self.surroundings = [{"from_step": 0, **here}]
        self._make_groups()

    def _begin(self) -> torch.Tensor | None:
        """Set the parameters' starts that the recipe gives. Returns the step until which each is held, or None."""
        seeds = torch.tensor([state.seed for state in self.states])
        keys = row_keys(seeds, _STARTS, self.layout.n, torch.device("cpu"))
        drawn = uniform(keys, 0).view(len(seeds), self.layout.n).to(self.device)
        for name, value in self.recipe.initial_values or ():
            low, high = value if isinstance(value, Sequence) else (value, value)
            place = self.layout.places(name)
            self.theta[:, place] = (low + (high - low) * drawn[:, place]).to(self.theta)
        until = torch.zeros(self.layout.n, dtype=torch.long)
        for name, step in self.recipe.freeze_until or ():
            until[self.layout.places(name)] = step
        return until.to(self.device) if self.recipe.freeze_until else None

    # ---- what fixed-length and many-length problems do differently

    def _make_validator(self) -> Any:
        task, source, n = self.model.task, self.recipe.problems, self.recipe.validation_size
        if isinstance(source, SequenceSource):
            return SequenceValidator(task, source, n, self.device)
        if task.selected_by == "loss":
            return LossValidator(task, n, self.device)
        return Validator(task, n, self.device)

    def make_stream(self, seeds: list[int], rows: int | None = None) -> Any:
        """Batches for these seeds, of ``rows`` problems (by default the recipe's number)."""
        task, source, rows = self.model.task, self.recipe.problems, rows or self.recipe.batch_size
        if isinstance(source, SequenceSource):
            return SequenceStream(task, source, rows, seeds, self.device, self.share)
        stream = task, source, rows, seeds, self.device
        if self.candidates is None:
            return TrainingStream(*stream)
        at = [[state.seed for state in self.states].index(seed) for seed in seeds]
        return WithReturned(*stream, returned=lambda: [self.states[row].returned for row in at])

    def _worth_compiling(self) -> bool:
        """Whether a minute of compilation pays: in a long run, unless a native kernel serves a stack of seeds."""
        if isinstance(self.objective, OneByOne):  # large products: a GPU may gain
            return self.device.type == "cuda" and self.recipe.steps >= 5_000
        if self.device.type == "cpu" and not any(shutil.which(c) for c in ("g++", "c++", "clang++")):
            return False
        return self.recipe.steps >= 5_000 and not (self.objective.has_kernel and self.group_size >= 8)

    # ---- one step

    def _make_groups(self) -> None:
        """Pack the active seeds into groups of equal size; spare places repeat a seed and are never written back."""
        active = [i for i, state in enumerate(self.states) if state.active]
        self.groups: list[SeedGroup] = []
        for start in range(0, len(active), self.group_size):
            rows = active[start : start + self.group_size]
            self.groups.append(SeedGroup(self, rows))

    def step(self) -> None:
        for group in self.groups:
            group.step(self.step_number)
        self.step_number += 1

    def collect(self) -> None:
        """Copy the groups' rows back into the run's tables."""
        for group in self.groups:
            group.write_back()

    # ---- evaluation

    def evaluate(self) -> dict[str, Any]:
        """Validate the active seeds (without dropout), decide which end, and repack when a whole group is empty."""
        self.collect()
        self.model.eval()
        self.verdicts: list[dict[str, Any]] = []
        for group in self.groups:
            losses, report = group.losses, self.validator.measure(self.objective, self.layout, group.optimiser.theta)
            for place, row in enumerate(group.rows):
                self._judge(row, {key: value[place].item() for key, value in report.items()}, float(losses[place]))
        self.model.train()
        self._keep_share()
        for group in self.groups:
            group.refresh()
        n_active = sum(state.active for state in self.states)
        if n_active and 2 * n_active <= len(self.groups) * self.group_size and not self.compiled:
            self.group_size = -(-n_active // -(-n_active // self.group_size))  # half of the places are spare
            self._make_groups()
        elif -(-n_active // self.group_size) < len(self.groups):
            self._make_groups()
        line = {
            "step": self.step_number,
            "lr": self.recipe.lr_at(max(0, self.step_number - 1)),
            "exact": [round(s.exact, 6) for s in self.states],
            "token": [round(s.token, 6) for s in self.states],
            "uniform": [round(s.uniform, 6) for s in self.states],
            "loss": [round(x, 6) if x == x else None for x in self.losses],
            "status": [s.status for s in self.states],
        }
        if self.model.task.selected_by == "loss":
            line["validation_loss"] = [s.validation_loss for s in self.states]
        return line | ({"verdicts": self.verdicts} if self.verdicts else {})

    def _judge(self, row: int, report: dict[str, float], loss: float) -> None:
        state = self.states[row]
        self.losses[row] = loss
        if not state.active:
            return
        if not torch.isfinite(self.theta[row]).all():
            state.end("failed", self.step_number)
        elif state.record_validation(report, self.step_number, self.stopping_recipe):
            self.best_theta[row] = self.theta[row]
        at_end = self.step_number >= self.recipe.steps
        if self.candidates is not None and state.active and state.exact == 1.0 and self.candidates.due(state, at_end):
            self.verdicts.append(self.candidates.examine(state, self.theta[row], self.step_number))
            if state.accepted is not None:
                self.best_theta[row] = self.theta[row]

    def _keep_share(self) -> None:
        """Successive halving: where the recipe says so, end the seeds that are not among the best of the run."""
        last, step = self.step_number - self.recipe.eval_every, self.step_number
        shares = [share for at, share in self.recipe.keep_share or () if last < at <= step]
        if shares:
            best = sorted(self.states, key=lambda state: state.rank, reverse=True)
            for state in best[math.ceil(min(shares) * len(best)) :]:
                if state.active:
                    state.end("hopeless", step)

    def to_polish(self) -> list[int]:
        """The seeds that BFGS polishes after the last step."""
        if self.recipe.polish is None or self.step_number != self.recipe.steps:
            return []
        return [row for row, state in enumerate(self.states) if state.active and not state.polished]

    def polish(self, row: int) -> None:
        """Lower one seed's loss by BFGS, on a batch of its own problems (see :mod:`models.training.bfgs_polish`)."""
        settings, state = self.recipe.polish, self.states[row]
        assert settings is not None  # to_polish names no seed without
        self.collect()
        stream = self.make_stream([state.seed], settings.problems)
        stream.observe([state.token_uniform])
        batch = stream.batch(self.recipe.steps if settings.drawn_at is None else settings.drawn_at)

        def loss(theta: torch.Tensor) -> torch.Tensor:
            small = settings.penalty * theta.square().sum()
            return self.objective.loss(self.layout.unflatten(theta[None]), *batch)[0] + small

        self.theta[row] = polished(loss, self.theta[row], settings.iterations, bool(settings.relative))
        self.states[row].polished = True
        self._make_groups()

    # ---- saving

    @property
    def seconds(self) -> float:
        """Wall time spent on this run, over all its sessions."""
        return self.seconds_before + time.monotonic() - self.started

    def save(self) -> None:
        self.collect()
        tensors = {"theta": self.theta, "m": self.moments[0], "v": self.moments[1], "best_theta": self.best_theta}
        state = {
            "seeds": [vars(s) for s in self.states],
            "groups": [group.rows for group in self.groups],
            "group_size": self.group_size,
            "losses": [None if x != x else x for x in self.losses],
            "seconds": self.seconds,
            "surroundings": self.surroundings,
        }
        self.folder.save_checkpoint(self.step_number, {k: t.cpu().contiguous() for k, t in tensors.items()}, state)

    def restore(self) -> bool:
        """Continue from the folder's checkpoint, if there is one; what came after it will be computed again."""
        loaded = self.folder.load_checkpoint()
        if loaded is None:
            self.folder.rewind()
            self.folder.forget_accepted(())
            return False
        step, tensors, state = loaded
        tables = {"theta": self.theta, "m": self.moments[0], "v": self.moments[1], "best_theta": self.best_theta}
        if any(name not in tensors or tensors[name].shape != table.shape for name, table in tables.items()):
            raise UserError(f"The checkpoint in {self.folder.path} has the wrong shape for {self.name}.")
        for name, table in tables.items():
            table.copy_(tensors[name])
        try:
            self._restore(state, step)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # another version wrote it
            raise UserError(f"The checkpoint in {self.folder.path} was damaged ({error!r}); restore it.") from error
        self.step_number = step
        self.groups = [SeedGroup(self, rows) for rows in state["groups"]]
        self.folder.rewind()
        self.folder.forget_accepted({state.seed for state in self.states if state.accepted is not None})
        return True

    def _restore(self, state: dict[str, Any], step: int) -> None:
        """Restore what :meth:`save` wrote next to the tables."""
        self.states = [SeedState(**entry) for entry in state["seeds"]]
        self.losses = [float("nan") if x is None else float(x) for x in state["losses"]]
        self.group_size = int(state.get("group_size", self.group_size))
        self.seconds_before = float(state["seconds"])
        places = [row for rows in state["groups"] for row in rows]
        n = len(self.theta)
        if not len(self.states) == len(self.losses) == n or set(places) - set(range(n)):
            raise ValueError("seeds that are not the run's")
        if any(state.active for state in self.states):
            here = self.surroundings[0] | {"from_step": step}
            self.surroundings = continued(state.get("surroundings", []), here, self.folder.path)
        else:
            self.surroundings = state.get("surroundings", [])

    def snapshot(self) -> None:
        self.collect()
        parameters = self.layout.unflatten(self.theta.cpu())
        self.folder.save_snapshot(self.step_number, {k: v.contiguous() for k, v in parameters.items()})

    def finish(self) -> None:
        self.collect()
        for state in self.states:
            if state.active:
                state.end("finished", self.step_number)


class SeedGroup:
    """Up to ``group_size`` seeds with their slice of the tables, padded to exactly that size."""

    def __init__(self, trainer: Trainer, rows: list[int]):
        self.trainer, self.rows = trainer, rows
        padded = rows + [rows[0]] * (trainer.group_size - len(rows))
        self.index = torch.tensor(padded, device=trainer.device)
        theta = trainer.theta[self.index].clone().requires_grad_()
        self.optimiser = StackedAdamW(theta, trainer.recipe, trainer.decays, trainer.held_until)
        self.optimiser.m.copy_(trainer.moments[0][self.index])
        self.optimiser.v.copy_(trainer.moments[1][self.index])
        seeds = [trainer.states[row].seed for row in padded]
        self.stream = trainer.make_stream(seeds)
        self.losses = torch.full((trainer.group_size,), float("nan"), device=trainer.device)
        self.refresh()

    def refresh(self) -> None:
        """Apply changes of status and weight decay."""
        trainer = self.trainer
        rows = self.index.tolist()
        active = [trainer.states[r].active and i < len(self.rows) for i, r in enumerate(rows)]
        self.active = torch.tensor(active, device=trainer.device)
        self.weight_decay = torch.tensor(
            [trainer.states[r].weight_decay(trainer.recipe) for r in rows], device=trainer.device
        )
        if isinstance(self.stream, TrainingStream):
            self.stream.observe([trainer.states[r].token_uniform for r in rows])

    def step(self, number: int) -> None:
        trainer, theta = self.trainer, self.optimiser.theta
        batch = self.stream.batch(number)
        if trainer.model.config.dropout:  # dropout depends only on (seed, step), as the problems do
            first = trainer.states[self.rows[0]].seed
            torch.manual_seed(int(row_keys(first, number, 1, torch.device("cpu"))))
        losses, grad = self._gradient(theta, batch)
        self.losses = losses
        self.optimiser.step(grad, number, self.weight_decay, self.active)

    def _gradient(self, theta: Theta, batch: tuple) -> tuple[PerSeed, Theta]:
        """The seeds' losses on a batch, over all processes, and their gradients."""
        trainer = self.trainer
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.autocast):
            losses = trainer.objective.loss(trainer.layout.unflatten(theta), *batch)
        (grad,) = torch.autograd.grad(losses.sum(), theta)
        return trainer.share.mean(losses.detach()), trainer.share.mean(grad)

    def write_back(self) -> None:
        n = len(self.rows)
        index = self.index[:n]
        self.trainer.theta[index] = self.optimiser.theta.detach()[:n]
        self.trainer.moments[0][index] = self.optimiser.m[:n]
        self.trainer.moments[1][index] = self.optimiser.v[:n]
