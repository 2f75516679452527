"""The names of all papers, studies, probes and options of ``interp train``, known without importing torch, so that a
mistyped name is reported at once.

``names.json`` lists what is registered; a test compares it with the registries. After a study or a probe has been
added,

    python -m interp.cli.known_names

writes the file again. Until then a name that it lacks is passed to the registry if any source of the package has it.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from interp.papers.targets import check_target
from models.errors import unknown_name

FILE = Path(__file__).with_name("names.json")
_PACKAGE = Path(__file__).parents[1]


def from_registries() -> dict[str, list[str]]:
    """The registered names; this imports everything."""
    from dataclasses import fields

    from interp.cli.train import Train
    from interp.core.probe import registered
    from interp.papers import papers
    from interp.papers.studies import studies
    from models.training.recipes import Recipe

    taken = {field.name for field in (*fields(Train), *fields(Recipe))} - {"name", "problems"}
    runnable = [target for target, each in studies().items() if each.run is not None]
    keys = [paper.key for paper in papers().values()]
    found = {"papers": sorted(keys), "studies": sorted(runnable), "probes": sorted(registered())}
    return found | {"options of train": sorted(f"--{name.removesuffix('_name').replace('_', '-')}" for name in taken)}


@functools.cache
def known() -> dict[str, list[str]]:
    """The names in the file."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def check_probe(name: str) -> None:
    """Raise UserError for an unknown probe, as :func:`interp.core.probe.find_probe` does."""
    if name not in known()["probes"] and not _in_a_source(name):
        raise unknown_name("probe", name, known()["probes"])


def check_study(target: str) -> None:
    """Raise UserError for an unknown study, as :func:`interp.papers.studies.find_study` does."""
    paper, _, what = target.partition(":")
    if not (_in_a_source(paper) and _in_a_source(what)):
        check_target(target, known()["studies"])


def check_paper(key: str) -> None:
    """Raise UserError for an unknown paper."""
    if key not in known()["papers"] and not _in_a_source(key):
        raise unknown_name("paper", key, known()["papers"])


def check_options(arguments: list[str]) -> None:
    """Raise UserError for an unknown option of ``interp train``; those with a dot are parts of the recipe."""
    options = [*known()["options of train"], "--help"]
    for word in arguments:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and "." not in name and name.replace("--no-", "--", 1) not in options:
            raise unknown_name("option", name, options)


def _in_a_source(name: str) -> bool:
    """Whether a module of the package contains the word: it may have registered the name after the file was written."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") if name else None
    return word is not None and any(word.search(path.read_text(encoding="utf-8")) for path in _PACKAGE.rglob("*.py"))


if __name__ == "__main__":
    FILE.write_text(json.dumps(from_registries(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}")
