"""Position Coupling's figures from scratch: train what is missing, evaluate, draw, and continue where it stopped.

    python -m studies reproduce position-coupling:fig1 --size small

Every model of the figure's table (:data:`models.families.position_coupling_variants.FIGURES`) is trained with its
recipe, in one run folder per seed, so that figures share models and more seeds can be added later. Grids are stored
cell by cell next to the runs.

A stored result can be extended by seeds or models (``--extend``); its grids are kept, and their weights are not needed.

If one seed is asked for, the small models of the zoo are used as they are. A stored model is the best of several seeds,
so medians over seeds never contain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import models
from interp.core.sections import Section
from models.errors import UserError, unknown_name
from models.families.position_coupling import CouplingVariant
from models.families.position_coupling_variants import FIGURES
from models.registry import recipe_of
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.training.devices import resolve_device
from studies.position_coupling.cost import duration, training_seconds
from studies.position_coupling.exact_match_grid import PAPER_GRID, exact_match_grid, rectangle
from studies.position_coupling.grid_cells import Offsets
from studies.position_coupling.grid_panels import ExactMatchGrid, GridPanel, GridPanels
from studies.runs.study import Made, Settings, shows, study
from studies.runs.training_runs import OutOfTime, TrainingRun

PAPER = "position-coupling"
LONG = 6 * 3600.0  # a longer training, in seconds, is not started on a CPU without ``yes``
PROBLEMS = {"small": 200, "paper": 1000}  # default number of problems by size
HEAD = ("panel", "model", "seeds", "problems", "in the training range", "outside")
NOTE = "Exact match of whole responses, mean over sizes. The data have the counts of every size."


@dataclass(frozen=True)
class Source:
    """Where the weights of one panel and seed come from, and its grid; ``seed=None``: the zoo."""

    settings: Settings
    variant: CouplingVariant
    seed: int | None

    def __str__(self) -> str:
        name = self.variant.name
        return f"the stored {name}" if self.seed is None else f"{name}, seed {self.seed}"

    @property
    def label(self) -> str:
        return "zoo" if self.seed is None else f"seed-{self.seed}"

    @property
    def folder(self) -> Path:
        return self.settings.out / PAPER / self.variant.name

    @property
    def problems(self) -> int:
        return self.settings.problems or PROBLEMS[self.settings.size]

    @property
    def grid_file(self) -> Path:
        words = [self.label, self.settings.offsets, "n", str(self.problems)]
        return self.folder / "grids" / ("-".join(" ".join(words).replace(",", " ").split()) + ".jsonl")

    @property
    def run(self) -> TrainingRun:
        name, seed = self.variant.name, 0 if self.seed is None else self.seed
        return TrainingRun(
            name, recipe_of(name), self.folder / self.label, seed, compile=None, progress=self.settings.progress
        )

    @property
    def chosen_among(self) -> int:
        """The number of seeds among which this one was chosen by its score."""
        return 1 if self.seed is not None else models.zoo.read_entry(self.variant.name)["training"]["seeds_tried"]

    def seconds_left(self) -> float:
        """Roughly how many seconds of training are left."""
        run = self.run
        if self.seed is None or run.has(run.recipe.steps):
            return 0.0
        done, seconds = run.seconds_trained()
        if done >= 20:
            return seconds * (run.recipe.steps / done - 1)
        return training_seconds(self.variant, run.recipe, resolve_device(self.settings.device).type)

    def model(self) -> Any:
        """The model after the last step, trained as far as needed. Raises OutOfTime if it is not finished."""
        run, steps = self.run, self.run.recipe.steps
        if self.seed is None:
            return models.load(self.variant.name)
        left = self.settings.minutes_left()
        if left == 0 and not run.has(steps):
            raise OutOfTime
        run.train_to(steps, self.settings.device, left)
        return run.model_at(steps)

    def grid(self, largest: tuple[int, ...]) -> ExactMatchGrid:
        """The evaluated grid. Raises OutOfTime; each cell is stored at once, so that nothing is lost."""
        settings = self.settings
        model = self.model()
        if settings.cluster is None:  # otherwise its machines have the devices
            model = model.to(resolve_device(settings.device))
        assert isinstance(model.task, SequenceTask)
        shapes = rectangle(model.task, largest)
        how = {"offsets": settings.offsets, "store": self.grid_file, "cluster": settings.cluster}
        evaluate = partial(exact_match_grid, model, n=self.problems, **how)
        if settings.minutes is not None:
            step = len(shapes) // 10 + 1
            for start in range(0, len(shapes), step):
                if settings.minutes_left() == 0:
                    raise OutOfTime
                evaluate(shapes=shapes[start : start + step], progress=False)
        return evaluate(shapes=shapes, progress=settings.progress)


def sources_of(name: str, settings: Settings) -> dict[str, list[Source]]:
    """The sources of each panel of a figure; by default one seed per model."""
    figure, seeds, found = FIGURES[name], settings.seeds or 1, {}
    choose = seeds == 1 and settings.size == "small" and settings.extend is None
    for label, variant in dict(figure.small if settings.size == "small" else figure.paper).items():
        stored = choose and variant.name in models.zoo_names()
        found[label] = [Source(settings, variant, seed) for seed in ([None] if stored else range(seeds))]
    return found


def largest_of(sources: dict[str, list[Source]]) -> tuple[int, ...]:
    """The sizes of every panel: as far as the tables of the largest model reach, but at most the paper's."""
    variants = [several[0].variant for several in sources.values()]
    cap = PAPER_GRID[variants[0].make_task().name]
    sizes = zip(*(variant.largest_shape for variant in variants), strict=True)
    return tuple(min(max(each), most) for each, most in zip(sizes, cap, strict=True))


def kept_grids(sources: dict[str, list[Source]], settings: Settings) -> dict[str, list[ExactMatchGrid]]:
    """The grids of seeds 0, 1, ... that the result ``settings.extend`` has of each panel; no weights are needed.

    Raises:
        UserError: no such result, panels of another figure, of a chosen seed, of more seeds, or of other problems.
    """
    panels = () if settings.extend is None else GridPanels.load(settings.extend).panels
    found: dict[str, list[ExactMatchGrid]] = {label: [] for label in sources}
    for panel in panels:
        if panel.label not in sources:
            raise unknown_name("panel", panel.label, sources)
        if panel.chosen_among > 1:
            raise UserError(f"{settings.extend}: {panel.label!r} is of {panel.seeds_text}; a median cannot contain it.")
        if (n := len(panel.grids)) > len(sources[panel.label]):
            raise UserError(f"{settings.extend}: {panel.label!r} has {n} seeds; ask for --seeds {n} or more.")
        source = sources[panel.label][0]
        levels = len(source.variant.position_limits)
        offsets = str(Offsets.parse(settings.offsets, levels) if levels else Offsets(()))
        asked = (source.variant.name, source.problems, offsets)
        for grid in panel.grids:
            if (had := (grid.model, grid.about["requested"], grid.about["offsets"])) != asked:
                raise UserError(
                    f"{settings.extend}: {panel.label!r} has {_counted(had)}, and {_counted(asked)} is asked for."
                )
        found[panel.label] = list(panel.grids)
    return found


def _counted(what: tuple[str, int, str]) -> str:
    return "{} with {:,} problems a size ({})".format(*what)


def _left(sources: dict[str, list[Source]]) -> tuple[float, str]:
    """(seconds of training left, the runs left in words); a model in two panels counts once."""
    seconds = {each.grid_file: each.seconds_left() for several in sources.values() for each in several}
    runs, total = sum(value > 0 for value in seconds.values()), sum(seconds.values())
    said = f"{runs} of {len(seconds)} runs left to train, roughly {duration(total)}."
    return total, said if runs else "nothing left to train."


def reproduce(name: str, settings: Settings) -> Made | None:
    """Make one figure from scratch; returns the panels that are complete, or None if there are none.

    Raises:
        UserError: another size, days of work on a CPU without ``yes``, a folder with other runs.
    """
    if settings.size not in PROBLEMS:
        raise unknown_name("size", settings.size, PROBLEMS)
    figure, sources, say = FIGURES[name], sources_of(name, settings), settings.say
    variant = next(iter(sources.values()))[0].variant
    Offsets.parse(settings.offsets, max(1, len(variant.position_limits)))
    kept = kept_grids(sources, settings)
    missing = {label: several[len(kept[label]) :] for label, several in sources.items()}
    seconds, left = _left(missing)
    say(f"{PAPER} {name}, {settings.size}: {figure.title}; {len(sources)} models, {left}")
    if seconds > LONG and resolve_device(settings.device).type == "cpu" and not settings.yes:
        raise UserError(
            f"Training {name} at the {settings.size} size takes about {duration(seconds)} on this CPU; "
            "use --size small, a GPU (--device cuda), or --yes to start anyway."
        )
    panels: list[GridPanel] = []
    if n := sum(map(len, kept.values())):
        say(f"Grids kept from {settings.extend}: {n}.")
    for label, several in sources.items():
        grids = kept[label]
        try:
            for source in missing[label]:
                say(f"{label}: {source}")
                grids.append(source.grid(largest_of(sources)))
        except OutOfTime:
            continue  # later panels may be complete
        panels.append(GridPanel(label, tuple(grids), max(source.chosen_among for source in several)))
    say(f"{len(panels)} of {len(sources)} panels")
    if len(panels) < len(sources):
        say(f"Not finished: {_left(missing)[1]} The same command goes on.")
    if not panels:
        return None
    found = GridPanels(f"{figure.title} ({PAPER} {name}, {settings.size})", tuple(panels), len(sources))
    return Made(found.to_dict(), found.title, options=f"--size {settings.size}")


def show_panels(data: Any) -> list[Section]:
    """The figure over a table of means."""
    panels = GridPanels.from_dict(data)
    rows = [
        (panel.label, panel.grids[0].model, panel.seeds_text, sum(grid.provenance.n for grid in panel.grids), *means)
        for panel, means in zip(panels.panels, panels.means(), strict=True)
    ]
    table = pd.DataFrame(rows, columns=list(HEAD))
    return [Section("", NOTE, [table], [panels.figure()], stretch=panels.is_lines)]


for _name, _figure in FIGURES.items():
    study(f"{PAPER}:{_name}", _figure.title, extends=True)(partial(reproduce, _name))
    shows(f"{PAPER}:{_name}")(show_panels)
