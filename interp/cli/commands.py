"""The commands of ``interp`` and what becomes of their errors; :mod:`interp.cli.help` lists them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from interp.cli.ask import Ask
from interp.cli.attack import AttackModel
from interp.cli.compare import Compare
from interp.cli.explore import Explore
from interp.cli.gallery import Gallery
from interp.cli.headlines import ShowHeadlines
from interp.cli.help import HELP
from interp.cli.training import (
    FetchData,
    ModelName,
    Publish,
    Reproduce,
    Train,
    one_thread,
    train_class,
    with_certify_default,
)
from models.errors import UserError, unknown_name
from models.zoo import load

ModelNames = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]


@dataclass(frozen=True)
class List:
    """Every model that can be built, paper by paper, and how the zoo's were trained."""

    markdown: bool = False
    """Print the page docs/zoo.md: the table, and what its columns mean."""
    all: bool = False
    """Also the models that only figures compare."""

    def run(self) -> int:
        import models
        from interp.proofs.stored import on_all_inputs
        from models.registry import by_paper

        header = (
            "model",
            "parameters",
            "right (sampled)",
            "of",
            "all inputs",
            "runs of seeds",
            "perfect on it (95% interval)",
            "training time",
        )
        rows, zoo = [], models.zoo_names()
        for name in by_paper(models.names(sweeps=True)):
            if models.get_spec(name).sweep and name not in zoo and not self.all:
                continue
            n = sum(p.numel() for p in models.build(name).parameters())
            trains = models.get_spec(name).recipe is not None
            row = ["not trained yet" if trains else "constructed", "", on_all_inputs(name), "", "", ""]
            if name in zoo:
                entry = models.zoo.read_entry(name)
                made, score = entry["training"], entry["score"]
                if "loss" in score:
                    loss = f"loss {score['loss']:.3f}"
                    row = [loss, score["problems"], "", str(made["seeds_tried"]), "", f"{made['seconds'] / 60:.0f} min"]
                    rows.append((name, f"{n:,}", *row))
                    continue
                row = [
                    f"{score['correct']:,} / {score['n']:,}",
                    score["problems"],
                    on_all_inputs(name),
                    str(models.zoo.all_runs(made).n),
                    models.zoo.grokked_seeds(made),
                    f"{made['seconds'] / 60:.0f} min",
                ]
            rows.append((name, f"{n:,}", *row))
        if self.markdown:
            from interp.cli.zoo_page import ABOVE, BELOW

            table = "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *rows))
            print(ABOVE + table + BELOW, end="")
            return 0
        from rich.console import Console
        from rich.table import Table

        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return 0


@dataclass(frozen=True)
class Solve:
    """Let a model answer problems, digit by digit, and say where it is wrong."""

    model: ModelName
    """A zoo name, an entry's folder, a snapshot or a published .pt checkpoint."""
    problems: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM [PROBLEM ...]")]
    """Problems such as 57+48."""

    def run(self) -> int:
        from models.evaluation import predict

        model = load(self.model)
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

        one_thread()
        model = load(self.model)
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


@dataclass(frozen=True)
class Certify:
    """Right on every input, or wrong on which? A proof for ten-digit adders of one layer and for hand-built models;
    all problems, run through the model, where there are at most 2^20 of them.

    Exit status: 0 certified, 1 refuted, 3 undecided, 4 looked at in samples (--arithmetic float, which proves nothing);
    with --check, that of a certificate that holds.
    """

    model: ModelName
    """A zoo name, an entry's folder, a snapshot or a published .pt checkpoint; or a hand-built model's name."""
    arithmetic: Literal["float", "interval", "float32"] | None = None
    """Of proofs: a look in floats (no proof), intervals over the reals, or (the default) with a bound for every float32
    operation."""
    shape: tuple[int, ...] = ()
    """For tasks of many lengths: judge problems of this shape, such as --shape 8 for eight bits."""
    json: Path | None = None
    """Also write the certificate here."""
    width: float = 1e-6
    """How far apart the bounds on the share of wrong pairs may be, where the model is not certified."""
    digits_only: bool = False
    """Of ten-digit adders: judge the eleven digits, as AdderBoard does, and not the EOS after them."""
    minutes: float | None = None
    """How long to try; what is not proved by then stays open."""
    check: Path | None = None
    """Verify this certificate against the model instead of making one."""
    card: bool = False
    """Keep the certificate in the model's zoo entry, with a line on its card, if it is one of "certified"."""

    def run(self) -> int:
        from interp.proofs import certify, check_certificate, load_certificate
        from interp.proofs.stored import store
        from models.zoo import read_entry

        one_thread()
        if self.card:
            read_entry(self.model)  # what is no entry has no card; said before the work
        model = load(self.model)
        task = None
        if self.shape:
            from models.tasks.sequences import SequenceTask

            if not isinstance(model.task, SequenceTask):
                raise UserError(f"Problems of {model.task.name} have one shape; there is none to choose.")
            task = model.task.at_shape(self.shape)
        if self.check is not None:
            certificate = load_certificate(self.check)
            certificate = check_certificate(certificate, model, task)
            print(f"holds: {certificate.sentence()}")
        else:
            targets = "digits" if self.digits_only else "all"
            certificate = certify(
                model, arithmetic=self.arithmetic, task=task, width=self.width, targets=targets, minutes=self.minutes
            )
            print(certificate.sentence())
        if self.json is not None:
            certificate.save(self.json)
        if self.card:
            print(f"written to {store(self.model, certificate)}")
        return certificate.exit_status


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page on trained models: accuracy, attention, carry units, embeddings."""

    models: ModelNames = ()
    """Zoo names or paths; the zoo's ten-digit adders of up to 1,000 parameters by default."""
    out: Path = Path("report.html")
    """The page to write."""

    def run(self) -> int:
        from interp.site.report import write_report

        one_thread()
        write_report(self.models, self.out)
        print(f"wrote {self.out}")
        return 0


COMMANDS: dict[str, Any] = {
    "list": List,
    "train": Train,
    "publish": Publish,
    "fetch-data": FetchData,
    "solve": Solve,
    "score": Score,
    "certify": Certify,
    "ask": Ask,
    "attack": AttackModel,
    "compare": Compare,
    "report": Report,
    "explore": Explore,
    "gallery": Gallery,
    "reproduce": Reproduce,
    "headlines": ShowHeadlines,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = _run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except UserError as error:
        return _fail(error)
    except MemoryError:
        return _fail("there is not enough memory for that.")
    except OSError as error:  # what the system refuses: a full disk, a name that is too long
        _discard_output()
        about = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{about}.")


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    rest = with_certify_default(rest) if name == "train" else rest
    cls = train_class(rest) if name == "train" else COMMANDS[name]
    return tyro.cli(cls, prog=f"interp {name}", args=rest).run()


def _prepare_streams() -> None:
    """Closed streams lead nowhere, and letters that a terminal does not have are replaced."""
    sys.stdout, sys.stderr = (open(os.devnull, "w") if s is None else s for s in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Let what is still to be printed lead nowhere, so that Python does not complain again while closing."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a stream without descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: object, status: int = 2) -> int:
    with contextlib.suppress(OSError):
        print(f"interp: {message}", file=sys.stderr)
    return status


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    with contextlib.suppress(OSError):
        print(f"interp: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
