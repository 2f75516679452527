"""Readers of the model files that people have: the rows of the table in :mod:`models.importers.readers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

from models.errors import UserError
from models.files.stored_names import TENSOR_FILES
from models.importers.gpt_checkpoints import is_gpt_checkpoint, read_gpt
from models.importers.hugging_face import read_hugging_face
from models.importers.lens_states import is_lens_state, read_lens_state
from models.importers.loaded_files import FIRST, TRIED, Read, fields_of, fitted_task, loaded_file, with_positions
from models.importers.named_tensors import NamedTensors
from models.importers.nearest_file_format import nearest
from models.importers.readers import FOLDER, File, Format, LoadOptions, Reader, register
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.dense import DenseWeights

if TYPE_CHECKING:
    pass


def _hugging_face(
    file: File, task: Task | None, asked: LoadOptions, notes: list[str]
) -> tuple[TransformerConfig, Weights]:
    if asked.config is not None:
        raise UserError(f"{file.path} has a config of its own; config= may give n_ctx and {FIRST} alone.")
    return read_hugging_face(file.path, 0 if task is None else task.input_length, file.config, notes)


def _gpt(file: File, task: Task | None, asked: LoadOptions, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    return read_gpt(file.content, file.path, fields_of(asked.config), notes)


def _lens(file: File, task: Task | None, asked: LoadOptions, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    loss = None if task is None else lambda cfg, weights: _loss(cfg, weights, task, file.path)
    return read_lens_state(file.content, file.path, fields_of(asked.config), loss, notes)


def _loss(cfg: TransformerConfig, weights: Weights, task: Task, path: Path) -> float:
    """The mean loss, in nats a token, of a model on problems of the task."""
    from models.evaluation import teacher_forcing
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    task = fitted_task(task, cfg, path)
    problems = task.sample(TRIED, torch.Generator().manual_seed(0))
    with teacher_forcing(ArithmeticTransformer(DenseWeights.holding(cfg, weights), task), task) as logits:
        return float(cross_entropy(logits(problems).flatten(0, 1).double(), task.targets(problems).flatten()))


def _named(file: File, task: Task | None, asked: LoadOptions, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    """Tensors by the caller's names (ours -> the file's), which have our shapes; needs a whole config."""
    names, config, content = asked.names, asked.config, file.content
    if names is None:
        like = nearest(content)
        if like is not None and like.whole:
            raise UserError(f"{file.path} has the tensors of {like.format}: put both into one folder, and load that.")
        some, which = ", ".join(list(map(str, content))[:3]), "" if like is None else f" ({like})"
        raise UserError(
            f"{file.path} has tensors such as {some}, which are named as in no format that can be read{which}; give "
            "names= (our names -> the file's) and config=, or use models.adopt on the live module."
        )
    if config is None:
        raise UserError("names= needs config=, a TransformerConfig.")
    cfg = config if isinstance(config, TransformerConfig) else TransformerConfig(**dict(config))
    found = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    tensors, shapes, weights = NamedTensors(found, file.path), weight_shapes(cfg), {}
    for ours, theirs in names.items():
        if ours not in shapes:
            raise UserError(f"{ours!r} is no weight of this config; weights are {', '.join(list(shapes)[:6])}, ...")
        weights[ours] = tensors.take(theirs, *shapes[ours])
    if missing := next((key for key in shapes if key not in weights and not is_bias(key)), None):
        raise UserError(f"names= has no entry for {missing}, of shape {list(shapes[missing])}.")
    return cfg, weights


def _reader(
    name: str,
    kinds: tuple[str, ...],
    reads: Callable[[File], bool],
    read: Read,
    rank: int = 3,
    formats: tuple[Format, ...] = (),
) -> Reader:
    weights = lambda file, task, asked: with_positions(read, file, asked, [], task)  # noqa: E731
    load = lambda file, asked: loaded_file(file, asked, read if asked.names is None else _named, name)  # noqa: E731
    return Reader(name, kinds, reads, load, rank, weights=weights, formats=formats)


register(
    _reader(
        "a Hugging Face folder",
        (FOLDER,),
        lambda file: "model_type" in file.config,
        _hugging_face,
        formats=(
            Format(
                "Hugging Face folder: GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3",
                '`models.load("folder", task=task)`: `config.json` with `*.safetensors` or `pytorch_model.bin`, in '
                "shards too",
                "every tensor's name and shape against the config; none missing, none left over",
                "other model types; activation functions, scalings of rotary positions and switches that cannot be "
                "expressed; quantised weights",
            ),
        ),
    ),
    _reader(
        "a nanoGPT or minGPT checkpoint",
        TENSOR_FILES,
        lambda file: is_gpt_checkpoint(file.content),
        _gpt,
        formats=(
            Format(
                "nanoGPT checkpoint",
                '`models.load("ckpt.pt", task=task)`: `model` and `model_args`, also as wrapped by torch.compile, '
                "accelerate (`module.`) or PyTorch Lightning (`state_dict` with `model.`)",
                "the same",
                "a number of heads that is not said or does not divide the width",
            ),
            Format(
                "minGPT state dict, and GPT-2's own `state_dict()`",
                '`models.load("model.pt", task=task, config={"n_heads": 4})`',
                "the same; which of the two it is, by the shapes of its matrices; that its GELU is the tanh one is not",
                "the same",
            ),
        ),
    ),
    _reader(
        "a TransformerLens state dict",
        TENSOR_FILES,
        lambda file: is_lens_state(file.content),
        _lens,
        formats=(
            Format(
                "TransformerLens state dict: `HookedTransformer` 2 and 3, native `TransformerBridge` 4",
                '`models.load("lens.pt", task=task)`: its config under `config` or `cfg`, in a `config.json` beside '
                "it, or as `config=`; wrapped as above too; also this project's `all_weights()` and `config.to_dict()`",
                "the same; sizes come from the tensors",
                "MLPs without an activation function, with the loss that each would have; for a bridge, no number of "
                "heads",
            ),
            Format(
                "TransformerLens' earlier layouts, in which most public grokking models are stored: EasyTransformer "
                "(`W_E` [d_model, d_vocab], `W_O` [head, d_model, d_head]) and Nanda's (`W_O` [d_model, head and "
                "d_head])",
                "the same; the layout is recognised by the shapes of all tensors, and of a run's `state_dicts` the "
                "last is read",
                "the same",
                "the same; attention that is partly uniform (`attn_coeff`)",
            ),
            Format(
                "QuantaMaths (`add_d5_l2_h3_t30K_s372001.pth`)",
                "the same; the file's name says that it has ReLU",
                "the same",
                "the same",
            ),
        ),
    ),
    _reader(
        "tensors with names of their own",
        TENSOR_FILES,
        lambda file: True,
        _named,
        rank=4,
        formats=(
            Format(
                "any tensors in `.safetensors`, `.npz` or `.pt`",
                '`models.load("w.npz", task=task, config=config, names=names)`: our names of weights and the file\'s',
                "every weight but biases has an entry; every shape",
                "names that are no weights; tensors that are not there or have another shape; without `names`, with "
                "the nearest format and the first tensor that differs",
            ),
        ),
    ),
)
