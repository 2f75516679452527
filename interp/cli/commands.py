"""The table of commands of ``interp``, and how a command of any program is found, run and, if it fails, reported.

Each command is a function in a module of its program's package (:mod:`interp.cli.parsing` makes options of its
parameters). It imports torch only when it runs, so help and wrong arguments are quick.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from interp.cli.own_flags import refuse_unused, taken_out
from interp.cli.parsing import Command, Function, check_names, columns, filled, own_flags_text, parsed
from interp.cli.written_files import answering, check_outputs, name_outputs, warned
from models.calls import commanded
from models.errors import UserError, unknown_name

PROGRESS = "CARRYLENS_PROGRESS"  # asks long loops for a line now and then where there is no terminal for a bar
_SIDE_BY_SIDE = 110  # from this width on, an example and its explanation share a line


Row = tuple[str, str, str]
#: A place (module and function), a command line as an example, and what that does. A command may have several rows.
COMMANDS: tuple[Row, ...] = (
    ("list_models:list_models", "list", "models, trained or not"),
    ("train:train", "train microadder-57 --seeds 64", "train a model, or resume its run"),
    ("train:train", "train microadder-57 --seeds 4096 --cluster auto", "on as many machines as there are"),
    ("train:train", "train microadder-57 --certify", "until a checkpoint is proved right on all 10^20 pairs"),
    ("train:publish", "publish runs/microadder-57", "make a zoo entry of finished runs"),
    ("load_file:load", "load my-model.pt", "what a file is; without --task, what its task may be"),
    ("ask:solve", "solve microadder-57 57+48", "the model's own answer"),
    ("ask:score", "score microadder-57", "score on the task's test set, with its interval, by carry-chain length"),
    ("prove:certify", "certify microadder-57", "prove it right on all 10^20 pairs, or find one that is wrong"),
    (
        "prove:certify",
        "certify toygpt-learned-pre",
        "run all 10,000 pairs through it: domains of up to 2^20 problems",
    ),
    ("ask:ask", "ask microadder-57", "what can be asked of it; with a probe's name, the answer"),
    ("ask:patch", "patch microadder-57 15+27 15+22", "which activation carries the difference of two problems"),
    (
        "prove:attack",
        "attack microadder-75",
        "search along gradients for a problem that a model answers wrong",
    ),
    (
        "page_commands:compare",
        "compare microadder-57 adder-456",
        "compare models: part by part, or question by question",
    ),
    ("page_commands:report", "report", "report.html on the zoo's ten-digit adders"),
    (
        "page_commands:explore",
        "explore microadder-57 adder-456",
        "explore.html: any problem, any part removed or patched",
    ),
    ("train:fetch_data", "fetch-data", "download the text that AddLM is trained on, and check it"),
    ("mcp:mcp", "mcp", "the same questions as tools, for programs that speak the Model Context Protocol"),
)
STATUS = "Exit status: 0 done, 2 bad input (one sentence on stderr), 130 interrupted"
OWN_STATUS = (
    "; of certify, 0 certified, 1 refuted, 3 undecided, 4 samples without a proof, 5 proved for a rule that was only "
    "tried to be the task's answer; of attack, 0 no failure found, 1 one found."
)


@dataclass(frozen=True)
class Program:
    """A program with commands: the words that start it, the package of its commands' modules, and its table.

    A program of one command has it as ``only``, and its name is not typed.
    """

    words: str = "interp"
    package: str = "interp.cli"
    rows: tuple[Row, ...] = COMMANDS
    only: str = ""

    @property
    def commands(self) -> dict[str, str]:
        """The places of the commands, by their names."""
        return {line.split()[0]: place for place, line, _ in self.rows}

    @property
    def examples(self) -> dict[str, str]:
        """Command lines, and what they do."""
        return {f"{self.words} {line}": does for _, line, does in self.rows}

    def words_of(self, name: str) -> str:
        """What starts a command."""
        return self.words if self.only else f"{self.words} {name}"


INTERP = Program()


def find_command(name: str, program: Program = INTERP) -> Function:
    """The function of a command. Raises UserError for an unknown one."""
    if name not in program.commands:
        raise unknown_name("command", name, program.commands)
    module, _, function = program.commands[name].partition(":")
    return getattr(import_module(f"{program.package}.{module}"), function)


def main(arguments: list[str] | None = None, program: Program = INTERP) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    before = os.environ.get(PROGRESS)
    os.environ[PROGRESS] = "lines"
    try:
        with warned(_show_warning) as said, _ended_as_at_ctrl_c():
            status = _run(arguments, program, said)
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


def parse(arguments: list[str], places: bool = True, program: Program = INTERP) -> Command:
    """The command for a line of at least one word; its ``run()`` runs it and returns the exit status, or None for 0.

    Args:
        places: whether the folders and files that it reads must exist.

    Raises:
        UserError: an unknown command, model, probe, study or paper, a missing folder, or what the parser refuses.
        SystemExit: help was asked for.
    """
    name, rest = arguments[0], arguments[1:]
    command = parsed(find_command(name, program), program.words_of(name), rest)
    check_names(command, places)
    if places:
        check_outputs(command)
    return command


def help_text(program: Program = INTERP) -> str:
    """The commands by example, each with its explanation next to it, or below it in a narrow terminal; of ``interp``,
    also what they take and say."""
    examples, words, own = program.examples, program.words, program is INTERP
    widest, lines = max(map(len, examples)), []
    for example, does in examples.items():
        if columns() >= _SIDE_BY_SIDE:
            lines.append(f"    {example:<{widest}}   {does}")
        else:
            lines += [f"  {example}", filled(does, " " * 6)]
    if own:
        lines += ["", own_flags_text()]
    usage = f"usage: {words} COMMAND [ARGUMENTS]    ({words} COMMAND --help lists them; {words} --version)"
    return "\n\n".join((usage, "\n".join(lines), filled(f"{STATUS}{OWN_STATUS if own else '.'}")))


def _run(arguments: list[str], program: Program, said: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"carrylens {version('carrylens')}")
        return 0
    if program.only:
        arguments = [program.only, *arguments]
    elif not arguments or arguments[0] in ("-h", "--help"):
        print(help_text(program))
        return 0 if arguments else 2
    with commanded("starting"):
        words = taken_out(arguments)
        command = parse(words, program=program)
        refuse_unused(command.function, program.words_of(words[0]))
        with answering(command, f"{program.words} {shlex.join(arguments[bool(program.only) :])}".rstrip(), said):
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


def _show_warning(message: str) -> None:
    with contextlib.suppress(OSError):
        print(f"interp: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
