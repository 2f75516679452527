"""``python -m studies.adderboard FOLDER --trust``."""

import sys

from interp.cli.commands import main
from studies.adderboard.command import PROGRAM

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
