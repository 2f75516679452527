"""The command ``interp publish``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from interp.cli.arguments import FOLDER, one_thread

RunFolders = Annotated[
    tuple[Path, ...],
    FOLDER,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
]


@dataclass(frozen=True)
class Publish:
    """Make a zoo entry from one or more finished runs of a model."""

    runs: RunFolders
    """Run folders."""
    out: Path | None = None
    """The entry's folder; the package's zoo by default."""
    overwrite: bool = False
    """Replace an entry that is there."""
    repeats: Annotated[tuple[Path, ...], FOLDER, tyro.conf.arg(help_behavior_hint="")] = ()
    """Runs of the same seeds on a build that rounds differently; they are counted separately."""
    certify: bool = False
    """Choose the first of the perfect seeds that is proved right on all pairs, float32 rounding included."""

    def run(self) -> None:
        from interp.proofs import check_certificate
        from interp.proofs.stored_certificates import Certifier, stored_certificate
        from models.training.publish import publish
        from models.zoo import load

        one_thread()
        folder, result = publish(
            list(self.runs), self.out, self.overwrite, self.repeats, Certifier("float32") if self.certify else None
        )
        print(f"{folder}\n{result}")
        certificate = stored_certificate(folder)
        if certificate is not None:
            print(f"holds: {check_certificate(certificate, load(folder)).sentence()}")
