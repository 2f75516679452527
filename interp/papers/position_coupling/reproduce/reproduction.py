"""Figures of a paper from nothing: train what is missing, evaluate, draw; and go on where it stopped.

    interp reproduce position-coupling:fig1 --size small

Every model of the figure's table (:data:`models.position_coupling_figures.FIGURES`) is trained with its recipe, one run
folder a seed, so that figures share models and more seeds can be added later. Grids are stored cell by cell beside the
runs.

The small models of the zoo are used as they are where one seed is asked for. A stored model is the best of several
seeds, so medians over seeds never contain it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import models
from interp.core.sections import Page
from interp.papers.position_coupling.reproduce.cost import duration, training_seconds
from interp.papers.position_coupling.reproduce.page import figure_page
from interp.probes.heatmaps.cells import Offsets
from interp.probes.heatmaps.grid import PAPER_GRID, exact_match_grid, rectangle
from interp.probes.scored import GridPanel, GridPanels, Scores
from models.checkpoint import read_json
from models.errors import UserError
from models.position_coupling import Variant
from models.position_coupling_figures import FIGURES, PaperFigure
from models.registry import get_spec
from models.tasks.sequences import SequenceTask
from models.training import train
from models.training.loop import resolve_device
from models.training.objective import ParameterLayout
from models.training.recipes import Recipe, get_recipe
from models.training.run_folder import RunFolder

PAPER = "position-coupling"
LONG = 6 * 3600.0  # seconds of training that are not started on a CPU without being told twice
Size = Literal["small", "paper"]


@dataclass(frozen=True)
class Reproduction:
    """One figure in one size, and how to get it.

    ``minutes`` bounds the work of one call of :meth:`run`; ``n`` problems a size (200 in small, 1,000 as in the paper).
    """

    name: str
    size: Size = "small"
    seeds: int = 1
    n: int | None = None
    offsets: str = "start 1"
    out: Path = Path("runs/reproduce")
    device: str = "auto"
    minutes: float | None = None
    yes: bool = False
    say: Callable[[str], None] = print
    progress: bool = True

    @property
    def variants(self) -> dict[str, Variant]:
        figure = FIGURES[self.name]
        return dict(figure.small if self.size == "small" else figure.paper)

    @property
    def problems(self) -> int:
        return self.n or (200 if self.size == "small" else 1000)

    @property
    def largest(self) -> tuple[int, ...]:
        """The sizes of every panel: as far as the tables of the largest model reach, and at most the paper's."""
        shapes = [variant.largest_shape for variant in self.variants.values()]
        cap = PAPER_GRID[next(iter(self.variants.values())).make_task().name]
        return tuple(min(max(sizes), most) for sizes, most in zip(zip(*shapes, strict=True), cap, strict=True))

    # ---- the work

    def run(self) -> Page | None:
        """Train, evaluate and draw what is missing; returns a page of the panels that are complete, if any is.

        Raises:
            UserError: bad numbers, days of work on a CPU without ``yes``, a folder with other runs.
        """
        figure = FIGURES[self.name]
        if self.seeds < 1 or self.problems < 1:
            raise UserError("--seeds and --problems must be at least 1.")
        some = next(iter(self.variants.values()))
        Offsets.parse(self.offsets, max(1, len(some.position_limits)))
        self._announce(self.name, figure)
        deadline = None if self.minutes is None else time.monotonic() + 60 * self.minutes
        panels: list[GridPanel] = []
        for label, variant in self.variants.items():
            grids: list[Scores] = []
            sources = self._sources(variant)
            for source in sources:
                self.say(f"{label}: {source}")
                grid = source.grid(deadline)
                if grid is None:
                    break
                grids.append(grid)
            if len(grids) == len(sources):
                panels.append(GridPanel(label, tuple(grids), max(source.chosen_among for source in sources)))
            if deadline is not None and time.monotonic() > deadline:
                break
        self.say(f"{len(panels)} of {len(self.variants)} panels")
        if len(panels) < len(self.variants):
            self.say(f"Not finished: {self._left()} The same command goes on.")
        if not panels:
            return None
        title = f"{figure.title} ({PAPER} {self.name}, {self.size})"
        return figure_page(GridPanels(title, tuple(panels), len(self.variants)), self.size)

    def _announce(self, name: str, figure: PaperFigure) -> None:
        seconds = self._seconds_left()
        self.say(f"{PAPER} {name}, {self.size}: {figure.title}; {len(self.variants)} models, {self._left()}")
        if seconds > LONG and resolve_device(self.device).type == "cpu" and not self.yes:
            raise UserError(
                f"Training {name} at the {self.size} size takes about {duration(seconds)} on this CPU; "
                "use --size small, a GPU (--device cuda), or --yes to start anyway."
            )

    def _sources(self, variant: Variant) -> list[_Weights]:
        if self.seeds == 1 and self.size == "small" and variant.name in models.zoo_names():
            return [_Stored(self, variant)]
        return [_Trained(self, variant, seed) for seed in range(self.seeds)]

    def _all_sources(self) -> Iterator[_Weights]:
        seen = set()
        for variant in self.variants.values():
            for source in self._sources(variant):
                if source.grid_file not in seen:
                    seen.add(source.grid_file)
                    yield source

    def _seconds_left(self) -> float:
        return sum(source.seconds_left() for source in self._all_sources())

    def _left(self) -> str:
        sources = list(self._all_sources())
        runs = sum(source.seconds_left() > 0 for source in sources)
        if not runs:
            return "nothing left to train."
        return f"{runs} of {len(sources)} runs left to train, roughly {duration(self._seconds_left())}."


@dataclass(frozen=True)
class _Weights:
    """Where the weights of one panel and seed come from, and its grid."""

    job: Reproduction
    variant: Variant

    @property
    def folder(self) -> Path:
        return self.job.out / PAPER / self.variant.name

    @property
    def label(self) -> str:
        raise NotImplementedError

    @property
    def grid_file(self) -> Path:
        words = [self.label, self.job.offsets, "n", str(self.job.problems)]
        return self.folder / "grids" / ("-".join(" ".join(words).replace(",", " ").split()) + ".jsonl")

    @property
    def chosen_among(self) -> int:
        """Of how many seeds this one was chosen for how it scores."""
        return 1

    def seconds_left(self) -> float:
        return 0.0

    def model(self, deadline: float | None) -> Any | None:
        raise NotImplementedError

    def grid(self, deadline: float | None) -> Scores | None:
        """The evaluated grid; None if time ran out."""
        model = self.model(deadline)
        if model is None:
            return None
        model = model.to(resolve_device(self.job.device))
        assert isinstance(model.task, SequenceTask)
        shapes = rectangle(model.task, self.job.largest)
        evaluate = lambda some, bar: exact_match_grid(  # noqa: E731
            model, shapes=some, n=self.job.problems, offsets=self.job.offsets, store=self.grid_file, progress=bar
        )
        if deadline is not None:  # cells are stored as they come, so a row at a time loses nothing
            for start in range(0, len(shapes), len(shapes) // 10 + 1):
                if time.monotonic() > deadline:
                    return None
                evaluate(shapes[start : start + len(shapes) // 10 + 1], False)
        return evaluate(shapes, self.job.progress)


class _Stored(_Weights):
    """A model of the zoo."""

    def __str__(self) -> str:
        return f"the stored {self.variant.name}"

    @property
    def label(self) -> str:
        return "zoo"

    @property
    def chosen_among(self) -> int:
        return models.zoo.read_entry(self.variant.name)["training"]["seeds_tried"]

    def model(self, deadline: float | None) -> Any:
        return models.load(self.variant.name)


@dataclass(frozen=True)
class _Trained(_Weights):
    """A run of one seed; the weights are those after the last step."""

    seed: int = 0

    def __str__(self) -> str:
        return f"{self.variant.name}, seed {self.seed}"

    @property
    def label(self) -> str:
        return f"seed-{self.seed}"

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder / self.label)

    @property
    def recipe(self) -> Recipe:
        return get_recipe(get_spec(self.variant.name).recipe or "")

    def _state(self) -> dict[str, Any] | None:
        path = self.run.path / "checkpoint.json"
        return read_json(path) if path.exists() else None

    def _complete(self) -> bool:
        state = self._state()
        return state is not None and state["state"]["seeds"][0]["status"] != "training"

    def seconds_left(self) -> float:
        if self._complete():
            return 0.0
        state, steps = self._state(), self.recipe.steps
        if state is not None and state["step"] >= 20:
            return state["state"]["seconds"] * (steps / state["step"] - 1)
        return training_seconds(self.variant, self.recipe, resolve_device(self.job.device).type)

    def model(self, deadline: float | None) -> Any | None:
        """The trained model, after training it as far as time allows; None if it is not finished."""
        name, job = self.variant.name, self.job
        if self._complete():  # the same recipe? Raises if the folder holds another run
            with self.run.open({"model": name, "recipe": self.recipe.to_dict(), "seeds": 1, "first_seed": self.seed}):
                pass
        else:
            minutes = None if deadline is None else (deadline - time.monotonic()) / 60
            if minutes is not None and minutes <= 0:
                return None
            result = train(
                name, self.run.path, 1, self.seed, self.recipe, job.device, progress=job.progress, minutes=minutes
            )
            if not result.complete:
                return None
        loaded = self.run.load_checkpoint()
        assert loaded is not None
        model = models.build(name)
        ParameterLayout(model).load_into(model, loaded[1]["theta"][0])
        return model
