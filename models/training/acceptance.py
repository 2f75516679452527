"""Acceptance tests for a seed with perfect validation accuracy.

If the test accepts the seed, its training ends there, and the run keeps these parameters; otherwise the metrics get a
line, and training continues, on the problems that the test gives back too. The tests themselves come from others, such
as the one that proves the model right on all inputs: an installed package names its own under the entry points
:data:`JUDGES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from models.errors import UserError, unknown_name
from models.registry import build
from models.training.counterexample_problems import trainable
from models.training.run_folder import RunFolder
from models.training.seed_state import SeedState
from models.training.stacked_objective import ParameterLayout
from models.transformer.arithmetic_transformer import ArithmeticTransformer

#: The group of entry points under which a package gives its judges: functions of a registered model's name.
JUDGES = "carrylens.judges"


@dataclass(frozen=True)
class Acceptance:
    """What a judge says about one candidate. Equal parameters must get equal verdicts, or a resumed run would differ.

    Attributes:
        statement: a sentence without a full stop, for metrics and terminal.
        certificate: what a zoo entry keeps under this name, as JSON (:func:`models.zoo.entry_writer.save_entry`).
        files: evidence by file name, kept in the run folder and in a zoo entry if the candidate is accepted.
        problems: what a seed that is turned down is to be trained on (:mod:`models.training.counterexample_problems`),
        each
            as the task's row of whole numbers; those that it holds out are left out.
    """

    accepted: bool
    statement: str
    certificate: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[tuple[int, ...], ...] = ()


@runtime_checkable
class AcceptanceTest(Protocol):
    """Called with a candidate: its model (on the CPU, not to be changed), the step and the seed.

    It must not use global random numbers, as training must compute the same bits with and without it. One that takes
    long may have a true attribute ``rarely``: see :meth:`Candidates.due`.
    """

    @property
    def option(self) -> str:
        """The option of ``interp train`` that asks for this judge; it is part of a run's config."""
        ...

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> Acceptance: ...


def judge_of(until: Any, name: str) -> AcceptanceTest | None:
    """The judge that ``until`` names or is, for runs of a registered model; None for None.

    Raises:
        UserError: a name that no installed package gives, something that is no judge, or a model that it cannot judge.
    """
    if until is None or (isinstance(until, AcceptanceTest) and not isinstance(until, str)):
        return until
    known = {point.name: point for point in entry_points(group=JUDGES)}
    if not isinstance(until, str):
        raise UserError(f"until is the name of a judge ({', '.join(known)}) or a judge, not {type(until).__name__}.")
    if until not in known:
        raise unknown_name("judge", until, list(known))
    return known[until].load()(name)


class Candidates:
    """Presents the candidates of one run to its judge, and keeps what is accepted in the run's folder."""

    def __init__(self, judge: AcceptanceTest, name: str, layout: ParameterLayout, folder: RunFolder):
        self.judge, self.layout, self.folder = judge, layout, folder
        self.model = build(name)

    def due(self, state: SeedState, at_end: bool) -> bool:
        """Whether a seed that is perfect on validation is to be judged now. A judge that takes long (``rarely``) is
        asked after 1, 2, 4, 8, ... perfect validations in a row, and at the end of the run."""
        n = state.perfect_in_a_row
        return at_end or not getattr(self.judge, "rarely", False) or n & (n - 1) == 0

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
            state.keep_counterexamples(trainable(self.model.task, verdict.problems))
        state.last_verdict = verdict.statement
        return {"seed": state.seed, "accepted": verdict.accepted, "statement": verdict.statement}
