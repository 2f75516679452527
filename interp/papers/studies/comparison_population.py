"""Dozens of certified adders, and what they have in common: ``interp reproduce comparison:population``.

Members are the zoo's trained ten-digit adders, those that this package keeps from earlier runs, and every seed of a run
folder ``OUT/comparison/population/runs/NAME`` that was perfect on validation. Each is certified with float32 rounding;
only those that are right on all 10^20 pairs count, and the page says how many were tried. The study's data keep the
parameters of all, so that the command can judge the same seeds again without the runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

import models
from interp.compare.classes import SolutionClasses, solution_classes
from interp.compare.population import FINDINGS, Population, population
from interp.core.as_json import decode, encode
from interp.core.sections import Section
from interp.core.stored_data import DATA
from interp.core.thresholds import ONE_CLASS
from interp.papers.studies import Made, Settings, shows, study
from interp.proofs import certify
from models.checkpoint import read_json, write_json_atomic
from models.errors import UserError
from models.numerals import shown
from models.tasks.addition import FixedWidthAddition
from models.training.load_run import model_of
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder
from models.zoo import read_entry

TARGET = "comparison:population"
STORED = DATA / "experiments" / "comparison-population.json"
CIRCUITS = """A carry is made by the previous column, or passed on by it. For each kind, the smallest set of edges of
the residual stream that brings 90% of the right answers and of the logit difference back, found on 64 pairs of problems
that differ in that carry. All subsets were tried, or where there are too many, edges were taken away one by one. Heads
have no order, so that circuits which differ in it count as one."""
PROBLEMS = 1000
MINUTES = 1.0  # time limit for one proof; a seed that is not proved by then does not count
ZOO = "zoo"
OTHERWISE = ("addlm-adder-ten-digit",)  # trained to add ten digits by another architecture: it may add otherwise


@dataclass(frozen=True)
class Candidate:
    """One seed's parameters, before anything is proved about it."""

    model: str
    seed: int
    origin: str
    theta: Float[Tensor, " parameter"]

    @property
    def key(self) -> str:
        return hashlib.sha256(self.model.encode() + self.theta.numpy().tobytes()).hexdigest()[:16]

    @property
    def name(self) -> str:
        where = "" if self.origin in (ZOO, self.model) else f" ({self.origin})"
        return f"{self.model} seed {self.seed}{where}"

    def build(self) -> models.ArithmeticTransformer:
        return model_of(self.model, self.theta)


def candidates(runs: Path) -> Iterator[Candidate]:
    """Yield candidates from the zoo, from parameters kept before, and from run folders, in this order."""
    for name in models.zoo_names():
        model = models.load(name)
        if isinstance(model.task, FixedWidthAddition) and model.config.n_layers == 1:
            made = read_entry(name)["training"]
            yield Candidate(name, made["seed"], ZOO, ParameterLayout(model).flatten(model).detach())
    kept = read_json(STORED) if STORED.is_file() else {"members": [], "others": []}
    for row in (row for row in (*kept["members"], *kept["others"]) if row["origin"] != ZOO):
        yield Candidate(row["model"], row["seed"], row["origin"], torch.tensor(row["theta"]))
    for folder in sorted(path.parent for path in runs.glob("*/checkpoint.json")):
        loaded, name = RunFolder(folder).load_checkpoint(), read_json(folder / "config.json")["model"]
        assert loaded is not None  # there is a checkpoint
        for seed, theta in zip(loaded.state["seeds"], loaded.tensors["best_theta"], strict=True):
            if seed["best_exact"] == 1.0:
                yield Candidate(name, seed["seed"], folder.name, theta)


def judged(candidate: Candidate) -> dict[str, Any]:
    """The row of a candidate's verdict."""
    row: dict[str, Any] = {"key": candidate.key, "name": candidate.name}
    row |= {"model": candidate.model, "seed": candidate.seed, "origin": candidate.origin}
    try:
        found = certify(candidate.build(), arithmetic="float32", width=None, minutes=MINUTES)
    except UserError as refused:
        return row | {"status": "undecided", "verdict": str(refused)}
    row |= {"status": found.status, "verdict": found.sentence().partition("   (")[0]}
    if found.status != "certified":
        return row
    return row | {"bound": float(found.classes.proved.min()), "smallest": float(found.smallest_margin)}


def stored_members() -> list[tuple[str, models.ArithmeticTransformer]]:
    """(name, model) of every certified member that is stored."""
    return [(row["name"], model_of(row["model"], row["theta"])) for row in read_json(STORED)["members"]]


@study(TARGET, "What certified adders have in common")
def common(settings: Settings) -> Made | None:
    """Some 5 s for each candidate's proof and 10 s for its questions, and up to a second for each pair's distance."""
    folder = settings.out / "comparison" / "population"
    kept = read_json(folder / "judged.json") if (folder / "judged.json").is_file() else {}
    rows = []
    for candidate in candidates(folder / "runs"):
        if candidate.key in {row["key"] for row in rows}:
            continue
        if candidate.key not in kept:
            if settings.minutes_left() == 0:
                settings.say(f"stopped before {candidate.name}; the same command goes on")
                return None
            kept[candidate.key] = judged(candidate)
            settings.say(f"{candidate.name}: {kept[candidate.key]['status']}")
            folder.mkdir(parents=True, exist_ok=True)
            write_json_atomic(folder / "judged.json", kept)
        theta = [float(f"{x:.9g}") for x in candidate.theta.tolist()]  # as many digits as float32 has
        rows.append(kept[candidate.key] | {"theta": theta})
    members = [row for row in rows if row["status"] == "certified"]
    models_ = [model_of(row["model"], row["theta"]) for row in members]
    otherwise = [models.load(name) for name in OTHERWISE]
    called, n = [row["name"] for row in members], settings.problems or PROBLEMS
    found = population(models_, names=called, otherwise=otherwise, n=n)
    settings.say(found.sentence())
    return Made(
        {
            "members": members,
            "others": [row for row in rows if row["status"] != "certified"],
            "population": encode(found),
            "classes": {name: encode(each) for name, each in families(members, settings)},
        }
    )


def families(members: list[dict[str, Any]], settings: Settings) -> Iterator[tuple[str, SolutionClasses]]:
    """Yield the classes of each architecture with two or more members and known symmetries."""
    for name in dict.fromkeys(row["model"] for row in members):
        own = [row for row in members if row["model"] == name]
        if len(own) > 1:
            settings.say(f"distances of {len(own)} members of {name}")
            seeds = [row["seed"] for row in own]
            twice = len(set(seeds)) < len(seeds)
            called = [f"seed {row['seed']}" + (f" ({row['origin']})" if twice else "") for row in own]
            try:
                yield name, solution_classes([model_of(name, row["theta"]) for row in own], names=called)
            except UserError as refused:
                settings.say(f"no distances: {refused}")


@shows(TARGET)
def show_population(data: Any) -> list[Section]:
    found: Population = decode(Population, data["population"])
    members = pd.DataFrame(data["members"]).drop(columns="theta")
    tried = pd.concat((members, pd.DataFrame(data["others"])))
    by = [
        {
            "architecture": name,
            "parameters": len(data["members"][rows.index[0]]["theta"]),
            "tried": int((tried["model"] == name).sum()),
            "certified": len(rows),
            "smallest margin": float(rows["smallest"].min()),
            "largest margin": float(rows["smallest"].max()),
            "proved above": shown(float(rows["bound"].min())),
        }
        for name, rows in members.groupby("model", sort=False)
    ]
    who = (
        f"{len(members)} adders of {len(by)} architectures answer all 10^20 pairs rightly, with float32 rounding "
        f"(certified); {len(tried) - len(members)} other seeds that were kept were refuted or left "
        "undecided and do not count. A margin is the smallest lead of a right token that was found, in logits."
    )
    said = pd.DataFrame(
        {
            "finding": finding.name,
            "in words": finding.words,
            "said by": finding.source,
            "holds for": found.verdict(finding.name),
            "control": found.control(finding.name),
        }
        for finding in FINDINGS
    )
    trained = found.table[found.table["kind"] == "trained"]
    trained = trained.assign(share=trained["k"].astype(str) + " of " + trained["n"].astype(str))
    apart = trained.pivot(index="architecture", columns="finding", values="share")
    apart = apart.loc[list(trained["architecture"].unique()), [finding.name for finding in FINDINGS]].reset_index()
    classes = [decode(SolutionClasses, each) for each in data["classes"].values()]
    near = pd.DataFrame([each.summary() for each in classes])
    same = (
        "Distances of parameters with exact symmetries taken out (0 equal, 1 orthogonal). Members that a chain of "
        f"distances below {ONE_CLASS:g} times that of the closest untrained pair connects are of one class; the rule "
        "was fixed before any distance was seen. Architectures whose symmetries are not known here are left out."
    )
    return [
        Section("Who they are", who, (pd.DataFrame(by),)),
        Section("Which findings hold", found.sentence(), (said,), (found.figure(),)),
        Section("By architecture", "Members for which each finding holds.", (apart,), level=3),
        Section("Which circuits", CIRCUITS, (found.circuits(),)),
        Section("How many classes", same, (near,), (max(classes, key=lambda each: len(each.names)).figure(),)),
    ]
