"""``python -m benchmarks.circuits``."""

import sys

from benchmarks.circuits.command import PROGRAM
from interp.cli.commands import main

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
