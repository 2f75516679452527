"""Check the arguments of public functions, and run these in a known state of the process.

:func:`question` wraps every public function. What a parameter's name promises (``n`` is a number of problems, ``seed``
seeds a generator, ``model`` has hooks, ``pairs`` are problem pairs that this model can read) and what its annotation
says is checked here once, and not in every function. A function itself checks what only it can know.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import NoneType
from typing import Any, ParamSpec, TypeVar, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from models.calls.arguments import (
    REAL,
    WHOLE,
    Plan,
    classes_of,
    is_number,
    is_plain_state,
    of_type,
    plain_state,
    real,
    shown,
    whole,
)
from models.calls.hook_state import Held, held
from models.calls.pulse import asking
from models.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")

MODELS = ("model", "a", "b", "reference")
SEVERAL_MODELS = ("models", "untrained")


def checked(
    function: Callable[P, R],
    hooked: bool = True,
    ready: bool = False,
    finite: bool = False,
    least: int = 0,
    needs: Sequence[Callable[[Any, Any], str]] = (),
    presumes: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[P, R]:
    """Wrap ``function`` so that it checks its arguments and runs in :func:`plain_state`. It raises a UserError, in one
    sentence, for an argument that its name or annotation does not allow.

    What the question presumes:

    * ``hooked``: its model has hooks; otherwise any function from tokens to logits will do.
    * ``ready``: every argument that is a model has finite weights and is in evaluation mode.
    * ``finite``: every argument that is a model has finite weights.
    * ``least``: so many problems or pairs, for its intervals.
    * ``needs``: each says, of the model and its task, why the question does not apply, or returns an empty string.
    * ``presumes``: called with the arguments, it raises UserError for a model that cannot do what is asked about.
    """
    signature = inspect.signature(function)
    plan = Plan(function)
    one_for_all = "tasks" in signature.parameters and "task" not in signature.parameters
    checks: dict[str, Callable[[Any], Any]] = {}  # made at the first call, as annotations may name later classes

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        if one_for_all and "task" in kwargs:
            kwargs["tasks"] = kwargs.pop("task")  # one task for all models
        given = plan.bind(args, kwargs)
        arguments = given.arguments
        if not checks:
            checks.update({each.name: _check_of(function, each, hooked) for each in signature.parameters.values()})
        caller = Caller()
        with nullcontext() if caller.is_plain else plain_state(), asking(function.__name__):
            for name, value in arguments.items():
                arguments[name] = checks[name](value)
            _check_fit(arguments)
            _require_enough(function.__name__, arguments, least)
            several = dict(_models_among(arguments))
            with held(iter(several.values())) as passed:
                model = arguments.get("model")
                if not isinstance(model, nn.Module | NoneType):
                    caller.require_plain("model", model)  # a function
                for name, each in several.items():
                    of_model = passed[id(each)]
                    if not of_model.whole:
                        caller.require_plain(name, each)
                        _require_whole(name, of_model)
                        of_model.whole = True
                    if ready and not of_model.ready:
                        _require_evaluating(name, of_model)
                        _require_finite(name, of_model)
                        of_model.ready = True
                    elif finite and not of_model.ready:
                        _require_finite(name, of_model)
                task = arguments.get("task") or getattr(model, "task", None)
                if model is not None and task is not None and (why := _why_not(needs, model, task)):
                    raise UserError(f"{function.__name__} does not apply: {why}.")
                if presumes is not None:
                    presumes(arguments)
                return plan.call(given)

    return asked


class Caller:
    """What of the caller's state changes what a model computes. It is read before :func:`plain_state` sets it aside."""

    def __init__(self) -> None:
        self.autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        self.dtype = torch.get_default_dtype()
        self.is_plain = not self.autocast and is_plain_state()

    def require_plain(self, name: str, model: Any) -> None:
        """Raise UserError where a model computes something else for the caller than it does in the plain state."""
        if self.autocast:
            raise UserError(
                f"{name} computes something else under torch.autocast than its weights say; ask outside of it."
            )
        if self.dtype == torch.get_default_dtype() or not hasattr(model, "effective_weights"):
            return
        weights = model.effective_weights()
        torch.set_default_dtype(self.dtype)
        try:
            its = model.effective_weights()
        finally:
            torch.set_default_dtype(torch.float32)
        if any(x.dtype != its[key].dtype or not torch.equal(x, its[key]) for key, x in weights.items()):
            raise UserError(f"{name} has other weights where torch's default dtype is {self.dtype}; set it to float32.")


def _models_among(arguments: Mapping[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    """The models among the arguments, also those in lists, by what a message calls them."""
    for name, value in arguments.items():
        if isinstance(value, nn.Module):
            yield name, value
        elif isinstance(value, (list, tuple)):
            several = [each for each in value if isinstance(each, nn.Module)]
            yield from ((f"{name}[{index}]", each) for index, each in enumerate(several))


def _why_not(needs: Sequence[Callable[[Any, Any], str]], model: Any, task: Any) -> str:
    return next((why for need in needs if (why := need(model, task))), "")


def _check_of(function: Callable[..., Any], parameter: inspect.Parameter, hooked: bool) -> Callable[[Any], Any]:
    """What returns the checked value of a parameter, as it is passed to the function, and raises UserError for a value
    that the parameter's name or annotation does not allow."""
    name, default = parameter.name, parameter.default
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return lambda value: value
    hint, classes = classes_of(function, name)
    by_name = _model if name == "model" and not hooked else _by_name(name, default, hint)
    # the annotation says whether None is allowed
    takes_none = by_name is not _model and hint is not Any

    def check(value: Any) -> Any:
        if value is default:
            return value
        if by_name is not None and not (value is None and takes_none):
            value = by_name(name, value)
        return value if hint is Any or type(value) in classes else of_type(name, value, function)

    return check


def _by_name(name: str, default: Any, hint: Any) -> Callable[[str, Any], Any] | None:
    """The check of a parameter's values by its name; ``hint`` is its annotation, which may allow something else."""
    if isinstance(default, bool):
        return None
    if name in WHOLE:
        return lambda name, value: whole(name, value, *WHOLE[name]) if is_number(value) else value
    if name in REAL:
        return lambda name, value: real(name, value, *REAL[name]) if is_number(value) else value
    of_models = "Any" in str(hint)  # and not of measurements
    if name in SEVERAL_MODELS and of_models and hint is not Any:
        return _models
    if name in MODELS:
        others = tuple(kind for kind in get_args(hint) if kind in (str, list, np.ndarray, Tensor))  # names, or tables
        return lambda name, value: value if isinstance(value, others) else _hooked(name, value)
    return _OTHERS.get(name)


def _model(name: str, value: Any) -> Any:
    """Check a model for questions that only compute logits: any callable will do."""
    if callable(value) and not isinstance(value, type):
        return value
    return _hooked(name, value)


def _hooked(name: str, value: Any) -> Any:
    if isinstance(value, nn.Module) and hasattr(value, "run_with_hooks") and hasattr(value, "cfg"):
        if value._forward_hooks or value._forward_pre_hooks:
            raise UserError(
                f"{name} has a torch hook on the model itself, which run_with_hooks does not run; take it off."
            )
        return value
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


def _require_whole(name: str, held: Held) -> None:
    """Raise UserError for a model without all its parts, with parameters that are no numbers (on the meta device), or
    with a torch parametrization, which gives parameters other names than their classes did."""
    if held.parametrized:
        raise UserError(
            f"{name} has a torch parametrization; torch.nn.utils.parametrize.remove_parametrizations takes it off."
        )
    if any([x.is_meta for x in held.tensors]):
        raise UserError(f"{name} is on the meta device: it has no numbers.")
    at_first = getattr(held.model, "mod_dict", {}).values()
    if not held.modules.keys() >= set(map(id, at_first)):
        from models.transformer.unaltered import missing_parts

        if missing := missing_parts(held.model):
            raise UserError(f"{name} has no {missing[0]}, which its config asks for.")


def _require_evaluating(name: str, held: Held) -> None:
    """Raise UserError for a model that is in training mode: dropout would change what is compared."""
    if held.model.training:
        raise UserError(f"{name} is in training mode; call model.eval() first.")


def _require_finite(name: str, held: Held) -> None:
    """Raise UserError for a model whose weights are not all finite numbers."""
    with torch.no_grad():
        if key := _not_finite(held.model, held.tensors):
            raise UserError(f"{name} has weights that are not finite numbers ({key}): it has diverged.")


#: The state of each model's tensors, by their versions, in which all weights were finite.
_finite: WeakKeyDictionary[nn.Module, list[tuple[int, int, int]]] = WeakKeyDictionary()


def _not_finite(model: nn.Module, tensors: list[Tensor]) -> str:
    """The name of a weight that has infinite numbers or none; empty if there is no such weight.

    All weights are looked through again when a parameter was replaced or written to. Writing through ``parameter.data``
    leaves no trace: what it makes of the logits is refused where they are read.
    """
    try:
        state = [(id(x), x.data_ptr(), x._version) for x in tensors]
    except RuntimeError:  # tensors of inference mode have no version, and sparse ones no place
        state = None
    if state is not None and _finite.get(model) == state:
        return ""
    own = getattr(model, "all_weights", None)
    with torch.no_grad():
        weights = dict(model.named_parameters()) if own is None else own()
        bad = next((key for key, weight in weights.items() if not _are_numbers(key, weight)), "")
    if not bad and state is not None:
        _finite[model] = state
    return bad


def _are_numbers(key: str, weight: Tensor) -> bool:
    """Whether a weight's values are finite; a fixed bias on scores may also mask keys, by minus infinity."""
    right = weight.isfinite() | weight.isneginf() if key.endswith("attn.bias") else weight.isfinite()
    return bool(right.all())


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
            least, most = map(int, tokens.aminmax())
            if least < 0 or most >= cfg.d_vocab or tokens.shape[1] > cfg.n_ctx:
                raise UserError(
                    f"{name} must be of 0 to {cfg.d_vocab - 1}, at most {cfg.n_ctx} in a row: that is what the model "
                    "reads."
                )
