"""The ``interp`` command.

    interp list                                  models, trained or not
    interp train microadder-57 --seeds 64        train (or go on with) a run
    interp publish runs/microadder-57            make a zoo entry of finished runs
    interp solve microadder-57 57+48             the model's own answer
    interp score microadder-57                   score on the task's test set, with its interval, by carry-chain length
    interp report                                report.html on the zoo's ten-digit adders
    interp fetch-data                            download the text that AddLM is trained on, and check it
    interp reproduce position-coupling:fig1      a paper's figure: train what is missing, evaluate, draw

Exit status: 0 done, 2 bad input (one sentence on stderr), 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from models.errors import UserError, unknown_name

COMMANDS: dict[str, Any] = {}

ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
ModelNames = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]


def _one_thread() -> None:
    """These models are too small for more threads, which then only wait for each other (much, on a busy machine)."""
    import torch

    torch.set_num_threads(1)


def _use_data(path: Path | None) -> None:
    """Read texts from ``path`` in this process."""
    from models.data import VARIABLE

    if path is not None:
        os.environ[VARIABLE] = str(path)


def command(cls: type) -> type:
    COMMANDS[re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()] = cls  # FetchData is fetch-data
    return cls


def _load(name: str) -> Any:
    """A trained model by name or path, or a constructed one by name."""
    import models

    constructed = [n for n in models.names() if models.get_spec(n).recipe is None]
    return models.build(name) if name in constructed else models.load(name)


@command
@dataclass(frozen=True)
class List:
    """Every model that can be built, and how the zoo's were trained."""

    markdown: bool = False
    """Print the table as Markdown, as in the README."""
    all: bool = False
    """Also the models that only figures compare."""

    def run(self) -> int:
        import models

        header = (
            "model",
            "parameters",
            "right (sampled)",
            "of",
            "seeds tried",
            "perfect on it (95% interval)",
            "training time",
        )
        rows, zoo = [], models.zoo_names()
        for name in models.names(sweeps=True):
            if models.get_spec(name).sweep and name not in zoo and not self.all:
                continue
            n = sum(p.numel() for p in models.build(name).parameters())
            trains = models.get_spec(name).recipe is not None
            row = ["not trained yet" if trains else "constructed", "", "", "", ""]
            if name in zoo:
                entry = models.zoo.read_entry(name)
                made, score = entry["training"], entry["score"]
                if "loss" in score:
                    loss = f"loss {score['loss']:.3f}"
                    row = [loss, score["problems"], str(made["seeds_tried"]), "", f"{made['seconds'] / 60:.0f} min"]
                    rows.append((name, f"{n:,}", *row))
                    continue
                low, high = (100 * x for x in made["grok_interval_95"])
                row = [
                    f"{score['correct']:,} / {score['n']:,}",
                    score["problems"],
                    str(made["seeds_tried"]),
                    f"{made['seeds_grokked']} ({low:.1f}-{high:.1f}%)",
                    f"{made['seconds'] / 60:.0f} min",
                ]
            rows.append((name, f"{n:,}", *row))
        if self.markdown:
            for row in (header, ["---"] * len(header), *rows):
                print("| " + " | ".join(row) + " |")
            return 0
        from rich.console import Console
        from rich.table import Table

        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return 0


@command
@dataclass(frozen=True)
class Train:
    """Train a model, or go on with the run in --out. Every flag of the recipe is listed for the model named."""

    name: ModelName
    """A registered model, e.g. microadder-57."""
    seeds: int = 1
    """How many seeds to train, stacked."""
    first_seed: int = 0
    """The first of them."""
    out: Path | None = None
    """Run folder; runs/NAME by default."""
    device: str = "auto"
    """auto, cpu or cuda."""
    compile: bool | None = None
    """torch.compile the step; by default where a compiler is found and the run is long."""
    threads: int = 1
    """CPU threads; these models are too small for more."""
    minutes: float | None = None
    """Stop (and save) after so many minutes, to go on later."""
    data: Path | None = None
    """A local copy of the text, for models of text."""
    data_parallel: bool = False
    """Split every batch over the processes that `accelerate launch -m interp.cli train ...` started."""

    def run(self) -> int:
        import torch

        from models.training import train

        torch.set_num_threads(self.threads)
        _use_data(self.data)
        out = self.out or Path("runs") / self.name
        try:
            result = train(
                self.name,
                out,
                self.seeds,
                self.first_seed,
                getattr(self, "recipe"),  # noqa: B009 (a field of the subclass that _train_class makes)
                self.device,
                self.compile,
                minutes=self.minutes,
                data_parallel=self.data_parallel,
            )
        except KeyboardInterrupt:
            print(f"\nInterrupted; saved in {out}. The same command goes on from there.", file=sys.stderr)
            return 130
        by_loss = [state for state in result.seeds if state.best_loss is not None]
        for state in by_loss:
            print(
                f"seed {state.seed}: {state.status}, validation loss {state.validation_loss:.4f}, "
                f"best {state.best_loss:.4f} at step {state.best_step}"
            )
        if by_loss:
            print(f"{result.steps_done:,} steps, {result.seconds:.0f} s, {out}")
            if not result.complete:
                print("Not finished; the same command goes on.")
            return 0
        for state in sorted(result.seeds, key=lambda s: -s.best_exact)[:10]:
            print(
                f"seed {state.seed}: {state.status}, best exact match {state.best_exact:.4f} at step {state.best_step}"
            )
        print(
            f"{len(result.perfect)} of {len(result.seeds)} seeds answer every validation problem "
            f"({result.steps_done:,} steps, {result.seconds:.0f} s, {out})"
        )
        if not result.complete:
            print("Not finished; the same command goes on.")
        return 0


@command
@dataclass(frozen=True)
class Publish:
    """Make a zoo entry of one or more finished runs of a model."""

    runs: RunFolders
    """Run folders."""
    out: Path | None = None
    """The entry's folder; the package's zoo by default."""
    overwrite: bool = False
    """Replace an entry that is there."""
    repeats: tuple[Path, ...] = ()
    """Runs of the same seeds on a build that rounds differently; counted apart."""

    def run(self) -> int:
        from models.training.publish import publish

        _one_thread()
        folder, result = publish(list(self.runs), self.out, self.overwrite, self.repeats)
        print(f"{folder}\n{result}")
        return 0


@command
@dataclass(frozen=True)
class FetchData:
    """Download the text that AddLM is trained on (1.1 MB), check its SHA-256, and keep it in the user's cache."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = "tinyshakespeare"
    """Which text."""
    out: Path | None = None
    """Where to put it; by default where training looks for it."""
    data: Path | None = None
    """Take a local copy instead of the download."""

    def run(self) -> int:
        from models.data import VARIABLE, cache_path, fetch, get_corpus

        corpus = get_corpus(self.name)
        path = fetch(corpus, self.out, self.data)
        print(f"{path}: {corpus.characters:,} characters, SHA-256 as it should be")
        if path != cache_path(corpus):
            print(f"To train on it, set {VARIABLE}={path} or give --data.")
        return 0


@command
@dataclass(frozen=True)
class Solve:
    """Let a model answer problems, digit by digit, and say where it is wrong."""

    model: ModelName
    """A zoo name, an entry's folder, a snapshot or a published .pt checkpoint."""
    problems: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM [PROBLEM ...]")]
    """Problems such as 57+48."""

    def run(self) -> int:
        from models.evaluation import predict

        model = _load(self.model)
        if not self.problems:
            raise UserError("There is no problem to solve: the list is empty.")
        for text in self.problems:
            task = model.task.for_problems([text])
            problem = task.as_problems([text])
            (answer,) = task.decode(predict(model, problem, method="greedy", task=task))
            (right,) = task.decode(task.targets(problem))
            shown = "no number" if answer < 0 else answer
            print(f"{text} = {shown}" + ("" if answer == right else f"   wrong: it is {right}"))
        return 0


@command
@dataclass(frozen=True)
class Score:
    """Score a model on its task's test set (AdderBoard's 10,010 problems, say), by carry-chain length."""

    model: ModelName
    """A zoo name, an entry's folder, a snapshot or a published .pt checkpoint."""
    method: Literal["teacher_forced", "greedy"] = "teacher_forced"
    """Both give the same verdict on a whole answer; greedy decodes token by token."""
    json: Path | None = None
    """Also write the score here."""

    def run(self) -> int:
        import models
        from models.checkpoint import write_json_atomic

        _one_thread()
        model = _load(self.model)
        if model.task.compared_by == "loss":
            loss = models.text_loss(model)
            print(f"{self.model}: {loss}")
            if self.json:
                write_json_atomic(self.json, loss.to_dict())
            return 0
        result = models.score(model, method=self.method)
        print(result)
        print(result.to_dataframe().to_string(index=False, float_format="{:.4f}".format))
        if self.json:
            write_json_atomic(self.json, result.to_dict())
        return 0


@command
@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page on trained models: accuracy, attention, carry units, embeddings."""

    models: ModelNames = ()
    """Zoo names or paths; the zoo's ten-digit adders of up to 1,000 parameters by default."""
    out: Path = Path("report.html")
    """The page to write."""

    def run(self) -> int:
        from interp.report import write_report

        _one_thread()
        write_report(self.models, self.out)
        print(f"wrote {self.out}")
        return 0


@command
@dataclass(frozen=True)
class Reproduce:
    """Train what a figure or table of a paper needs, measure, write one HTML page; the same command goes on."""

    figure: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PAPER:WHAT")]
    """For example position-coupling:fig1; a wrong name lists the others."""
    size: Literal["small", "paper"] = "small"
    """Models that two CPU cores train in minutes, or the paper's own."""
    seeds: int | None = None
    """Seeds a model, 1 for Position Coupling, whose figures show their median and with 1 use stored small models."""
    problems: int | None = None
    """Problems (a size, for Position Coupling: 200 in small, 1,000 in the paper's)."""
    offsets: str = "start 1"
    """Where position ids start at test time: "start 1" (as in the paper), another start, or random."""
    out: Path = Path("runs/reproduce")
    """Runs, grids and pages."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int = 1
    """CPU threads."""
    minutes: float | None = None
    """Stop (and save) after so many minutes, to go on later."""
    yes: bool = False
    """Start even if it takes days on this CPU."""
    data: Path | None = None
    """A local copy of the text, for AddLM."""

    def run(self) -> int:
        import torch

        from interp.experiments import Settings, find_experiment
        from interp.reproduce import PAPER, Reproduction

        torch.set_num_threads(self.threads)
        _use_data(self.data)
        if self.figure.partition(":")[0] != PAPER:
            chosen = find_experiment(self.figure)
            settings = Settings(self.out, self.size, self.seeds, self.problems, self.device, self.minutes, self.yes)
            page = chosen.run(settings)
            print(f"wrote {page}" if page else "Not finished; the same command goes on.")
            return 0
        Reproduction(
            self.figure,
            self.size,
            1 if self.seeds is None else self.seeds,
            self.problems,
            self.offsets,
            self.out,
            self.device,
            self.minutes,
            self.yes,
        ).run()
        return 0


def _train_class(arguments: list[str]) -> type:
    """``Train`` with the named model's recipe as further flags, its values as their defaults."""
    from dataclasses import field

    from models.registry import get_spec, names
    from models.training.recipes import Recipe, get_recipe

    # The name may stand after flags and their values; a first word that is no name is taken for a misspelt one.
    name = next((a for a in arguments if a in names(sweeps=True)), None)
    if name is None and arguments and not arguments[0].startswith("-"):
        name = arguments[0]
    recipe = Recipe()
    if name is not None:
        spec = get_spec(name)
        if spec.recipe is None:
            raise UserError(f"{name} is not a trained model: its weights are constructed.")
        recipe = get_recipe(spec.recipe)
    annotation = Annotated[Recipe, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
    extended = make_dataclass("Train", [("recipe", annotation, field(default=recipe))], bases=(Train,), frozen=True)
    extended.__doc__ = Train.__doc__
    return extended


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(__doc__)
            return 0 if arguments else 2
        name, rest = arguments[0], arguments[1:]
        if name not in COMMANDS:
            raise unknown_name("command", name, COMMANDS)
        cls = _train_class(rest) if name == "train" else COMMANDS[name]
        status = tyro.cli(cls, prog=f"interp {name}", args=rest).run()
        sys.stdout.flush()
        return status
    except UserError as error:
        print(f"interp: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` say, has seen enough; Python would complain again while closing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interp: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
