"""The commands of ``interp``, and how errors of any program's are shown; :mod:`interp.cli.help` lists them.

Each command is a module of its program's package. It imports torch only when it runs, so help and wrong arguments are
quick.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from typing import Any

from interp.cli.arguments import STORED, check_names, with_bare
from interp.cli.help import EXAMPLES, filled, help_text, own_flags_text
from interp.cli.outputs import answering, check_outputs, name_outputs
from interp.cli.own_files import accepted, refuse_unused, taken_out
from interp.cli.parse_errors import parsed
from models.errors import UserError, unknown_name

PROGRESS = "CARRYLENS_PROGRESS"  # asks long loops for a line now and then where there is no terminal for a bar
#: Command -> its module and class.
COMMANDS = {
    "list": "listing:List",
    "train": "train:Train",
    "publish": "publish:Publish",
    "fetch-data": "fetch_data:FetchData",
    "solve": "solve:Solve",
    "score": "score:Score",
    "certify": "certify:Certify",
    "ask": "ask:Ask",
    "attack": "attack:AttackModel",
    "compare": "compare:Compare",
    "report": "report:Report",
    "explore": "explore:Explore",
    "mcp": "mcp:Mcp",
}


@dataclass(frozen=True)
class Program:
    """A program with commands: the words that start it, the package of its commands' modules, and :data:`COMMANDS`.

    ``examples``, from command lines to what they do, are what its help shows. A program of one command has it as
    ``only``, and its name is not typed.
    """

    words: str = "interp"
    package: str = "interp.cli"
    commands: Mapping[str, str] = field(default_factory=lambda: COMMANDS)
    examples: Mapping[str, str] = field(default_factory=lambda: EXAMPLES)
    only: str = ""

    def words_of(self, name: str) -> str:
        """What starts a command."""
        return self.words if self.only else f"{self.words} {name}"


INTERP = Program()


def find_command(name: str, program: Program = INTERP) -> Any:
    """The class of a command. Raises UserError for an unknown one."""
    if name not in program.commands:
        raise unknown_name("command", name, program.commands)
    module, _, of_command = program.commands[name].partition(":")
    return getattr(import_module(f"{program.package}.{module}"), of_command)


def main(arguments: list[str] | None = None, program: Program = INTERP) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    before = os.environ.get(PROGRESS)
    os.environ[PROGRESS] = "lines"
    try:
        with warnings.catch_warnings(), _ended_as_at_ctrl_c():
            warnings.showwarning = _show_warning
            status = _run(arguments, program)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130, program=program)
    except UserError as error:
        return _fail(error, program=program)
    except MemoryError:
        return _fail("there is not enough memory for that.", program=program)
    except RuntimeError as error:
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        return _fail("there is not enough memory for that.", program=program)  # torch has no class for it on the CPU
    except OSError as error:  # the system refuses, for example because of a full disk or a name that is too long
        _discard_output()
        about = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{about}.", program=program)
    finally:
        if before is None:
            del os.environ[PROGRESS]
        else:
            os.environ[PROGRESS] = before


def parse(arguments: list[str], places: bool = True, program: Program = INTERP) -> Any:
    """The command for a line of at least one word; its ``run()`` runs it and returns the exit status, or None for 0.

    Args:
        places: whether the folders and files that it reads must exist.

    Raises:
        UserError: an unknown command, model, probe, study or paper, a missing folder, or what the parser refuses.
        SystemExit: help was asked for.
    """
    name, rest = arguments[0], arguments[1:]
    if name == "train":
        from interp.cli.train import train_class
        from models.registry import names

        rest = with_bare("--certify", "float32", rest, names(sweeps=True))
        of_command = train_class(rest)
    else:
        rest = with_bare("--check", STORED, rest) if name == "certify" else rest
        of_command = find_command(name, program)
    command = _command(of_command, program.words_of(name), rest)
    check_names(command, places)
    if places:
        check_outputs(command)
    return command


def _command(of_command: type, words: str, rest: list[str]) -> Any:
    paragraphs = inspect.cleandoc(of_command.__doc__ or "").split("\n\n")
    about = "\n\n".join(filled(paragraph, "  ") for paragraph in paragraphs)  # tyro joins lines without indentation
    about += "\n\n" + own_flags_text(accepted(of_command))
    return parsed(of_command, words, rest, about)


def _run(arguments: list[str], program: Program) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"carrylens {version('carrylens')}")
        return 0
    if program.only:
        arguments = [program.only, *arguments]
    elif not arguments or arguments[0] in ("-h", "--help"):
        print(help_text(program.commands, program.examples, program.words, own=program is INTERP))
        return 0 if arguments else 2
    words = taken_out(arguments)
    command = parse(words, program=program)
    refuse_unused(type(command), program.words_of(words[0]))
    with answering(command, f"{program.words} {shlex.join(arguments[bool(program.only) :])}".rstrip()):
        status = command.run() or 0
    name_outputs(command)
    return status


@contextlib.contextmanager
def _ended_as_at_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM, and SIGHUP of a terminal that closes, raise KeyboardInterrupt, so that processes that
    a command started are ended and its temporary files removed; unless they are ignored (nohup) or handled already."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():
        ends = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        numbers = [number for number in ends if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _prepare_streams() -> None:
    """Send closed streams to the null device, and replace characters that a terminal does not have."""
    sys.stdout, sys.stderr = (open(os.devnull, "w") if s is None else s for s in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Send remaining output to the null device, so that Python does not complain again while closing."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: object, status: int = 2, program: Program = INTERP) -> int:
    text = f"{program.words.split()[-1]}: {message}"
    with contextlib.suppress(OSError):
        print(filled(text) if sys.stderr.isatty() else text, file=sys.stderr)
    return status


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    with contextlib.suppress(OSError):
        print(f"interp: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
