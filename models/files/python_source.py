"""Python files of a user, which are run where the user names them: ``FILE.py:NAME`` is an object in one."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from models.errors import UserError


@cache
def run_file(path: Path) -> Any:
    """Run somebody's Python file, as its owner asks, and return it as a module. Raises UserError if it cannot be."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem} of {path.parent}"
    spec = importlib.util.spec_from_file_location(name, path)
    if path.suffix != ".py" or spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"There is no Python file {path}.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses and type hints look for it
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:  # whatever the file raises
        raise UserError(f"{path} failed: {type(error).__name__}: {error}.") from error
    return module


def run_source(source: str, path: Path) -> Any:
    """As :func:`run_file`, for the source of a file that was kept in ``path``."""
    module = ModuleType(f"source kept in {path}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, f"<source kept in {path}>", "exec"), vars(module))
    except UserError:
        raise
    except Exception as error:  # whatever the file raises
        raise UserError(f"The source in {path} failed: {type(error).__name__}: {error}.") from error
    return module


def names_an_object(text: str) -> bool:
    """Whether a word is ``FILE.py:NAME``."""
    file, _, name = text.rpartition(":")
    return file.endswith(".py") and name.isidentifier()


def object_in(text: str) -> Any:
    """What ``FILE.py:NAME`` names. Raises UserError if there is no such file or name."""
    file, _, name = text.rpartition(":")
    found = getattr(run_file(Path(file)), name, None)
    if found is None:
        raise UserError(f"{file} has nothing named {name!r}.")
    return found
