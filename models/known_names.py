"""The names of all models and how their problems are written, known without importing torch, so that typing errors are
reported at once.

``names.json`` lists what the modules of :data:`models.registering.REGISTERING` register. A test compares it with the
registry.
After a model has been added there,

    python -m models.known_names

writes the file again. If the list of modules has changed since, the file is not used and the registry itself is asked.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from models.errors import UserError, unknown_name
from models.notation import Notation
from models.registering import REGISTERING

ZOO = Path(__file__).parent / "zoo"
CONFIG = "config.json"  # every stored model has one
FILE = Path(__file__).with_name("names.json")


class Names(NamedTuple):
    """All registered names, the names of constructed models, and the notations of their problems."""

    registered: list[str]
    constructed: list[str]
    notations: list[tuple[Notation, list[str]]]
    """Every notation, with the models whose problems are written so."""


def from_registry() -> Names:
    """The names from the registering modules, which are imported for this."""
    from models import registry

    names, written = registry.names(sweeps=True), {}
    for name in names:
        spec = registry.get_spec(name)
        if (notation := spec.task(**spec.options).notation) is not None:
            written.setdefault(notation, []).append(name)
    return Names(names, registry.constructed(), list(written.items()))


@functools.cache
def known() -> Names:
    """The names in the file, or those of the registry if the file lists other modules."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    if data["modules"] != list(REGISTERING):
        return from_registry()
    return Names(data["registered"], data["constructed"], [(Notation(*of), to) for of, to in data["notations"]])


def stored(zoo: Path = ZOO) -> list[str]:
    """The names of the entries in a folder, sorted."""
    return sorted(config.parent.name for config in zoo.glob(f"*/{CONFIG}"))


def is_path(name_or_path: str | Path) -> bool:
    """Whether a model is given by a path: a ``Path``, a text with a separator or with the suffix of a weight file or of
    a submission, or the name of a folder here that holds a run or an entry and has no stored model's name."""
    text = os.fspath(name_or_path)
    apart = isinstance(name_or_path, Path) or "/" in text or os.sep in text
    if apart or text.endswith((".pt", ".pth", ".safetensors", ".py")):
        return True
    try:
        return bool(text) and "\0" not in text and (Path(text) / CONFIG).is_file() and text not in stored()
    except OSError:  # longer than the name of a file may be
        return False


def not_stored(name: str, registered: Iterable[str], allowed: Iterable[str]) -> UserError:
    """The error for a name that is not one of the ``allowed`` models: not trained yet, or unknown."""
    if name in registered:
        return UserError(
            f"{name} is registered and not trained: `interp train {name}` trains it, and models.build({name!r}) makes "
            "an untrained one."
        )
    return unknown_name("stored model", name, allowed)


def check_loadable(name_or_path: str) -> None:
    """Raises UserError, as :func:`models.load` does, for anything but a path or the name of a loadable model."""
    if is_path(name_or_path) or name_or_path in (loadable := stored()) or name_or_path in known().constructed:
        return
    raise not_stored(name_or_path, known().registered, [*loadable, *known().constructed])


def check_problem(name: str, text: str) -> None:
    """Raises UserError, as the task of a registered model does, for a text that is not one of its problems. A text for
    any other model passes."""
    for notation, names in known().notations:
        if name in names:
            notation.read(text)


def check_registered(name: str) -> None:
    """Raises UserError, as :func:`models.get_spec` does, for a name that is not registered."""
    if name not in known().registered:
        raise unknown_name("model", name, known().registered)


if __name__ == "__main__":
    FILE.write_text(json.dumps({"modules": list(REGISTERING)} | from_registry()._asdict(), indent=1) + "\n")
    print(f"wrote {FILE.name}")
