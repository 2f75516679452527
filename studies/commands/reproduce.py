"""The command ``python -m studies reproduce``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from interp.cli.arguments import ClusterAddress, Named, ended, use_data, use_threads


def _check_study(target: str) -> None:
    from studies.runs.study import find_study

    find_study(target)


@dataclass(frozen=True)
class Reproduce:
    """Train what a figure or table of a paper needs, measure, and write one HTML page.

    The same command resumes after a stop.
    """

    figure: Annotated[str, Named(_check_study), tyro.conf.Positional, tyro.conf.arg(metavar="PAPER:WHAT")]
    """For example position-coupling:fig1; a wrong name lists the others."""
    size: Literal["small", "paper"] = "small"
    """Models that two CPU cores train in minutes, or the paper's own."""
    seeds: int | None = None
    """Seeds per model. Position Coupling's figures show their median; with 1, the default, they use stored ones."""
    problems: int | None = None
    """How many problems. For Position Coupling, how many per size: by default 200 (small) or 1,000 (paper)."""
    offsets: str = "start 1"
    """Where position ids start at test time: "start 1" (as in the paper), another start, or random."""
    out: Path = Path("runs/reproduce")
    """Folder for runs, grids and pages."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int = 1
    """CPU threads."""
    minutes: float | None = None
    """Stop and save after this many minutes; the same command resumes."""
    yes: bool = False
    """Start even if it takes days on this CPU."""
    data: Path | None = None
    """A local copy of the text, for AddLM."""
    extend: Path | None = None
    """For Position Coupling's figures: keep the grids of this stored result (JSON), and make those that it lacks."""
    cluster: ClusterAddress = None
    """Train MicroAdder's sweeps and evaluate Position Coupling's grids as tasks of Ray: auto, local or HOST:PORT."""

    again: bool = False
    """Make it again although its numbers are stored."""

    def run(self) -> int | None:
        if (kept := self._stored()) is not None:
            print(kept)
            return None
        try:
            return ended(self.go())
        except KeyboardInterrupt:
            print(f"\nInterrupted; what was trained is in {self.out}. The same command goes on.", file=sys.stderr)
            return 130

    def _stored(self) -> str | None:
        """Write the page of the stored numbers and say where; None if there are none or the command asks for others."""
        from studies.runs.stored_studies import command_of, stored_page, stored_studies
        from studies.runs.study import find_study

        chosen = {name: getattr(self, name) for name in ("seeds", "problems", "minutes", "extend", "data", "cluster")}
        if self.again or any(value is not None for value in chosen.values()) or self.offsets != "start 1":
            return None
        target = next((f for f in (f"{self.figure}-{self.size}", self.figure) if f in stored_studies()), None)
        if target is None or (self.size == "paper" and not target.endswith("paper")):
            return None
        from interp.site.pages import write_page

        paper, _, what = self.figure.partition(":")
        again = command_of(target) if find_study(self.figure).kept else ""
        command = again or f"python -m studies reproduce {self.figure} --size {self.size} --again"
        at = write_page(self.out / paper / f"{what}.html", stored_page(target), command)
        return f"wrote {at} from stored numbers; {f'`{again}`' if again else '--again'} makes them again"

    def go(self) -> bool:
        """Make the page as far as time allows; return whether time was left at the end."""
        from interp.site.pages import write_page
        from models.training.cluster import connected
        from studies.runs.study import Settings, reproduce

        use_threads(self.threads)
        use_data(self.data)
        # Unless a GPU is asked for, sweeps do not take one: launches would cost more than it saves.
        with connected(self.cluster, "cpu" if self.device == "auto" else self.device) as cluster:
            settings = Settings(
                self.out, self.size, self.seeds, self.problems, self.device, self.minutes, self.yes,
                offsets=self.offsets, cluster=cluster, extend=self.extend,
            )  # fmt: skip
            page = reproduce(self.figure, settings)
        if page is None:
            return False
        paper, _, what = self.figure.partition(":")
        command = f"python -m studies reproduce {self.figure} {page.options}".rstrip()
        path = write_page(self.out / paper / f"{what}.html", page, command, with_file=True)
        print(f"wrote {path} and {path.with_suffix('.json').name} next to it")
        return settings.minutes_left() != 0
