"""Show what the studies found from stored numbers, without any model or training.

stored_studies()                         {"microadder:ladder": path of its JSON, ...}
stored_sections("microadder:ladder")     its tables and figures
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from interp.core.sections import Page, Section
from models.errors import unknown_name
from studies.claims.stored_texts import read_stored
from studies.papers import DATA, PAPERS
from studies.runs.study import show_of, studies


def stored_studies() -> dict[str, Path]:
    """The files of stored numbers by target ("paper:what"), paper by paper."""
    found = {study.target: DATA / study.stored for study in studies().values() if study.stored}
    for name in (names := [*PAPERS, "comparison"]):
        for path in sorted(DATA.glob(f"{name}-*.json")):
            found[f"{name}:{path.stem.removeprefix(f'{name}-')}"] = path
    return dict(sorted(found.items(), key=lambda item: names.index(item[0].partition(":")[0])))


def command_of(target: str) -> str:
    """The command that makes the numbers of a target again; for a study that only an earlier version has, with that."""
    study = studies().get(target)
    if study is not None and study.kept:
        return f"git checkout {study.kept} && interp reproduce {target} --again"
    if study is not None and study.command:
        return study.command
    paper, _, what = target.partition(":")
    size = " --size small" if what.endswith("-small") else ""
    return f"python -m studies reproduce {paper}:{what.removesuffix('-small')}{size} --again"


def stored_page(target: str) -> Page:
    """The page of a target from its stored numbers. Raises UserError as :func:`stored_sections` does."""
    known = stored_studies()
    if target not in known:
        raise unknown_name("stored study", target, known)
    data, study = read_stored(known[target]), studies().get(target) or studies().get(target.removesuffix("-small"))
    return Page(target if study is None else study.title, show_of(target)(data), data)


def stored_sections(target: str) -> list[Section]:
    """The sections of a target, all of level 3.

    Raises:
        UserError: nothing is stored under this name, with the closest match.
    """
    return [replace(section, level=3) for section in stored_page(target).sections]
