"""No public question answers for the untouched model when the model that it is asked about has been altered.

Each question is asked twice of a model as it is, which gives one result, and then of the same model destroyed in every
way in which a user may do so: the answer is another one, or a UserError says that there is none.
"""

from __future__ import annotations

import copy
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrize
from transformer_lens.hook_points import HookPoint

import interp
import models
from interp.causal.metrics import Metric
from interp.core.probe import registered
from interp.site.explorer import ExploredModel
from models.calls.checked_calls import checked
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer, Block, Embed
from models.transformer.parts.attention import Attention
from models.transformer.parts.mlp import MLP
from models.transformer.parts.norms import Norm
from models.transformer.parts.weights import WeightView
from models.transformer.unaltered import alterations
from studies.population import sameness
from studies.position_coupling.exact_match_grid import exact_match_grid
from tests.exams import BRIEFLY
from tests.exams.asking import KINDS, ask_briefly, asked_of_models, kind_of, model_of, pairs_for
from tests.interp.causal.patching.swept import swept

#: Every question is asked many times of one model; test_questions.py asks them with the checks.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

# ---- ways to destroy a model: mostly, a stream that is needed becomes zero


def _zero(value: Any, hook: Any = None) -> Any:
    return value * 0


Way = Callable[[Any], Any]  # a model -> a context in which it is destroyed


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of an object or a class, or a module in another's place."""
    kept = vars(owner).get(name, vars(owner).get("_modules", {}).get(name))
    setattr(owner, name, value)
    try:
        yield
    finally:
        if kept is None:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)


def _wrapped(owner: Any, name: str) -> Any:
    """A method that returns zero times what it returned, and says that it is the one that it wraps."""
    whole = getattr(owner, name)

    @functools.wraps(whole)
    def zeroed(*args: Any, **options: Any) -> Any:
        return _zero(whole(*args, **options))

    return _set(owner, name, zeroed)


def _stream_in(owner: Any) -> Any:
    """A block's forward that reads a stream of zeros."""
    whole = owner.forward

    @functools.wraps(whole)
    def zeroed(*args: Any, **options: Any) -> Any:
        first, *rest = args
        return (
            whole(first, _zero(rest[0]), *rest[1:], **options)
            if isinstance(owner, type)
            else whole(_zero(first), *rest, **options)
        )

    return _set(owner, "forward", zeroed)


@contextmanager
def _hook(model: Any, permanent: bool) -> Iterator[None]:
    model.add_hook("blocks.0.hook_resid_pre", _zero, is_permanent=permanent)
    yield
    model.reset_hooks(including_permanent=True)


@contextmanager
def _handles(*handles: Any) -> Iterator[None]:
    yield
    for handle in handles:
        handle.remove()


def _zero_out(module: Any, args: Any, out: Any) -> Any:
    return _zero(out) if isinstance(out, torch.Tensor) and out.is_floating_point() else out


def _zero_in(module: Any, args: Any) -> Any:
    return (_zero(args[0]), *args[1:]) if args and torch.is_tensor(args[0]) and args[0].is_floating_point() else None


def _zero_tokens(module: Any, args: Any) -> Any:
    return (args[0] * 0, *args[1:]) if args and torch.is_tensor(args[0]) else None


class _Zeros(torch.nn.Module):
    def forward(self, value: Any, *rest: Any) -> Any:
        return _zero(value)


class _OtherMLP(MLP):
    def hidden(self, *args: Any, **options: Any) -> Any:
        return _zero(super().hidden(*args, **options))


class _OtherNorm(Norm):
    def forward(self, *args: Any, **options: Any) -> Any:
        return _zero(super().forward(*args, **options))


class _OtherModel(ArithmeticTransformer):
    def embed_tokens(self, *args: Any, **options: Any) -> Any:
        return _zero(super().embed_tokens(*args, **options))


def _as(module: Any, cls: type) -> Any:
    """An object whose class is another."""

    @contextmanager
    def changed() -> Iterator[None]:
        kept, module.__class__ = type(module), cls
        yield
        module.__class__ = kept

    return changed()


@contextmanager
def _parametrized(model: Any) -> Iterator[None]:
    order = list(model.weight_map._parameters)
    name = order[0]
    parametrize.register_parametrization(model.weight_map, name, _Zeros(), unsafe=True)
    yield
    parametrize.remove_parametrizations(model.weight_map, name, leave_parametrized=False)
    held = model.weight_map._parameters
    for each in order:  # in their order
        held[each] = held.pop(each)


@contextmanager
def _on_meta(model: Any) -> Iterator[None]:
    kept = {table: dict(getattr(model.weight_map, table)) for table in ("_parameters", "_buffers")}
    model.to("meta")
    yield
    for table, values in kept.items():
        getattr(model.weight_map, table).update(values)


@contextmanager
def _moved(model: Any) -> Iterator[None]:
    """Other weights, which every question reads."""
    tensors = [*model.weight_map.parameters(), *model.weight_map.buffers()]
    kept = [tensor.detach().clone() for tensor in tensors]
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(0.3)
    yield
    with torch.no_grad():
        for tensor, value in zip(tensors, kept, strict=True):
            tensor.copy_(value)


def _other_config(model: Any) -> Any:
    return model.config.replace(act_fn="silu" if model.config.act_fn != "silu" else "relu", eps=3.0)


#: Each kind of change. Those of ``TRAINED`` need norms or parameters, which constructions do not have.
WAYS: dict[str, Way] = {
    "TransformerLens hook": lambda m: _hook(m, permanent=False),
    "permanent hook": lambda m: _hook(m, permanent=True),
    "forward hook": lambda m: _handles(*(p.register_forward_hook(_zero_out) for p in (m.embed, m.blocks[0]))),
    "forward pre-hook": lambda m: _handles(m.blocks[0].register_forward_pre_hook(_zero_in)),
    "forward hook on a hook point": lambda m: _handles(
        m.hook_dict["blocks.0.hook_resid_pre"].register_forward_hook(_zero_out)
    ),
    "forward hook on the model": lambda m: _handles(m.register_forward_hook(_zero_out)),
    "forward pre-hook on the model": lambda m: _handles(m.register_forward_pre_hook(_zero_tokens)),
    "hook on all modules": lambda m: _handles(register_module_forward_hook(_zero_out)),
    "pre-hook on all modules": lambda m: _handles(register_module_forward_pre_hook(_zero_in)),
    "forward of a block": lambda m: _stream_in(m.blocks[0]),
    "forward of the MLP": lambda m: _wrapped(m.blocks[0].mlp, "forward"),
    "forward of a hook point": lambda m: _wrapped(m.hook_dict["blocks.0.hook_resid_pre"], "forward"),
    "forward of the model": lambda m: _wrapped(m, "forward"),
    "method of the model": lambda m: _wrapped(m, "embed_tokens"),
    "method of the MLP": lambda m: _wrapped(m.blocks[0].mlp, "hidden"),
    "method of attention": lambda m: _wrapped(m.blocks[0].attn, "_project"),
    "class's forward: block": lambda m: _stream_in(Block),
    "class's forward: attention": lambda m: _wrapped(Attention, "forward"),
    "class's forward: MLP": lambda m: _wrapped(MLP, "forward"),
    "class's forward: embedding": lambda m: _wrapped(Embed, "forward"),
    "class's forward: hook point": lambda m: _wrapped(HookPoint, "forward"),
    "class's forward: model": lambda m: _wrapped(ArithmeticTransformer, "forward"),
    "class's method: model": lambda m: _wrapped(ArithmeticTransformer, "embed_tokens"),
    "class's method: MLP": lambda m: _wrapped(MLP, "hidden"),
    "class's method: all parts": lambda m: _wrapped(WeightView, "add_bias"),
    "call of a class": lambda m: _wrapped(MLP, "__call__"),
    "module in a hook point's place": lambda m: _set(m.blocks[0], "hook_resid_pre", _Zeros()),
    "module in the MLP's place": lambda m: _set(m.blocks[0], "mlp", _Zeros()),
    "class of the MLP": lambda m: _as(m.blocks[0].mlp, _OtherMLP),
    "class of the model": lambda m: _as(m, _OtherModel),
    "blocks removed": lambda m: _set(m, "blocks", torch.nn.ModuleList()),
    "a block added": lambda m: _set(m, "blocks", torch.nn.ModuleList([*m.blocks, _Zeros()])),
    "config of attention": lambda m: _set(m.blocks[0].attn, "config", m.config.replace(attn_scale=1e9)),
    "config of the model": lambda m: _set(m, "config", _other_config(m)),
    "switches of a block": lambda m: _set(m.blocks[0], "_runtime", (SimpleNamespace(**vars(m.cfg)),)),
    "other weights": _moved,
    "meta device": _on_meta,
    "autocast": lambda m: torch.autocast("cpu", torch.bfloat16),
}
TRAINED: dict[str, Way] = {
    "class's forward: norm": lambda m: _wrapped(Norm, "forward"),
    "class of a norm": lambda m: _as(m.blocks[0].ln1, _OtherNorm),
    "epsilon of a norm": lambda m: _set(m.blocks[0].ln1, "eps", 1e9),
    "kind of a norm": lambda m: _set(m.blocks[0].ln1, "kind", "gain"),
    "config of a norm": lambda m: _set(m.blocks[0].ln1, "config", m.config.replace(eps=3.0)),
    "parametrization": _parametrized,
}
#: Changes of one part: a question that reads nothing behind it gives the same answer, as zeros at this hook point show.
BEHIND = {
    **dict.fromkeys(
        ("forward of the MLP", "method of the MLP", "class's forward: MLP", "class's method: MLP", "call of a class",
         "module in the MLP's place", "class of the MLP", "class's method: all parts"), "blocks.0.hook_mlp_out"
    ),
    **dict.fromkeys(("forward of the model", "class's forward: model"), "unembed.hook_out"),
    **dict.fromkeys(("method of attention", "class's forward: attention"), "blocks.0.hook_attn_out"),
    "a block added": "ln_final.hook_normalized",
    "blocks removed": "blocks.0.hook_mlp_out",
}  # fmt: skip
#: Changes after which the module computes what it did.
SAME = ("switches of a block", "config of the model", "config of a norm")
#: What does not alter the model, but makes another of it.
ANOTHER = ("other weights",)


# ---- questions


MODELS = {kind: partial(model_of, kind) for kind in KINDS}
_adder, _summer, _built = MODELS["adder"], MODELS["summer"], MODELS["built"]


@cache
def _other() -> Any:
    return models.load("microadder-67")


def _few(model: Any) -> torch.Tensor:
    return model.task.sample(24, torch.Generator().manual_seed(0))


def _sweep_of_tokens(model: Any, task: Any) -> Any:
    base, source = (task.encode(task.sample(4, torch.Generator().manual_seed(seed))) for seed in (0, 1))
    metric = Metric("logit", (task.query_positions[-1],), lambda logits, rows: logits[..., 0, 3])
    return swept(model, base, source, metric, "attn_out", task=task).found.patched


def _explored(model: Any) -> Any:
    return str(ExploredModel(model).to_dict())


def _other_of(name: str) -> Any:
    """Another model for a question about two or more."""
    return _other() if {"b", "models"} & {*registered()[name].subjects} else None


#: Asked beside the probes: of which kind of model, and what.
MORE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("models.score", lambda m: models.score(m, _few(m)), "adder"),
    ("models.score, greedy", lambda m: models.score(m, _few(m), method="greedy"), "adder"),
    ("score, suites", lambda m: interp.score(m, n=20, by="suite"), "adder"),
    ("activation_patching, checked",
     lambda m: interp.activation_patching(m, pairs_for(m), site="head_out", check=True), "adder"),
    ("sameness", lambda m: sameness(m, _other(), n=16, untrained=1), "adder"),
    ("explore", _explored, "adder"),
    ("models.score", lambda m: models.score(m, _few(m)), "summer"),
    ("models.score, greedy", lambda m: models.score(m, _few(m), method="greedy"), "summer"),
    ("attack", lambda m: interp.attack(m, task=m.task.at(2, 2), runs=30), "summer"),
    ("ov_output_shape", lambda m: interp.ov_output_shape(m, n=16), "summer"),
    ("exact_match_grid", lambda m: exact_match_grid(m, shapes=[(2, 2), (3, 3)], n=20, progress=False), "summer"),
    ("exact_match_grid, answers", lambda m: exact_match_grid(
        m, shapes=[(2, 2)], n=10, final_answer=True, early_exit=False, progress=False), "summer"),
    ("activation_patching, of tokens", lambda m: _sweep_of_tokens(m, m.task.at(2, 2)), "summer"),
    ("models.score", lambda m: models.score(m, _few(m)), "built"),
    ("fourier_spectrum, logits", lambda m: interp.fourier_spectrum(m, of="logits"), "modular"),
]  # fmt: skip
ASKED = [
    *((name, partial(ask_briefly, name, other=_other_of(name)), MODELS[kind_of(name)])
      for name in asked_of_models(but="altered")),
    *((name, ask, MODELS[kind]) for name, ask, kind in MORE),
]  # fmt: skip
#: Questions of seconds: proofs, what asks three others, and what `score` and `accuracy_by_chain` ask of fewer problems.
SLOW = ("score, suites", "sameness", *(name for name, _, _ in ASKED if BRIEFLY[name].slow))

#: Questions that compute for a while before they run a model.
LATE = ("key_attention", "circle_fit", "smallest_circuit")


@cache
def _adder_moved() -> Any:
    moved = copy.deepcopy(_adder())
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.mul_(1.01)
    return moved


def _told(result: Any) -> str:
    """All numbers of a result, but for the time that it took."""
    if hasattr(result, "to_dataframe") or isinstance(result, pd.DataFrame):
        frame = result if isinstance(result, pd.DataFrame) else result.to_dataframe()
        frame = frame.drop(columns=[name for name in frame if "seconds" in str(name)])
        return f"{'' if isinstance(result, pd.DataFrame) else result}\n{frame.to_csv()}"
    return repr(result.tolist() if hasattr(result, "tolist") else result)


@pytest.fixture(scope="module")
def little_to_collect() -> None:
    """What earlier tests left is no garbage: after an interrupt, all that may be garbage is looked at."""
    gc.collect()
    gc.freeze()


#: Files between whose functions an interrupt can find hooks that are half on or half off.
_HOOKING = ("HookedRootModule.py", "hook_points.py")


#: Interrupts of one question, of those that `make test` asks and of the others.
_INTERRUPTS, _MORE = 1, 6


@pytest.mark.usefixtures("little_to_collect")
@pytest.mark.parametrize(
    ("name", "ask", "build", "interrupts"),
    [
        pytest.param(*asked, n, id=f"{asked[0]}, {asked[2].args[0]}, {n}", marks=[pytest.mark.slow] * (n == _MORE))
        for asked in ASKED
        if asked[0] not in SLOW
        for n in (_INTERRUPTS, _MORE)
        if n == _MORE or asked[0] not in LATE
    ],
)
def test_an_interrupt_anywhere_around_a_run_leaves_no_hook(name: str, ask: Any, build: Any, interrupts: int) -> None:
    """Ctrl-C comes at any instruction: here, on the way into or out of any of the functions that put hooks on."""
    model, rng = build(), np.random.default_rng(sum(map(ord, name)))
    for after in rng.integers(0, 300, interrupts):
        left = [int(after)]

        def interrupt(frame: Any, event: str, arg: Any, left: list[int] = left) -> None:
            around = (frame, frame.f_back or frame)  # also of contextlib, where these call it
            left[0] -= event in ("call", "return") and any(f.f_code.co_filename.endswith(_HOOKING) for f in around)
            if left[0] < 0:
                raise KeyboardInterrupt

        came, running = False, sys.getprofile()
        sys.setprofile(interrupt)
        try:
            ask(model)
        except KeyboardInterrupt:
            came = True
        finally:
            sys.setprofile(running)
        assert not any(
            vars(module).get(table)
            for module in model.modules()
            for table in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "fwd_hooks", "bwd_hooks")
        )
        assert model.context_level == 0 and not model.training
        if not came:
            break


def test_a_context_of_hooks_that_an_interrupt_leaves_open_does_not_end_later() -> None:
    model, left = models.load("microadder-57"), []

    @checked
    def ask(model: Any) -> None:
        context = model.hooks(fwd_hooks=[])
        context.__enter__()
        left.append(context)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(model)
    left.clear()  # nothing refers to it now, and it ends
    gc.collect()
    assert model.context_level == 0


def _ways(model: Any) -> dict[str, Way]:
    return WAYS | TRAINED if model in (_adder, _summer) else WAYS


@pytest.mark.parametrize("model", [_adder, _summer, _built])
def test_every_change_is_listed(model: Callable[[], Any]) -> None:
    """:func:`alterations` names each, and nothing before and after it."""
    asked = model()
    for way, destroyed in _ways(model).items():
        assert not alterations(asked), way
        with destroyed(asked):
            assert bool(alterations(asked)) != (way in ANOTHER), way
    assert not alterations(asked)


def _id(asked: tuple[str, Any, Any]) -> str:
    return f"{asked[0]} of {asked[2].args[0]}"


def _reads_nothing(ask: Callable[[Any], Any], asked: Any, untouched: str, behind: str | None) -> bool:
    """Whether a question gives the untouched model's answer also where a hook makes everything zero at a place."""
    if behind is None or behind not in asked.hook_dict:
        return False
    asked.add_hook(behind, _zero)
    try:
        return _told(ask(asked)) == untouched
    except UserError:
        return False
    finally:
        asked.reset_hooks()


def _answers(ask: Callable[[Any], Any], asked: Any, ways: dict[str, Way]) -> tuple[list[str], list[str]]:
    """The changes under which a question gives the untouched model's answer, and those that end in another exception
    than a UserError."""
    untouched = _told(ask(asked))
    same, raw = [], []
    for way, destroyed in ways.items():
        with destroyed(asked):
            try:
                unseen = _told(ask(asked)) == untouched
            except UserError:
                unseen = False
            except Exception as error:
                raw.append(f"{way}: {type(error).__name__} {error}")
                continue
        if unseen and way not in SAME and not _reads_nothing(ask, asked, untouched, BEHIND.get(way)):
            same.append(way)
    assert not alterations(asked)
    return same, raw


@pytest.mark.parametrize(
    ("index", "name", "ask", "model"),
    [
        pytest.param(index, *asked, id=_id(asked), marks=[pytest.mark.slow] * (index % 3 != 0 or asked[0] in SLOW))
        for index, asked in enumerate(ASKED)
    ],
)
def test_a_destroyed_model_never_gets_the_untouched_ones_answer(
    index: int, name: str, ask: Callable[[Any], Any], model: Callable[[], Any]
) -> None:
    """One change for every third question, another one for the next; the slow test has all."""
    ways = list(_ways(model).items())
    chosen = ways[(7 * index) % len(ways)]
    assert _answers(ask, model(), dict([chosen])) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ask", "model"), [pytest.param(*asked, id=_id(asked)) for asked in ASKED])
def test_no_change_is_overlooked(name: str, ask: Callable[[Any], Any], model: Callable[[], Any]) -> None:
    """Every question under every change."""
    same, raw = _answers(ask, model(), _ways(model))
    assert not same
    assert not raw
