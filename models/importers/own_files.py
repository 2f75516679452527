"""Model files that people have: which reader takes a file, and the model that is made of it."""

from __future__ import annotations

import copy
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from models.errors import UserError
from models.files.checkpoint import read_bytes
from models.importers.gpt_checkpoints import is_gpt_checkpoint, read_gpt
from models.importers.hugging_face import is_hugging_face, read_hugging_face
from models.importers.lens_states import is_lens_state, read_lens_state
from models.importers.named_tensors import NamedTensors, read_tensors
from models.importers.safe_torch import read_torch_file, require_size
from models.tasks.base import Task
from models.tasks.sequences import SequenceTask
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.dense import DenseWeights

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

TRIED = 1_000  # problems of a task, for what a file does not say
MOST_UNPACKED = 256 << 20  # bytes of the arrays of a small compressed file
TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin")


def is_own_file(path: Path) -> bool:
    """Whether a path may be one of the files that :func:`load_own_file` reads: a Hugging Face folder, or a file of
    tensors without a digest of this project."""
    return (path.is_dir() and is_hugging_face(path)) or path.suffix in (*TORCH_FILES, ".npz")


def load_own_file(
    path: Path,
    task: Task | None,
    config: TransformerConfig | Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    content: Mapping[str, Any] | None = None,
) -> ArithmeticTransformer:
    """The model in a file or folder, with free weights, for a task.

    Args:
        content: what is in the file, where it was read already.
        config: of a file that does not say its own: a config, or fields of one.
        names: our names of weights (:func:`models.transformer.parts.weights.weight_shapes`) -> the file's names, for
        tensors that
            have our shapes already; needs a whole config.

    Raises:
        UserError: no task, a file that no reader takes, a part that cannot be expressed, the first tensor that does not
            fit, a task with more tokens or positions than the model has, or answers of tokens that it does not predict.
    """
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    if task is None:
        raise UserError(
            f"{path} does not say its task; give it as models.load(path, task=models.tasks.formatted(...)), or on the "
            "command line as --task."
        )
    if names is not None:
        cfg, weights = _named(path, config, names, content)
    else:
        cfg, weights = _read(path, task, config, content)
    task = fitted_task(task, cfg, path)
    name = path.name if path.is_dir() else path.stem
    return told(ArithmeticTransformer(DenseWeights.holding(cfg, weights), task, name=name))


def told(model: ArithmeticTransformer) -> ArithmeticTransformer:
    """A model that was given its task, after a warning if that may not be its own."""
    from models.evaluation import predict
    from models.tasks.task_doubts import doubt

    model.registered = None
    with suppress(UserError):  # of a model that cannot answer, whoever asks it is told
        if said := doubt(model, model.task, predict):
            warnings.warn(said, stacklevel=2)
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
    if unused > 0 and cfg.positional_embedding_type == "standard" and not isinstance(task, SequenceTask):
        warnings.warn(
            f"The task {task.name} leaves {unused} of the {cfg.n_ctx} positions of the model in {source} unused. If it "
            "was trained on longer sequences, its format is another: models.tasks.guess proposes one from examples.",
            stacklevel=4,
        )
    if task.d_vocab == cfg.d_vocab:
        return task
    if isinstance(task, SequenceTask):  # whose tokens are characters, which it cannot get more of
        raise UserError(
            f"The task {task.name} has {task.d_vocab} tokens, and the model in {source} reads {cfg.d_vocab}."
        )
    wider: Any = copy.copy(task)
    wider.vocabulary = [*getattr(task, "vocabulary", ()), *(f"<{i}>" for i in range(task.d_vocab, cfg.d_vocab))]
    wider.d_vocab = cfg.d_vocab
    return wider


def _read(path: Path, task: Task, config: Any, content: Mapping[str, Any] | None) -> tuple[TransformerConfig, Weights]:
    if isinstance(config, TransformerConfig):
        config = config.to_dict()
    if path.is_dir():
        if config is not None:
            raise UserError(f"{path} has a config of its own; leave config= out.")
        return read_hugging_face(path, task.input_length)
    content = _content(path) if content is None else content
    if is_gpt_checkpoint(content):
        return read_gpt(content, path, config)
    if is_lens_state(content):
        return read_lens_state(content, path, config, lambda cfg, weights: _loss(cfg, weights, task, path))
    raise UserError(
        f"{path} has tensors such as {', '.join(list(map(str, content))[:3])}, which are named as in no format that "
        "can be read; give names= (our names -> the file's) and config=, or use models.adopt on the live module."
    )


def _loss(cfg: TransformerConfig, weights: Weights, task: Task, path: Path) -> float:
    """The mean loss, in nats a token, of a model on problems of the task."""
    from models.evaluation import teacher_forcing
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    task = fitted_task(task, cfg, path)
    problems = task.sample(TRIED, torch.Generator().manual_seed(0))
    with teacher_forcing(ArithmeticTransformer(DenseWeights.holding(cfg, weights), task), task) as logits:
        return float(cross_entropy(logits(problems).flatten(0, 1).double(), task.targets(problems).flatten()))


def _content(path: Path) -> Mapping[str, Any]:
    if path.suffix in TORCH_FILES:
        return read_torch_file(path)
    if path.suffix != ".npz":
        return read_tensors(path)
    data = read_bytes(path)
    require_size(data, path, max(MOST_UNPACKED, 2 * len(data)))
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: torch.from_numpy(np.ascontiguousarray(archive[name])) for name in archive.files}
    except (
        ValueError,
        OSError,
        TypeError,
        KeyError,
        EOFError,
        SyntaxError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        raise UserError(f"{path} is not an .npz file of numbers ({error}).") from None


def _named(
    path: Path, config: Any, names: Mapping[str, str], content: Mapping[str, Any] | None
) -> tuple[TransformerConfig, Weights]:
    """Tensors by the caller's names, which have our shapes."""
    if config is None:
        raise UserError("names= needs config=, a TransformerConfig.")
    cfg = config if isinstance(config, TransformerConfig) else TransformerConfig(**dict(config))
    content = _content(path) if content is None else content
    tensors = NamedTensors({name: value for name, value in content.items() if isinstance(value, torch.Tensor)}, path)
    shapes, weights = weight_shapes(cfg), {}
    for ours, theirs in names.items():
        if ours not in shapes:
            raise UserError(f"{ours!r} is no weight of this config; weights are {', '.join(list(shapes)[:6])}, ...")
        weights[ours] = tensors.take(theirs, *shapes[ours])
    if missing := next((key for key in shapes if key not in weights and not is_bias(key)), None):
        raise UserError(f"names= has no entry for {missing}, of shape {list(shapes[missing])}.")
    return cfg, weights
