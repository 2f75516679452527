"""The command ``python -m studies reproduce``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from interp.cli.shared_options import ClusterAddress, Named, ended, use_data, use_threads

if TYPE_CHECKING:
    from studies.runs.study import Settings


def _check_study(target: str) -> None:
    from studies.runs.study import find_study

    find_study(target)


def reproduce(
    figure: Annotated[str, Named(_check_study), tyro.conf.Positional, tyro.conf.arg(metavar="PAPER:WHAT")],
    size: Literal["small", "paper"] = "small",
    seeds: int | None = None,
    problems: int | None = None,
    offsets: str = "start 1",
    out: Path = Path("runs/reproduce"),
    device: str = "auto",
    threads: int = 1,
    minutes: float | None = None,
    yes: bool = False,
    data: Path | None = None,
    extend: Path | None = None,
    cluster: ClusterAddress = None,
    again: bool = False,
) -> int | None:
    """Train what a figure or table of a paper needs, measure, and write one HTML page.

    The same command resumes after a stop.

    Args:
        figure: For example position-coupling:fig1; a wrong name lists the others.
        size: Models that two CPU cores train in minutes, or the paper's own.
        seeds: Seeds per model. Position Coupling's figures show their median; with 1, the default, they use stored
            ones.
        problems: How many problems. For Position Coupling, how many per size: by default 200 (small) or 1,000 (paper).
        offsets: Where position ids start at test time: "start 1" (as in the paper), another start, or random.
        out: Folder for runs, grids and pages.
        device: auto, cpu or cuda.
        threads: CPU threads.
        minutes: Stop and save after this many minutes; the same command resumes.
        yes: Start even if it takes days on this CPU.
        data: A local copy of the text, for AddLM.
        extend: For Position Coupling's figures: keep the grids of this stored result (JSON), and make those that it
            lacks.
        cluster: Train MicroAdder's sweeps and evaluate Position Coupling's grids as tasks of Ray: auto, local or
            HOST:PORT.
        again: Make it again although its numbers are stored.
    """
    chosen = {"seeds": seeds, "problems": problems, "minutes": minutes, "extend": extend, "data": data}
    if not again and (said := from_stored(figure, size, out, offsets, cluster=cluster, **chosen)) is not None:
        print(said)
        return None
    from models.training.cluster import connected
    from studies.runs.study import Settings

    try:
        use_threads(threads)
        use_data(data)
        # Unless a GPU is asked for, sweeps do not take one: launches would cost more than it saves.
        with connected(cluster, "cpu" if device == "auto" else device) as on:
            settings = Settings(
                out, size, seeds, problems, device, minutes, yes, offsets=offsets, cluster=on, extend=extend
            )
            ended(_made(figure, settings))
    except KeyboardInterrupt:
        print(f"\nInterrupted; what was trained is in {out}. The same command goes on.", file=sys.stderr)
        return 130


def from_stored(figure: str, size: str, out: Path, offsets: str = "start 1", **chosen: Any) -> str | None:
    """Write the page of the stored numbers and say where; None if there are none of this size, or if others are asked
    for by what is chosen."""
    if any(value is not None for value in chosen.values()) or offsets != "start 1":
        return None
    from studies.runs.stored_studies import command_of, stored_page, stored_studies
    from studies.runs.study import find_study

    target = next((f for f in (f"{figure}-{size}", figure) if f in stored_studies()), None)
    if target is None or (size == "paper" and not target.endswith("paper")):
        return None
    from interp.site.pages import write_page

    paper, _, what = figure.partition(":")
    again = command_of(target) if find_study(figure).kept else ""
    command = again or f"python -m studies reproduce {figure} --size {size} --again"
    at = write_page(out / paper / f"{what}.html", stored_page(target), command)
    return f"wrote {at} from stored numbers; {f'`{again}`' if again else '--again'} makes them again"


def _made(figure: str, settings: Settings) -> bool:
    """Make the page as far as time allows; return whether time was left at the end."""
    from interp.site.pages import write_page
    from studies.runs.study import reproduce

    page = reproduce(figure, settings)
    if page is None:
        return False
    paper, _, what = figure.partition(":")
    command = f"python -m studies reproduce {figure} {page.options}".rstrip()
    path = write_page(settings.out / paper / f"{what}.html", page, command, with_file=True)
    print(f"wrote {path} and {path.with_suffix('.json').name} next to it")
    return settings.minutes_left() != 0
