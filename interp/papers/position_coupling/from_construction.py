"""Training that begins at the construction: does it stay? ``position-coupling:from-construction``."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.sections import Section
from interp.figures import theme
from interp.papers.position_coupling.keys import draw_coupled, resolve_coupled_task
from interp.papers.position_coupling.squares import SQUARES, N, right_at, squares_sections
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.sweeps import Arm, folder_of, train_arm
from models.hand_built.free_addition import WIDTHS, at_construction, constructed, name_of
from models.registry import build, recipe_of
from models.training.load_run import model_of
from models.training.run_folder import RunFolder
from models.training.start import Start
from models.transformer import ArithmeticTransformer

TARGET = "position-coupling:from-construction"
SEEDS = 4
STAYS = 0.9  # the share of the largest sums that the median seed of an arm that stays answers
UNTRAINED = "the construction, untrained"
#: Seeds that begin at random are the control: the same decoder, recipe and problems.
RANDOM_WIDTHS = (41,)
TEXT = """The decoder of Theorem 4.1 (one layer, four heads, no norms, 44 ReLUs) has all its weights free here. Training
begins where they compute the construction for sums up to 30 x 30, in a residual stream of its own 41 dimensions or of
more; what the further ones hold is not read at the start. The recipe is that of the small decoders: sums of two to four
numbers of one to four digits, 2,500 steps of 128 problems, Adam at a learning rate of 0.001 with a cosine, ids that
start anywhere. It is computed in float32. Seeds differ in their problems. The control begins at random weights, in 41
dimensions.

An arm "stays" if its median seed answers at least 90% of the problems of 30 x 30 after the training. This rule was
written before any number was seen: {stays}. It looks at one size alone, and the figure has the others.

Each seed answers {n} problems of T_A for each square, teacher-forced, with ids from 1 on."""
MOVED = """Distance is that of all parameters from the start, over the start's length. The change of a head's pattern is
the share of its attention that lies on other keys than the construction's: half the summed difference of the two
patterns, mean over all queries of 32 problems of 4 x 4. It is given where a seed begins at the construction."""


def arm_of(width: int, random: bool) -> Arm:
    """One width, and where its seeds begin."""
    name = name_of(width)
    label = f"d = {width}, from {'random weights' if random else 'the construction'}"
    recipe, folder = recipe_of(name), f"{name}/{'random' if random else 'construction'}"
    if random:
        return Arm(label, name, recipe, folder, paper="position-coupling")
    parameters = dict(at_construction(width).named_parameters())
    start = Start(parameters, "the construction of Theorem 4.1", f"interp reproduce {TARGET}", noise=0.0)
    return Arm(label, name, recipe, folder, start, paper="position-coupling")


def seeds_of(arm: Arm, settings: Settings) -> Iterator[tuple[int, ArithmeticTransformer]]:
    """The models of a run as they were after its last step."""
    loaded = RunFolder(folder_of(settings, arm)).load_checkpoint()
    assert loaded is not None
    for theta, seed in zip(loaded.tensors["theta"], loaded.state["seeds"], strict=True):
        yield seed["seed"], model_of(arm.model, theta)


@study(TARGET, "Does training that begins at the construction stay there?")
def from_construction(settings: Settings) -> Made | None:
    """Four seeds of three widths, and of one from random weights. Cost: a minute or two per seed on an idle core."""
    n, seeds = settings.problems or N, settings.seeds or SEEDS
    arms = [arm_of(width, False) for width in WIDTHS] + [arm_of(width, True) for width in RANDOM_WIDTHS]
    built = constructed(WIDTHS[0])
    task = resolve_coupled_task(built, None)
    rows = [{"arm": UNTRAINED, "seed": 0} | right_at(built, task, size, n) for size in SQUARES]
    moved: list[dict[str, Any]] = []
    for arm in arms:
        if not train_arm(settings, arm, seeds):
            return None
        for seed, model in seeds_of(arm, settings):
            rows += [{"arm": arm.label, "seed": seed} | right_at(model, task, size, n) for size in SQUARES]
            moved.append({"arm": arm.label, "seed": seed} | _moved(arm, seed, model))
    return Made({"rows": rows, "moved": moved, "n": n, "trained": task.n_operands})


def _moved(arm: Arm, seed: int, model: ArithmeticTransformer) -> dict[str, Any]:
    start = build(arm.model, seed=seed) if arm.start is None else constructed(model.config.d_model)
    before, after = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (start, model))
    distance = float((after - before).norm() / before.norm())
    return {"distance": distance, "pattern": None if arm.start is None else pattern_changes(start, model).tolist()}


def pattern_changes(first: ArithmeticTransformer, second: ArithmeticTransformer) -> Float[Tensor, " head"]:
    """Half the summed difference of two models' patterns, head by head: 0 for equal patterns, 1 for disjoint ones."""
    task = resolve_coupled_task(first, None)
    tokens = task.encode(draw_coupled(task, None, 32, 0).problems)
    one, other = (model.run_with_cache(tokens)[1]["pattern", 0] for model in (first, second))
    return ((one - other).abs().sum(-1) / 2).mean((0, 2))


def _stays(data: Any) -> str:
    """Which trained arms stay by the rule, in words."""
    right: dict[str, list[int]] = {}
    for row in data["rows"]:
        if row["size"] == SQUARES[-1] and row["arm"] != UNTRAINED:
            right.setdefault(row["arm"], []).append(row["right"])
    return "; ".join(
        f"{arm} {'stays' if median(counts) >= STAYS * data['n'] else 'does not stay'}" for arm, counts in right.items()
    )


@shows(TARGET)
def show_from_construction(data: Any) -> list[Section]:
    note = "Thick lines are medians over seeds, thin ones are seeds"
    colours = (theme.BLACK, theme.BLUE, theme.SKY, theme.GREEN, theme.GREY)
    sections = squares_sections(data, TEXT.format(n=data["n"], stays=_stays(data)), note, colours)
    lines = []
    for row in data["moved"]:
        heads = row["pattern"] or []
        changes = {f"head {i + 1}: change of pattern": f"{change:.3f}" for i, change in enumerate(heads)}
        lines.append({"arm": row["arm"], "seed": row["seed"], "distance": f"{row['distance']:.3f}"} | changes)
    return [*sections, Section("How far the weights moved", MOVED, [pd.DataFrame(lines).fillna("")])]
