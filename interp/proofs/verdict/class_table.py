"""What the proof by a task's machine found: a table of classes, its sentence and its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
import torch

from interp.core.results import Provenance
from interp.core.views import Picture
from interp.proofs.numbers.rounded_operations import ROUNDINGS
from interp.proofs.verdict.recheck import SLACK
from interp.proofs.verdict.verdict import IN_WORDS, ArithmeticName, Evidence, Status, Verdict, margin_grid, strength_of
from interp.proofs.verdict.verdict_files import TableForm
from models import UserError
from models.number_format import shown
from models.tasks import Task

#: The columns of the table of classes: whole numbers, and lower bounds or leads (NaN where there is none).
COUNTED = ("target", "token", "answer", "before", "after", "nodes", "open")
#: The share of a bound by which one proved again may be smaller.
GUIDED = 0.1
LEAST_SHARE = 1e-6  # of proved problems that is told: of an answer's tokens, all must be proved
MEASURED = ("bound", "sampled")


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineEvidence(Evidence):
    """What is proved of a model on all problems of a task, class by class.

    Attributes:
        arithmetic: what the bounds are about, "interval" (the reals) or "float32".
        shape: the task's shape, where it has several.
        state: the word for what the machine remembers, such as "carry"; empty if that is nothing.
        size: how many problems there are. unproved: in at most so many of them some token of the answer is not proved.
        tried: on how many problems the task was compared with the machine, where nothing else is known; else None.
        classes: a table with a row for each class: the ``target``, the ``token`` at its query, the right ``answer``,
        the
            state ``before`` and ``after`` the target's step (0 where classes are not told apart by it), how many
            ``nodes`` were bounded and are ``open``, a lower ``bound`` of the margin in logits (NaN if open), the least
            lead that was ``sampled``, and the ``problem`` that has it.
        obstacle: why the search ended early, if it did.
    """

    arithmetic: ArithmeticName
    state: str
    size: int
    unproved: int
    tried: int | None
    classes: Annotated[pd.DataFrame, TableForm(COUNTED, MEASURED, ("problem",))]
    obstacle: str | None = None
    shape: tuple[int, ...] = ()
    by: ClassVar[str] = "what a query sees"  # what the problems of a class share

    def __post_init__(self) -> None:
        if self.arithmetic not in ROUNDINGS or (self.classes[list(COUNTED)] < 0).to_numpy().any():
            raise ValueError("an unknown arithmetic, or negative counts")

    def allows(self, status: Status) -> bool:
        if status not in ("certified", "conditional"):
            return True
        proved = not self.unproved and self.proved == len(self.classes) and bool((self.classes["bound"] > 0).all())
        return proved and (self.tried is None) == (status == "certified")

    @property
    def domain(self) -> str:
        """What it is about, in words."""
        zeros = len(str(self.size)) - 1
        return f"all {f'10^{zeros}' if self.size == 10**zeros > 10**6 else f'{self.size:,}'} problems"

    @property
    def smallest_margin(self) -> float:
        """A proved lower bound of all margins; NaN if some class is open."""
        return float(self.classes["bound"].min(skipna=False))

    @property
    def proved(self) -> int:
        """How many classes are proved."""
        return int((self.classes["open"] == 0).sum())

    @property
    def share(self) -> Fraction:
        """At least this share of all problems is proved right at every token of the answer."""
        return 1 - Fraction(min(self.unproved, self.size), self.size)

    @property
    def witness(self) -> str:
        """The problem with the least lead that was met."""
        return str(self.classes["problem"][self.classes["sampled"].to_numpy().argmin()])

    def share_in_words(self) -> str:
        return f"at least {math.floor(self.share * 10**6) / 10**4:.4f}% of all problems are proved right"

    def to_dataframe(self) -> pd.DataFrame:
        """One row per class."""
        return self.classes.copy()

    def problems_left(self) -> list[str]:
        rows = self.classes[(self.classes["open"] > 0) | (self.classes["sampled"] <= 0)]
        return rows.sort_values("sampled", kind="stable")["problem"].tolist()

    def picture(self) -> Picture:
        """The least proved margin of each right token at each target, with the problem of the least lead."""
        rows = self.classes.rename(columns={"bound": "margin"})
        frame = pd.DataFrame({"target": rows["target"], "token": rows["answer"].astype(str)})
        frame["margin"], frame["problem"] = rows["margin"], rows["problem"]
        grid, lowest = margin_grid(
            frame, "target", "right token", sorted(set(frame["target"])), sorted(set(frame["token"]), key=_in_order)
        )
        return Picture([grid], note=f"Least proved margin of each right token. Lowest: {lowest}")

    def misnamed(self, task: Task) -> str | None:
        """Whether every class's problem has the class's right token, and its query's token where that is read."""
        rows = self.classes
        try:
            problems = torch.cat([task.as_problems([text]) for text in rows["problem"].tolist()])
        except UserError as error:
            return str(error).rstrip(".")
        right = task.targets(problems)[torch.arange(len(rows)), torch.tensor(rows["target"].to_numpy())]
        wrong = (right.numpy() != rows["answer"].to_numpy()).nonzero()[0]
        return f"{rows['problem'][wrong[0]]!r} has another right token" if len(wrong) else None

    def finding(self, verdict: Verdict) -> str:
        n, words = len(self.classes), IN_WORDS[self.arithmetic]
        where = f"{n:,} classes by {self.by}{f' and the {self.state}' if self.state else ''}"
        if verdict.status in ("certified", "conditional"):
            bound = f"every margin proved above {shown(self.smallest_margin, 4)}"
            said = f"certified {words}" if self.tried is None else f"proved {words} of the machine"
            caveat = "" if self.tried is None else f"; that it is the task was only tried on {self.tried:,} problems"
            return f"{said}: {self.domain}, {where}, {bound}, the least lead met at {self.witness}{caveat}"
        proved = f"{self.proved:,} of {where} are proved"
        proved += f", and {self.share_in_words()} {words}" if self.share >= LEAST_SHARE else ""
        if (one := verdict.counterexample) is not None:
            return f"refuted: {one} (run through the model); {proved}"
        rest = f"; {self.obstacle}" if self.obstacle else ""
        still = self.classes[self.classes["open"] > 0]
        at = f", open is one with {still['problem'].iloc[0]}" if len(still) else ""
        return f"undecided {words}: {proved}{at}{rest}"

    def provenance(self, verdict: Verdict) -> Provenance:
        if self.tried is not None:
            return Provenance(self.tried, None, "problems on which the task is the machine")
        return Provenance(self.size, None, "problems, in classes", strength_of(verdict))


def _in_order(text: str) -> tuple[int, str]:
    return (int(text) if text.isdigit() else 10**9, text)


def falls_short(verdict: Verdict, found: Verdict) -> str | None:
    """What a verdict claims beyond the one found again, in words."""
    own: MachineEvidence = verdict.evidence
    again: MachineEvidence = found.evidence
    same = ["target", "token", "answer", "before", "after"]
    if own.size != again.size or not own.classes[same].equals(again.classes[same]):
        return "it has other classes"
    if own.unproved < again.unproved:
        return f"proved again, {found.sentence()}"
    claimed, proved = own.classes["bound"].to_numpy(), again.classes["bound"].to_numpy()
    # The search is guided by samples and eigenvectors, so that another machine may split otherwise.
    held = np.isnan(claimed) | (claimed * (1 - GUIDED) <= proved + SLACK)
    return None if held.all() else "it claims larger margins than are proved"
