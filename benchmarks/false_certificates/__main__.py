"""``python -m benchmarks.false_certificates`` plants wrong answers; with ``noise``, models get noise."""

import sys
from typing import Annotated

import tyro

from benchmarks.false_certificates.noise import Trials
from benchmarks.false_certificates.planted import Plants
from models import UserError

Command = (
    Annotated[Plants, tyro.conf.subcommand("planted", default=Plants())]
    | Annotated[Trials, tyro.conf.subcommand("noise")]
)

if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(Planted | Noise, default=Plants()).run())
    except UserError as error:
        print(f"false_certificates: {error}", file=sys.stderr)
        sys.exit(2)
