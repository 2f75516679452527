"""``python -m studies COMMAND``."""

import sys

from interp.cli.commands import Entry, Program, main

PROGRAM = Program(
    "python -m studies",
    "studies.commands",
    {
        "headlines": Entry(
            "headlines:show_headlines",
            {"python -m studies headlines": "every fact that the papers claim, ours, and how to make it"},
        ),
        "reproduce": Entry(
            "reproduce:reproduce",
            {
                "python -m studies reproduce position-coupling:fig1": "a figure: train what is missing, evaluate, draw",
            },
        ),
    },
)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
