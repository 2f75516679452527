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
        from interp.cli.tools import answers

        found = answers(load_model(self.model), self.problems)
        for row in found.result.rows:
<<<<<<< HEAD
            print(
                f"{row['problem']} = {row['written']}" + ("" if row["right"] else f"   wrong: it is {row['expected']}")
            )
=======
            wrong = "" if row["right"] else f"   wrong: it is {row['expected_text']}"
            print(f"{row['problem']} = {row['answer_text']}{wrong}")
>>>>>>> tasks
        write_reply(self.json, found)
