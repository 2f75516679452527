"""Where stored models lie, and what their names are; all of it is known without importing torch."""

from __future__ import annotations

import os
from pathlib import Path

from models.errors import UserError

ZOO = Path(__file__).parents[1] / "zoo"
CONFIG = "config.json"  # every stored model has one
WEIGHTS = "model.safetensors"
#: Suffixes of files of tensors: those that ``torch.save`` writes, and all.
TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin")
TENSOR_FILES = (*TORCH_FILES, ".npz", ".safetensors")
#: Suffixes of files that hold models: of tensors, JSON and programs, and what registered readers add.
MODEL_FILES = {*TENSOR_FILES, ".json", ".py"}


def stored(zoo: Path = ZOO) -> list[str]:
    """The names of the entries in a folder, sorted."""
    return sorted(config.parent.name for config in zoo.glob(f"*/{CONFIG}"))


def not_installed(path: Path) -> UserError:
    """The error for a file of this package's checkout that an installed package does without."""
    of = f"{path.parent.name}/{path.name}"
    return UserError(
        f"{of} is not in the installed package, which leaves out larger models and executed notebooks; it is in a "
        "checkout of the project (its README says how to set one up)."
    )


def is_left_out(name: str) -> bool:
    """Whether a stored model's weights are in a checkout of the project alone, and not in this package."""
    return (ZOO / name / CONFIG).is_file() and not (ZOO / name / WEIGHTS).exists()


def is_path(name_or_path: str | Path) -> bool:
    """Whether a model is given by a path: a ``Path``, a text with a separator or with a suffix of
    :data:`MODEL_FILES`, or the name of a folder here that holds a run or an entry and has no stored model's name."""
    text = os.fspath(name_or_path)
    apart = isinstance(name_or_path, Path) or "/" in text or os.sep in text
    if apart or text.endswith(tuple(MODEL_FILES)):
        return True
    try:
        return bool(text) and "\0" not in text and (Path(text) / CONFIG).is_file() and text not in stored()
    except OSError:  # longer than the name of a file may be
        return False
