"""Proofs for models of one layer on any task whose answer needs a small memory.

The task's :class:`~models.tasks.machines.machine.Machine` says all problems as paths. For every query, token at it,
right token and state around the step that is asked for, there is a class of problems. A class is proved by one enclosed
forward pass over all of its paths at once (:mod:`interp.proofs.machine.margin_bounds`), and split where that does not
suffice (:mod:`interp.proofs.machine.path_search`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.machine import window_contents
from interp.proofs.machine.path_projection import query_paths
from interp.proofs.machine.path_search import PathClass, PathSearch, classes_of, grouped, problems_of
from interp.proofs.machine.post_attention import AfterAttention
from interp.proofs.machine.query_reading import query_reading
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.rounded_operations import rounding_named
from interp.proofs.numbers.token_tables import TokenTables
from interp.proofs.verdict.class_table import COUNTED, MEASURED, MachineEvidence, falls_short
from interp.proofs.verdict.method import LAST_RESORT, CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import SLACK, judged_again, require_bounds
from interp.proofs.verdict.subject import CannotJudge, Subject, not_float32, reason_of, require_logits
from interp.proofs.verdict.time_limit import ENDED, EndedBy, ended_by
from interp.proofs.verdict.verdict import ArithmeticName, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import ArithmeticTransformer
from models.tasks import Machine, MultiOperandAddition, Task
from models.transformer import HookedModel, model_name
from models.transformer.config import ANY, PLAIN, uncovered

FEW_PROBLEMS = 2**15  # see :func:`cost`
REPLAYED = 64  # classes whose lowest problem is run through the model itself
ROUNDED = 1e-3  # how far float32 may move a lead of a problem that is run, against a bound over the reals
#: What the bounds are stated for (a decoder that sees near keys has a table of its own).
COVERS = PLAIN | {
    "act_fn": tuple(ACTIVATIONS),
    "gated_mlp": ANY,
    "normalization_type": ("LN", "RMS", None),
    "norm_placement": ("pre", "post", "none"),
    "norm_eps_outside": ANY,
    "final_norm": ANY,
    "final_gain": ANY,
    "positional_embedding_type": ("standard", "rotary", "none"),
    "rotary_dim": ANY,
    "parallel_attn_mlp": ANY,
    "use_qk_norm": ANY,
    "attn_bias": ANY,
    "attn_scores": ("dot", "neg_l1", "max_plus"),
    "attn_softmax": ("softmax", "softmax1"),
}
LEAST_EPS = 2.0**-40

# ---- what can be judged


def why_not_model(model: HookedModel) -> str | None:
    """What of a model the bounds are not stated for."""
    if model.cfg.n_layers != 1:
        return f"bounds of what a query sees are for one layer, and {model_name(model)} has {model.cfg.n_layers}"
    if not isinstance(model, ArithmeticTransformer):
        return None  # its copy is asked
    config = model.config
    if (reason := not_float32(model)) is not None:
        return reason
    if config.attn_window is not None:
        return window_contents.why_not_model(model)
    if more := uncovered(config, COVERS if config.normalization_type else COVERS | {"norm_placement": ANY}):
        return f"the bounds do not know {', '.join(more)}"
    if config.parallel_attn_mlp and config.has_post_norm:
        return "the bounds do not know norms after parallel attention and MLP"
    if config.normalization_type is not None and config.eps < LEAST_EPS:
        return f"the norms' eps of {config.eps:g} is too small to rule out that their scale underflows"
    return None


def why_not(subject: Subject) -> str | None:
    """Why this method does not judge a model on a task, in words. None says that it does."""
    if (reason := why_not_model(subject.model)) is not None:
        return reason
    return reason_of(lambda: subject.once(machine_of_subject))


def cost(subject: Subject, claim: str) -> float:
    """Some seconds. Few problems are better enclosed one by one, unless all that a query sees can be gone through."""
    few = subject.once(machine_of_subject).count() <= FEW_PROBLEMS
    return LAST_RESORT if few and not _has_window(subject.model) else 10.0


def _has_window(model: HookedModel) -> bool:
    """Whether a model's heads see near ids only, so that all that a query sees can be gone through."""
    return isinstance(model, ArithmeticTransformer) and model.config.attn_window is not None


def machine_of_subject(subject: Subject) -> Machine:
    """The machine of a task; of sums of many numbers with shorter ones, too, which a model of all shapes meets."""
    if isinstance(subject.task, MultiOperandAddition) and _has_window(subject.model):
        return subject.task.machine_of_shorter()
    return subject.machine


# ---- the proof


def certify_by_machine(model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None) -> Verdict:
    """Prove a model of one layer right on all problems of a task with a machine, or find one that it gets wrong.

    Precondition: as :func:`why_not_model` says. The verdict is "conditional" if the machine is only tried against the
    task. The problems with the least leads of some classes are run through the model itself, and must lie above their
    bounds.

    Cost: 3 to 10 ms for each node with a stream of 32 numbers and an MLP of 128; a class takes one to some dozens. A
    time limit (:mod:`interp.proofs.verdict.time_limit`) or Ctrl-C end it as undecided, with the share that is proved.

    Raises:
        UserError: a task without a machine, or a model that computes something else than its weights say.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, prove(subject, arithmetic))


def prove(subject: Subject, claim: str, options: CertifyOptions | None = None) -> Outcome:
    """Judge all classes of a subject, in the arithmetic ``claim``; see :func:`certify_by_machine`."""
    if (reason := why_not_model(subject.own)) is not None:
        raise CannotJudge(subject.model, reason)
    machine = subject.once(machine_of_subject)
    with torch.inference_mode():
        proof = _Proof(subject, machine, cast(ArithmeticName, claim))
        ended = proof.run()
        proof.replay()
        evidence = proof.evidence()
    proved = not evidence.unproved and evidence.proved == len(evidence.classes)
    found = Outcome.of(proved, evidence, proof.refuted, ended)
    return (
        replace(found, status="conditional")
        if found.status == "certified" and machine.checked_on is not None
        else found
    )


class _Proof:
    """The search over all classes of a model and a task; results are attributes."""

    def __init__(self, subject: Subject, machine: Machine, arithmetic: ArithmeticName):
        self.model, self.task, self.machine, self.weights = subject.own, subject.task, machine, subject.weights
        self.arithmetic: ArithmeticName = arithmetic
        model, task = self.model, self.task
        require_logits(model, torch.tensor([max(_answers(machine))]))
        rounding = rounding_named(arithmetic)
        example = task.encode(task.sample(1, torch.Generator().manual_seed(0)))
        bias = self.weights.get("blocks.0.attn.bias")
        tables = TokenTables(
            model.config,
            self.weights,
            rounding,
            placed_of(machine),
            task.position_ids(example)[0],
            None if bias is None else bias.double(),
        )
        self.classes: list[PathClass] = []
        for target, query in enumerate(task.query_positions):
            keys = window_contents.keys_in_sight(model, task, query) if _has_window(model) else None
            for paths in query_paths(machine, query, target, keys):
                self.classes += classes_of(paths, query_reading(tables, paths))
        if _has_window(model):
            self.search = window_contents.EachPath(tables, self.classes)
        else:
            self.search = PathSearch(AfterAttention(model.config, self.weights, rounding), self.classes)
        self.refuted: WrongAnswer | None = None
        #: Why some of it is not proved, if no path is wrong.
        self.obstacle: str | None = None

    def run(self) -> EndedBy | None:
        """Search. Returns why it ended early, if it did."""
        if not all(bool((one.reading.after + one.reading.size).isfinite().all()) for one in self.classes):
            self.obstacle = "some numbers of its forward pass may leave the range of its arithmetic"
            return None
        try:
            for one in self.search.run():
                if self.refuted is None:
                    self.refuted = wrong_answer(self.model, self.task, one.paths.problem(_known(one))[None])
                    if self.refuted is not None:
                        self.search.after_refutation()
        except ENDED as error:
            ended = ended_by(error)
            self.obstacle = ended.value
            return ended
        if ties := sum(len(one.failed) for one in self.classes if not one.wrong):
            self.obstacle = f"rounding may turn what is answered where {ties:,} of what a query can see is seen"
        return None

    def replay(self) -> None:
        """Run the lowest problems of some classes through the model itself.

        Raises:
            UserError: a lead below its class's bound: the model does something that the enclosures do not know of.
        """
        known = [one for one in self.classes if one.lowest is not None]
        spread = np.unique(np.linspace(0, len(known) - 1, REPLAYED).astype(int)) if known else []
        chosen = sorted(known, key=lambda one: one.sampled)[:REPLAYED] + [known[i] for i in spread]
        problems = [one.paths.problem(_known(one))[None] for one in chosen]
        bounds = np.array([one.bound if one.proved else -np.inf for one in chosen])
        slack = SLACK if self.arithmetic == "float32" else ROUNDED  # bounds over the reals know of no rounding
        text = lambda row: self.task.problem_text(self.task.numbers(problems[row])[0])  # noqa: E731
        leads = [self._lead(one, problem) for one, problem in zip(chosen, problems, strict=True)]
        require_bounds(self.model, leads, bounds, slack * (1 + np.abs(bounds)), text)

    def _lead(self, one: PathClass, problem: Int[Tensor, "1 step"]) -> float:
        """The least lead that the model itself computes, in logits."""
        logits = self.model(self.task.encode(problem))[0, one.paths.query].double()
        lead = logits[one.answer] - logits
        return float(lead[torch.arange(len(lead)) != one.answer].min())

    def evidence(self) -> MachineEvidence:
        rows: dict[str, list[Any]] = {name: [] for name in (*COUNTED, *MEASURED, "problem")}
        unproved = 0
        for one in self.classes:
            label = one.paths.labels[one.label]
            # Nodes that were cut by what heads write share their masks.
            unproved += sum(one.paths.count(masks) for masks in {node.masks for node in one.unproved})
            values = (
                one.paths.target,
                one.paths.token,
                label.answer,
                label.before,
                label.after,
                one.nodes,
                max(len(one.unproved), int(one.wrong)),
            )
            for name, value in zip(COUNTED, values, strict=True):
                rows[name].append(value)
            rows["bound"].append(one.bound if one.proved else math.nan)
            rows["sampled"].append(one.sampled if math.isfinite(one.sampled) else math.nan)
        found = torch.cat([problems_of(group) for group in grouped(self.classes)])
        rows["problem"] = [self.task.problem_text(numbers) for numbers in self.task.numbers(found)]
        return MachineEvidence(
            arithmetic=self.arithmetic,
            state=self.machine.state_name if max(self.machine.states) > 1 else "",
            size=self.machine.count(),
            unproved=unproved,
            tried=self.machine.checked_on,
            classes=pd.DataFrame(rows),
            obstacle=self.obstacle,
            shape=self.task.shape,
        )


def _known(one: PathClass) -> Int[Tensor, " step"]:
    assert one.lowest is not None  # of a class that was looked at
    return one.lowest


def placed_of(machine: Machine) -> list[tuple[int, int]]:
    """All (position, token) that the inputs of a machine's problems have."""
    return [(slot, token) for slot in range(machine.input_length) for token in machine.tokens_at(slot)]


def _answers(machine: Machine) -> set[int]:
    """All right tokens."""
    first = machine.input_length
    return {token for slot in range(first, first + machine.n_targets) for token in machine.tokens_at(slot)}


METHOD = Method(
    "finite machine",
    MachineEvidence,
    why_not=why_not,
    claims=lambda subject: ("float32", "interval"),
    cost=cost,
    run=prove,
    check=judged_again(lambda verdict, model, task: certify_by_machine(model, verdict.arithmetic, task), falls_short),
    meant_for=lambda task: True,
    followed_by=("search", "run"),
)
