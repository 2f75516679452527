"""Do counterexamples make more seeds provable? ``python -m studies reproduce comparison:counterexamples``

Two experiments, both on ten-digit addition. In each, seeds are trained in arms that differ in one thing: what takes the
place of an eighth of every batch once a seed has been judged and was not certified.

    counterexamples   what the judge gives back: up to 256 wrong problems, or problems of classes that are not proved
    random            as many problems with long carries, drawn at random
    nothing           the batch stays as it is (the second experiment only)

**Ten numbers.** microadder-10 from random starts, the 512 seeds of both earlier attempts, of which 7 are certified. A
judge that waits until all validation problems are right would never be asked about another seed: all that are right
there are certified already. So here every seed that was trained to the end (one in eight) is judged after its BFGS, and
polished again with what comes back: once, and up to three times if it then answered 1% of the validation problems.

**Fifty-seven numbers.** microadder-57 from "opposed neurons" (18,000 steps, no BFGS), the seeds 11,000 to 11,031, which
no earlier run has. The judge is asked when a seed answers all validation problems, as by ``until="certified"``.

**Fifty-seven numbers, again.** Written after these 32 seeds: six were certified with counterexamples alone and none
with random problems alone, which is p = 0.031, and 0.0625 corrected for two comparisons. So 64 other seeds, 12,000 to
12,063, in the arms counterexamples and random, are tested once, by the same test. It is a second look at one question,
chosen after the first had fallen short, so its p is doubled; this correction was added after the run.

Written before either was run: the outcome is the number of seeds that are certified with float32 rounding. Two
comparisons are made, counterexamples against random in each experiment, on the same seeds, by the exact sign test of
the seeds in which the arms differ, corrected by Holm. "Counterexamples help" is what is said below 0.05, and that they
do not would need at least ten seeds in which the arms differ. The rest is exploratory. Two hours on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from interp.core.sections import Section
from interp.core.significance import holm, sign_test
from interp.core.stats import clopper_pearson
from interp.proofs.training_judge import Prover
from models.registry import build
from models.training.acceptance import Acceptance
from models.training.bfgs_polish import polished
from models.training.counterexample_problems import trainable
from models.training.loop import train
from models.training.named_recipes import get_recipe
from models.training.run_folder import RunFolder
from models.training.seed_state import SeedState
from models.training.stacked_objective import ParameterLayout
from models.training.ten_digit_problems import AdditionProblems, CarryMix
from models.training.trainer import Trainer
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.runs.study import Made, Settings, shows, study

TARGET, TITLE = "comparison:counterexamples", "Do counterexamples make more seeds provable?"
ARMS = ("counterexamples", "random", "nothing")
TEN, FIFTY_SEVEN = "microadder-10", "microadder-57"
SWEEPS = (("microadder-drawn", 7_000, 256), ("microadder-drawn-again", 8_000, 256))
ROUNDS, HOPEFUL = 3, 0.01  # rounds of polishing, of seeds with this share of the validation problems; others get one
OPPOSED, FIRST, SEEDS = "microadder-opposed-start", 11_000, 32
AGAIN, FIRST_AGAIN, SEEDS_AGAIN = "microadder-57 again", 12_000, 64
LOOKS = 2  # at the 57 numbers

PROVER = Prover(minutes=10)  # so that no verdict ends by time


@dataclass(frozen=True)
class Arm:
    """The judge of one arm: it accepts what the prover accepts, and gives back what the arm says."""

    name: str
    prover: Prover = PROVER
    rarely: bool = True

    @property
    def option(self) -> str:
        return f"{self.prover.option} ({self.name})"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> Acceptance:
        found = self.prover(model, step, seed)
        return replace(found, problems=self.returned(model, found, 10**6 * seed + step))

    def returned(self, model: ArithmeticTransformer, found: Acceptance, seed: int) -> tuple[tuple[int, ...], ...]:
        """The problems that the arm gives back for a verdict."""
        if self.name != "random" or not found.problems:
            return found.problems if self.name == "counterexamples" else ()
        mix = AdditionProblems(digit_curriculum=(), carry_mix=CarryMix(share=1.0, fade_start=10**9, fade_end=10**9 + 1))
        drawn = mix.draw(seed, 0, len(found.problems), torch.device("cpu"))
        return tuple(map(tuple, drawn.tolist()))


# ---- ten numbers


def polished_again(trainer: Trainer, arm: Arm, row: int) -> dict[str, Any]:
    """Judge one seed and polish it with what comes back, some rounds. Returns its row of the table."""
    state: SeedState = trainer.states[row]
    model, settings, theta = build(trainer.name), trainer.recipe.polish, trainer.theta[row]
    assert settings is not None
    layout, state.returned = ParameterLayout(model), []
    rounds = ROUNDS if state.best_exact >= HOPEFUL else 1
    for done in range(rounds + 1):
        layout.load_into(model, theta)
        found = arm(model, done, state.seed)
        if found.accepted or done == rounds:
            break
        state.keep_counterexamples(trainable(model.task, found.problems))
        stream = trainer.make_stream([state.seed], settings.problems)
        batch = stream.batch(settings.drawn_at)

        def loss(flat: torch.Tensor, batch: Any = batch) -> torch.Tensor:
            small = settings.penalty * flat.square().sum()
            return trainer.objective.loss(layout.unflatten(flat[None]), *batch)[0] + small

        theta = polished(loss, theta, settings.iterations, bool(settings.relative))
    row_of = {"experiment": TEN, "arm": arm.name, "seed": state.seed, "before": state.best_exact}
    return row_of | {"certified": found.accepted, "rounds": done, "given back": len(state.returned)}


def ten_numbers(folder: Path, progress: bool) -> list[dict[str, Any]]:
    """One row for each seed that was trained to the end and each arm."""
    rows = []
    for recipe, first, seeds in SWEEPS:
        out = folder / recipe
        train(TEN, out, seeds, first, get_recipe(recipe), progress=progress)
        own = [first + i for i in range(seeds)]
        trainer = Trainer(TEN, get_recipe(recipe), own, RunFolder(out), torch.device("cpu"), False, judge=Arm(ARMS[0]))
        trainer.restore()
        kept = [row for row, state in enumerate(trainer.states) if state.polished]
        for row in tqdm(kept, desc=recipe, disable=not progress):
            for arm in ARMS[:2]:
                rows.append(polished_again(trainer, Arm(arm), row))
    return rows


# ---- fifty-seven numbers


def fifty_seven_numbers(
    folder: Path, experiment: str, first: int, seeds: int, arms: Sequence[str], progress: bool
) -> list[dict[str, Any]]:
    """One row for each seed and each arm."""
    rows = []
    for arm in arms:
        out = folder / f"{first}-{arm}"
        run = train(FIFTY_SEVEN, out, seeds, first, get_recipe(OPPOSED), progress=progress, judge=Arm(arm))
        for state in run.seeds:
            own = {"experiment": experiment, "arm": arm, "seed": state.seed, "before": state.best_exact}
            own |= {"certified": state.accepted is not None, "rounds": state.turned_down}
            rows.append(own | {"given back": len(state.returned), "step": state.stopped_at})
    return rows


# ---- what comes of it


def compared(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each experiment: the seeds certified in one arm only, the sign test's p, and p corrected: by Holm for
    the two experiments that were planned, and doubled for the one that looks again."""
    table, found = pd.DataFrame(rows), []
    for name, own in table.groupby("experiment", sort=True):
        wide = own.pivot(index="seed", columns="arm", values="certified")
        more = int((wide["counterexamples"] & ~wide["random"]).sum())
        fewer = int((~wide["counterexamples"] & wide["random"]).sum())
        p = sign_test(more, fewer)
        counts = {"seeds": len(wide), "only counterexamples": more, "only random": fewer}
        found.append({"experiment": name, **counts, "p": p, "p corrected": min(1.0, LOOKS * p)})
    first = [one for one in found if one["experiment"] != AGAIN]
    for one, p in zip(first, holm([one["p"] for one in first]), strict=True):
        one["p corrected"] = p
    return found


def counted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each experiment and arm: how many seeds were judged at all, and how many are certified, with a 95%
    interval of their share of all seeds. A seed is judged once it answers all validation problems."""
    found = []
    for (name, arm), own in pd.DataFrame(rows).groupby(["experiment", "arm"], sort=True):
        certified, judged = int(own["certified"].sum()), int((own["certified"] | (own["rounds"] > 0)).sum())
        low, high = clopper_pearson(certified, len(own))
        counts = {"seeds": len(own), "judged": judged, "certified": certified, "95% low": low, "95% high": high}
        found.append({"experiment": name, "arm": arm} | counts)
    return found


@study(TARGET, TITLE)
def counterexamples(settings: Settings) -> Made:
    folder = settings.out / "counterexamples"
    show = settings.progress
    rows = fifty_seven_numbers(folder, FIFTY_SEVEN, FIRST, settings.seeds or SEEDS, ARMS, show)
    rows += fifty_seven_numbers(folder, AGAIN, FIRST_AGAIN, settings.seeds or SEEDS_AGAIN, ARMS[:2], show)
    rows += ten_numbers(folder, show)
    return Made({"rows": rows})


def said(one: Mapping[str, Any]) -> str:
    """What one comparison says, by the rule above."""
    more, fewer = one["only counterexamples"], one["only random"]
    if one["p corrected"] < 0.05:
        what = "Counterexamples help" if more > fewer else "Random problems help more than counterexamples"
    else:
        what = (
            "There is no difference" if more + fewer >= 10 else "The seeds in which the arms differ are too few to say"
        )
    return (
        f"{what} ({one['experiment']}, {one['seeds']} seeds): {more} are certified with counterexamples alone and "
        f"{fewer} with random problems alone (p = {one['p']:.3f}, corrected {one['p corrected']:.3f})."
    )


@shows(TARGET)
def show_counterexamples(data: Mapping[str, Any]) -> list[Section]:
    """The comparisons, and how many seeds each arm has judged and certified."""
    text = " ".join(map(said, compared(data["rows"])))
    return [Section(TITLE, text, tables=[pd.DataFrame(counted(data["rows"]))])]
