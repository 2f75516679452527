"""``python -m studies COMMAND``."""

import sys

from interp.cli.commands import Program, main

PROGRAM = Program(
    "python -m studies",
    "studies.commands",
    (
        ("headlines:show_headlines", "headlines", "every fact that the papers claim, ours, and how to make it"),
        (
            "reproduce:reproduce",
            "reproduce position-coupling:fig1",
            "a figure: train what is missing, evaluate, draw",
        ),
        (
            "publish:publish",
            "publish runs/toygpt-learned-pre",
            "make a zoo entry of finished runs by their paper's rule",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(program=PROGRAM))
