"""The command line: ``interp COMMAND``; :mod:`interp.cli.commands` has the table of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    from interp.cli.help import HELP

    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in ("-h", "--help"):
        print(HELP)
        return 0
    from interp.cli.commands import main as run  # some seconds of imports

    return run(given)
