"""Proofs for models of one layer on any task whose answer needs a small memory.

The task's :class:`~models.tasks.machines.machine.Machine` says all problems as paths. For every query, token at it,
right token and state around the step that is asked for, there is a class of problems. A class is proved by one enclosed
forward pass over all of its paths at once (:mod:`interp.proofs.machine.margin_bounds`), and split where that does not
suffice (:mod:`interp.proofs.machine.path_search`).
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.problems import resolve_task
from interp.core.results import Provenance
from interp.proofs.attacks.search_method import first_wrong
from interp.proofs.columns import column_method, per_operator
from interp.proofs.listed import exhaustive
from interp.proofs.machine import window_contents
from interp.proofs.machine.path_projection import query_paths
from interp.proofs.machine.path_search import PathClass, PathSearch, classes_of, grouped, problems_of
from interp.proofs.machine.post_attention import AfterAttention
from interp.proofs.machine.query_reading import query_reading
from interp.proofs.numbers.rounded_operations import ROUNDINGS
from interp.proofs.numbers.token_tables import TokenTables
from interp.proofs.verdict.class_table import COUNTED, MEASURED, MachineEvidence, falls_short, finding, read
from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.recheck import judged_again
from interp.proofs.verdict.subject import (
    SLACK,
    not_float32,
    require_all_targets,
    require_logits,
    require_provable,
    status_of,
    strength_of,
)
from interp.proofs.verdict.time_limit import ENDED, INTERRUPTED, TIME_UP, minutes_left, time_limit, why_ended
from interp.proofs.verdict.verdict import ArithmeticName, CertifyOptions, Method, Verdict, about
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import ArithmeticTransformer, UserError
from models.importers import from_transformer_lens
from models.tasks import Machine, MultiOperandAddition, Task, machine_of, machine_of_shorter
from models.transformer import HookedModel, model_name

FEW_PROBLEMS, FEW_DIRECTIONS = 2**15, 12  # see :func:`why_not`
SEARCHED = 4_000  # runs of the search for a wrong answer after the time is up
REPLAYED = 64  # classes whose lowest problem is run through the model itself
ROUNDED = 1e-3  # how far float32 may move a lead of a problem that is run, against a bound over the reals
#: What the bounds are stated for; what a config switches on beyond it is named in a refusal.
SWITCHES = ("d_vocab_out", "rotary_dim", "parallel_attn_mlp", "use_qk_norm", "attn_bias", "attn_softmax", "final_gain")
LEAST_EPS = 2.0**-40
LEAST_MINUTES = 1e-9  # of a proof, whose time may be over before it begins

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
    if more := [name for name in config.later_switches if name not in SWITCHES]:
        return f"the bounds do not know {more[0]}"
    for name, allowed in (
        ("positional_embedding_type", ("standard", "rotary", "none")),
        ("attn_top_k", (None,)),
        ("norm_placement", ("pre", "post", "none")),
    ):
        if getattr(config, name) not in allowed and not (
            name == "norm_placement" and config.normalization_type is None
        ):
            return f"the bounds do not know {name}={getattr(config, name)!r}"
    if config.parallel_attn_mlp and config.has_post_norm:
        return "the bounds do not know norms after parallel attention and MLP"
    if config.normalization_type is not None and config.eps < LEAST_EPS:
        return f"the norms' eps of {config.eps:g} is too small to rule out that their scale underflows"
    return None


def why_not(model: HookedModel, task: Task) -> str | None:
    """Why this method does not judge a model on a task, in words. None says that it does.

    What it could judge is left to others in two cases. Few problems are better enclosed one by one. Where heads write
    along few directions, intervals of what they write are as close as anything, and quicker.
    """
    if (reason := why_not_model(model)) is not None:
        return reason
    try:
        size = _machine_of(model, task).count()
    except UserError as error:
        return str(error).rstrip(".")
    if size <= FEW_PROBLEMS and not _has_window(model):
        return f"the {size:,} problems of {task.name} are few enough to be enclosed one by one"
    if (
        not _has_window(model)
        and directions_written(model) <= FEW_DIRECTIONS
        and _of_few_directions(model, task) is not None
    ):
        return "its heads write along few directions, for which another method is quicker"
    return None


def can_judge(model: HookedModel, task: Task) -> bool:
    """Whether the method could judge a model, whatever is left to others."""
    if why_not_model(model) is not None:
        return False
    try:
        _machine_of(model, task)
    except UserError:
        return False
    return True


def _has_window(model: HookedModel) -> bool:
    """Whether a model's heads see near ids only, so that all that a query sees can be gone through."""
    return isinstance(model, ArithmeticTransformer) and model.config.attn_window is not None


def _machine_of(model: HookedModel, task: Task) -> Machine:
    """The machine of a task; of sums of many numbers with shorter ones, too, which a model of all shapes meets."""
    return (
        machine_of_shorter(task) if isinstance(task, MultiOperandAddition) and _has_window(model) else machine_of(task)
    )


def _of_few_directions(model: HookedModel, task: Task) -> Method | None:
    """The method for adders and subtractors that encloses what heads write in intervals, if it judges this one."""
    methods = (column_method.METHOD, per_operator.METHOD)
    return next((method for method in methods if method.why_not(model, task) is None), None)


def directions_written(model: HookedModel) -> int:
    """Along how many directions the heads of a model of one layer can write: the rank of its output matrices."""
    written = torch.as_tensor(model.W_O)[0].detach().double().flatten(0, 1)  # pyright: ignore[reportArgumentType]
    return int(torch.linalg.matrix_rank(written)) if bool(written.isfinite().all()) else len(written)


# ---- the proof


def certify_by_machine(model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None) -> Verdict:
    """Prove a model of one layer right on all problems of a task with a machine, or find one that it gets wrong.

    Precondition: as :func:`why_not_model` says. Postcondition: "certified" only if the right token's lead is proved
    positive at every target of every problem, "conditional" if so and the machine is only tried against the task;
    "refuted" only with a problem that the model, decoding it alone, gets wrong. The problems with the least leads of
    some classes are run through the model itself, and must lie above their bounds.

    Cost: 3 to 10 ms for each node with a stream of 32 numbers and an MLP of 128; a class takes one to some dozens. A
    time limit (:mod:`interp.proofs.verdict.time_limit`) or Ctrl-C end it as undecided, with the share that is proved.

    Raises:
        UserError: another arithmetic than "interval" and "float32", a task without a machine, or a model that computes
            something else than its weights say.
    """
    start = time.perf_counter()
    task = resolve_task(model, task)
    own = model if isinstance(model, ArithmeticTransformer) else from_transformer_lens(model, task)
    require_provable(own, arithmetic, why_not_model(own))
    identity, machine = identify(model, task), _machine_of(own, task)
    with torch.inference_mode():
        proof = _Proof(own, task, machine, arithmetic)
        ended = proof.run()
    if ended == TIME_UP and proof.refuted is None and not all(one.proved for one in proof.classes):
        proof.refuted = first_wrong(own, task, SEARCHED)  # outside of inference mode, as it follows gradients
    with torch.inference_mode():
        proof.replay()
        evidence = proof.evidence(ended)
    proved = not evidence.unproved and evidence.proved == len(evidence.classes)
    status = status_of(proved, proof.refuted)
    return Verdict(
        **about(model, task, identity, start),
        method=METHOD.name,
        status="conditional" if status == "certified" and machine.tried is not None else status,
        counterexample=proof.refuted,
        evidence=evidence,
    )


class _Proof:
    """The search over all classes of a model and a task; results are attributes."""

    def __init__(self, model: ArithmeticTransformer, task: Task, machine: Machine, arithmetic: ArithmeticName):
        self.model, self.task, self.machine = model, task, machine
        self.arithmetic: ArithmeticName = arithmetic
        self.weights = {name: value.detach().clone() for name, value in model.effective_weights().items()}
        for name, value in self.weights.items():
            hides = name.endswith("attn.bias")  # -inf hides a key
            if not (value.isfinite() | (hides & (value == -math.inf))).all():
                raise UserError(f"{model_name(model)} has NaN or infinite numbers in {name}.")
        require_logits(model, torch.tensor([max(_answers(machine))]))
        rounding = ROUNDINGS[arithmetic]
        example = task.encode(task.sample(1, torch.Generator().manual_seed(0)))
        bias = self.weights.get("blocks.0.attn.bias")
        tables = TokenTables(
            model.config,
            self.weights,
            rounding,
            letters_of(machine),
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

    def run(self) -> str | None:
        """Search. Returns why some of it is not proved, if no path is wrong; None if all is, or a path is wrong."""
        if not all(bool((one.reading.after + one.reading.size).isfinite().all()) for one in self.classes):
            return "some numbers of its forward pass may leave the range of its arithmetic"
        try:
            for one in self.search.run():
                if self.refuted is None:
                    self.refuted = wrong_answer(self.model, self.task, one.paths.problem(_known(one))[None])
                    if self.refuted is not None:
                        self.search.after_wrong()
        except ENDED as error:
            return why_ended(error)
        ties = sum(len(one.failed) for one in self.classes if not one.wrong)
        return f"rounding may turn what is answered where {ties:,} of what a query can see is seen" if ties else None

    def replay(self) -> None:
        """Run the lowest problems of some classes through the model itself.

        Raises:
            UserError: a lead below its class's bound: the model does something that the enclosures do not know of.
        """
        known = [one for one in self.classes if one.lowest is not None]
        spread = np.unique(np.linspace(0, len(known) - 1, REPLAYED).astype(int)) if known else []
        for one in sorted(known, key=lambda one: one.sampled)[:REPLAYED] + [known[i] for i in spread]:
            problem = one.paths.problem(_known(one))[None]
            logits = self.model(self.task.encode(problem))[0, one.paths.query].double()
            lead = logits[one.answer] - logits
            least = float(lead[torch.arange(len(lead)) != one.answer].min())
            slack = SLACK if self.arithmetic == "float32" else ROUNDED  # bounds over the reals know of no rounding
            if one.proved and not least >= one.bound - slack * (1 + abs(one.bound)):  # also where it is NaN
                raise UserError(
                    f"{model_name(self.model)} does not compute what its weights say: see "
                    f"{self.task.problem_text(self.task.numbers(problem)[0])}."
                )

    def evidence(self, ended: str | None) -> MachineEvidence:
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
            tried=self.machine.tried,
            classes=pd.DataFrame(rows),
            obstacle=ended,
            shape=self.task.shape,
        )


def _known(one: PathClass) -> Int[Tensor, " step"]:
    assert one.lowest is not None  # of a class that was looked at
    return one.lowest


def letters_of(machine: Machine) -> list[tuple[int, int]]:
    """All (position, token) that the inputs of a machine's problems have."""
    return [(slot, token) for slot in range(machine.input_length) for token in machine.tokens_at(slot)]


def _answers(machine: Machine) -> set[int]:
    """All right tokens."""
    first = machine.input_length
    return {token for slot in range(first, first + machine.n_targets) for token in machine.tokens_at(slot)}


def _judge(model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    """The proof; but margins "in floats", or of the digits without the EOS, are the business of the adders' method."""
    if (asked.arithmetic == "float" or asked.targets != "all") and (other := _of_few_directions(model, task)):
        return other.certify(model, task, asked)
    require_all_targets(task, asked)
    left = minutes_left()
    half = None if left is None else left / 2
    if asked.arithmetic is not None or not exhaustive.can_run_all(model, task, half):
        return certify_by_machine(model, asked.arithmetic or "float32", task)
    # What is not proved is run where half of the time is enough for that, which is kept.
    with time_limit(None if half is None else max(half, LEAST_MINUTES)):
        found = certify_by_machine(model, "float32", task)
    if found.status != "undecided" or found.obstacle == INTERRUPTED:
        return found
    try:
        return exhaustive.certify_exhaustively(model, task, most=exhaustive.LARGEST_RUN)
    except ENDED:
        return found


METHOD = Method(
    "finite machine",
    why_not=why_not,
    certify=_judge,
    finding=finding,
    provenance=lambda verdict: (
        Provenance(verdict.size, None, "problems, in classes", strength_of(verdict))
        if verdict.tried is None
        else Provenance(verdict.tried, None, "problems on which the task is the machine")
    ),
    read=read,
    check=judged_again(lambda verdict, model, task: certify_by_machine(model, verdict.arithmetic, task), falls_short),
    meant_for=lambda task: True,
)
