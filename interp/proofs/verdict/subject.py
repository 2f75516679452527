"""What must hold of a model before its proof is begun, and what its status is afterwards."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.core.results import Strength
from interp.proofs.numbers.rounded_operations import ROUNDINGS
from interp.proofs.verdict.verdict import STRENGTHS, CertifyOptions, Status, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models import ArithmeticTransformer, UserError
from models.tasks import Task
from models.transformer import HookedModel, model_name


def not_float32(model: ArithmeticTransformer) -> str | None:
    """Why what a model computes is not float32 on the CPU, which bounds of rounding are about; None if it is."""
    if model.config.dtype != "float32" or model.dtype != torch.float32 or model.device.type != "cpu":
        return "models are proved in float32 on the CPU"
    return None


def require_provable(model: HookedModel, arithmetic: str, reason: str | None) -> None:
    """Reject unknown arithmetics, and models that are not supported for a ``reason``."""
    if arithmetic not in ROUNDINGS:
        raise UserError(f"This is proved in 'interval' or 'float32' arithmetic, not {arithmetic!r}.")
    if reason is not None:
        raise UserError(f"{model_name(model)} cannot be judged: {reason}.")


def require_logits(model: HookedModel, targets: Tensor) -> None:
    """Raises UserError for right tokens that the model never predicts."""
    if (largest := int(targets.max())) >= (n := model.config.n_logits):
        raise UserError(f"The right tokens go up to {largest}, and {model_name(model)} predicts {n}, from 0 on.")


SLACK = 1e-6  # how far a bound may differ with another machine's library


def strength_of(verdict: Verdict) -> Strength:
    """How strong a claim a proof supports."""
    return STRENGTHS[verdict.arithmetic] if verdict.status == "certified" else "sampled"


def require_all_targets(task: Task, asked: CertifyOptions) -> None:
    """Raise UserError where only a part of an answer is asked for."""
    if asked.targets != "all":
        raise UserError(
            f"Digits are judged apart from EOS for ten-digit adders; of {task.name} every token is asked for."
        )


def status_of(proved: bool, wrong: WrongAnswer | None) -> Status:
    """The status of a search that proved all, or did not, and found this ``wrong`` answer, or none."""
    return "refuted" if wrong is not None else "certified" if proved else "undecided"
