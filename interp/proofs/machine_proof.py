"""Proofs for models of one layer on any task whose answer needs a small memory.

The task's :class:`~models.tasks.machine.Machine` says all problems as paths. For every query, token at it, right token
and state around the step that is asked for, there is a class of problems. A class is proved by one enclosed forward
pass over all of its paths at once (:mod:`interp.proofs.margin_bounds`), and split where that does not suffice
(:mod:`interp.proofs.path_search`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.problems import resolve_task
from interp.core.results import Provenance
from interp.core.sites import model_name
from interp.core.views import Picture
from interp.proofs import column_adders as columns
from interp.proofs.margin_bounds import MarginBounds
from interp.proofs.path_search import PathClass, PathSearch, classes_of
from interp.proofs.prefix_leads import ROUNDINGS, require_logits, require_provable
from interp.proofs.query_paths import query_paths
from interp.proofs.small_domain import SLACK, require_all_targets, rung_of, status_of
from interp.proofs.token_reading import TokenReading
from interp.proofs.verdict import (
    IN_WORDS,
    ArithmeticName,
    CertifyOptions,
    Evidence,
    Method,
    Verdict,
    about,
    is_count,
    is_number,
    judged_again,
    margin_grid,
)
from interp.proofs.watch import ENDED, why_ended
from interp.proofs.wrong_answers import WrongAnswer, identify, wrong_answer
from models.errors import UserError
from models.importers.stock import from_transformer_lens
from models.numerals import shown
from models.tasks.base import Task
from models.tasks.machine import Machine, machine_of
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.hooked import HookedModel

#: After a wrong answer, classes that are still open get so many nodes each, for the share that is proved.
AFTER_WRONG = 64
FEW_PROBLEMS, FEW_DIRECTIONS = 2**15, 8  # see left_to_others
REPLAYED = 64  # classes whose lowest problem is run through the model itself
ROUNDED = 1e-3  # how far float32 may move a lead of a problem that is run, against a bound over the reals
#: What the bounds are stated for; what a config switches on beyond it is named in a refusal.
SWITCHES = ("d_vocab_out", "rotary_dim", "parallel_attn_mlp", "use_qk_norm", "attn_bias", "attn_softmax", "final_gain")
LEAST_EPS = 2.0**-40
#: The columns of the table of classes: whole numbers, and lower bounds or leads (NaN where there is none).
COUNTED = ("target", "token", "answer", "before", "after", "nodes", "open")
MEASURED = ("bound", "sampled")


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineEvidence(Evidence):
    """What is proved of a model on all problems of a task, class by class.

    Attributes:
        arithmetic: what the bounds are about, "interval" (the reals) or "float32".
        state: the word for what the machine remembers, such as "carry".
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
    classes: pd.DataFrame
    obstacle: str | None = None

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

    def to_dict(self) -> dict[str, Any]:
        columns: dict[str, Any] = {name: self.classes[name].tolist() for name in (*COUNTED, "problem")}
        for name in MEASURED:
            values = self.classes[name].to_numpy(float)
            columns[name] = [float(x) if np.isfinite(x) else None for x in values]
        return super().to_dict() | {"classes": columns}


def _in_order(text: str) -> tuple[int, str]:
    return (int(text) if text.isdigit() else 10**9, text)


def finding(verdict: Verdict) -> str:
    own: MachineEvidence = verdict.evidence
    n, words = len(own.classes), IN_WORDS[own.arithmetic]
    where = f"{n:,} classes by what a query sees and the {own.state}" if own.state else f"{n:,} classes"
    if verdict.status in ("certified", "conditional"):
        bound = f"every margin proved above {shown(own.smallest_margin, 4)}"
        said = f"certified {words}" if own.tried is None else f"proved {words} of the machine"
        caveat = "" if own.tried is None else f"; that it is the task was only tried on {own.tried:,} problems"
        return f"{said}: all {own.size:,} problems, {where}, {bound}, the least lead met at {own.witness}{caveat}"
    proved = f"{own.proved:,} of {where} are proved, and {own.share_in_words()} {words}"
    if (one := verdict.counterexample) is not None:
        return f"refuted: {one.problem} -> {one.predicted} (run through the model); {proved}"
    rest = f"; {own.obstacle}" if own.obstacle else ""
    still = own.classes[own.classes["open"] > 0]
    at = f", open is one with {still['problem'].iloc[0]}" if len(still) else ""
    return f"undecided {words}: {proved}{at}{rest}"


# ---- what can be judged


def why_not(model: HookedModel, task: Task) -> str | None:
    """Why this method cannot judge a model on a task, in words. None says that it can."""
    return reason_of(model) or _no_machine(task)


def reason_of(model: HookedModel) -> str | None:
    """What of a model the bounds are not stated for."""
    if model.cfg.n_layers != 1:
        return f"bounds of what a query sees are for one layer, and {model_name(model)} has {model.cfg.n_layers}"
    if not isinstance(model, ArithmeticTransformer):
        return None  # its copy is asked
    config = model.config
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
    if config.dtype != "float32" or model.dtype != torch.float32 or model.device.type != "cpu":
        return "classes are proved of models in float32 on the CPU"
    return None


def _no_machine(task: Task) -> str | None:
    try:
        machine_of(task)
    except UserError as error:
        return str(error).rstrip(".")
    return None


def left_to_others(model: HookedModel, task: Task) -> str | None:
    """Why another method is asked about a model that this one can judge, in words; None if it is not.

    Few problems are better enclosed one by one. Where heads write along few directions, intervals of what they write
    are as close as anything, and quicker.
    """
    if task.domain.size <= FEW_PROBLEMS:
        return f"the {task.domain.size:,} problems of {task.name} are few enough to be enclosed one by one"
    if columns.METHOD.obstacle(model, task) is None and directions_written(model) <= FEW_DIRECTIONS:
        return "its heads write along few directions, for which another method is quicker"
    return None


def directions_written(model: HookedModel) -> int:
    """Along how many directions the heads of a model of one layer can write: the rank of its output matrices."""
    written = torch.as_tensor(model.W_O)[0].detach().double().flatten(0, 1)  # pyright: ignore[reportArgumentType]
    return int(torch.linalg.matrix_rank(written)) if bool(written.isfinite().all()) else len(written)


# ---- the proof


def certify_by_machine(model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None) -> Verdict:
    """Prove a model of one layer right on all problems of a task with a machine, or find one that it gets wrong.

    Precondition: as :func:`why_not` says. Postcondition: "certified" only if the right token's lead is proved positive
    at every target of every problem, "conditional" if so and the machine is only tried against the task; "refuted" only
    with a problem that the model, decoding it alone, gets wrong. The problems with the least leads of some classes are
    run through the model itself, and must lie above their bounds.

    Cost: 3 to 10 ms for each node with a stream of 32 numbers and an MLP of 128; a class takes one to some dozens. A
    time limit (:mod:`interp.proofs.watch`) or Ctrl-C end it as undecided, with the share that is proved.

    Raises:
        UserError: another arithmetic than "interval" and "float32", a task without a machine, or a model that computes
            something else than its weights say.
    """
    start = time.perf_counter()
    task = resolve_task(model, task)
    own = model if isinstance(model, ArithmeticTransformer) else from_transformer_lens(model, task)
    require_provable(own, arithmetic, why_not(own, task))
    identity = identify(model, task)
    machine = machine_of(task)
    with torch.inference_mode():
        proof = _Proof(own, task, machine, arithmetic)
        ended = proof.run()
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
            if not value.isfinite().all() and not name.endswith("attn.bias"):
                raise UserError(f"{model_name(model)} has NaN or infinite numbers in {name}.")
        require_logits(model, torch.tensor([max(_answers(machine))]))
        rounding = ROUNDINGS[arithmetic]
        example = task.encode(task.sample(1, torch.Generator().manual_seed(0)))
        bias = self.weights.get("blocks.0.attn.bias")
        reading = TokenReading(
            model.config,
            self.weights,
            rounding,
            letters_of(machine),
            task.position_ids(example)[0],
            None if bias is None else bias.double(),
        )
        self.layers = MarginBounds(model.config, self.weights, rounding)
        self.classes: list[PathClass] = []
        for target, query in enumerate(task.query_positions):
            for paths in query_paths(machine, query, target):
                self.classes += classes_of(paths, reading.at(paths))
        self.refuted: WrongAnswer | None = None

    def run(self) -> str | None:
        """Search. Returns why it ended before every class was proved or found wrong, and None if it did not."""
        if not all(bool((one.reading.after + one.reading.size).isfinite().all()) for one in self.classes):
            return "some numbers of its forward pass may leave the range of its arithmetic"
        search = PathSearch(self.layers, self.classes)
        try:
            for one in search.run():
                if self.refuted is None:
                    self.refuted = wrong_answer(self.model, self.task, one.paths.problem(_known(one))[None])
                    if self.refuted is not None:
                        search.limit = AFTER_WRONG
        except ENDED as error:
            return why_ended(error)
        return None

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
            if one.proved and least < one.bound - slack * (1 + abs(one.bound)):
                raise UserError(
                    f"{model_name(self.model)} does not compute what its weights say: see "
                    f"{self.task.problem_text(self.task.numbers(problem)[0])}."
                )

    def evidence(self, ended: str | None) -> MachineEvidence:
        rows: dict[str, list[Any]] = {name: [] for name in (*COUNTED, *MEASURED, "problem")}
        unproved = 0
        for one in self.classes:
            label, problem = one.paths.labels[one.label], one.problem()
            unproved += sum(one.paths.count(masks) for masks in {node.masks for node in one.open})
            values = (
                one.paths.target,
                one.paths.token,
                label.answer,
                label.before,
                label.after,
                one.nodes,
                len(one.open),
            )
            for name, value in zip(COUNTED, values, strict=True):
                rows[name].append(value)
            rows["bound"].append(one.bound if one.proved else math.nan)
            rows["sampled"].append(one.sampled if math.isfinite(one.sampled) else math.nan)
            rows["problem"].append(self.task.problem_text(self.task.numbers(problem[None])[0]))
        return MachineEvidence(
            arithmetic=self.arithmetic,
            state=self.machine.state_name,
            size=self.machine.count(),
            unproved=unproved,
            tried=self.machine.tried,
            classes=pd.DataFrame(rows),
            obstacle=ended,
        )


def _known(one: PathClass) -> Int[Tensor, " step"]:
    assert one.lowest is not None  # of a class that was looked at
    return one.lowest


def letters_of(machine: Machine) -> list[tuple[int, int]]:
    """All (position, token) that the inputs of a machine's problems have."""
    found = [(slot, token) for slot, token in machine.fixed.items() if slot < machine.input_length]
    for step in machine.steps:
        for column, slot in enumerate(step.slots):
            if slot < machine.input_length:
                found += [(slot, int(token)) for token in np.unique(step.tokens[:, column])]
    return sorted(found)


def _answers(machine: Machine) -> set[int]:
    """All right tokens."""
    found = {token for slot, token in machine.fixed.items() if slot >= machine.input_length}
    for step in machine.steps:
        for column, slot in enumerate(step.slots):
            if slot >= machine.input_length:
                found |= set(np.unique(step.tokens[:, column]).tolist())
    return found


def _judge(model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    require_all_targets(task, asked)
    return certify_by_machine(model, asked.arithmetic or "float32", task)


def _read(value: dict[str, Any]) -> MachineEvidence:
    """The inverse of :meth:`MachineEvidence.to_dict`. Raises KeyError, TypeError or ValueError for anything else."""
    columns = value["classes"]
    lengths = {len(columns[name]) for name in (*COUNTED, *MEASURED, "problem")}
    if len(lengths) != 1 or not all(is_count(x) for name in COUNTED for x in columns[name]):
        raise ValueError("a table of classes that is none")
    if not all(x is None or is_number(x) for name in MEASURED for x in columns[name]):
        raise ValueError("bounds that are none")
    if not all(isinstance(text, str) for text in columns["problem"]) or not isinstance(value["state"], str):
        raise ValueError("problems that are none")
    tried, obstacle, arithmetic = value["tried"], value["obstacle"], value["arithmetic"]
    if arithmetic not in ROUNDINGS or not (tried is None or is_count(tried)):
        raise ValueError("an unknown arithmetic")
    if (
        not is_count(value["size"])
        or not is_count(value["unproved"])
        or not (obstacle is None or isinstance(obstacle, str))
    ):
        raise ValueError("numbers that are none")
    table = pd.DataFrame({name: np.array(columns[name], np.int64) for name in COUNTED})
    for name in MEASURED:
        table[name] = np.array([math.nan if x is None else x for x in columns[name]], float)
    table["problem"] = columns["problem"]
    found = MachineEvidence(
        arithmetic=arithmetic,
        state=value["state"],
        size=value["size"],
        unproved=value["unproved"],
        tried=tried,
        classes=table,
        obstacle=obstacle,
    )
    proved = not found.unproved and found.proved == len(table) and bool((table["bound"] > 0).all())
    if (value["status"] in ("certified", "conditional")) and (
        not proved or (tried is None) != (value["status"] == "certified")
    ):
        raise ValueError("a proof with open classes")
    return found


def _falls_short(verdict: Verdict, found: Verdict) -> str | None:
    """What a verdict claims beyond the one found again, in words."""
    own: MachineEvidence = verdict.evidence
    again: MachineEvidence = found.evidence
    same = ["target", "token", "answer", "before", "after"]
    if own.size != again.size or not own.classes[same].equals(again.classes[same]):
        return "it has other classes"
    if own.unproved < again.unproved:
        return f"proved again, {found.sentence()}"
    claimed, proved = own.classes["bound"].to_numpy(), again.classes["bound"].to_numpy()
    held = np.isnan(claimed) | (claimed <= proved + SLACK * (1 + np.abs(proved)))
    return None if held.all() else "it claims larger margins than are proved"


METHOD = Method(
    "finite machine",
    obstacle=lambda model, task: why_not(model, task) or left_to_others(model, task),
    certify=_judge,
    finding=finding,
    provenance=lambda verdict: (
        Provenance(verdict.size, None, "problems, in classes", rung_of(verdict))
        if verdict.tried is None
        else Provenance(verdict.tried, None, "problems on which the task is the machine")
    ),
    read=_read,
    check=judged_again(lambda verdict, model, task: certify_by_machine(model, verdict.arithmetic, task), _falls_short),
    meant_for=lambda task: True,
)
