"""``python -m benchmarks.false_certificates`` plants wrong answers; with ``noise`` after it, models get noise."""

import sys

import tyro

from benchmarks.false_certificates.noise import Trials
from benchmarks.false_certificates.planted import Plants
from models import UserError

if __name__ == "__main__":
    noise, asked = sys.argv[1:2] == ["noise"], sys.argv[1:]
    name = "python -m benchmarks.false_certificates"
    try:
        command = tyro.cli(Trials, prog=f"{name} noise", args=asked[1:]) if noise else tyro.cli(Plants, prog=name)
        sys.exit(command.run())
    except UserError as error:
        print(f"false_certificates: {error}", file=sys.stderr)
        sys.exit(2)
