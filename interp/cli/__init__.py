"""The command line: ``interp COMMAND``. :mod:`interp.cli.main` lists the commands."""

from interp.cli.main import main

__all__ = ["main"]
