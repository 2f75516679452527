"""No public question answers for the untouched model when the model that it is asked about has been altered.

Each question is asked twice of a model as it is, which gives one result, and then of the same model destroyed in every
way in which a user may do so: the answer is another one, or a UserError says that there is none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import pandas as pd
import pytest
import torch

import interp
import models
from interp.core.metrics import Metric, resolve_metrics
from interp.core.probe import registered
from interp.site.explorer import Subject
from models.errors import UserError
from models.tasks import problem_pairs
from models.unaltered import alterations

#: Every question is asked many times of one model; test_questions.py asks them with the checks.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

# ---- ways to destroy a model: the stream that enters the first block becomes zero


def _zero(value: torch.Tensor, hook: Any = None) -> torch.Tensor:
    return value * 0


@contextmanager
def _tl_hook(model: Any) -> Iterator[None]:
    model.add_hook("blocks.0.hook_resid_pre", _zero)
    yield
    model.reset_hooks()


@contextmanager
def _permanent_hook(model: Any) -> Iterator[None]:
    model.add_perma_hook("blocks.0.hook_resid_pre", _zero)
    yield
    model.reset_hooks(including_permanent=True)


@contextmanager
def _forward_hooks(model: Any) -> Iterator[None]:
    parts = [part for part in (model.embed, getattr(model, "pos_embed", None)) if part is not None]
    handles = [part.register_forward_hook(lambda module, args, out: _zero(out)) for part in parts]
    yield
    for handle in handles:
        handle.remove()


@contextmanager
def _pre_hook(model: Any) -> Iterator[None]:
    handle = model.blocks[0].register_forward_pre_hook(lambda module, args: (_zero(args[0]), *args[1:]))
    yield
    handle.remove()


@contextmanager
def _block_forward(model: Any) -> Iterator[None]:
    block, whole = model.blocks[0], model.blocks[0].forward
    block.forward = lambda stream, *args, **options: whole(_zero(stream), *args, **options)
    yield
    del block.forward


@contextmanager
def _method(model: Any) -> Iterator[None]:
    whole = model.embed_tokens
    model.embed_tokens = lambda *args, **options: _zero(whole(*args, **options))
    yield
    del model.embed_tokens


WAYS = {
    "TransformerLens hook": _tl_hook,
    "permanent hook": _permanent_hook,
    "forward hook": _forward_hooks,
    "forward pre-hook": _pre_hook,
    "replaced forward of a block": _block_forward,
    "replaced method": _method,
}

#: Of each kind one: TransformerLens' hooks, torch's, and code that was exchanged. `make test` tries one on each
#: question in turn, `make test-all` all.
FEW = ("TransformerLens hook", "forward pre-hook", "replaced method")


# ---- questions


@cache
def _adder() -> Any:
    return models.load("microadder-57")


@cache
def _other() -> Any:
    return models.load("microadder-67")


@cache
def _summer() -> Any:
    return models.load("position-coupling-1l4h-small")


@cache
def _built() -> Any:
    return models.build("position-coupling-hand-built", max_operands=3, max_digits=3)


@cache
def _pairs() -> Any:
    return problem_pairs(_adder().task, "carry", column=4, n=8)


def _few(model: Any) -> torch.Tensor:
    return model.task.sample(24, torch.Generator().manual_seed(0))


def _patch_sweep(model: Any) -> Any:
    pairs = _pairs()
    metrics = resolve_metrics(model, pairs, "logit_diff")
    return interp.patch_sweep(model, pairs.corrupted_tokens, pairs.clean_tokens, metrics).found.patched


def _sweep_of_tokens(model: Any, task: Any) -> Any:
    base, source = (task.encode(task.sample(4, torch.Generator().manual_seed(seed))) for seed in (0, 1))
    metric = Metric("logit", (task.query_positions[-1],), lambda logits, rows: logits[..., 0, 3])
    return interp.patch_sweep(model, base, source, metric, site="attn_out", task=task).found.patched


def _attack(model: Any, **options: Any) -> Any:
    return str(interp.attack(model, **options).margins.to_dict())


def _explored(model: Any) -> Any:
    return str(Subject(model).to_dict())


ADDER: dict[str, Callable[[Any], Any]] = {
    "models.score": lambda m: models.score(m, _few(m)),
    "models.score, greedy": lambda m: models.score(m, _few(m), method="greedy"),
    "accuracy_by_chain": lambda m: interp.accuracy_by_chain(m, n_per_length=5),
    "stress_suites": lambda m: interp.stress_suites(m, n=20),
    "attention_by_role": lambda m: interp.attention_by_role(m, n=64),
    "carry_units": lambda m: interp.carry_units(m, n=64),
    "written_number": lambda m: interp.written_number(m, n=64),
    "score": lambda m: interp.score(m, n=64, by="target"),
    "certify": lambda m: interp.certify(m),
    "accuracy_bounds": lambda m: interp.accuracy_bounds(m),
    "decompile": lambda m: interp.decompile(m),
    "attack": lambda m: _attack(m, runs=100),
    "activation_patching": lambda m: interp.activation_patching(m, _pairs()),
    "activation_patching, checked": lambda m: interp.activation_patching(m, _pairs(), site="head_out", check=True),
    "patch_sweep": _patch_sweep,
    "path_patching": lambda m: interp.path_patching(m, _pairs()),
    "edge_attribution": lambda m: interp.edge_attribution(m, _pairs()),
    "smallest_circuit": lambda m: interp.smallest_circuit(m, _pairs()),
    "component_ablation": lambda m: interp.component_ablation(m, n=32),
    "parameter_ablation": lambda m: interp.parameter_ablation(m, n=16, pairs=False, controls=0),
    "which_algorithm": lambda m: interp.which_algorithm(m, n=20),
    "causal_scrubbing": lambda m: interp.causal_scrubbing(m, interp.chained_claims(), n=20),
    "interchange_sweep": lambda m: interp.interchange_sweep(m, "carry_in", 4, n=8),
    "linear_probes": lambda m: interp.linear_probes(m, n=128, signals="carry_in"),
    "logit_lens": lambda m: interp.logit_lens(m, n=64, resamples=50),
    "logit_attribution": lambda m: interp.logit_attribution(m, n=64, resamples=50),
    "compare": lambda m: interp.compare(m, _other(), n=16, untrained=[_adder_moved()]),
    "compare_models": lambda m: interp.compare_models([m, _other()], questions=["uniform"], n=32),
    "swap_components": lambda m: interp.swap_components(m, _other(), n=16, untrained=1),
    "mode_connectivity": lambda m: interp.mode_connectivity(m, _adder_moved(), n=16, controls=False),
    "seed_distances": lambda m: interp.seed_distances([m, _adder_moved()], n=16, untrained=0).functions,
    "population": lambda m: interp.population([m, m], n=64).members,
    "explore": _explored,
}
SUMMER: dict[str, Callable[[Any], Any]] = {
    "models.score": lambda m: models.score(m, _few(m)),
    "models.score, greedy": lambda m: models.score(m, _few(m), method="greedy"),
    "attack": lambda m: _attack(m, task=m.task.at(2, 2), runs=30),
    "needed_attention": lambda m: interp.needed_attention(m, n=16, untrained=[]),
    "head_roles": lambda m: interp.head_roles(m, n=16, untrained=[]),
    "pattern_substitution": lambda m: interp.pattern_substitution(m, n=4),
    "coupled_comparison": lambda m: interp.coupled_comparison(m, n=16, untrained=[]),
    "attended_growth": lambda m: interp.attended_growth(m, operands=(2, 3, 4), n=8, untrained=[]),
    "first_errors": lambda m: interp.first_errors(m, task=m.task.at(6, 5), n=32),
    "head_writes": lambda m: interp.head_writes(m, n=16, untrained=[]),
    "exact_match_grid": lambda m: interp.exact_match_grid(m, shapes=[(2, 2), (3, 3)], n=20, progress=False),
    "exact_match_grid, answers": lambda m: interp.exact_match_grid(
        m, shapes=[(2, 2)], n=10, final_answer=True, early_exit=False, progress=False
    ),
    "offset_sweep": lambda m: interp.offset_sweep(m, (2, 2), n=10),
    "greedy_agreement": lambda m: interp.greedy_agreement(m, [(2, 2)], n=10),
    "patch_sweep": lambda m: _sweep_of_tokens(m, m.task.at(2, 2)),
}
BUILT: dict[str, Callable[[Any], Any]] = {
    "named_stream": lambda m: interp.named_stream(m, "$12+34=00>21>64"),
    "sum_units": lambda m: interp.sum_units(m, n=16),
    "models.score": lambda m: models.score(m, _few(m)),
}
ASKED = [
    *((name, ask, _adder) for name, ask in ADDER.items()),
    *((name, ask, _summer) for name, ask in SUMMER.items()),
    *((name, ask, _built) for name, ask in BUILT.items()),
]
#: Questions of seconds: three proofs, and what `score` and `accuracy_by_chain` ask of fewer problems.
SLOW = ("certify", "accuracy_bounds", "decompile", "stress_suites")

#: Public functions that run no model: they ask arrays, parameters, stored runs, or nothing.
RUN_NO_MODEL = {
    "align",
    "chained_claims",
    "circle_fit",
    "fourier_spectrum",
    "helix_fit",
    "learning_curves",
    "solution_classes",
    "training_dynamics",
}


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
        return f"{type(result).__name__}\n" + pd.DataFrame.to_csv(frame)
    return repr(result.tolist() if hasattr(result, "tolist") else result)


def test_every_public_question_is_asked() -> None:
    asked = {name.split(",")[0] for name, _, _ in ASKED}
    assert set(registered()) - RUN_NO_MODEL <= asked


@pytest.mark.parametrize(
    ("name", "ask", "model", "ways"),
    [
        pytest.param(
            *asked,
            ways,
            id=f"{asked[0]} of {asked[2].__name__[1:]}, {len(ways)}",
            marks=[pytest.mark.slow] * (len(ways) > 1 or asked[0] in SLOW),
        )
        for index, asked in enumerate(ASKED)
        for ways in ((FEW[index % len(FEW)],), tuple(WAYS))
    ],
)
def test_a_destroyed_model_never_gets_the_untouched_ones_answer(
    name: str, ask: Callable[[Any], Any], model: Callable[[], Any], ways: tuple[str, ...]
) -> None:
    asked = model()
    assert not alterations(asked)
    untouched = _told(ask(asked))
    assert _told(ask(asked)) == untouched
    same = []
    for way in ways:
        with WAYS[way](asked):
            assert alterations(asked), way
            with suppress(UserError):
                same += [way] if _told(ask(asked)) == untouched else []
    assert not same
    assert not alterations(asked)
