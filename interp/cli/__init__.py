"""The command line: ``interp COMMAND``; :mod:`interp.cli.commands` has the table of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    from interp.cli.commands import main as run  # takes a tenth of a second, which `import interp` need not

    return run(list(sys.argv[1:] if arguments is None else arguments))
