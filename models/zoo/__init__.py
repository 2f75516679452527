"""Stored models: an entry is a folder with ``config.json``, ``model.safetensors`` and a card rendered from its data.

    config.json   {"format": 1, "model": "microadder-57", "weights": "model.safetensors",
                   "sha256": {"model.safetensors": "...", ...},     of every other file of the entry
                   "training": {...}, "score": {...},               free-form
                   "certificate": {...},                            what is proved, if something is
                   "notes": {"heading": ["paragraph", ...]}}        what cannot be derived, if there is some

The zoo is the entries next to this file, trained by this project. The weights are the free parameters of the
model's weight map and nothing else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from safetensors import safe_open

from models import registry
from models.calls.argument_kinds import Seed
from models.calls.checked_calls import checked
from models.errors import UserError, unknown_name
from models.files.checkpoint import (
    assign_parameters,
    check_sha256,
    load_weights,
    read_bytes,
    read_json,
)
from models.files.stored_names import CONFIG, ZOO, is_path, not_installed, stored
from models.importers.readers import FOLDER, File, Format, LoadOptions, Reader, reader_of
from models.importers.readers import register as register_reader
from models.plugins import import_plugins
from models.tasks.task_definitions import TASK
from models.zoo.files import (
    FORMAT,
    STORED_AS,
    WEIGHTS,
    check_file_name,
    finish_interrupted_swap,
)
from models.zoo.seed_counts import grokked_seeds as grokked_seeds
from models.zoo.seed_counts import repeated_seeds as repeated_seeds
from models.zoo.seed_counts import seed_rate as seed_rate

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer


#: What reading a file of another form than expected raises.
UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RecursionError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


def zoo_names() -> list[str]:
    """The names of the stored models that come with this package, sorted."""
    return stored(ZOO)


@checked
def load(
    name_or_path: str | Path,
    seed: Seed | None = None,
    task: Annotated[Any, TASK] = None,
    config: Any = None,
    names: Any = None,
    trust: bool | str = False,
) -> ArithmeticTransformer:
    """A trained model, or one whose numbers are set by hand, or one's own file for a ``task``.

    Args:
        name_or_path: a name of the zoo ("microadder-57"), the name of a constructed model ("microadder-57-by-hand";
            :func:`models.build` takes its options), or a path (recognised by a separator, a suffix or by being a
            ``Path``): an entry's folder, a run's ("runs/microadder-57": its best parameters so far), a weight file of
            ours (``.safetensors``: an entry's, a run's checkpoint or snapshot), a published checkpoint (``.pt``, or
            ``.json`` of :mod:`studies.checkpoints.pooled_decoder`), or a public AdderBoard submission (``.py``, with
            ``trust``). With ``task`` also a Hugging Face folder, a nanoGPT or minGPT checkpoint, a TransformerLens
            state dict, or tensors in ``.safetensors`` or ``.npz`` (docs/read_your_files.md).
        seed: which seed of a run; by default the one that is best on its validation problems.
        task: what the model is for, where the file does not say it: a task, or its text
            (:func:`models.tasks.task_definitions.task_of_text`).
        config, names: what else the file does not say (:mod:`models.importers.file_readers`).
        trust: that a file which is a program may be run: confined by bubblewrap (True), as "unconfined", or under a
            command of one's own, such as a container's.

    Returns:
        the model. One of a file is named after the file (``name_or_path``), and keeps the registered model that it is
        one of, if there is one, as ``registered``.

    Raises:
        UserError: unknown name (with the closest match), missing, truncated or tampered file, weights that do
            not fit their model, a seed for something that is not a run.
    """
    try:
        model = _loaded(name_or_path, LoadOptions(seed, task, config, names, trust))
    except UserError:
        raise
    except UNREADABLE as error:  # a file may hold anything; the readers name what people get wrong
        said = " ".join(str(error).split())[:200]
        raise UserError(f"{name_or_path} cannot be read as a model ({type(error).__name__}: {said}).") from error
    if not model.run and (not isinstance(name_or_path, str) or is_path(name_or_path)):
        model.name_or_path = _own_name(Path(name_or_path))
    return model


def _own_name(path: Path) -> str:
    """The name of a model in a file or folder: that of a registered model, whose weights may be others, for this
    package's own entries alone."""
    name = path.name if path.is_dir() else path.stem
    if path.resolve().parent == ZOO.resolve():
        return name
    return name if name not in registry.names(sweeps=True) else "/".join(path.absolute().parts[-2:])


def _loaded(name_or_path: str | Path, asked: LoadOptions) -> ArithmeticTransformer:
    """The model of a name, or of a path by the first reader that takes it (:mod:`models.importers.readers`)."""
    import_plugins()
    # Both register readers, which need the registry and the transformer.
    from models.importers import file_readers as file_readers
    from models.training import run_reader as run_reader

    if registry.is_constructed(name_or_path) and asked.seed is None:
        return registry.build(str(name_or_path))
    path = resolve(name_or_path, registry.constructed)
    finish_interrupted_swap(path)
    file = File(path)
    reader = reader_of(file)
    if asked.seed is not None and not (reader is not None and reader.seeds):
        raise UserError(f"{name_or_path} is no training run, so that there is no seed to choose.")
    if reader is None:
        raise not_read(file)
    if reader.weights is None and reader.rank < 2 and (asked.config is not None or asked.names is not None):
        raise UserError(f"{name_or_path} is {reader.name}, which says its own config; leave config= and names= out.")
    model = reader.load(file, asked)
    if getattr(model, "task", None) is None:
        raise UserError(f"{name_or_path} is {reader.name}, which does not say its task; give it as task= or --task.")
    return model


def not_read(file: File) -> UserError:
    """Why no reader takes a file."""
    path = file.path
    if not os.path.exists(path):  # not by a name that is too long either
        return UserError(f"There is no file or folder {path}.")
    if path.suffix == ".json":
        return UserError(f"{path} is no JSON file of a model that can be imported.")
    if path.suffix == ".py":
        return UserError(
            f"{path} is a program, and nothing that is installed here reads programs; a checkout of this project does."
        )
    try:
        read_entry(path)
    except UserError as error:
        return error
    return UserError(f"{path} is not a model that can be read.")


def _is_entry(file: File) -> bool:
    """Whether a folder is an entry, or a weight file says which model it is of."""
    return {"weights", "sha256"} <= file.config.keys() if file.kind == FOLDER else "model" in file.metadata


def _load_entry(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    """The model of an entry's folder, or of a weight file."""
    if file.kind != FOLDER:
        return _with_parameters(file.metadata["model"], file.content, file.path)
    config, path = _checked_entry(dict(file.config), file.path / CONFIG), file.path
    tensors, metadata = load_weights(path / config["weights"], config["sha256"][config["weights"]])
    if metadata.get(STORED_AS) == "float16":
        tensors = {name: t.float() if t.dtype == torch.float16 else t for name, t in tensors.items()}
    return _with_parameters(config["model"], tensors, path / config["weights"])


_FORMAT = Format(
    "this project's entries, runs and snapshots",
    '`models.load("runs/mine")`; the task is in the file',
    "hashes, config, parameters",
    "changed or truncated files",
)
register_reader(
    Reader("a model of the zoo", (FOLDER, ".safetensors"), _is_entry, _load_entry, rank=0, formats=(_FORMAT,))
)


def resolve(name_or_path: str | Path, also: Callable[[], Iterable[str]] = tuple) -> Path:
    """Where a name or path points; zoo names win over equally named files in the working folder.

    ``also`` gives names that the caller accepts as well, for the closest match.

    Raises:
        UserError: neither a zoo name nor a path, with the closest zoo name.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and text in zoo_names():
        return ZOO / text
    if is_path(name_or_path):
        return Path(text).expanduser()
    if text in registry.names(sweeps=True):
        raise UserError(
            f"{text} is registered and not trained: `interp train {text}` trains it, and models.build({text!r}) makes "
            "an untrained one."
        )
    raise unknown_name("stored model", text, [*zoo_names(), *also()])


def read_entry(name_or_path: str | Path) -> dict[str, Any]:
    """The checked ``config.json`` of an entry: model, weights, sha256, training and score.

    Raises:
        UserError: no such entry, or a config that cannot be one.
    """
    folder = resolve(name_or_path)
    finish_interrupted_swap(folder)
    path = folder / CONFIG
    if not folder.exists():
        raise UserError(f"There is no file or folder {folder}.")
    if not folder.is_dir():
        raise UserError(f"{folder} is not a model: give a zoo name, an entry's folder, a .safetensors or a .pt file.")
    if not path.exists():
        raise UserError(f"{folder} is not a stored model: it has no {CONFIG}.")
    return _checked_entry(read_json(path), path)


def _checked_entry(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """What the ``config.json`` of an entry says. Raises UserError if it cannot be one."""
    if config.get("format") != FORMAT:
        raise UserError(f"{path} has format {config.get('format')!r}; this version reads format {FORMAT}.")
    for key, kind in (("model", str), ("weights", str), ("sha256", dict), ("training", dict), ("score", dict)):
        if not isinstance(config.get(key), kind):
            raise UserError(f"{path} needs an entry {key!r} of type {kind.__name__}.")
    for key in ("certificate", "notes"):
        if not isinstance(config.get(key, {}), dict):
            raise UserError(f"{path} needs {key!r} to be a dict where it has one.")
    for name, digest in config["sha256"].items():
        check_file_name(name, path)
        if not isinstance(digest, str):
            raise UserError(f"{path} needs the SHA-256 of {name} as text.")
    if config["weights"] not in config["sha256"]:
        raise UserError(f"{path} has no SHA-256 for its weights {config['weights']!r}, so they cannot be checked.")
    return config


def entry_file(name_or_path: str | Path, file: str) -> bytes:
    """Another file of an entry (card, metrics, snapshot), checked against its hash.

    Raises:
        UserError: no such entry or file, or a file that does not match its hash.
    """
    hashes = read_entry(name_or_path)["sha256"]
    if file not in hashes:
        raise unknown_name(f"file of {name_or_path}", file, hashes)
    path = resolve(name_or_path) / file
    data = read_bytes(path)
    check_sha256(data, hashes[file], path)
    return data


def stored_bits(name: str) -> int:
    """The bits of an entry's free numbers as stored, from the header of its weight file."""
    sizes = {"F16": 16, "BF16": 16, "F32": 32, "F64": 64}
    path = resolve(name) / WEIGHTS
    if not path.exists():
        raise not_installed(path)
    with safe_open(path, "numpy") as file:
        parts = [file.get_slice(key) for key in file.keys()]  # noqa: SIM118  no mapping
        return sum(math.prod(part.get_shape()) * sizes[part.get_dtype()] for part in parts)


def _with_parameters(name: object, tensors: Mapping[str, Any], source: Path) -> ArithmeticTransformer:
    if not isinstance(name, str):
        raise UserError(f"{source} does not say which model its weights are of.")
    try:
        model = registry.build(name)
    except UserError as error:
        raise UserError(f"{source} holds weights of an unknown model: {error}") from None
    assign_parameters(model.weight_map, tensors, source)
    return model
