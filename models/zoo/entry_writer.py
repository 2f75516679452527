"""Writing entries of the zoo: all of an entry or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models import registry
from models.calls.checked_calls import checked
from models.errors import UserError
from models.files.checkpoint import format_weights, sha256, write_bytes_atomic, write_json_atomic
from models.files.stored_names import CONFIG
from models.transformer.hooked import HookedModel
from models.zoo import entry_file, read_entry, resolve
from models.zoo.files import CARD, FORMAT, STORED_AS, WEIGHTS, alone, check_file_name, no_entry, swap_in


@checked
def save_entry(
    folder: str | Path,
    model: HookedModel,
    training: Mapping[str, Any],
    score: Mapping[str, Any],
    extra_files: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
    half: bool = False,
    certificate: Mapping[str, Any] | None = None,
) -> Path:
    """Store a model as an entry: all of it or nothing.

    The entry is written next to ``folder`` and then renamed to it. Its card is rendered from its data
    (:func:`models.zoo.card.render_card`); :func:`change_entry` adds notes.

    Args:
        folder: the entry; its name is the zoo name if its parent is the zoo.
        model: a model of a registered name.
        training, score: anything that is JSON.
        extra_files: further files by relative name ("snapshots/000100.safetensors").
        overwrite: replace an entry that is there already.
        half: store the parameters in float16, from which :func:`load` makes float32 again.
        certificate: what is proved of the model, as JSON: status, arithmetic, targets, smallest_margin, witness, file.

    Returns:
        the entry's folder.

    Raises:
        UserError: the folder is taken, the model's name is not registered, a file name leaves the folder, or
            the disk is full. What was there before stays.
    """
    folder = Path(folder)
    files = dict(extra_files or {})
    spec = registry.get_spec(str(model.registered))
    for name in files:
        if name in (CONFIG, WEIGHTS, CARD):
            raise UserError(f"{name} is written by save_entry and cannot be an extra file.")
    parameters = {name: parameter.detach() for name, parameter in model.weight_map.named_parameters()}
    metadata = {"model": spec.name}
    if half:
        parameters = {name: parameter.half() for name, parameter in parameters.items()}
        metadata[STORED_AS] = "float16"
    config = {"format": FORMAT, "model": spec.name, "weights": WEIGHTS, "sha256": {}}
    config |= {"training": dict(training), "score": dict(score)}
    if certificate is not None:
        config["certificate"] = dict(certificate)
    return _store(folder, config, {WEIGHTS: format_weights(parameters, metadata)} | files, overwrite)


@checked
def change_entry(
    entry: str | Path,
    notes: Mapping[str, Sequence[str]] | None = None,
    certificate: Mapping[str, Any] | None = None,
    extra_files: Mapping[str, bytes] | None = None,
) -> Path:
    """Add to an entry's data, replacing what has the same name. The card is rendered again; the weights stay.

    Args:
        notes: paragraphs by heading. certificate: what is proved, in place of what was. extra_files: by relative name.

    Raises:
        UserError: no such entry, or files that do not match their hashes.
    """
    folder, config = resolve(entry), read_entry(entry)
    files = {name: entry_file(folder, name) for name in config["sha256"]} | dict(extra_files or {})
    if notes:
        config["notes"] = config.get("notes", {}) | {heading: list(texts) for heading, texts in notes.items()}
    if certificate is not None:
        config["certificate"] = dict(certificate)
    return _store(folder, config, files, overwrite=True)


def _store(folder: Path, config: dict[str, Any], files: dict[str, bytes], overwrite: bool) -> Path:
    """Write an entry with its card and hashes: all of it or nothing."""
    from models.zoo.card import render_card  # which needs what training has

    for name in files:
        check_file_name(name, folder)
    try:
        json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"The data of {folder} must be JSON ({error}).") from None
    files = files | {CARD: render_card(config | {"sha256": {}}, files).encode()}
    config = config | {"sha256": {name: sha256(data) for name, data in files.items()}}
    staging = folder.parent / f".{folder.name}.carrylens-new-{os.getpid()}"
    with alone(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not overwrite:
                raise UserError(f"{folder} exists already; nothing was overwritten.")
            if (why := no_entry(folder)) is not None:
                raise UserError(f"{folder} is not overwritten: {why}.")
        try:
            for name, data in files.items():
                write_bytes_atomic(staging / name, data)
            write_json_atomic(staging / CONFIG, config)
            swap_in(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder
