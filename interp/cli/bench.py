"""The command ``interp bench``: methods that find circuits, on models whose circuits are all counted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from interp.cli.arguments import Force, OptionalOutput, OptionalPage, one_thread
from interp.cli.outputs import write_json


@dataclass(frozen=True)
class Bench:
    """Score methods that find circuits on proved models; the same command resumes, and adds new methods.

    A method of your own is a file of twenty lines (docs/add_a_method.md): ``interp bench --from my_method.py --quick``.
    """

    runs: Path = Path("runs/bench")
    """A folder for what was computed so far, one file per subject."""
    quick: bool = False
    """Three models and one draw of pairs: two minutes."""
    only: tuple[str, ...] = ()
    """Only these models (zoo names or paths)."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    draws: int = 2
    """Draws of pairs that each method sees."""
    out: OptionalPage = None
    """Also write a page with the figure and the table here (HTML)."""
    json: OptionalOutput = None
    """Also write everything here."""
    force: Force = False

    def run(self) -> None:
        from interp.compare.bench import run_benchmark
        from interp.core.sections import records
        from interp.site.bench import page_of
        from interp.site.pages import write_page

        one_thread()
        asked = {"only": self.only or None, "methods": self.methods or None, "draws": self.draws, "quick": self.quick}
        found = run_benchmark(self.runs, **asked, progress=sys.stderr.isatty() or not self.quick)
        print(found.sentence())
        print(found.summary().to_string(index=False))
        if self.out is not None:
            write_page(self.out, page_of(found), "interp bench")
        if self.json is not None:
            write_json(self.json, {"sentence": found.sentence(), "methods": records(found.to_dataframe())})
