"""The commands of ``interp`` that make models and figures: train, publish, fetch-data and reproduce."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from models.errors import UserError

ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
MOST_THREADS = 1_024
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]


def one_thread() -> None:
    """These models are too small for more threads, which then only wait for each other (much, on a busy machine)."""
    import torch

    torch.set_num_threads(1)


def use_threads(n: int) -> None:
    """Compute with ``n`` threads. Raises UserError for a number that no machine has."""
    import torch

    if not 1 <= n <= MOST_THREADS:
        raise UserError(f"--threads must be at least 1 and at most {MOST_THREADS:,}, not {n}.")
    torch.set_num_threads(n)


def _use_data(path: Path | None) -> None:
    """Read texts from ``path`` in this process."""
    from models.data import VARIABLE

    if path is not None:
        os.environ[VARIABLE] = str(path)


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
    certify: Literal["float", "interval", "float32"] | None = None
    """Judge each seed that answers all validation problems on all 10^20 pairs, first in floats and then in this
    arithmetic (float32 if none is named); a seed ends when it is certified, and that checkpoint is kept."""

    def run(self) -> int:
        from models.training import train

        use_threads(self.threads)
        _use_data(self.data)
        out = self.out or Path("runs") / self.name
        judge = None
        if self.certify is not None:
            from interp.proofs.stored import certifier_for

            judge = certifier_for(self.name, self.certify)
        try:
            result = train(
                self.name,
                out,
                self.seeds,
                self.first_seed,
                getattr(self, "recipe"),  # noqa: B009 (a field of the subclass that train_class makes)
                self.device,
                self.compile,
                minutes=self.minutes,
                data_parallel=self.data_parallel,
                judge=judge,
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
            status = "certified" if state.accepted is not None else state.status
            line = f"seed {state.seed}: {status}, best exact match {state.best_exact:.4f} at step {state.best_step}"
            if state.turned_down:
                line += f", {state.turned_down} times perfect on validation but not certified"
            print(line)
        if judge is not None:
            print(f"{len(result.accepted)} of {len(result.seeds)} seeds are certified on all pairs")
        print(
            f"{len(result.perfect)} of {len(result.seeds)} seeds answer every validation problem "
            f"({result.steps_done:,} steps, {result.seconds:.0f} s, {out})"
        )
        if not result.complete:
            print("Not finished; the same command goes on.")
        return 0


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
        from interp.proofs import check_certificate
        from interp.proofs.stored import stored_certificate
        from models.training.publish import publish
        from models.zoo import load

        one_thread()
        folder, result = publish(list(self.runs), self.out, self.overwrite, self.repeats)
        print(f"{folder}\n{result}")
        certificate = stored_certificate(folder)
        if certificate is not None:
            print(f"holds: {check_certificate(certificate, load(folder)).sentence()}")
        return 0


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
        from interp.papers.studies import Settings, find_study
        from interp.site.pages import write_page

        use_threads(self.threads)
        _use_data(self.data)
        study = find_study(self.figure)
        settings = Settings(
            self.out, self.size, self.seeds, self.problems, self.device, self.minutes, self.yes, offsets=self.offsets
        )
        assert study.run is not None  # find_study names none without
        page = study.run(settings)
        if page is None:
            print("Not finished; the same command goes on.")
            return 0
        paper, _, what = study.target.partition(":")
        command = f"interp reproduce {study.target} {page.options}".rstrip()
        print(f"wrote {write_page(self.out / paper / f'{what}.html', page, command)}")
        return 0


def with_certify_default(arguments: list[str]) -> list[str]:
    """Arguments of ``interp train`` in which a bare ``--certify`` means float32."""
    from models.registry import names

    found = []
    for word, following in zip(arguments, [*arguments, "--"][1:], strict=True):
        found.append(word)
        if word == "--certify" and (following.startswith("-") or following in names(sweeps=True)):
            found.append("float32")
    return found


def train_class(arguments: list[str]) -> type:
    """``Train`` with the named model's recipe as further flags, its values as their defaults."""
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
