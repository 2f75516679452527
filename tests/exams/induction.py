"""Exams of the probes of heads that work together: their subject is a trained induction model, with parts replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import interp
import models
from interp.core.exam import Case, Exam
from interp.core.table_result import TableResult
from tests.exams import Briefly, register_exam

NAME = "induction-6"


def changed(change: Callable[[Any], Any]) -> Any:
    """The trained model with weights changed in place."""
    model = models.load(NAME).dense_copy()
    with torch.no_grad():
        change(model)
    return model


def uniform() -> Any:
    """The trained model, whose heads of layer 1 see all keys alike."""
    return changed(lambda model: model.blocks[1].attn.W_Q.zero_())


def turned() -> Any:
    """The trained model with layer 1's queries and keys exchanged."""

    def exchange(model: Any) -> None:
        attn = model.blocks[1].attn
        queries = attn.W_Q.clone()
        attn.W_Q.copy_(attn.W_K)
        attn.W_K.copy_(queries)

    return changed(exchange)


def redrawn() -> Any:
    """The trained model, whose first head writes somewhere else."""
    generator = torch.Generator().manual_seed(0)
    return changed(
        lambda model: model.blocks[0].attn.W_O.copy_(torch.randn(model.blocks[0].attn.W_O.shape, generator=generator))
    )


def untrained() -> Any:
    return models.build(NAME, seed=1)


def _matches(found: TableResult) -> tuple[bool, bool]:
    """Whether the last head matches, well above uniform attention, and whether it copies."""
    last = found.table.iloc[-1]
    return bool(last.matching_low > 3 * last.matching_uniform_attention), bool(last.copying > 0.5)


def _stands_out(found: TableResult) -> list[str]:
    """The sides on which random matrices hardly ever score as high."""
    return found.table["side"][found.table["p_value"] < 0.01].tolist()


register_exam(
    Exam(
        "induction_heads",
        lambda model: interp.induction_heads(model, n=256),
        _matches,
        presence=Case(lambda: models.load(NAME), (True, True)),
        absence=Case(uniform, (False, True)),
        inversion=Case(lambda: changed(lambda model: model.blocks[1].attn.W_O.neg_()), (True, False)),
        untrained=Case(untrained, (False, False)),
    )
)
register_exam(
    Exam(
        "composition_scores",
        lambda model: interp.composition_scores(model),
        _stands_out,
        presence=Case(lambda: models.load(NAME), ["key"]),
        absence=Case(redrawn, []),
        inversion=Case(turned, ["query"]),
        untrained=Case(untrained, []),
    ),
    Briefly(but={"altered": "It reads weights, and says nothing of what is computed with them."}),
)
