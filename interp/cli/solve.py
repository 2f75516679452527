"""The command ``interp solve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from interp.cli.arguments import Force, Json, ModelName
from interp.cli.outputs import write_reply
from models.errors import UserError


@dataclass(frozen=True)
class Solve:
    """Let a model answer problems, digit by digit, and say where it is wrong."""

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    problems: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="PROBLEM [PROBLEM ...]", help_behavior_hint="(required)"),
    ]
    """Problems such as 57+48."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        if not self.problems:
            raise UserError("There is no problem to solve: the list is empty.")
        from interp.cli.own_files import load_model
        from interp.core.replies import reply
        from interp.core.results import Provenance
        from models.evaluation import predict

        model, rows = load_model(self.model), []
        for text in self.problems:
            task = model.task.for_problems([text])
            problem = task.as_problems([text])
            (answer,) = task.decode(predict(model, problem, method="greedy", task=task))
            (right,) = task.decode(task.targets(problem))
            rows.append({"problem": text, "answer": None if answer < 0 else answer, "expected": right})
            rows[-1]["right"] = answer == right
            shown = "no number" if answer < 0 else answer
            print(f"{text} = {shown}" + ("" if answer == right else f"   wrong: it is {right}"))
        said = f"{sum(row['right'] for row in rows)} of {len(rows)} right, decoded greedily"
        rests = Provenance(len(rows), None, "problems that were given")
        write_reply(self.json, reply("answers", said, rows, provenance=rests))
