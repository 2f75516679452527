"""What a page of the documentation shows: fenced blocks, which are run, and commands, which must exist."""

import re
import shlex
from dataclasses import dataclass

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b|[\[<]")  # NAME, MODEL, PAPER:WHAT, COMMAND: no command yet
PROGRAMS = ("interp", "make", "python")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``title`` names a file to write (or, of a diff, to change); without one it is to be run."""

    language: str
    title: str | None
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(match[1], match[2], match[3]) for match in FENCE.finditer(page)]


def commands(page: str) -> list[list[str]]:
    """The words of every command in an indented block or as inline code, without comments and redirections."""
    prose = FENCE.sub("", page)
    lines = re.findall(r"(?<=\n\n)((?:    .*\n)+)", prose)
    shown = [line.strip() for block in lines for line in block.splitlines()]
    shown += [code for code in re.findall(r"`([^`\n]+)`", prose) if code.split()[0] in PROGRAMS]
    found = [shlex.split(line.split(" > ")[0], comments=True) for line in shown if not PLACEHOLDER.search(line)]
    return [words for words in found if len(words) > 1]
