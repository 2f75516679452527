"""Check the arguments of public functions, and run these in a known state of the process.

:func:`checked` wraps every public function. What a parameter's annotation says (:mod:`models.calls.argument_kinds`),
whether the model can read the pairs and tokens, and what the question presumes of the model is checked here once, and
not in every function. A function itself checks what only it can know.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import NoneType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from models.calls.argument_kinds import is_number
from models.calls.bound_arguments import Plan
from models.calls.model_lock import Held, held
from models.calls.progress_line import progress_line
from models.calls.torch_defaults import CallerState, plain_state
from models.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


def checked(
    function: Callable[P, R],
    ready: bool = False,
    finite: bool = False,
    least: int = 0,
    needs: Sequence[Callable[[Any, Any], str]] = (),
    presumes: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[P, R]:
    """Wrap ``function`` so that it checks its arguments and runs in :func:`plain_state`. It raises a UserError, in one
    sentence, for an argument that its annotation does not allow.

    What the question presumes:

    * ``ready``: every argument that is a model has finite weights and is in evaluation mode.
    * ``finite``: every argument that is a model has finite weights.
    * ``least``: so many problems or pairs, for its intervals.
    * ``needs``: each says, of the model and its task, why the question does not apply, or returns an empty string.
    * ``presumes``: called with the arguments, it raises UserError for a model that cannot do what is asked about.
    """
    plan = Plan(function)
    one_for_all = "tasks" in plan.names and "task" not in plan.names

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        if one_for_all and "task" in kwargs:
            kwargs["tasks"] = kwargs.pop("task")  # one task for all models
        caller = CallerState()
        with nullcontext() if caller.is_plain else plain_state(), progress_line(function.__name__):
            arguments = plan.read(args, kwargs)
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
                task = getattr(model, "task", None) if arguments.get("task") is None else arguments["task"]
                if model is not None and task is not None and (why := _why_not(needs, model, task)):
                    raise UserError(f"{function.__name__} does not apply: {why}.")
                if presumes is not None:
                    presumes(arguments)
                return plan.call(arguments)

    return asked


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


def _require_enough(name: str, arguments: Mapping[str, Any], least: int) -> None:
    """Raise UserError for fewer problems or pairs than a question needs."""
    n: Any = arguments.get("n")
    if is_number(n) and n < least:
        raise UserError(f"{name} compares problems and needs n of at least {least}, not {n}.")
    for given in ("problems", "pairs"):
        value: Any = arguments.get(given)
        sized = hasattr(value, "__len__") and getattr(value, "ndim", 1) and not isinstance(value, str)
        if sized and len(value) < least:
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
    at_first = set(map(id, getattr(held.model, "mod_dict", {}).values()))
    known = vars(held.model).get("hook_dict")
    if known is not None and not held.points <= at_first.intersection(map(id, known.values())):
        raise UserError(f"{name} has hook points that its hook_dict or mod_dict does not name: load it again.")
    if not held.modules.keys() >= at_first:
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
