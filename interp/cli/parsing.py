"""From words to a command: its options are the parameters of its function, with their hints and their docstring.

What the parser refuses becomes one sentence, as other bad input does; it prints boxes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import tyro

from interp.cli.own_flags import OWN_FLAGS, accepted
from interp.cli.shared_options import OUTPUT, Bare, Force, Named, Parts
from models.errors import UserError, unknown_name

Function = Callable[..., int | None]
_FRAME, _RULE = "│|╭╮╰╯+ ", {*"─-"}  # of a terminal that has box characters, and of one that has not
WIDEST = 120  # most characters of a line of prose; longer lines are hard to read


@dataclass(frozen=True)
class Command:
    """A function, its parameters, and the arguments that a line gives it; these are attributes, too."""

    function: Function
    parameters: list[inspect.Parameter]
    given: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["given"][name]
        except KeyError:
            raise AttributeError(name) from None

    def run(self) -> int | None:
        """Run it; returns the exit status, or None for 0."""
        return self.function(**{name: value for name, value in self.given.items() if name != "force"})

    def marked(self) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
        """Yield every parameter: its name, the marks of its hint, and what is given."""
        for each in self.parameters:
            yield each.name, marks(each.annotation), self.given[each.name]


def parameters(function: Function, words: list[str]) -> list[inspect.Parameter]:
    """A command's parameters with their hints, and ``force`` for one that writes a file. One whose parts depend on the
    other words of the line (:class:`interp.cli.shared_options.Parts`) has the parts' values as its default."""
    hints, found = get_type_hints(function, include_extras=True), []
    for each in inspect.signature(function).parameters.values():
        hint, default = hints[each.name], each.default
        for mark in marks(hint):
            if isinstance(mark, Parts):
                default = mark.of_words(words)
                hint = Annotated[type(default), tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]
        found.append(each.replace(annotation=hint, default=default))
    if any(OUTPUT in marks(each.annotation) for each in found):
        found.append(inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Force))
    return found


def marks(hint: Any) -> tuple[Any, ...]:
    """What stands beside the type in a hint."""
    return getattr(hint, "__metadata__", ())


def parsed(function: Function, words: str, arguments: list[str]) -> Command:
    """The command for these arguments; ``words`` start it, as "interp score" does.

    Raises:
        UserError: the parser refuses them.
        SystemExit: help was asked for.
    """
    has = parameters(function, arguments)
    held: Any = lambda **given: Command(function, has, given)  # noqa: E731  type checkers of calls wrap a `def`
    held.__name__ = function.__name__
    held.__doc__ = re.sub(r"\n {8,}", " ", inspect.cleandoc(function.__doc__ or ""))  # one line for each argument
    held.__annotations__ = {each.name: each.annotation for each in has}
    held.__signature__ = inspect.Signature(has)
    for each in has:
        for mark in marks(each.annotation):
            if isinstance(mark, Bare):
                arguments = with_bare(f"--{each.name.replace('_', '-')}", mark.value, arguments, mark.before())
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(held, prog=words, args=arguments, description=_about(function))
    except SystemExit as stop:
        if not stop.code:
            raise
        options = ["--help", *accepted(function), *option_names(has)]
        raise _sentence(errors.getvalue(), options, words, arguments) from None


def check_names(command: Command, places: bool = True) -> None:
    """Raise UserError for a command with an unknown model, probe, study or paper, a missing folder, or an output file
    where a folder is.

    Args:
        places: whether the folders and files that are read must exist.
    """
    for _, beside, given in command.marked():
        values = list(given) if isinstance(given, (tuple, list)) else [] if given is None else [given]
        for mark in beside:
            if isinstance(mark, Named) and (places or not mark.place):
                for value in values:
                    mark.check(value)


def with_bare(flag: str, value: str, arguments: list[str], names: Collection[str] = ()) -> list[str]:
    """The arguments with ``value`` added to a bare ``flag``: one that ends the line or stands before another option or
    one of ``names``."""
    found = []
    for word, following in zip(arguments, [*arguments, "--"][1:], strict=True):
        found.append(word)
        if word == flag and (following.startswith("-") or following in names):
            found.append(value)
    return found


def option_names(has: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield the names of options; those of a part that is a dataclass have a dot, unless its own name is empty."""
    for each in has:
        if tyro.conf.Positional not in marks(each.annotation):
            yield from _option("--", each.name, each.annotation, each.default)


def _option(before: str, name: str, hint: Any, value: Any) -> Iterator[str]:
    name = next((mark.name for mark in marks(hint) if getattr(mark, "name", None) is not None), name).replace("_", "-")
    if not is_dataclass(value):
        yield before + name
        return
    hints = get_type_hints(type(value), include_extras=True)
    for field in fields(value):
        yield from _option(
            f"{before}{name}." if name else before, field.name, hints[field.name], getattr(value, field.name)
        )


def _first_box(boxes: str) -> str:
    """What stands in the first box between its title and the next line across."""
    found: list[str] = []
    for line in (line.strip(_FRAME) for line in boxes.splitlines()[1:]):
        if {*line} - _RULE:
            found += line.split()
        elif found:
            break
    return " ".join(found)


def _sentence(boxes: str, options: list[str], words: str, arguments: list[str]) -> UserError:
    text, name = _first_box(boxes), words.split()[-1]
    if found := re.match(r"Unrecognized options: (\S+?)(?:,|$)", text):
        word = found[1].partition("=")[0]
        before = arguments[max(0, arguments.index(word) - 1)] if word in arguments else ""
        for option in (word, before):  # the second: an option that there is not, with this value
            if option.startswith("-"):
                return unknown_name("option", option, options)
        return UserError(f"{name} takes no further word {word!r}; see {words} --help.")
    if found := re.match(rf"Missing from {re.escape(words)}: (\S+) (.*)", text):
        what = found[2].removesuffix("(required)").strip().rstrip(".")
        return UserError(f"{name} needs {found[1]}: {what[:1].lower()}{what[1:]}.")
    if found := re.match(r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)", text):
        return UserError(f"{found[1]} takes a whole number, not {found[2]}.")
    if found := re.match(r"Error parsing (\S+): could not convert string to float: (.*)", text):
        return UserError(f"{found[1]} takes a number, not {found[2]}.")
    if found := re.match(r"Missing value for argument '(\S+)'", text):
        return UserError(f"{found[1].partition('/')[0]} needs a value; see {words} --help.")
    if found := re.match(r"invalid choice (\S+) for argument '(\S+)'\. Expected one of \((.*)\)", text):
        allowed = [word for word in re.findall(r"'([^']*)'", found[3]) if word != "None"]
        return unknown_name(f"value of {found[2]}", found[1].strip("'"), allowed)
    return UserError(f"{text.rstrip('.')}; see {words} --help.")


# ---- help


def columns() -> int:
    """Number of characters of a line of prose in this terminal."""
    return min(WIDEST, shutil.get_terminal_size().columns)


def filled(text: str, indent: str = "", after: str | None = None) -> str:
    """A paragraph wrapped to the terminal, the first line indented by ``indent`` and the others by ``after`` (default
    the same); names are not broken, at hyphens or elsewhere."""
    return textwrap.fill(
        text,
        columns(),
        initial_indent=indent,
        subsequent_indent=indent if after is None else after,
        break_long_words=False,
        break_on_hyphens=False,
    )


def own_flags_text(flags: Iterable[str] = OWN_FLAGS) -> str:
    """A paragraph on those of :data:`interp.cli.own_flags.OWN_FLAGS` that a command takes."""
    return "\n".join(filled(f"{flag}: {OWN_FLAGS[flag]}", "  ", " " * 6) for flag in flags)


def _about(function: Function) -> str:
    """The paragraphs of a command's help: its docstring without the arguments, and the flags of one's own files."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")[0].split("\n\n")
    told = [filled(paragraph, "  ") for paragraph in paragraphs]  # the parser joins lines without indentation
    return "\n\n".join([*told, own_flags_text(accepted(function))])
