"""The command ``interp report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interp.cli.arguments import Force, ModelNames, Page, one_thread


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page on how each model adds, chapter by chapter."""

    models: ModelNames = ()
    """Zoo names or paths; the zoo's ten-digit adders of up to 1,000 parameters by default."""
    out: Page = Path("report.html")
    """The page to write."""
    force: Force = False

    def run(self) -> None:
        from interp.cli.own_files import load_model
        from interp.site.report import write_report

        one_thread()
        write_report(self.models, self.out, load=load_model)
