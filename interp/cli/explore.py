"""The command ``interp explore``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from interp.cli.arguments import Force, ModelNames, Page, one_thread
from models.errors import UserError


@dataclass(frozen=True)
class Explore:
    """Write a page that runs one or two models in the browser, on any problem. It shows attention, units, streams and
    logits at each digit, for the whole model or with components removed, scaled or patched from a second problem. It
    needs no kernel and no network; `interp.explore` shows the same in Jupyter."""

    models: Annotated[ModelNames, tyro.conf.arg(metavar="MODEL [MODEL]")] = ()
    """One or two: zoo names, constructed models, or models' folders or files."""
    problems: tuple[str, ...] = ()
    """Problems to offer, such as --problems 57+48 99+1; examples for the models' task by default. Any can be typed."""
    out: Page = Path("explore.html")
    """The page to write."""
    force: Force = False

    def run(self) -> None:
        if not 1 <= len(self.models) <= 2:
            raise UserError(f"Name one model or two to explore, not {len(self.models)}.")
        from interp.cli.own_files import load_model
        from interp.site.explorer import write_explorer

        one_thread()
        write_explorer(self.out, [load_model(name) for name in self.models], self.problems or None)
