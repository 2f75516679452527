"""Model files that people have: their readers, and the model that is made of what these read, for a task."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from models.errors import Caution, UserError
from models.files.stored_names import TENSOR_FILES
from models.importers.gpt_checkpoints import is_gpt_checkpoint, read_gpt
from models.importers.hugging_face import read_hugging_face
from models.importers.lens_states import is_lens_state, read_lens_state
from models.importers.named_tensors import NamedTensors
from models.importers.nearest_file_format import nearest
from models.importers.readers import FOLDER, Asked, File, Format, Reader, register
from models.number_format import counted
from models.tasks.task import Task
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.dense import DenseWeights

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

TRIED = 1_000  # problems of a task, for what a file does not say
#: (the file, its task or None, what else was asked, notes) -> the config and the effective weights. What was left out
#: or could not be checked is added to the notes.
Read = Callable[[File, Task | None, Asked, list[str]], tuple[TransformerConfig, Weights]]
FIRST = "first_position"  # a field of config= for models of files, which is no field of a config


def _loaded(file: File, asked: Asked, read: Read, kind: str) -> ArithmeticTransformer:
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
    cfg, weights = _with_positions(read if asked.names is None else _named, file, asked, notes)
    task = fitted_task(task, cfg, path)
    name = path.name if file.kind == FOLDER else path.stem
    model = ArithmeticTransformer(DenseWeights.holding(cfg, weights), task, name=name)
    n, layers = sum(each.numel() for each in weights.values()), cfg.n_layers
    recognised = f"{kind}, {counted(layers, 'layer')}, {counted(n, 'number')}"
    said = [recognised, *notes, "the meaning of its tokens is the given task"]
    model.load_report = f"{path.name}: {'; '.join(said)}."
    return told(model)


def _with_positions(
    read: Read, file: File, asked: Asked, notes: list[str], task: Task | None = None
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


def told(model: ArithmeticTransformer) -> ArithmeticTransformer:
    """A model that was given its task, after a warning if that may not be its own."""
    from models.evaluation import predict
    from models.task_mismatch import doubt

    model.registered = None
    with suppress(UserError):  # of a model that cannot answer, whoever asks it is told
        if said := doubt(model, model.task, predict):
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


def _fields(config: Any) -> Any:
    """The fields of ``config=``, which may be a config."""
    return config.to_dict() if isinstance(config, TransformerConfig) else config


def _hugging_face(file: File, task: Task | None, asked: Asked, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    if asked.config is not None:
        raise UserError(f"{file.path} has a config of its own; config= may give n_ctx and {FIRST} alone.")
    return read_hugging_face(file.path, 0 if task is None else task.input_length, file.config, notes)


def _gpt(file: File, task: Task | None, asked: Asked, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    return read_gpt(file.content, file.path, _fields(asked.config), notes)


def _lens(file: File, task: Task | None, asked: Asked, notes: list[str]) -> tuple[TransformerConfig, Weights]:
    loss = None if task is None else lambda cfg, weights: _loss(cfg, weights, task, file.path)
    return read_lens_state(file.content, file.path, _fields(asked.config), loss, notes)


def _loss(cfg: TransformerConfig, weights: Weights, task: Task, path: Path) -> float:
    """The mean loss, in nats a token, of a model on problems of the task."""
    from models.evaluation import teacher_forcing
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    task = fitted_task(task, cfg, path)
    problems = task.sample(TRIED, torch.Generator().manual_seed(0))
    with teacher_forcing(ArithmeticTransformer(DenseWeights.holding(cfg, weights), task), task) as logits:
        return float(cross_entropy(logits(problems).flatten(0, 1).double(), task.targets(problems).flatten()))


def _named(file: File, task: Task | None, asked: Asked, notes: list[str]) -> tuple[TransformerConfig, Weights]:
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
    weights = lambda file, task, asked: _with_positions(read, file, asked, [], task)  # noqa: E731
    load = lambda file, asked: _loaded(file, asked, read, name)  # noqa: E731
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
