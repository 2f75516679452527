"""Acceptance tests for a seed with perfect validation accuracy.

If the test accepts the seed, its training ends there, and the run keeps these parameters; otherwise the metrics get a
line, and training continues. The tests themselves are registered by others, such as the one that proves the model
right on all inputs.
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
from models.transformer.arithmetic_transformer import ArithmeticTransformer


@dataclass(frozen=True)
class Verdict:
    """What a judge says about one candidate. Equal parameters must get equal verdicts, or a resumed run would differ.

    Attributes:
        statement: a sentence without a full stop, for metrics and terminal.
        certificate: what a zoo entry keeps under this name, as JSON (:func:`models.zoo.save_entry`).
        files: evidence by file name, kept in the run folder and in a zoo entry if the candidate is accepted.
    """

    accepted: bool
    statement: str
    certificate: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@runtime_checkable
class AcceptanceTest(Protocol):
    """Called with a candidate: its model (on the CPU, not to be changed), the step and the seed.

    It must not use global random numbers, as training must compute the same bits with and without it.
    """

    @property
    def option(self) -> str:
        """The option of ``interp train`` that asks for this judge; it is part of a run's config."""
        ...

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> Verdict: ...


class Candidates:
    """Presents the candidates of one run to its judge, and keeps what is accepted in the run's folder."""

    def __init__(self, judge: AcceptanceTest, name: str, layout: ParameterLayout, folder: RunFolder):
        self.judge, self.layout, self.folder = judge, layout, folder
        self.model = build(name)

    def examine(self, state: SeedState, theta: Float[Tensor, " parameter"], step: int) -> dict[str, Any]:
        """Let the judge decide on a seed's parameters; returns the entry for the metrics.

        What is accepted is in the folder when this returns. After a crash before the next checkpoint, the resumed run
        finds the same candidate again and replaces the files by equal ones.
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
