"""Judges: what is asked, beyond validation, of a seed that answers every validation problem.

Such a seed is a candidate. A judge that accepts it ends its training there, and its parameters are the ones that the
run keeps; a judge that turns it down leaves a line in the metrics, and training goes on. What a judge looks for is its
own affair: this package only knows that it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from models.registry import build
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder
from models.training.seed_state import SeedState
from models.transformer import ArithmeticTransformer


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one candidate. Equal parameters must get equal words, or a resumed run would differ.

    Attributes:
        statement: a sentence without full stop, for metrics and terminal.
        certificate: what a zoo entry keeps under this name, as JSON (:func:`models.zoo.save_entry`).
        files: evidence by file name, kept in the run folder and in a zoo entry if the candidate is accepted.
    """

    accepted: bool
    statement: str
    certificate: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@runtime_checkable
class Judge(Protocol):
    """Called with a candidate: its model (on the CPU, to look at and not to change), the step and the seed.

    It must use no global random numbers: with and without it, training must compute the same bits.
    """

    @property
    def option(self) -> str:
        """What asks for this judge on the command line of ``interp train``; part of what a run is."""
        ...

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> Verdict: ...


class Hearings:
    """Takes the candidates of one run before its judge, and keeps what is accepted in its folder."""

    def __init__(self, judge: Judge, name: str, layout: ParameterLayout, folder: RunFolder):
        self.judge, self.layout, self.folder = judge, layout, folder
        self.model = build(name)

    def hear(self, state: SeedState, theta: Float[Tensor, " parameter"], step: int) -> dict[str, Any]:
        """Judge a seed's parameters and decide its fate; returns the entry for the metrics.

        What is accepted is in the folder when this returns. If a crash comes before the next checkpoint, the resumed
        run comes to the same candidate again and replaces the files by the same.
        """
        self.layout.load_into(self.model, theta.cpu())
        verdict = self.judge(self.model, step, state.seed)
        if verdict.accepted:
            parameters = {name: p.detach() for name, p in self.model.weight_map.named_parameters()}
            metadata = {"model": str(self.model.name_or_path), "seed": str(state.seed), "step": str(step)}
            self.folder.save_accepted(state.seed, parameters, metadata, verdict.files)
            state.accept(dict(verdict.certificate), step)
        else:
            state.turned_down += 1
        return {"seed": state.seed, "accepted": verdict.accepted, "statement": verdict.statement}
