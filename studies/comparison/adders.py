"""The same questions for every adder that is in the zoo or built by hand: ``comparison:models``.

A finished model's row is kept under ``--out``, so that the same command continues after any kind of stop. The command
also wrote the matrix that comes with this package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
from interp.compare.compare_models import NAME, PROBLEMS, compare_models, question_of
from interp.compare.comparison_sections import ABOUT, table_sections
from interp.compare.model_table import ModelTable
from interp.core.probe import with_number
from interp.core.sections import Section
from models.files.checkpoint import write_json_atomic
from models.registry import by_paper, constructed
from models.tasks.named.addition import adds_pairs_below
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from studies.runs.study import Made, Settings, shows, study

TARGET, TITLE = "comparison:models", "Every adder asked the same questions"
#: The constructed transformer adds numbers of any length; it is asked in the shape of the trained ones.
SHAPES = {"position-coupling-hand-built": (2, 4)}
LEFT_OUT = "Multiplication and parity are left out: they have no columns of two digits."


def _adds(task: Any) -> bool:
    return adds_pairs_below(task) is not None or isinstance(task, MultiOperandAddition)


def adders() -> list[str]:
    """All adders that are built by hand or in the zoo, paper by paper, those with fewer parameters first."""
    names = [*constructed(), *models.zoo_names()]
    sizes = {name: models.build(name) for name in names}
    found = [name for name in names if _adds(sizes[name].task)]
    return by_paper(sorted(found, key=lambda name: sum(p.numel() for p in sizes[name].parameters())))


def _known(kept: Path, problems: int) -> ModelTable | None:
    """The rows of an earlier run with the same questions, or None."""
    if not kept.is_file():
        return None
    table = ModelTable.from_dict(json.loads(kept.read_text()))
    asked = tuple(question_of(each) for each in with_number(asker=NAME))
    return table if table.questions == asked and table.provenance.n == problems else None


@study(TARGET, TITLE)
def comparison(settings: Settings) -> Made | None:
    """Some ten minutes for all models; ``--problems`` sets the size of the samples."""
    problems = settings.problems or PROBLEMS
    kept = settings.out / "comparison" / "rows.json"
    table, names = _known(kept, problems), adders()
    for name in names:
        if table is not None and name in table.names:
            continue
        if settings.minutes_left() == 0:
            settings.say(f"stopped before {name}; the same command goes on")
            return None
        settings.say(name)
        model = models.load(name)
        task = model.task.at(*SHAPES[name]) if model.task.has_other_sizes and name in SHAPES else None
        found = compare_models([model], tasks=[task], n=problems)
        table = found if table is None else table.with_rows(found.rows)
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(kept, table.to_dict())
    assert table is not None
    return Made(table.select(names).to_dict())


@shows(TARGET)
def show_matrix(data: Any) -> list[Section]:
    return table_sections(ModelTable.from_dict(data), f"{ABOUT} {LEFT_OUT}")
