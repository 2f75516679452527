"""Check the arguments of public functions, and run these in a known state of the process.

:func:`question` wraps every public function. What a parameter's name promises (``n`` is a number of problems, ``seed``
seeds a generator, ``model`` has hooks, ``pairs`` are problem pairs that this model can read) and what its annotation
says is checked here once, and not in every function. A function itself checks what only it can know.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from models.errors import UserError, unknown_name
from models.hook_state import hooks_kept

P = ParamSpec("P")
R = TypeVar("R")

MOST = 10**8  # the most problems, draws or steps that one question may be asked for
#: Integer parameters by name, with their least and greatest values.
WHOLE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("seed", "run_seed", "initial_seed"), (0, 2**63 - 1)),
    **dict.fromkeys(("n", "n_fit", "n_per_length", "runs", "steps", "batch_size", "most_variants"), (1, MOST)),
    **dict.fromkeys(("draws", "permutations", "resamples"), (1, 10**6)),
    **dict.fromkeys(("points", "folds"), (2, 10**4)),
    **dict.fromkeys(("n_random", "max_ablated", "controls", "untrained", "layer", "target", "column"), (0, 10**6)),
    **dict.fromkeys(("digits", "step"), (1, MOST)),
}
#: Real parameters by name, with their bounds; for those in ``OPEN``, the lower bound itself is not allowed.
REAL: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("carry_heavy", "threshold"), (0.0, 1.0)),
    **dict.fromkeys(("seconds", "period"), (0.0, 1e9)),
}
OPEN = ("seconds", "period")
MODELS = ("model", "a", "b", "reference")
SEVERAL_MODELS = ("models", "untrained")


def question(
    function: Callable[P, R],
    hooked: bool = True,
    finite: bool = False,
    needs: Sequence[Callable[[Any, Any], str]] = (),
) -> Callable[P, R]:
    """Wrap ``function`` so that it checks its arguments and runs in :func:`plain_state`. It raises a UserError, in one
    sentence, for an argument that its name or annotation does not allow.

    ``hooked`` says that its model must have hooks; otherwise any function from tokens to logits will do. ``finite``
    says that all weights of every argument that is a model must be finite numbers. Each of ``needs`` says, of the model
    and its task, why the question does not apply, or returns an empty string.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        if "task" in kwargs and "tasks" in signature.parameters and "task" not in signature.parameters:
            kwargs["tasks"] = kwargs.pop("task")  # one task for all models
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _misfit(function.__name__, signature, args, kwargs, error) from None
        with plain_state():
            for name, value in given.arguments.items():
                default = signature.parameters[name].default
                if value is default or signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                    continue
                hint = _hints(function).get(name, Any)
                if name == "model" and not hooked:
                    value = _model(name, value)
                elif value is not None or hint is Any:  # the annotation says whether None is allowed
                    value = _checked(name, value, default, hint)
                given.arguments[name] = _of_type(name, value, function)
                if finite:
                    _require_finite(name, value)
            _check_fit(given.arguments)
            model = given.arguments.get("model")
            task = given.arguments.get("task") or getattr(model, "task", None)
            if model is not None and task is not None and (why := _why_not(needs, model, task)):
                raise UserError(f"{function.__name__} does not apply: {why}.")
            with hooks_kept(_models_among(given.arguments)):
                return function(*given.args, **given.kwargs)

    return asked


def _models_among(arguments: Mapping[str, Any]) -> list[nn.Module]:
    """The models among the arguments, also those in lists."""
    values = [each for value in arguments.values() for each in (value if isinstance(value, (list, tuple)) else [value])]
    return [value for value in values if isinstance(value, nn.Module)]


def _why_not(needs: Sequence[Callable[[Any, Any], str]], model: Any, task: Any) -> str:
    return next((why for need in needs if (why := need(model, task))), "")


def _misfit(name: str, signature: inspect.Signature, args: Any, kwargs: Any, error: TypeError) -> UserError:
    """The error for arguments that a function does not take, or does not get."""
    parameters = signature.parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if unknown := next((key for key in kwargs if key not in named), None):
        return unknown_name(f"option of {name}", unknown, named)
    missing = [each for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    missing = [each.name for each in missing[len(args) :] if each.name not in kwargs]
    if missing:
        return UserError(f"{name} needs {', '.join(missing)}.")
    return UserError(f"{name} takes other arguments ({error}): {', '.join(named)}.")


@contextmanager
def plain_state() -> Iterator[None]:
    """A context with float32 as torch's default dtype, the CPU as its default device, and no autocast.

    Settings that a program made for its own computations would change how models are built and what they compute.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    with ExitStack() as stack:
        if dtype != torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        if device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _checked(name: str, value: Any, default: Any, hint: Any) -> Any:
    """The checked argument, as it is passed to the function; ``hint`` is its annotation.

    Raises:
        UserError: a value that the argument's name does not allow.
    """
    if isinstance(default, bool):
        return value
    if name in WHOLE and _is_number(value):  # the annotation says whether it can be something else
        return _whole(name, value, *WHOLE[name])
    if name in REAL and _is_number(value):
        return _real(name, value, *REAL[name])
    of_models = "Any" in str(hint)  # and not of measurements
    if name in SEVERAL_MODELS and of_models:
        return _models(name, value)
    others = tuple(kind for kind in get_args(hint) if kind in (str, list, np.ndarray, Tensor))  # names, or tables
    if name in MODELS and not isinstance(value, others):
        return _hooked(name, value)
    check = _OTHERS.get(name)
    return value if check is None else check(name, value)


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters. The return type is left out, as only type checkers may know its name."""
    said = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=said), vars(inspect.getmodule(function)))


def _of_type(name: str, value: Any, function: Callable[..., Any]) -> Any:
    """``value`` if it fits the function's annotation; NumPy's numbers and arrays are converted to Python's.

    Raises:
        UserError: it does not fit.
    """
    from beartype import BeartypeConf  # takes half a second with its imports, which not every program needs
    from beartype.door import is_bearable

    hint = _hints(function).get(name, Any)
    plain = value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
    conf, state = BeartypeConf(is_pep484_tower=True), random.getstate()
    try:
        for candidate in (value, plain):
            if is_bearable(candidate, hint, conf=conf):
                for entry in candidate if isinstance(candidate, (list, tuple)) else ():
                    one = [entry] if isinstance(candidate, list) else (entry,)
                    # beartype looks at one entry, drawn at random; a list of one entry has no other
                    if not is_bearable(one, hint, conf=conf) and _same_for_all(hint):
                        raise UserError(f"{name} must be {_said(name, function)}, and one of it is {_shown(entry)}.")
                return candidate
    finally:
        random.setstate(state)
    if isinstance(value, str) and any(isinstance(choice, str) for choice in _choices(hint)):
        return value  # the function itself raises, with the closest choice
    raise UserError(f"{name} must be {_said(name, function)}, not {_shown(value)}.")


def _said(name: str, function: Callable[..., Any]) -> str:
    """What a parameter takes, in the words of its annotation."""
    said = function.__annotations__[name]
    return _whole_number(name) if name in WHOLE else said if isinstance(said, str) else said.__name__


def _same_for_all(hint: Any) -> bool:
    """Whether an annotation says the same of all entries of a list, so that a list of one entry fits if it does."""
    if get_origin(hint) is tuple:
        return get_args(hint)[-1:] == (Ellipsis,)
    return all(_same_for_all(part) for part in get_args(hint))


def _choices(hint: Any) -> tuple[Any, ...]:
    """What a Literal allows, or the Literals of a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for part in get_args(hint) for choice in _choices(part))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.ndim == 0)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        whole = operator.index(value)
    except (TypeError, RuntimeError, ValueError):  # a fraction, a tensor of several numbers
        whole = None
    if whole is None or isinstance(value, bool) or not least <= whole <= most:
        raise UserError(f"{name} must be {_whole_number(name)}, not {_shown(value)}.")
    return whole


def _whole_number(name: str) -> str:
    least, most = WHOLE[name]
    return f"a whole number from {least} to {_power(most)}"


def _power(number: int) -> str:
    return "2^63 - 1" if number == 2**63 - 1 else f"{number:,}"


def _real(name: str, value: Any, least: float, most: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError):  # an integer of too many digits, a complex number
        number = math.nan
    if not least <= number <= most or not math.isfinite(number) or (name in OPEN and number == least):
        bounds = f"positive and at most {most:g}" if name in OPEN else f"between {least:g} and {most:g}"
        raise UserError(f"{name} must be {bounds}, not {_shown(value)}.")
    return number


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
    raise UserError(f"{name} is {_shown(value)}, which is not a model with TransformerLens hooks.{hint}")


def _require_finite(name: str, value: Any) -> None:
    """Raise UserError for a model, or a list with a model, whose weights are not all finite numbers."""
    if isinstance(value, (list, tuple)):
        for entry in value:
            _require_finite(f"One of {name}", entry)
    if not isinstance(value, nn.Module):
        return
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
        raise UserError(f"{name} must be {what}, not {_shown(value)}.")
    for entry in value:
        check(f"Every one of {name}", entry)
    return value


def _models(name: str, value: Any) -> Any:
    return _each(name, value, "a list of models", _hooked)


def _task(name: str, value: Any) -> Any:
    from models.tasks.base import Task

    return _instance(name, value, Task, "a task of models.tasks")


def _instance(name: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise UserError(f"{name} must be {what}, not {_shown(value)}.")
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
        raise UserError(f"{name} must be whole numbers in a tensor, or a list of texts, not {_shown(value)}.")
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


def _shown(value: object) -> str:
    """A description of a value in a few words."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    if isinstance(value, nn.Module):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be shown
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
