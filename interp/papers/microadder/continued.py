"""Below 57 parameters from the trained 57 itself: ``interp reproduce microadder:continued``.

Every step of :data:`models.microadder_continued.CONTINUED` starts from the previous model, carried over to its own
parameters (:mod:`models.microadder_fit`). A step that already answers all of AdderBoard needs no training. The others
train a few seeds around that start, and the next step starts from the seed that was first perfect on validation.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

import models
from interp.core.sections import records
from interp.papers.studies import Made, Settings, study
from interp.papers.studies.sweeps import Arm, folder_of, read_arm, sweep_made, train_arm
from interp.probes.stress import stress_suites
from models.microadder import MicroAdderWeights
from models.microadder_continued import CONTINUE, CONTINUED, SMALLEST, TRIED, Step
from models.microadder_fit import carried_over
from models.microadder_ladder import SEARCH
from models.registry import build
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder
from models.training.start import Start

SEEDS = 8
RANDOM_START = "the smallest, random start"
RANDOM_SEEDS = 128  # of the smallest model, from random starts, for comparison


def carry_over(parent: MicroAdderWeights, step: Step) -> tuple[models.ArithmeticTransformer, int]:
    """The step's model before any training, and how many of AdderBoard's problems it answers."""
    model = build(step.name)
    with torch.no_grad():
        model.weight_map.load_state_dict(carried_over(parent, step.options))
    return model, models.score(model).correct


def first_perfect(folder: Path, model: models.ArithmeticTransformer) -> MicroAdderWeights | None:
    """The weights of the seed that was first perfect on validation, chosen without AdderBoard."""
    loaded = RunFolder(folder).load_checkpoint()
    assert loaded is not None
    rows = [
        (seed["first_perfect_step"], i) for i, seed in enumerate(loaded.state["seeds"]) if seed["best_exact"] == 1.0
    ]
    if not rows:
        return None
    found = copy.deepcopy(model)
    ParameterLayout(found).load_into(found, loaded.tensors["best_theta"][min(rows)[1]])
    return weights_of(found)


def weights_of(model: models.ArithmeticTransformer) -> MicroAdderWeights:
    assert isinstance(model.weight_map, MicroAdderWeights)
    return model.weight_map


def _arm(settings: Settings, step: Step, model: models.ArithmeticTransformer) -> Arm:
    start = Start(
        dict(model.weight_map.named_parameters()),
        f"{step.before}, carried over",
        "interp reproduce microadder:continued",
    )
    return Arm(step.what, step.name, CONTINUE, f"continued/{step.name}", start)


@study("microadder:continued", "Below 57 parameters from the trained 57 itself, one step after the other")
def continued(settings: Settings) -> Made | None:
    """Eight seeds per step, a few minutes each."""
    seeds = settings.seeds or SEEDS
    here = {CONTINUED[0].before: weights_of(models.load(CONTINUED[0].before))}
    solved = {CONTINUED[0].before}  # models that answer all of AdderBoard
    rows: list[dict[str, Any]] = []
    sweeps: list[dict[str, Any]] = []
    for step in (*CONTINUED, *TRIED):
        if step.before not in here:
            continue
        model, right = carry_over(here[step.before], step)
        row: dict[str, Any] = {"parameters": step.n_parameters, "step": step.what, "from": step.before}
        row |= {"right before training": f"{right:,} of 10,010", "after": "not trained", "grokked": "–"}
        rows.append(row)
        if right == 10_010:
            here[step.name] = weights_of(model)
            solved.add(step.name)
            continue
        arm = _arm(settings, step, model)
        if not train_arm(settings, arm, seeds):
            break
        sweep = read_arm(folder_of(settings, arm), arm)
        sweeps.append(sweep)
        row["after"] = f"best exact match {max(sweep['best_exact']):.3f}"
        row["grokked"] = f"{sum(n == sweep['n_test'] for n in sweep['on_test'])} of {len(sweep['seeds'])}"
        best = first_perfect(folder_of(settings, arm), model)
        if best is not None:
            here[step.name] = best
            model.weight_map.load_state_dict(best.state_dict())
            right = models.score(model).correct
            row["after"] = f"{right:,} of 10,010"
            if right == 10_010:
                solved.add(step.name)
    if len(rows) == len(CONTINUED) + len(TRIED):
        arm = Arm(RANDOM_START, SMALLEST.name, SEARCH, "continued/random-start")
        if train_arm(settings, arm, settings.seeds or RANDOM_SEEDS):
            sweeps.append(read_arm(folder_of(settings, arm), arm))
    smallest = min(solved, key=lambda name: sum(p.numel() for p in here[name].parameters()))
    model = build(smallest)
    model.weight_map.load_state_dict(here[smallest].state_dict())
    stress = stress_suites(model, n=settings.problems or 20_000)
    parameters = sum(p.numel() for p in model.parameters())
    text = (
        f"Of these models, continued from the trained 57, the one with the fewest free parameters that answers all of "
        f"AdderBoard has {parameters} (sampled: 10,010 "
        f"problems). {stress.sentence()} Numbers that are not free are constants in the code, as MicroAdder's own "
        "frozen spiral is: parameters are counted as the paper counts them.\n\nA step that answers everything as it is "
        "was not trained: the numbers that it leaves out did not count. Seeds of one step begin near one model and are "
        "no independent ones."
    )
    if any(sweep["label"] == RANDOM_START for sweep in sweeps):
        text += " Random starts of the smallest model are given up below 35% token accuracy at step 10,000."
    more = {"steps": rows, "smallest": parameters, "stress": records(stress.to_dataframe())}
    return sweep_made(settings, "continued", "Below 57 parameters, by continuation", sweeps, text, **more)
