"""The command ``interp gallery``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from interp.cli.arguments import MODEL, Named, one_thread
from interp.site.gallery.folder import check_folder


@dataclass(frozen=True)
class Gallery:
    """Build a static site on all stored models and results, or bring it up to date.

    It opens from disk, without a server or a network. Pages whose models and results have not changed are left as they
    are; the command can be stopped at any time and resumes from there.
    """

    out: Annotated[Path, Named(check_folder)] = Path("gallery")
    """The site's folder: new, empty, or a gallery."""
    models: Annotated[tuple[str, ...], MODEL] = ()
    """Only the pages of these models and of their papers; others in the folder stay. All by default."""
    fresh: bool = False
    """Make every page again."""

    def run(self) -> int:
        one_thread()
        from interp.site.gallery.site import build

        try:
            summary = build(self.out, self.models, self.fresh)
        except KeyboardInterrupt:
            print(f"\nInterrupted; what is done is in {self.out}. The same command goes on.", file=sys.stderr)
            return 130
        print(summary)
        return 0
