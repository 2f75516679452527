"""The fenced blocks of a page."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A fenced block: ``title`` names a file to write (or, of a diff, to change); without one it is to be run."""

    language: str
    title: str | None
    text: str


def blocks(page: str) -> list[Block]:
    fence = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], match[3]) for match in fence.finditer(page)]
