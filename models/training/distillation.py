"""Distillation: a teacher's logits guide the training of a student (Hinton, Vinyals and Dean 2015).

For each target that the teacher answers as well, the loss is

    (1 - w) CE(target, student) + w T^2 KL(softmax(s teacher / T) || softmax(student / T))    in nats

with the weight w, the temperature T and the sharpness s of :class:`models.training.recipes.Teacher`; T^2 keeps the size
of the gradient the same at any temperature. A target that only the student has (MicroAdder's EOS, for a teacher without
one) keeps its whole cross-entropy. The teacher reads the student's own batches, so every seed sees the same problems as
without it.
"""

from __future__ import annotations

import ctypes
from functools import partial
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.training.compiled_loss import FusedLoss
from models.training.native import pointers
from models.training.recipes import Teacher
from models.training.split_stream_kernel import PositionOnlyObjective, Tables
from models.training.stacked_objective import (
    GeneralObjective,
    Logits,
    Parameters,
    PerSeed,
    Targets,
    Tokens,
    cross_entropies,
)

Taught = Float[Tensor, "seed vocab taught row"]  # a teacher's logits; it may answer fewer targets


def distilled(logits: Logits, targets: Targets, taught: Taught, weight: float, temperature: float) -> PerSeed:
    """The loss of each seed; ``taught`` has logits for only the first targets, those that the teacher answers."""
    n = taught.shape[2]
    hard = cross_entropies(logits, targets)
    student, teacher = ((x / temperature).log_softmax(1) for x in (logits[:, :, :n], taught))
    soft = temperature**2 * (teacher.exp() * (teacher - student)).sum(1)
    return torch.cat(((1 - weight) * hard[:, :n] + weight * soft, hard[:, n:]), 1).mean((1, 2))


class TaughtObjective(GeneralObjective):
    """The objective of a student with a teacher; it is cheap if the kernel of the split stream serves both.

    Raises:
        UserError: the teacher reads other tokens than the student, or answers other targets than its first.
    """

    def __init__(self, student: GeneralObjective, teacher: GeneralObjective, how: Teacher):
        super().__init__(student.model)
        _require_one_language(student, teacher)
        self.student, self.teacher, self.how = student, teacher, how
        self.group_size, self.cuda_group_size = student.group_size, student.cuda_group_size
        self.teacher_parameters = {name: p.detach()[None] for name, p in teacher.model.weight_map.named_parameters()}
        self.answering = teacher.answering_kernel() if isinstance(teacher, PositionOnlyObjective) else None
        self._tables: Tables | None = None  # the teacher's, one copy per seed
        if isinstance(student, PositionOnlyObjective) and student.has_kernel:
            self.kernel = student.build_kernel(NG=len(teacher.queries))

    def logits(self, parameters: Parameters, tokens: Tokens) -> Logits:
        return self.student.logits(parameters, tokens)

    def predictions(self, parameters: Parameters, tokens: Tokens) -> Targets:
        return self.student.predictions(parameters, tokens)

    @torch.no_grad()
    def taught(self, tokens: Tokens) -> Taught:
        """The teacher's logits for every seed's problems, sharpened."""
        n_seeds, n_rows, teacher = len(tokens), tokens.shape[-1], self.teacher
        tokens = tokens[:, : teacher.model.task.input_length].contiguous()
        if self.answering is None or not self.takes_kernel(tokens):
            teacher_parameters = {name: p.expand(n_seeds, *p.shape[1:]) for name, p in self.teacher_parameters.items()}
            return self.how.sharpness * teacher.logits(teacher_parameters, tokens)
        assert isinstance(teacher, PositionOnlyObjective)
        if self._tables is None or len(self._tables.mixing) != n_seeds:
            one = teacher.tables(self.teacher_parameters, tokens.shape[1])
            one = one._replace(w_u=self.how.sharpness * one.w_u)
            self._tables = Tables(*(table.expand(n_seeds, *table.shape[1:]).contiguous() for table in one))
        found = torch.empty(n_seeds, teacher.model.config.d_vocab, len(teacher.queries), n_rows)
        eps = ctypes.c_float(teacher.model.config.eps)
        self.answering.logits(n_seeds, n_rows, *pointers([tokens]), eps, *pointers([*self._tables, found]))
        return found

    def loss(self, parameters: Parameters, tokens: Tokens, targets: Targets) -> PerSeed:
        taught = self.taught(tokens)
        if not self.takes_kernel(tokens):
            return distilled(self.logits(parameters, tokens), targets, taught, self.how.weight, self.how.temperature)
        assert isinstance(self.student, PositionOnlyObjective)
        tables = self.student.tables(parameters, tokens.shape[1])
        return FusedLoss.apply(self._heard(taught), pointers, self.model.config.eps, tokens, targets, *tables)

    def _heard(self, taught: Taught) -> SimpleNamespace:
        """The kernel with the teacher's logits bound to it, so that it is called as without a teacher."""
        what = (*pointers([taught]), ctypes.c_float(self.how.weight), ctypes.c_float(self.how.temperature))
        return SimpleNamespace(loss_and_gradient=partial(self.kernel.taught_loss_and_gradient, *what))


def _require_one_language(student: GeneralObjective, teacher: GeneralObjective) -> None:
    """Raise UserError unless the teacher reads the beginning of the student's tokens and answers its first targets."""
    one, other = student.model.task, teacher.model.task
    same = one.d_vocab == other.d_vocab and other.input_length <= one.input_length
    same = same and student.queries[: len(teacher.queries)] == teacher.queries
    if same:
        problems = one.held_out.validation(16, seed=0)
        same = torch.equal(one.encode(problems)[:, : other.input_length], other.encode(problems))
    if not same:
        raise UserError(
            f"{teacher.model.name_or_path} cannot teach {student.model.name_or_path}: a teacher has the student's "
            "tokens, in the same places, and answers its targets from the first on."
        )
