"""What the parser refuses, as one sentence: it prints boxes, and other bad input here is one sentence."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

from interp.cli.own_files import accepted
from models.errors import UserError, unknown_name

_FRAME, _RULE = "│|╭╮╰╯+ ", {*"─-"}  # of a terminal that has box characters, and of one that has not


def parsed(of_command: type, words: str, arguments: list[str], about: str) -> Any:
    """The command's dataclass for these arguments; ``words`` start it, as "interp score" does.

    Raises:
        UserError: the parser refuses them.
        SystemExit: help was asked for.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(of_command, prog=words, args=arguments, description=about)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise _sentence(errors.getvalue(), of_command, words, arguments) from None


def options(of_command: type) -> Iterator[str]:
    """Yield the options of a command's dataclass; parts of a nested one have a dot, unless its own name is empty."""
    yield from ("--help", *accepted(of_command))
    for path, _ in _leaves(of_command, ""):
        yield f"--{path.replace('_', '-')}"


def _leaves(of: Any, before: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(of if isinstance(of, type) else type(of), include_extras=True)
    for field in fields(of):
        marks = get_args(hints[field.name])[1:] if get_origin(hints[field.name]) is Annotated else ()
        if tyro.conf.Positional in marks:
            continue
        named = [mark.name for mark in marks if getattr(mark, "name", None) is not None]
        name = named[0] if named else field.name
        value = field.default if isinstance(of, type) else getattr(of, field.name)
        if value is not MISSING and is_dataclass(value):
            yield from _leaves(value, f"{before}{name}." if name else before)
        else:
            yield before + name, value


def _first_box(boxes: str) -> str:
    """What stands in the first box between its title and the next line across."""
    lines = [line.strip(_FRAME) for line in boxes.splitlines()[1:]]
    found: list[str] = []
    for line in lines:
        if set(line) <= _RULE:  # also an empty line
            if found:
                break
            continue
        found += line.split()
    return " ".join(found)


def _sentence(boxes: str, of_command: type, words: str, arguments: list[str]) -> UserError:
    text, name = _first_box(boxes), words.split()[-1]
    if found := re.match(r"Unrecognized options: (\S+?)(?:,|$)", text):
        word = found[1].partition("=")[0]
        if word.startswith("-"):
            return unknown_name("option", word, options(of_command))
        before = arguments[max(0, arguments.index(word) - 1)] if word in arguments else ""
        if before.startswith("-"):  # the value of an option that there is not
            return unknown_name("option", before, options(of_command))
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
