"""Whether a model computes what its effective weights say.

A certificate, a score by the fast forward and the variants of a run (:mod:`models.run`) are all about the function that
config and effective weights define. A hook, another class in a part's place, a replaced method, dropout or autocast
makes the module compute something else, and only a run of the module itself shows it. So all code that does not run the
module asks here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from models.errors import UserError
from models.lens.runtime_config import RuntimeConfig
from models.transformer.config import TransformerConfig
from models.transformer.hooked import HookedModel
from models.transformer.parts.values import any_tensor

_WEIGHT_MAP = "weight_map"
_LIBRARIES = ("models", "transformer_lens", "torch", "transformers")  # whose models a bridge goes around
#: Libraries that wrap functions: the code of a known forward pass may lie in their files.
_WRAPPERS = ("jaxtyping", "beartype")
#: The class of this project's models, and a function that makes one of a config.
_MODELS: dict[type, Callable[[TransformerConfig], nn.Module]] = {}
#: What this project's classes were when they were made, [class][attribute]; see :func:`remember`.
_REMEMBERED: dict[type, dict[str, Any]] = {}
_SEEN: dict[type, list[Any]] = {}  # the attributes that they had when nothing was found to be replaced


def remember(fresh: Callable[[TransformerConfig], nn.Module], model: type, *parts: type) -> None:
    """Keep what the class of this project's models, those of its parts, and what they inherit from this project and
    TransformerLens consist of, so that :func:`alterations` notices a method that was replaced in one of them. ``fresh``
    makes a model of a config, for what its parts should be."""
    _MODELS[model] = fresh
    for cls in {base for each in (model, *parts) for base in each.__mro__}:
        if cls.__module__.split(".")[0] in ("models", "transformer_lens"):
            _REMEMBERED[cls] = {name: value for name, value in vars(cls).items() if _counts(name)}


def _counts(name: str) -> bool:
    """Whether a class's attribute of this name is part of what its modules do; annotations and the like are not."""
    return name[:2] != "__" or name in ("__call__", "__getattr__", "__getattribute__", "__init__")


def alterations(model: HookedModel) -> tuple[str, ...]:
    """What makes ``model`` compute something other than its effective weights say; empty if nothing does.

    Of this project's models it looks at whether every part is what the config asks for: the same parts, each of its own
    class and with its own attributes (config, epsilon, kind of norm, name), and classes whose methods are still those
    of the package. Of all models, on every module, it looks for hooks of any kind (of TransformerLens and PyTorch,
    forward and backward, pre-hooks and global ones), a ``forward`` or another method that was replaced on the module, a
    ``forward`` that is not its library's, and dropout in training mode; and for autocast on the model's device. Stock
    TransformerLens models have none of these.

    Each is a clause for an error message, such as ``"blocks.0.mlp has a hook"``. Hooks that only read are listed too,
    as there is no way to know what a hook does. The weight map's own modules may have hooks, since effective weights
    are what it returns, but its output must not depend on anything else.

    Cost: a few microseconds per module. Sweeps of a millisecond call this, so it is written for speed: it reads
    attributes where a module keeps them, without ``nn.Module``'s search.
    """
    if not isinstance(model, nn.Module):
        return ()  # nothing that could be hooked
    found = [f"every module has a global hook ({kind})" for kind in _global_hooks()]
    found += _replaced_in_classes()
    expected = _expected_of(model, found)
    config, seen = model.__dict__.get("config"), 0
    if expected is not None and not model.training and _as_expected(model, expected[""], config):
        return (*found, *_of_state(model))
    for name, module in _modules(model):
        own, cls = module.__dict__, type(module)
        hooks = own["_forward_hooks"] or own["_forward_pre_hooks"]
        if hooks or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            tables = (
                own["_forward_hooks"],
                own["_forward_pre_hooks"],
                own["_backward_hooks"],
                own["_backward_pre_hooks"],
            )
            if not all(_is_wiring(hook) for table in tables for hook in table.values()):
                found.append(f"{name or 'the model'} has a hook")
        known, methods = _class(cls, cls.forward)
        if not known:
            found.append(f"{name or 'the model'} has a forward pass of its own")
        if not methods.isdisjoint(own):
            found.append(f"{name or 'the model'} has a {', '.join(sorted(methods.intersection(own)))} of its own")
        if expected is None:
            continue
        part = expected.get(name)
        if part is None or cls is not part.cls or (part.attributes and not part.attributes.items() <= own.items()):
            found += _differences(name, module, part)
        if name and own.get("config", config) is not config:
            found.append(f"{name}.config is not the model's")
        if "_runtime" in own and own["_runtime"][0] is not model.cfg:
            found.append(f"{name} has another model's switches")
        seen += 1
    if expected is not None and seen < len(expected):
        found += [f"{name} is missing" for name in _missing(model, expected)]
    if model.training and getattr(getattr(model, "config", None), "dropout", 0):
        found.append("the model is in training mode, with dropout")
    return (*found, *_of_state(model))


def _of_state(model: nn.Module) -> Iterator[str]:
    device = _device_type(model)
    if device == "meta":
        yield "its tensors are on the meta device, without numbers"
    elif torch.is_autocast_enabled(device):
        yield "autocast is on"


def missing_parts(model: nn.Module) -> list[str]:
    """The parts that a model of this project does not have, though its config asks for them."""
    expected = _expected_of(model, [])
    return [] if not expected else _missing(model, expected)


def _missing(model: nn.Module, expected: dict[str, _Part]) -> list[str]:
    here = {name for name, _ in _modules(model)}
    return [name for name in expected if name not in here]


def require_unaltered(model: HookedModel, what: str) -> None:
    """Raise UserError if ``model`` does not compute what its weights say, from which ``what`` is computed."""
    found = alterations(model)
    if found:
        first, *others = found
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(
            f"{what} is computed from the model's weights, and this model computes something else: {first}{more}; "
            "take that off first, hooks by reset_hooks()."
        )


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All modules by name, without the weight map's."""
    left = [("", model)]
    while left:
        name, module = left.pop()
        yield name, module
        for key, child in module.__dict__["_modules"].items():
            if child is not None and (name or key != _WEIGHT_MAP):
                left.append((f"{name}.{key}" if name else key, child))


# ---- hooks and classes of any library


def _is_wiring(hook: Any) -> bool:
    """Whether transformer_lens 4's bridge made this hook itself, in its first run, for its hook points; or the Hugging
    Face model in a bridge, to keep what it is asked to return."""
    home, name = getattr(hook, "__module__", None) or "", getattr(hook, "__qualname__", "")
    if home == "transformers.utils.output_capturing":
        return "output_capturing_hook" in name and _is_from(hook, ("transformers",))
    return home.startswith("transformer_lens.model_bridge.") and "_maybe_wire_capture_hooks" in name


def _global_hooks() -> list[str]:
    kinds = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
    return [kind for kind in kinds if getattr(torch_module, kind, None)]


class _Class(NamedTuple):
    """Whether a class's ``forward`` is defined in this project or a library of :data:`_LIBRARIES`, and so is known; the
    names of its methods, which an attribute of the module itself may replace."""

    known: bool
    methods: frozenset[str]


@cache
def _class(cls: type, forward: Any) -> _Class:
    methods = frozenset(name for name in dir(cls) if callable(getattr(cls, name, None)))
    home = (getattr(forward, "__module__", "") or "").split(".")[0]
    known = home in _LIBRARIES and _is_from(forward, (*_LIBRARIES, *_WRAPPERS))
    return _Class(known or cls in _REMEMBERED, methods)  # what is remembered is compared with what it was


def _is_from(function: Any, packages: tuple[str, ...]) -> bool:
    """Whether a function's code lies in one of these packages, ignoring ``__wrapped__``."""
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    file = code.co_filename
    if file.startswith("<@beartype"):
        return True
    return any(
        Path(file).is_relative_to(Path(str(sys.modules[name].__file__)).parent)
        for name in packages
        if name in sys.modules
    )


def _replaced_in_classes() -> list[str]:
    """The methods of remembered classes that are not what they were."""
    found = []
    for cls, kept in _REMEMBERED.items():
        now = vars(cls)
        if (values := [*now.values()]) == _SEEN.get(cls):  # the same objects are equal, whatever they are
            continue
        names = [name for name in {*now, *kept} if _counts(name) and now.get(name) is not kept.get(name)]
        found += [f"{cls.__module__}.{cls.__name__}.{name} was replaced" for name in sorted(names)]
        if not names:
            _SEEN[cls] = values
    return found


# ---- this project's models: every part is what the config asks for


class _Part(NamedTuple):
    """The class of a part, its attributes that are numbers, texts, switches or None, its methods, and its parts."""

    cls: type
    attributes: dict[str, Any]
    methods: frozenset[str]
    parts: dict[str, _Part]


def _as_expected(model: nn.Module, whole: _Part, config: Any) -> bool:
    """Whether nothing about the modules needs to be said: a look at each, without its name and its differences."""
    left, runtime = [(model, whole)], model.__dict__.get("cfg")
    for module, part in left:
        own = module.__dict__
        hooks = own["_forward_hooks"] or own["_forward_pre_hooks"]
        if hooks or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return False
        if type(module) is not part.cls or not part.methods.isdisjoint(own):
            return False
        if part.attributes and not part.attributes.items() <= own.items():
            return False
        if own.get("config", config) is not config or ("_runtime" in own and own["_runtime"][0] is not runtime):
            return False
        if part.parts or own["_modules"]:
            here = own["_modules"]
            if len(here) != len(part.parts) + (module is model):  # the weight map is the model's own affair
                return False
            for name, each in part.parts.items():
                if (child := here.get(name)) is None:
                    return False
                left.append((child, each))
    return True


def _expected_of(model: nn.Module, found: list[str]) -> dict[str, _Part] | None:
    """The parts that a model of this project should have; None for other models. What the model itself has wrong is
    added to ``found``."""
    fresh = next((fresh for kind, fresh in _MODELS.items() if isinstance(model, kind)), None)
    if fresh is None:
        return None
    config, runtime = model.__dict__.get("config"), model.__dict__.get("cfg")
    if not isinstance(config, TransformerConfig):
        found.append("the model's config was replaced")
        return {}
    if type(runtime) is not RuntimeConfig or runtime._config is not config or runtime._model[0] is not model:
        found.append("the model's cfg was replaced")
    weight_map: Any = model.weight_map
    inner = weight_map.modules() if weight_map._modules else (weight_map,)
    if any("parametrizations" in module._modules for module in inner):
        found.append("the weight map has a torch parametrization")
    its = getattr(weight_map, "config", None)
    if its is not config and its != config:
        found.append("the weight map has another config than the model")
    parts, shapes = _expected(fresh, config)
    if model.__dict__.get("weight_shapes") != shapes:
        found.append("the model's weight_shapes were replaced")
    return parts


@cache
def _expected(fresh: Callable[[TransformerConfig], Any], config: TransformerConfig) -> tuple[dict[str, _Part], Any]:
    """The parts, by name, and the shapes of the weights that a config asks for."""
    model = fresh(config)
    parts: dict[str, _Part] = {}
    for name, module in _modules(model):  # a part comes after what it is a part of
        cls = type(module)
        part = parts[name] = _Part(cls, _attributes(module) if name else {}, _class(cls, cls.forward).methods, {})
        if name:
            above, _, last = name.rpartition(".")
            parts[above].parts[last] = part
    return parts, model.weight_shapes


def _attributes(module: nn.Module) -> dict[str, Any]:
    plain = (bool, int, float, str, NoneType)
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, plain) and not key.startswith("_") and key != "training"
    }


def _differences(name: str, module: nn.Module, part: _Part | None) -> Iterator[str]:
    """What of a part is not as its config says."""
    if part is None:
        yield f"{name} is a part that the config does not have"
    elif type(module) is not part.cls:
        yield f"{name or 'the model'} is a {type(module).__name__} and not the {part.cls.__name__} of this package"
    else:
        for key, value in part.attributes.items():
            if (now := module.__dict__.get(key, "missing")) != value:
                yield f"{name}.{key} is {now!r}, and its config makes it {value!r}"


def _device_type(model: nn.Module) -> str:
    tensor = any_tensor(model.__dict__["_modules"].get(_WEIGHT_MAP, model))
    return "cpu" if tensor is None else tensor.device.type
