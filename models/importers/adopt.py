"""Live PyTorch modules as models of this package: :func:`adopt`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from models.calls.argument_kinds import shown
from models.calls.bound_arguments import typed
from models.errors import UserError, unknown_name
from models.importers.loaded_files import fitted_task, warn_of_task_mismatch
from models.importers.named_tensors import NamedTensors, relative_difference
from models.importers.readers import Format
from models.number_format import small
from models.tasks.task_definitions import TaskLike
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.dense import DenseWeights

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

#: How far logits may differ, relative to the largest: in float64, and where the module computes in float32.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
ROWS = 8
#: What documentation says of it, as of the files that readers take.
FORMAT = Format(
    "live module",
    "`models.adopt(module, config, weights, task)`",
    "logits on random tokens and on the task's problems, in float64",
    "a module whose logits are not the model's, with the first part that differs",
)


@typed
def adopt(
    module: nn.Module,
    config: Any,
    weights: Any,
    task: TaskLike,
    parts: Mapping[str, str] | None = None,
    name: str = "",
) -> ArithmeticTransformer:
    """A model of this package that computes what a live PyTorch module computes.

    The module is run on random tokens and on problems of the task, in float64, and its logits must be the model's. The
    module itself is not changed; it may return logits [n, pos, d_vocab], a tuple that begins with them, or an object
    with ``logits``.

    Args:
        config: a :class:`TransformerConfig`, or its fields as a mapping.
        weights: a function from the module to effective weights (:func:`models.transformer.parts.weights.weight_shapes`
        lists names
            and shapes; biases may be left out), or a mapping from our names to those of ``module.state_dict()``.
        task: what the model is for.
        parts: our hook names -> names of the module's submodules whose outputs are the same activations, in the order
            of computation. An error then says at which of them the two part; submodules with a hook's name count
            without being listed.

    Raises:
        UserError: a weight that is missing or of another shape, or other logits, with the first part that differs.
    """
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    cfg = config if isinstance(config, TransformerConfig) else TransformerConfig(**dict(config))
    task = fitted_task(task, cfg, f"this {type(module).__name__}")
    wide = _wide(module, task)
    own = ArithmeticTransformer(_dense(wide or module, cfg, weights), task, name=name or type(module).__name__)
    _compare(wide or module, own, task, dict(parts or {}))
    if wide is None:
        return warn_of_task_mismatch(own)
    like = next(module.parameters(), torch.zeros(()))
    return warn_of_task_mismatch(
        ArithmeticTransformer(own.weight_map.to(like.dtype), task, name=name or type(module).__name__)
    )


def _wide(module: nn.Module, task: Any) -> nn.Module | None:
    """A float64 copy of the module; None if it cannot be copied or cannot run in float64."""
    try:
        wide = copy.deepcopy(module).double().eval()
        logits_of(wide, task.encode(task.sample(1, torch.Generator().manual_seed(0))))
    except Exception:  # whatever somebody's module raises: it is then compared as it is
        return None
    return wide


def _dense(module: nn.Module, cfg: TransformerConfig, weights: Any) -> DenseWeights:
    shapes = weight_shapes(cfg)
    found: Weights
    if callable(weights):
        found = weights(module)  # pyright: ignore[reportAssignmentType]
    elif isinstance(weights, Mapping):
        tensors = NamedTensors(module.state_dict(), f"this {type(module).__name__}")
        if unknown := next((key for key in weights if key not in shapes), None):
            raise unknown_name("weight", unknown, shapes)
        found = {ours: tensors.take(theirs, *shapes[ours]) for ours, theirs in weights.items()}
    else:
        raise UserError(f"weights is a function from the module to weights, or a map of names, not {shown(weights)}.")
    for key, shape in shapes.items():
        if key not in found and not is_bias(key):
            raise UserError(f"weights has no {key}, of shape {list(shape)}.")
    return DenseWeights.holding(cfg, {key: value.detach() for key, value in found.items()})


@torch.no_grad()
def logits_of(module: nn.Module, tokens: Tensor) -> Float[Tensor, "n pos d_vocab"]:
    """The logits in what a module returns. Raises UserError if there are none."""
    found = module(tokens)
    found = getattr(found, "logits", found)
    found = found[0] if isinstance(found, (tuple, list)) else found
    if not isinstance(found, Tensor) or found.ndim != 3 or found.shape[:2] != tokens.shape:
        raise UserError(f"The module must return logits [n, pos, d_vocab] for tokens [n, pos], not {shown(found)}.")
    return found


@torch.no_grad()
def _compare(module: nn.Module, model: Any, task: Any, parts: dict[str, str]) -> None:
    generator = torch.Generator().manual_seed(0)
    length = min(task.input_length, model.config.n_ctx)
    random = torch.randint(model.config.d_vocab, (ROWS, length), generator=generator)
    was_training, dtype = module.training, next(module.parameters(), torch.zeros(())).dtype
    module.eval()
    try:
        problems = task.encode(task.sample(ROWS, generator))
        for what, tokens in (("random tokens", random), ("problems of the task", problems)):
            theirs, ours = logits_of(module, tokens), model(tokens)
            error = relative_difference(ours, theirs)
            if error > TOLERANCE.get(dtype, 1e-2):
                raise UserError(
                    f"The adopted model's logits differ from the module's on {what}, by {small(error)} of the largest"
                    f"{_first_difference(module, model, tokens, parts, TOLERANCE.get(dtype, 1e-2))}."
                )
    finally:
        module.train(was_training)


def _first_difference(module: nn.Module, model: Any, tokens: Tensor, parts: dict[str, str], most: float) -> str:
    """The first part whose activations differ, in words; empty if no part can be compared."""
    submodules = dict(module.named_modules())
    parts = {hook: hook for hook in model.hook_dict if hook in submodules} | parts
    seen: dict[str, Tensor] = {}

    def keep(hook: str) -> Callable[..., None]:
        def kept(_module: nn.Module, _inputs: Any, output: Any) -> None:
            output = output[0] if isinstance(output, (tuple, list)) else output
            seen.setdefault(hook, output)

        return kept

    handles = []
    for hook, name in parts.items():
        if hook not in model.hook_dict:
            raise unknown_name("hook", hook, model.hook_dict)
        if name not in submodules:
            raise unknown_name("submodule", name, submodules)
        handles.append(submodules[name].register_forward_hook(keep(hook)))
    try:
        logits_of(module, tokens)
    finally:
        for handle in handles:
            handle.remove()
    _, cache = model.run_with_cache(tokens, names_filter=list(parts))
    for hook, theirs in seen.items():
        if isinstance(theirs, Tensor) and relative_difference(cache[hook], theirs.view_as(cache[hook])) > most:
            return f"; the first part that differs is {hook} ({parts[hook]})"
    return f"; all {len(seen)} parts compared agree, so they part after the last of them" if seen else ""
