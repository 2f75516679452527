"""Which findings about one adder hold for many others as well?

    interp.population([models.load(name) for name in ("microadder-57", "microadder-100", "adder-456")]).figure()

Each finding is a statement about one ten-digit adder that a probe of the registry can decide (:data:`FINDINGS`). It is
decided for every member and, as controls, for an untrained copy of each and for trained models that you give because
they work otherwise (``otherwise``). Seeds of one architecture have the architecture in common, so shares are also given
by architecture. Findings that were added after a first look at the population say so in their source.

Limits. "All 30 of this population" says nothing of other adders. The decisions are sampled, except where a certificate
says more. A finding that is built into an architecture says nothing; the untrained control, which has the same
architecture, shows that, if the finding makes sense without training. A finding that no control fails may hold for
whatever adds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from interp.causal.circuits import smallest_circuit
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.paths import route_table
from interp.causal.interchange import which_algorithm
from interp.core.controls import untrained_twin
from interp.core.model import HookedModel
from interp.core.probe import columns, probe, task_of
from interp.core.problems import resolve_task
from interp.core.results import Provenance, Result
from interp.core.sites import model_name, require_evaluation_mode
from interp.core.thresholds import ABLE, ALIKE_GAPS
from interp.probes.attention import attention_by_role
from interp.probes.carry import carry_units
from models.errors import UserError
from models.evaluation import Rate
from models.part_names import layer_part
from models.tasks import problem_pairs
from models.tasks.addition import FixedWidthAddition
from models.tasks.base import Task
from models.tasks.places import OWN

LN10 = math.log(10)
#: The measurements of one adder: see :func:`readings`.
Readings = Mapping[str, Any]
#: How the previous column carries -> the name of the smallest circuit on pairs of problems that differ in that.
CIRCUITS = {"made carry": "circuit of a made carry", "passed carry": "circuit of a passed carry"}
COLUMN, PAIRS = 4, 128  # the column whose carry in differs in pairs, and the number of pairs, half of them held out


@dataclass(frozen=True)
class Finding:
    """A statement about one adder: ``words`` state it in a sentence, ``source`` says who made it about which model, and
    ``holds`` decides it from the readings (None if it makes no sense for the model)."""

    name: str
    words: str
    source: str
    holds: Callable[[Readings], bool | None]


def _near(name: str) -> Callable[[Readings], bool | None]:
    return lambda found: None if math.isnan(found[name]) else found[name] <= ALIKE_GAPS


def _most(name: str) -> Callable[[Readings], bool | None]:
    """Whether a route alone changes most answers."""
    return lambda found: None if math.isnan(found[name]) else found[name] > ABLE


FINDINGS = (
    Finding(
        "base ten",
        "In the head that looks most at the own column, its digits outweigh those of the previous column tenfold, in "
        "the mean over answer digits.",
        "this project (57 parameters)",
        _near("off"),
    ),
    Finding(
        "base ten at every digit",
        "The same holds at each of s1 to s9.",
        "this project (57 parameters)",
        _near("worst off"),
    ),
    Finding(
        "base ten in some head",
        "In some head the own digits outweigh those of the previous column tenfold, in the mean over answer digits.",
        "seen in this population",
        _near("least off"),
    ),
    Finding(
        "a head for each column",
        "One head attends to the own column a hundred times as much as to the previous one, another the other way "
        "round.",
        "seen in this population",
        lambda found: None if found["heads"] == 1 else found["gap"] >= 2 * LN10 and found["lowest gap"] <= -2 * LN10,
    ),
    Finding(
        "switch on carry out",
        "Some neuron is a switch on the carry out of the column that is written.",
        "this project (57 parameters)",
        lambda found: found["switches on carry out"] > 0,
    ),
    Finding(
        "carry out",
        "Some neuron detects the carry out of the column that is written, whatever else holds, and is needed for it.",
        "seen in this population",
        lambda found: found["neurons of carry out"] > 0,
    ),
    Finding(
        "carry in",
        "Some neuron detects the carry into the column that is written, whatever else holds, and is needed for it.",
        "a reading of MicroAdder, section 2.7 (67 and 57 parameters)",
        lambda found: found["neurons of carry in"] > 0,
    ),
    Finding(
        "only switches",
        "Every neuron is a switch on the carry out.",
        "this project (57 parameters)",
        lambda found: found["switches on carry out"] == found["neurons"],
    ),
    Finding(
        "chained",
        "Its answers follow the algorithm that reads the carry off the digit written before.",
        "MicroAdder, section 6, of 57 parameters alone: others would look ahead",
        lambda found: bool(found["chained"]),
    ),
    Finding(
        "made carry",
        "A carry that the previous column makes goes through the heads' values: patched alone, with every other route "
        "held, they change most answers.",
        "seen in this population",
        _most("made carry by values"),
    ),
    Finding(
        "passed carry past the heads",
        "A carry that the previous column passes on goes from the digit written before to the MLP and the logits, past "
        "the heads: patched alone, with every other route held, this changes most answers.",
        "seen in this population",
        _most("passed carry past the heads"),
    ),
    Finding(
        "passed carry by both",
        "A carry that the previous column passes on takes both routes together: neither the heads' values nor the way "
        "past the heads changes most answers alone, and both together do.",
        "seen in this population",
        lambda found: (
            None
            if math.isnan(found["passed carry by both"])
            else max(found["passed carry past the heads"], found["passed carry by values"]) <= ABLE
            and found["passed carry by both"] > ABLE
        ),
    ),
)


def readings(model: HookedModel, task: Any, n: int, seed: int) -> dict[str, Any]:
    """The measurements by which :data:`FINDINGS` are decided.

    ``gap`` is the logarithm of how much more a digit of the own column weighs than one of the previous column, in nats:
    its mean over answer digits in the head with the largest weight on own digits. ``off`` is its distance from ln 10,
    ``worst off`` the largest such distance of an answer digit, ``lowest gap`` the smallest mean of any head, ``least
    off`` the smallest distance of any head's mean from ln 10. Neurons are counted by :func:`interp.carry_units`. The
    smallest circuits (:func:`interp.smallest_circuit`) are their edges as one string, "" for a model that does not add.
    """
    looks = attention_by_role(model, task=task, n=n, seed=seed)
    own = looks.table.weight.sel(role=OWN).mean("target")
    layer, head = np.unravel_index(int(own.values.argmax()), own.shape)
    means = looks.gap.isel(layer=layer).mean("target")  # of every head, over the targets that have a gap
    gaps = looks.gap.isel(layer=layer, head=head).values
    gaps = gaps[~np.isnan(gaps)]
    gap = float(gaps.mean()) if len(gaps) else math.nan
    units = carry_units(model, task=task, n=n, seed=seed).verdicts()
    causal = units[units["kind"].isin(("switch", "detector"))]
    algorithm = which_algorithm(model, task=task, n=max(2, n // 4), seed=seed)
    return {
        "gap": gap,
        "off": abs(gap - LN10),
        "worst off": float(np.abs(gaps - LN10).max()) if len(gaps) else math.nan,
        "lowest gap": float(means.min()),
        "least off": float(np.abs(means - LN10).min()),
        "own weight": float(own.values.max()),
        "heads": float(own.sizes["head"]),
        "neurons": float(len(units)),
        "switches on carry out": float(((units["kind"] == "switch") & (units["signal"] == "carry_out")).sum()),
        "neurons of carry out": float((causal["signal"] == "carry_out").sum()),
        "neurons of carry in": float((causal["signal"] == "carry_in").sum()),
        "chained": float(algorithm.winner() == ("chained",)),
        "chained answers": algorithm.accuracy("chained").value,
        **route_readings(model, task, seed),
    } | {name: _circuit(model, task, kind, seed) for kind, name in CIRCUITS.items()}


def route_readings(model: HookedModel, task: Any, seed: int) -> dict[str, float]:
    """The share of answers that each route of a carry changes alone, named "made carry by values" and so on.

    The routes of each kind of carry start at the embeddings: "by values" into the heads' values, "past the heads" to
    the MLP and the logits, "by both". Every other route is held at the unchanged run. NaN for a model that answers no
    more than :data:`~interp.core.thresholds.ABLE` of the pairs right. Cost: a few runs.
    """
    found = {}
    for kind in CIRCUITS:
        pairs = problem_pairs(task, kind, column=COLUMN, n=PAIRS, seed=seed)
        experiment = EdgeExperiment(model, pairs, "exact_match", direction="denoise")
        out_of = [edge for edge in experiment.graph.names if edge.startswith("embed->")]
        routes = {
            "by values": [edge for edge in out_of if edge.endswith(".v")],
            "past the heads": [edge for edge in out_of if ".v" not in edge and ".q" not in edge and ".k" not in edge],
            "by both": out_of,
        }
        able = float(experiment.empty.mean()) > ABLE  # with every edge cut, it is the clean run
        shares = route_table(model, pairs, routes, seed=seed).answers if able else [math.nan] * len(routes)
        found |= {f"{kind} {route}": float(share) for route, share in zip(routes, shares, strict=True)}
    return found


def _circuit(model: HookedModel, task: Any, kind: str, seed: int) -> str:
    pairs = problem_pairs(task, kind, column=COLUMN, n=PAIRS, seed=seed)
    try:
        found = smallest_circuit(model, pairs, n_random=1, seed=seed)
    except UserError:  # it answers no more than half of the pairs right
        return ""
    return same_heads(label for label, kept in zip(found.space.labels, found.found.mask.tolist(), strict=True) if kept)


def same_heads(edges: Iterable[str]) -> str:
    """The edges of a one-layer circuit as one string. Heads are called "head" or, if there are several, "head a" and so
    on, in such a way that circuits which differ only in the order of heads give the same string."""
    edges = [edge.replace(layer_part(0, "mlp"), "MLP") for edge in edges]
    heads = sorted({head for edge in edges for head in re.findall(r"L0H\d+", edge)})
    names = ["head"] if len(heads) == 1 else [f"head {letter}" for letter in "abcdefgh"[: len(heads)]]
    called = []
    for order in permutations(names):
        name = dict(zip(heads, order, strict=True))
        called.append(sorted("".join(name.get(part, part) for part in re.split(r"(L0H\d+)", edge)) for edge in edges))
    return ", ".join(min(called))


@dataclass(frozen=True, eq=False)
class Population(Result):
    """What many adders have in common.

    Attributes:
        members: one row per model with its ``name``, its ``architecture`` and its :func:`readings`.
        controls: the same for an untrained copy of each.
        table: one row per finding, architecture ("all" for all together) and kind ("trained", "untrained",
            "otherwise"): it holds for ``k`` of the ``n`` models for which it makes sense; ``low`` and ``high`` are the
            95% Clopper-Pearson interval of the share.
        otherwise: the same as ``members`` for the trained models that were given as a control.
    """

    members: pd.DataFrame
    controls: pd.DataFrame
    table: pd.DataFrame
    provenance: Provenance
    otherwise: pd.DataFrame = field(default_factory=pd.DataFrame)

    def share(self, finding: str, architecture: str = "all", kind: str = "trained") -> Rate:
        """For how many models a finding holds, of those for which it makes sense."""
        rows = self.table
        for column, value in (("finding", finding), ("architecture", architecture), ("kind", kind)):
            rows = rows[rows[column] == value]
        if rows.empty:
            raise UserError(f"There is no finding {finding!r} of {architecture!r} ({kind}).")
        row = rows.iloc[0]
        return Rate(int(row.n), int(row.k))

    def verdict(self, finding: str) -> str:
        """For how many of the members a finding holds, in words: "all 30 of this population", "4 of 30", "none of 30",
        "all 7 for which it makes sense" (of the 30), or "untested" (makes sense for none)."""
        found = self.share(finding)
        if not found.n:
            return "untested"
        if found.correct == found.n:
            whole = found.n == len(self.members)
            return f"all {found.n:,} {'of this population' if whole else 'for which it makes sense'}"
        return f"{found.correct:,} of {found.n:,}" if found.correct else f"none of {found.n:,}"

    def shared(self) -> list[str]:
        """The findings that hold for every member."""
        names = self.table["finding"].unique().tolist()
        return [name for name in names if self.share(name).correct == len(self.members)]

    def by_architecture(self) -> str:
        """How many members each architecture has, the most frequent first: "122 microadder-57, 30 adder-763"."""
        return ", ".join(f"{count:,} {name}" for name, count in self.members["architecture"].value_counts().items())

    def control(self, finding: str) -> str:
        """What the controls say of a finding, in words."""
        parts = []
        for kind, words in (("untrained", "untrained"), ("otherwise", "trained control")):
            rows = self.table[(self.table["kind"] == kind) & (self.table["n"] > 0)]
            if finding in set(rows["finding"]):
                share = self.share(finding, kind=kind)
                parts.append(f"{words} {share.correct:,} of {share.n:,}")
        return ", ".join(parts) or "no control for which it makes sense"

    def circuits(self) -> pd.DataFrame:
        """One row per distinct smallest circuit of each kind, the most frequent first: ``carry``, ``circuit``, its
        number of ``edges``, how many ``members`` have it and of how many ``architectures`` they are."""
        frames = []
        for kind, name in CIRCUITS.items():
            groups = self.members[self.members[name] != ""].groupby(name)["architecture"]
            found = groups.agg(members="size", architectures="nunique").reset_index(names="circuit")
            frames.append(found.assign(carry=kind.partition(" ")[0], edges=found["circuit"].str.count(", ") + 1))
        columns = ["carry", "circuit", "edges", "members", "architectures"]
        return pd.concat(frames)[columns].sort_values(["carry", "members"], ascending=[True, False], ignore_index=True)

    def sentence(self) -> str:
        said = [f"{name}: {self.verdict(name)} ({self.control(name)})" for name in self.table["finding"].unique()]
        return f"{len(self.members):,} adders ({self.by_architecture()}). {'; '.join(said)}."


def decided(
    members: pd.DataFrame, controls: pd.DataFrame, provenance: Provenance, otherwise: pd.DataFrame | None = None
) -> Population:
    """Decide all findings from the readings of members and controls."""
    rows, kinds = [], {"trained": members, "untrained": controls}
    if otherwise is not None and len(otherwise):
        kinds["otherwise"] = otherwise
    for finding in FINDINGS:
        for kind, frame in kinds.items():
            for architecture in ("all", *frame["architecture"].unique()):
                chosen = frame if architecture == "all" else frame[frame["architecture"] == architecture]
                each = [finding.holds(row) for row in chosen.to_dict("records")]  # pyright: ignore[reportArgumentType]
                known = [one for one in each if one is not None]
                rate = Rate(len(known), sum(known))
                low, high = rate.interval if known else (math.nan, math.nan)
                names = {"finding": finding.name, "architecture": architecture, "kind": kind}
                rows.append(names | {"k": rate.correct, "n": rate.n, "low": low, "high": high})
    none = members.iloc[:0]
    return Population(members, controls, pd.DataFrame(rows), provenance, none if otherwise is None else otherwise)


@probe("What do many adders have in common?", needs=[task_of(FixedWidthAddition), columns(3)])
def population(
    models: Sequence[HookedModel],
    *,
    names: Sequence[str] | None = None,
    otherwise: Sequence[HookedModel] = (),
    task: Task | None = None,
    n: int = 1000,
    seed: int = 0,
) -> Population:
    """Decide every finding for every model and for an untrained copy of each.

    Args:
        models: two or more ten-digit adders with hooks.
        names: what to call them, default their own names. A member's architecture is its model's name.
        otherwise: trained models of the same task that are known to work otherwise, as a control that can fail.
        task: what their tokens mean, for models that do not name their task.
        n: problems per probe, by default 1,000, as there are many models and probes (a quarter for the algorithm).
        seed: draws problems; each untrained copy is drawn with another seed, counting from this one.

    Cost: some 5 s per adder with one core.

    Raises:
        UserError: fewer than two models, a wrong number of names, or a model that does not add ten-digit numbers.
    """
    models = list(models)
    called = [model_name(model) for model in models] if names is None else [str(name) for name in names]
    if len(models) < 2 or len(called) != len(models):
        raise UserError(
            f"A population is two models or more with a name each, not {len(models)} and {len(called)}; the probes "
            "themselves say what is true of one."
        )
    rows: tuple[list[dict[str, Any]], ...] = ([], [], [])
    others = [(model, model_name(model)) for model in otherwise]
    for draw, (model, name) in enumerate((*zip(models, called, strict=True), *others)):
        require_evaluation_mode(model)
        own = resolve_task(model, task)
        if not isinstance(own, FixedWidthAddition):
            raise UserError(f"{name} does not add ten-digit numbers; the findings are about models that do.")
        member = draw < len(models)
        subjects = (rows[0], model), (rows[1], untrained_twin(model, own, seed + draw))
        for kept, subject in subjects if member else [(rows[2], model)]:
            kept.append({"name": name, "architecture": model_name(model)} | readings(subject, own, n, seed))
    frames = [pd.DataFrame(each) for each in rows]
    return decided(frames[0], frames[1], Provenance(n, seed, "problems a model"), frames[2])
