"""Load a training run as a model: its best seed's best parameters, or a snapshot.

The best seed is chosen by the run's own validation: one that a judge accepted, then the lowest loss or the largest
share of validation problems answered, then the lowest seed. Test problems are never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models import registry
from models.errors import UserError
from models.files import checkpoint as storage
from models.importers.readers import FOLDER, File, LoadOptions, Reader
from models.importers.readers import register as register_reader
from models.registry import build
from models.tasks.task import Task
from models.training.model_definition import built_from
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.transformer.arithmetic_transformer import ArithmeticTransformer


def run_of(file: File) -> File | None:
    """The folder of the run that a path belongs to: the run's own, or of one of its checkpoints or snapshots. None for
    another path."""
    folders = (file,) if file.kind == FOLDER else map(File, file.path.parents[:2])
    return next((folder for folder in folders if {"model", "recipe", "seeds"} <= folder.config.keys()), None)


def best_row(states: list[dict[str, Any]]) -> int:
    """The row of the best seed on validation, from the states in a run's checkpoint."""

    def key(row: int) -> tuple[bool, float, int]:
        state = states[row]
        loss = state.get("best_loss")
        return state.get("accepted") is None, -state["best_exact"] if loss is None else loss, state["seed"]

    return min(range(len(states)), key=key)


def model_of(name: str, theta: Float[Tensor, " parameter"] | Sequence[float]) -> ArithmeticTransformer:
    """A registered model with the parameters of one seed: a row of a run's tensors, or the same numbers as a list."""
    model = build(name)
    ParameterLayout(model).load_into(model, torch.as_tensor(theta))
    return model


def _built(config: dict[str, Any], task: Task | None, folder: Path, trust: bool | str) -> ArithmeticTransformer:
    """The untrained model of a run: from its definition, if it has one, else by its registered name."""
    name, definition = config["model"], config.get("definition")
    if definition is not None:
        if (model := built_from(definition, name, task, folder, trust)) is not None:
            return model
        if name not in registry.names(sweeps=True):
            raise UserError(
                f"The weight map of {name} is Python code, which a run folder does not keep; run the script that "
                "trains it, which finds the run complete, and load it there."
            )
    elif task is not None:
        raise UserError(f"{name} is registered with its own task; leave task= out.")
    return build(name)


def load_run(file: File, asked: LoadOptions) -> ArithmeticTransformer:
    """The model of a run's folder (the best parameters so far), its checkpoint (the last ones) or a snapshot.

    Of what is asked it takes ``seed``, which of the run's seeds (by default the best), and ``task``, the task of a run
    whose folder does not keep it, or keeps its Python source, which ``trust`` lets run.

    Raises:
        UserError: a run that has saved nothing yet, a seed that it does not have, a damaged file, an unregistered
            model.
    """
    found = run_of(file)
    assert found is not None
    path, folder, seed, task = file.path, found.path, asked.seed, asked.task
    config = RunFolder(folder).config(found.config)
    loaded = RunFolder(folder).load_checkpoint()
    if loaded is None and path == folder:
        raise UserError(f"The run {folder} has saved no checkpoint yet; go on with its training, or load a snapshot.")
    seeds = [config["first_seed"] + row for row in range(config["seeds"])]
    if loaded is not None:
        seeds = [state["seed"] for state in loaded.state["seeds"]]
    if seed is not None and seed not in seeds:
        raise UserError(f"The run {folder} has the seeds {seeds[0]} to {seeds[-1]}, and not {seed}.")
    row = seeds.index(seed) if seed is not None else best_row(loaded.state["seeds"]) if loaded is not None else 0
    model = _built(config, task, folder, asked.trust)
    model.run = str(path)
    layout = ParameterLayout(model)
    tensors = loaded.tensors if loaded is not None and path == folder else file.content
    theta = tensors.get("best_theta" if path == folder else "theta")
    parameters = {name: value[row] for name, value in tensors.items()} if theta is None else _named(layout, theta, row)
    storage.assign_parameters(model.weight_map, parameters, path)
    return model


def _named(layout: ParameterLayout, theta: Tensor, row: int) -> dict[str, Tensor]:
    if theta.ndim != 2 or theta.shape[1] != layout.n:
        raise UserError(f"The checkpoint holds {theta.shape[-1]:,} numbers a seed, and the model has {layout.n:,}.")
    return layout.unflatten(theta[row])


def _of_run(file: File) -> bool:
    return run_of(file) is not None


register_reader(Reader("a training run", (FOLDER, ".safetensors"), _of_run, load_run, rank=1, seeds=True))
