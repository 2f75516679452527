"""The model that is made of what a reader reads of a file, for a task."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from models.errors import Caution, UserError
from models.importers.readers import FOLDER, File, LoadOptions
from models.number_format import counted
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights
from models.weight_maps.dense import DenseWeights

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

TRIED = 1_000  # problems of a task, for what a file does not say
#: (the file, its task or None, what else was asked, notes) -> the config and the effective weights. What was left out
#: or could not be checked is added to the notes.
Read = Callable[[File, Task | None, LoadOptions, list[str]], tuple[TransformerConfig, Weights]]
FIRST = "first_position"  # a field of config= for models of files, which is no field of a config


def loaded_file(file: File, asked: LoadOptions, read: Read, kind: str) -> ArithmeticTransformer:
    """The model in a file or folder, with free weights, for a task.

    Raises:
        UserError: no task, a part that cannot be expressed, the first tensor that does not fit, a task with more tokens
            or positions than the model has, or answers of tokens that it does not predict.
    """
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    path, task = file.path, asked.task
    if task is None:
        raise UserError(
            f"{path} does not say its task; give it as models.load(path, task=models.tasks.formatted(...)), or on the "
            f"command line as --task. models.guess({str(path)!r}), or interp load {path}, tries what it may be."
        )
    notes: list[str] = []
    cfg, weights = with_positions(read, file, asked, notes)
    task = fitted_task(task, cfg, path)
    name = path.name if file.kind == FOLDER else path.stem
    model = ArithmeticTransformer(DenseWeights.holding(cfg, weights), task, name=name)
    n, layers = sum(each.numel() for each in weights.values()), cfg.n_layers
    recognised = f"{kind}, {counted(layers, 'layer')}, {counted(n, 'number')}"
    said = [recognised, *notes, "the meaning of its tokens is the given task"]
    model.load_report = f"{path.name}: {'; '.join(said)}."
    return warn_of_task_mismatch(model)


def with_positions(
    read: Read, file: File, asked: LoadOptions, notes: list[str], task: Task | None = None
) -> tuple[TransformerConfig, Weights]:
    """What a reader gives, with the caller's ``n_ctx`` and ``first_position``, which no reader needs to know.

    Raises:
        UserError: more positions than a table of them has.
    """
    task = task or asked.task
    given = asked.config if isinstance(asked.config, TransformerConfig) else dict(asked.config or {})
    changes = {} if isinstance(given, TransformerConfig) else {n: given.pop(n) for n in (FIRST, "n_ctx") if n in given}
    keep = {"n_ctx": changes["n_ctx"]} if asked.names is not None and "n_ctx" in changes else {}
    own = given if isinstance(given, TransformerConfig) else ({**given, **keep} or None)
    cfg, weights = read(file, task, replace(asked, config=own), notes)
    table = weights.get("pos_embed.W_pos") if cfg.positional_embedding_type == "standard" else None
    first, last = changes.get(FIRST, 0), changes.get("n_ctx", cfg.n_ctx)
    for name, value in (("n_ctx", last - 1), (FIRST, first)):
        if type(value) is not int or value < 0:
            raise UserError(f"{name} of config= is a whole number of positions, not {changes[name]!r}.")
    if table is None:
        if first:
            raise UserError(f"{file.path} has no table of positions, so that none of them can be the first.")
        if last > cfg.n_ctx and file.config.get("sliding_window") is not None:
            raise UserError(f"{file.path} has attention that slides over a window, which {last} positions would pass.")
        return cfg.replace(n_ctx=last), weights
    last = last if "n_ctx" in changes else len(table) - first
    if first + last > len(table) or last < 1:
        raise UserError(
            f"{file.path} has a table of {len(table)} positions, and {first} to {first + last - 1} were asked for; "
            "those behind its end were never trained."
        )
    return cfg.replace(n_ctx=last), weights | {"pos_embed.W_pos": table[first : first + last]}


def warn_of_task_mismatch(model: ArithmeticTransformer) -> ArithmeticTransformer:
    """A model that was given its task, after a warning if that may not be its own."""
    from models.evaluation import predict
    from models.task_mismatch import task_mismatch

    model.registered = None
    with suppress(UserError):  # of a model that cannot answer, whoever asks it is warn_of_task_mismatch
        if said := task_mismatch(model, model.task, predict):
            warnings.warn(said, category=Caution, stacklevel=2)
    return model


def fitted_task(task: Task, cfg: TransformerConfig, source: Path | str) -> Task:
    """The task with as many tokens as the model reads; warns of positions that the task leaves unused.

    Raises:
        UserError: the task has more tokens or positions than the model, or answers that the model does not predict.
    """
    if task.d_vocab > cfg.d_vocab or task.input_length > cfg.n_ctx:
        raise UserError(
            f"The task {task.name} has {task.d_vocab} tokens and {task.input_length} positions, and the model in "
            f"{source} {cfg.d_vocab} and {cfg.n_ctx}."
        )
    if cfg.n_logits < task.d_vocab:  # it need not predict what only stands in problems
        answers = task.targets(task.sample(TRIED, torch.Generator().manual_seed(0)))
        if (highest := int(answers.max())) >= cfg.n_logits:
            raise UserError(
                f"The answers of {task.name} have the token {list(task.vocabulary)[highest]!r} (number {highest}), and "
                f"the model in {source} predicts {cfg.n_logits} tokens, from 0 on."
            )
    unused = cfg.n_ctx - task.input_length - 1  # a context mostly has room for the last answer's token as well
    named = source.name if isinstance(source, Path) else source
    if unused > 0 and cfg.positional_embedding_type == "standard" and not task.has_other_sizes:
        warnings.warn(
            f"The task {task.name} leaves {unused} of the {cfg.n_ctx} positions of the model in {named} unused. If it "
            "was trained on longer sequences, its format is another: models.tasks.guess proposes one from examples.",
            category=Caution,
            stacklevel=4,
        )
    if task.d_vocab == cfg.d_vocab:
        return task
    if isinstance(task.vocabulary, str):  # whose tokens are characters, which it cannot get more of
        raise UserError(
            f"The task {task.name} has {task.d_vocab} tokens, and the model in {source} reads {cfg.d_vocab}."
        )
    wider: Any = copy.copy(task)
    wider.vocabulary = [*getattr(task, "vocabulary", ()), *(f"<{i}>" for i in range(task.d_vocab, cfg.d_vocab))]
    wider.d_vocab, wider.kept = cfg.d_vocab, {}
    return wider


def fields_of(config: Any) -> Any:
    """The fields of ``config=``, which may be a config."""
    return config.to_dict() if isinstance(config, TransformerConfig) else config
