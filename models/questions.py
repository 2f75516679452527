"""Check the arguments of public functions, and run these in a known state of the process.

:func:`question` wraps every public function. What a parameter's name promises (``n`` is a number of problems, ``seed``
seeds a generator, ``model`` has hooks, ``pairs`` are problem pairs that this model can read) and what its annotation
says is checked here once, and not in every function. A function itself checks what only it can know.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from models.arguments import REAL, WHOLE, hints_of, is_number, misfit, of_type, plain_state, real, shown, whole
from models.errors import UserError
from models.hook_state import hooks_kept

P = ParamSpec("P")
R = TypeVar("R")

MODELS = ("model", "a", "b", "reference")
SEVERAL_MODELS = ("models", "untrained")


def question(
    function: Callable[P, R],
    hooked: bool = True,
    ready: bool = False,
    least: int = 0,
    needs: Sequence[Callable[[Any, Any], str]] = (),
    presumes: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[P, R]:
    """Wrap ``function`` so that it checks its arguments and runs in :func:`plain_state`. It raises a UserError, in one
    sentence, for an argument that its name or annotation does not allow.

    What the question presumes:

    * ``hooked``: its model has hooks; otherwise any function from tokens to logits will do.
    * ``ready``: every argument that is a model has finite weights and is in evaluation mode.
    * ``least``: so many problems or pairs, for its intervals.
    * ``needs``: each says, of the model and its task, why the question does not apply, or returns an empty string.
    * ``presumes``: called with the arguments, it raises UserError for a model that cannot do what is asked about.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        if "task" in kwargs and "tasks" in signature.parameters and "task" not in signature.parameters:
            kwargs["tasks"] = kwargs.pop("task")  # one task for all models
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise misfit(function.__name__, signature, args, kwargs, error) from None
        with plain_state():
            for name, value in given.arguments.items():
                default = signature.parameters[name].default
                if value is default or signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                    continue
                hint = hints_of(function).get(name, Any)
                if name == "model" and not hooked:
                    value = _model(name, value)
                elif value is not None or hint is Any:  # the annotation says whether None is allowed
                    value = _checked(name, value, default, hint)
                given.arguments[name] = of_type(name, value, function)
                if ready:
                    _require_ready(name, value)
            _check_fit(given.arguments)
            _require_enough(function.__name__, given.arguments, least)
            model = given.arguments.get("model")
            task = given.arguments.get("task") or getattr(model, "task", None)
            if model is not None and task is not None and (why := _why_not(needs, model, task)):
                raise UserError(f"{function.__name__} does not apply: {why}.")
            with hooks_kept(_models_among(given.arguments)):
                if presumes is not None:
                    presumes(given.arguments)
                return function(*given.args, **given.kwargs)

    return asked


def _models_among(arguments: Mapping[str, Any]) -> Iterator[nn.Module]:
    """The models among the arguments, also those in lists."""
    for value in arguments.values():
        several = value if isinstance(value, (list, tuple)) else [value]
        yield from (each for each in several if isinstance(each, nn.Module))


def _why_not(needs: Sequence[Callable[[Any, Any], str]], model: Any, task: Any) -> str:
    return next((why for need in needs if (why := need(model, task))), "")


def _checked(name: str, value: Any, default: Any, hint: Any) -> Any:
    """The checked argument, as it is passed to the function; ``hint`` is its annotation.

    Raises:
        UserError: a value that the argument's name does not allow.
    """
    if isinstance(default, bool):
        return value
    if name in WHOLE and is_number(value):  # the annotation says whether it can be something else
        return whole(name, value, *WHOLE[name])
    if name in REAL and is_number(value):
        return real(name, value, *REAL[name])
    of_models = "Any" in str(hint)  # and not of measurements
    if name in SEVERAL_MODELS and of_models and hint is not Any:
        return _models(name, value)
    others = tuple(kind for kind in get_args(hint) if kind in (str, list, np.ndarray, Tensor))  # names, or tables
    if name in MODELS and not isinstance(value, others):
        return _hooked(name, value)
    check = _OTHERS.get(name)
    return value if check is None else check(name, value)


def _model(name: str, value: Any) -> Any:
    """Check a model for questions that only compute logits: any callable will do."""
    if callable(value) and not isinstance(value, type):
        return _with_numbers(name, value) if isinstance(value, nn.Module) else value
    return _hooked(name, value)


def _with_numbers(name: str, value: nn.Module) -> nn.Module:
    """A model whose parameters are numbers, under the names that its classes gave them.

    Raises:
        UserError: tensors on the meta device, or a torch parametrization, which renames parameters.
    """
    for module in value.modules():
        if "parametrizations" in module._modules:
            raise UserError(
                f"{name} has a torch parametrization; torch.nn.utils.parametrize.remove_parametrizations takes it off."
            )
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and tensor.is_meta:
                raise UserError(f"{name} is on the meta device: it has no numbers.")
    return value


def _hooked(name: str, value: Any) -> Any:
    if isinstance(value, nn.Module) and hasattr(value, "run_with_hooks") and hasattr(value, "cfg"):
        if value._forward_hooks or value._forward_pre_hooks:
            raise UserError(
                f"{name} has a torch hook on the model itself, which run_with_hooks does not run; take it off."
            )
        from models.unaltered import missing_parts

        if missing := missing_parts(value):
            raise UserError(f"{name} has no {missing[0]}, which its config asks for.")
        return _with_numbers(name, value)
    hint = f" models.load({value!r}) makes one of a name." if isinstance(value, str) else ""
    raise UserError(f"{name} is {shown(value)}, which is not a model with TransformerLens hooks.{hint}")


def _require_enough(name: str, arguments: Mapping[str, Any], least: int) -> None:
    """Raise UserError for fewer problems or pairs than a question needs."""
    n: Any = arguments.get("n")
    if is_number(n) and n < least:
        raise UserError(f"{name} compares problems and needs n of at least {least}, not {n}.")
    for given in ("problems", "pairs"):
        value: Any = arguments.get(given)
        if hasattr(value, "__len__") and not isinstance(value, str) and len(value) < least:
            raise UserError(f"{name} compares {given} and needs at least {least} of them, not {len(value)}.")


def _require_ready(name: str, value: Any) -> None:
    """Raise UserError for a model, or a list with a model, that is in training mode (dropout would change what is
    compared), or whose weights are not all finite numbers."""
    if isinstance(value, (list, tuple)):
        for entry in value:
            _require_ready(f"One of {name}", entry)
    if not isinstance(value, nn.Module):
        return
    if value.training:
        raise UserError(f"{name} is in training mode; call model.eval() first.")
    own = getattr(value, "all_weights", None)
    weights = dict(value.named_parameters()) if own is None else own()
    for key, weight in weights.items():
        if weight.is_meta:
            raise UserError(f"{name} is on the meta device, where weights have no values.")
        if not bool(weight.isfinite().all()):
            raise UserError(f"{name} has weights that are not finite numbers ({key}): it has diverged.")


def _each(name: str, value: Any, what: str, check: Callable[[str, Any], Any]) -> Any:
    """``value``, if it is a sequence whose entries all pass the check."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise UserError(f"{name} must be {what}, not {shown(value)}.")
    for entry in value:
        check(f"Every one of {name}", entry)
    return value


def _models(name: str, value: Any) -> Any:
    return _each(name, value, "a list of models", _hooked)


def _task(name: str, value: Any) -> Any:
    """A task, or the task of a line of text."""
    from models.tasks.base import Task
    from models.tasks.task_text import task_of_text

    if isinstance(value, str):
        return task_of_text(value)
    return _instance(name, value, Task, "a task of models.tasks")


def _instance(name: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise UserError(f"{name} must be {what}, not {shown(value)}.")
    return value


def _tasks(name: str, value: Any) -> Any:
    from models.tasks.base import Task

    if isinstance(value, Task):  # one task for all models
        return value
    check = lambda name, entry: entry if entry is None else _task(name, entry)  # noqa: E731
    return _each(name, value, "a task or a list of tasks, one a model", check)


def _pairs(name: str, value: Any) -> Any:
    from models.tasks.paired_problems import ProblemPairs

    return _instance(name, value, ProblemPairs, "problem pairs (models.tasks.problem_pairs makes them)")


def _integers(name: str, value: Any) -> Any:
    """Tensors and arrays of integers as tensors; anything else that a task takes (texts, lists) unchanged."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        value = torch.from_numpy(value.astype(np.int64))
    numbers = isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OUS")
    if numbers and (not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex()):
        raise UserError(f"{name} must be whole numbers, not of {value.dtype}.")
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        raise UserError(f"{name} must be whole numbers, not of {value.dtype}.")
    if not isinstance(value, (Tensor, str, Iterable)) or isinstance(value, (nn.Module, Mapping, bytes)):
        raise UserError(f"{name} must be whole numbers in a tensor, or a list of texts, not {shown(value)}.")
    return value


_OTHERS: dict[str, Callable[[str, Any], Any]] = {
    "task": _task,
    "tasks": _tasks,
    "pairs": _pairs,
    "problems": _integers,
    "base_tokens": _integers,
    "tokens": _integers,
}


def _check_fit(arguments: Mapping[str, Any]) -> None:
    """Check that the model can read the given pairs and tokens."""
    cfg = getattr(arguments.get("model"), "cfg", None)
    if cfg is None:
        return
    pairs = arguments.get("pairs")
    task = getattr(pairs, "task", None)
    if task is not None and (task.d_vocab > cfg.d_vocab or task.input_length > cfg.n_ctx):
        raise UserError(
            f"The pairs are of {task.name}, with {task.d_vocab} tokens and {task.input_length} positions; the model "
            f"has {cfg.d_vocab} and {cfg.n_ctx}."
        )
    for name in ("base_tokens", "tokens"):
        tokens = arguments.get(name)
        if isinstance(tokens, Tensor):
            if tokens.ndim != 2 or not tokens.numel():
                raise UserError(f"{name} must be [n, position] and not empty, not {list(tokens.shape)}.")
            if tokens.min() < 0 or tokens.max() >= cfg.d_vocab or tokens.shape[1] > cfg.n_ctx:
                raise UserError(
                    f"{name} must be of 0 to {cfg.d_vocab - 1}, at most {cfg.n_ctx} in a row: that is what the model "
                    "reads."
                )
