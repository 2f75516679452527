"""Exams of the probes that one paper's models need: many operands, position ids, responses token by token."""

from __future__ import annotations

from collections.abc import Mapping

import torch

import interp
from interp.compare.construction.residual_by_dimension import ResidualByDimension
from interp.core.exam import REFUSED, Case, Exam
from interp.core.table_result import TableResult
from interp.probes.ov_output_shape import OvOutputShape
from tests.exams import Briefly, register_exam
from tests.exams.coupled_subjects import (
    NAMED,
    PATTERN,
    built,
    changed,
    even,
    exchanged,
    first_head_even,
    hooked,
    untrained_summer,
)

SUM = NAMED["SUM"]
FOUR = {"sum": 0, "carry": 1, "arrow": 2, "eos": 3}
SILENT = (None,) * 4
W_O, W_V, W_OUT = "blocks.0.attn.W_O", "blocks.0.attn.W_V", "blocks.0.mlp.W_out"
NO_SUCH_MODEL = Case(untrained_summer, REFUSED)  # its dimensions have no names


def _writers(found: ResidualByDimension) -> tuple[list[str], list[str], bool]:
    """Who writes the digit sum, who the carry, and whether all tokens are right."""
    return found.writers()["PRE_SUM"], found.writers()["PRE_CARRY"], all(found.right)


register_exam(
    Exam(
        "residual_by_dimension",
        lambda model: interp.residual_by_dimension(model, "$0075+0084+0301+0999=0000>5700>9510>0640>9541"),
        _writers,
        presence=Case(built, (["L0H0"], ["L0H1"], True)),
        absence=Case(lambda: changed(W_O, lambda weight: weight[0].zero_()), ([], ["L0H1"], False)),
        inversion=Case(lambda: exchanged("O"), (["L0H1"], ["L0H0"], False)),
        untrained=NO_SUCH_MODEL,
    ),
    Briefly(lambda model: {"tokens": model.task.encode(model.task.sample(1, torch.Generator().manual_seed(0)))}),
)
register_exam(
    Exam(
        "construction_units",
        lambda model: interp.construction_units(model, n=20),
        lambda found: (float(found.table["one_hot"].mean()), found.table["slack"].min() > 0.1),
        presence=Case(built, (1.0, True)),
        absence=Case(lambda: changed(W_OUT, lambda weight: weight[:, SUM].zero_()), REFUSED),
        inversion=Case(  # digit 9 for 0, and so on
            lambda: changed(W_OUT, lambda weight: weight[:, SUM].copy_(weight[:, SUM].flip(1))), (0.0, False)
        ),
        untrained=NO_SUCH_MODEL,
    )
)


register_exam(
    Exam(
        "key_attention",
        lambda model: interp.key_attention(model, n=16),
        lambda found: tuple(found.roles().values()),
        presence=Case(built, tuple(FOUR)),
        absence=Case(lambda: hooked(PATTERN, even), SILENT),
        inversion=Case(lambda: exchanged("Q", "K"), ("carry", "sum", "arrow", "eos")),
        untrained=Case(untrained_summer, SILENT),
    )
)


def _substituted(found: TableResult) -> dict[str, tuple[int, int]]:
    """Problems that head 0 loses and wins by the ideal pattern of the digit sum, of the carry, and by silence."""
    cells = found.table.query("unit == 'L0H0'").set_index("pattern")
    names = ("ideal digit sum", "ideal carry", "zero")
    return {name: (int(cells.lost[name]), int(cells.won[name])) for name in names}


def _effects(total: tuple[int, int], carry: tuple[int, int], zero: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
    return {"ideal digit sum": total, "ideal carry": carry, "zero": zero}


_NOTHING = _effects((0, 0), (0, 0), (0, 0))
register_exam(
    Exam(
        "pattern_patching",
        lambda model: interp.pattern_patching(model, n=24, bos=True, heads=[(0, 0)]),
        _substituted,
        presence=Case(built, _effects((0, 0), (24, 0), (24, 0))),
        absence=Case(lambda: changed(W_O, lambda weight: weight[0].zero_()), _NOTHING),
        inversion=Case(  # its own pattern is the one that breaks
            lambda: hooked(PATTERN, first_head_even), _effects((0, 24), (0, 0), (0, 0))
        ),
        untrained=Case(untrained_summer, _NOTHING),
    )
)


def _line(found: OvOutputShape) -> tuple[float, bool]:
    """Head 0: share on a line in the digit's value, and whether that is more than chance."""
    cell = found.table.sel(layer=0, head=0)
    return round(float(cell.linear), 3), bool(cell.p_value < 0.05)


register_exam(
    Exam(
        "ov_output_shape",
        lambda model: interp.ov_output_shape(model, n=64),
        _line,
        presence=Case(built, (1.0, True)),
        absence=Case(  # it writes whether the digit is odd
            lambda: changed("embed.W_E", lambda weight: weight[:10, NAMED["NUM"]].remainder_(2)),
            (0.03, False),
        ),
        inversion=Case(  # falling or rising is one line
            lambda: changed(W_V, lambda weight: weight[0].neg_()), (1.0, True)
        ),
        untrained=Case(untrained_summer, lambda got: got[0] < 0.5 and not got[1]),
    )
)
