"""Whatever the public surface is given, it takes it or says in one sentence what it cannot take."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate
from models.errors import UserError
from models.tasks import (
    AdditionFormat,
    CharacterLanguage,
    Domain,
    MultiOperandAddition,
    Multiplication,
    PairConstraint,
    Parity,
    ProblemPairs,
    Task,
    TaskVariables,
    TenDigitAddition,
    TwoDigitAddition,
    carry_pairs,
    chain_pairs,
    digit_pairs,
    induction,
    pairs,
    problem_pairs,
    variable_pairs,
)
from models.tasks.counter_rng import row_keys
from models.tasks.named.addition import MICROADDER, PairAddition
from models.transformer.config import TransformerConfig
from models.zoo.entry_writer import change_entry
from studies.adderboard.framed_addition import Frame, framed_addition

pytestmark = pytest.mark.usefixtures("without_shape_checks")

HOSTILE: tuple[Any, ...] = (
    None, True, "x", b"x", -1, 2**70, 1.5, math.nan, 3j, [], [None], {1: 2}, object(), len, np.bool_(True),
    np.array(["a"]), np.zeros((2, 2)), torch.tensor(3), torch.zeros(2, 2), torch.full((2, 2), -5),
    torch.zeros(2, 2, dtype=torch.complex64),
)  # fmt: skip


def nested(wrap: Callable[[Any], Any], times: int = 2_000) -> Any:
    """A value that lies in others more often than Python recurses."""
    value: Any = 1
    for _ in range(times):
        value = wrap(value)
    return value


#: What no question takes, wherever it is given.
NEVER: dict[str, Any] = {
    "meta": torch.zeros(4, 2, dtype=torch.int64, device="meta"),
    "quantized": torch.quantize_per_tensor(torch.rand(4, 2), 0.1, 0, torch.qint8),
    "sparse": torch.ones(4, 2, dtype=torch.int64).to_sparse(),
    "sparse rows": torch.ones(4, 2, dtype=torch.int64).to_sparse_csr(),
    "ragged": torch.nested.nested_tensor([torch.ones(2, dtype=torch.int64), torch.ones(3, dtype=torch.int64)]),
    "empty": torch.zeros(0, 2, dtype=torch.int64),
    "lists": nested(lambda value: [value]),
    "tuples": nested(lambda value: (value,)),
    "mappings": nested(lambda value: {"a": value}),
    "in a list": [nested(lambda value: [value])],
    "NUL": "a\0b",
    "half a character": "\ud800",
    "long": "x" * 5_000,
    "1.5": 1.5,
    "bytes": b"a\0b",
    "of nothing": [object()],
}
FRAMED = framed_addition(Frame(vocabulary="0123456789+=", between=(10,), after=(11,)))
TASKS = (
    TenDigitAddition(), TwoDigitAddition(), Parity(4), induction(4), CharacterLanguage(),
    Multiplication(2, 2),
    MultiOperandAddition(2, 3), FRAMED,
)  # fmt: skip
#: What training, or a task itself, calls with arguments that are checked already.
INNER = (
    "allowed",
    "tokens",
    "encode_rows",
    "problem_text",
    "uniform_by",
    "sequences",
    "segments",
    "segment_role",
    "shape_of",
    "with_rest",
)

Call = tuple[Callable[..., Any], dict[str, Any]]  # a function, and arguments that it takes


def methods(task: Task) -> Iterator[Call]:
    """The public methods of a task."""
    good: dict[str, Any] = {"n": 2, "seed": 0, "target": 0, "text": "1", "column": 0, "operand": 0, "step": 1}
    good |= {"keys": row_keys(0, 0, 2, torch.device("cpu")), "hard": 0.5}
    good |= {"generator": torch.Generator().manual_seed(0), "segment": 0, "n_operands": 2, "n_digits": 2, "query": 1}
    for name in dir(type(task)):
        method = inspect.getattr_static(type(task), name)
        if not name.startswith("_") and name not in INNER and inspect.isfunction(method):
            yield getattr(task, name), good


def functions(folder: Path) -> Iterator[Call]:
    """Functions and constructors."""
    task, adder = TenDigitAddition(), models.load("microadder-57")
    typed = {"task": task, "clean": [(1, 2)], "corrupted": [(1, 3)], "target": 0, "what": "x", "kind": "carry"}
    typed |= {"column": 4, "n": 2, "variable": "carry_in"}
    for make in (pairs, problem_pairs, carry_pairs, chain_pairs, digit_pairs, variable_pairs, ProblemPairs):
        yield make, typed
    yield problem_pairs(task, "carry", column=4, n=2).select, {}
    for make in (Parity, MultiOperandAddition, Multiplication, AdditionFormat, Frame):
        yield make, {}
    yield framed_addition, {"frame": Frame()}
    yield PairConstraint, {}
    yield TaskVariables, {}
    yield Domain.of, {"lengths": (2, 2)}
    yield interp.Provenance, {"n": 1, "seed": 0, "source": "x"}
    sizes = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "d_mlp": 4, "d_vocab": 10, "n_ctx": 33}
    yield TransformerConfig, sizes
    entry = {"folder": folder / "entry", "model": adder, "training": {}, "score": {}, "overwrite": True}
    yield models.save_entry, entry
    yield change_entry, {"entry": folder / "entry"}
    for call in (models.load, models.build, models.get_spec, models.names, models.register):
        yield call, {"name": "microadder-57", "name_or_path": "microadder-57"}
    yield load_certificate, {}
    yield check_certificate, {"model": adder}


def raw_errors(function: Callable[..., Any], good: dict[str, Any]) -> list[str]:
    """What the function raises that is no sentence for its user, for one hostile argument at a time."""
    parameters = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    given = {each.name: good[each.name] for each in parameters if each.name in good}
    found = []
    for each in parameters:
        for value in HOSTILE:
            try:
                if each.kind is each.VAR_POSITIONAL:
                    function(value)
                else:
                    function(**given | {each.name: value})
            except UserError as error:
                if len(str(error).splitlines()) != 1 or len(str(error)) > 500:
                    found.append(f"{function.__name__}({each.name}={value!r}): {error}")
            except Exception as error:
                found.append(f"{function.__name__}({each.name}={value!r}): {type(error).__name__} {error}")
    return found


#: Public functions that write, draw pages or train, or that are asked of results.
NOT_ASKED = {"train", "register", "save_entry", "explore", "show"}


def questions() -> dict[str, Callable[..., Any]]:
    """The public functions of both packages."""
    found = {f"{home.__name__}.{name}": getattr(home, name) for home in (models, interp) for name in home.__all__}
    return {n: f for n, f in found.items() if inspect.isfunction(f) and n.rpartition(".")[2] not in NOT_ASKED}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.slow)], ids=["every sixth", "all"])
def test_what_no_question_takes_is_refused_by_each_in_a_sentence(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every public function, every parameter: tensors without readable numbers, values in each other too often, names
    that no file can have."""
    monkeypatch.chdir(tmp_path)
    adder = models.load("microadder-57")
    made = problem_pairs(adder.task, "carry", column=4, n=4)
    tokens = adder.task.encode([(57, 48), (1, 2)])
    needed = {"model": adder, "a": adder, "b": adder, "models": [adder, adder], "pairs": made, "name": "microadder-57"}
    needed |= {"name_or_path": "microadder-57", "base_tokens": tokens, "tokens": tokens, "source": "microadder-57"}
    small = {"n": 8, "minutes": 0.001, "steps": 2, "runs": 2, "batch_size": 8}
    found, calls = [], 0
    for name, function in questions().items():
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind < p.VAR_KEYWORD]
        given = {p.name: needed[p.name] for p in parameters if p.name in needed and p.default is p.empty}
        given |= {p.name: small[p.name] for p in parameters if p.name in small}
        for each in parameters:
            for kind, value in NEVER.items():
                calls += 1
                if calls % share:
                    continue
                try:
                    function(value) if each.kind is each.VAR_POSITIONAL else function(**given | {each.name: value})
                except (UserError, TypeError):
                    pass
                except Exception as error:
                    found.append(f"{name}({each.name}={kind}): {type(error).__name__}")
    assert calls > 3_000 and found == []


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_s_methods_refuse_what_no_question_takes(task: Task) -> None:
    found = []
    for name in ("as_problems", "encode", "encode_prompt", "targets", "variables", "chain_length"):
        for kind, value in NEVER.items():
            try:
                getattr(task, name)(value)
            except UserError:
                continue
            except Exception as error:
                found.append(f"{name}({kind}): {type(error).__name__}")
    assert found == []


def test_a_model_s_own_methods_refuse_them_too() -> None:
    adder = models.load("microadder-57")
    found = []
    for ask in (adder, adder.run_with_cache, adder.run_with_hooks, adder.generate, adder.to_tokens):
        for kind, value in NEVER.items():
            try:
                ask(value)
            except UserError:
                continue
            except Exception as error:
                found.append(f"{ask}({kind}): {type(error).__name__}")
    assert found == []
    with pytest.raises(UserError):
        adder.generate(torch.zeros(0, 4, dtype=torch.int64))


@pytest.mark.parametrize("table", ["hook_dict", "mod_dict"])
def test_a_model_whose_hooks_lost_their_names_is_refused_and_computes_what_it_did(table: str) -> None:
    """A hook that is put on and cannot be taken off again would stay."""
    adder, one = models.load("microadder-57"), models.load("microadder-57")
    tokens = adder.task.encode([(57, 48), (9999999999, 1)])
    getattr(one, table).pop("hook_embed")
    getattr(adder, table).clear()
    expected = models.load("microadder-57")(tokens)
    for model in (adder, one):
        for question in (interp.logit_lens, interp.attention_by_role, interp.component_ablation, models.score):
            with pytest.raises(UserError):
                question(model)
        with pytest.raises(UserError):
            model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", lambda value, hook: 0 * value)])
        assert torch.equal(model(tokens), expected)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_s_methods_refuse_in_a_sentence(task: Task) -> None:
    calls = list(methods(task))
    assert len(calls) > 12
    assert [error for call in calls for error in raw_errors(*call)] == []


def test_functions_and_constructors_refuse_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a folder as well
    assert [error for call in functions(tmp_path) for error in raw_errors(*call)] == []


def test_what_is_checked_is_what_a_user_s_own_task_inherits() -> None:
    class Own(PairAddition):
        def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
            return torch.ones(n, 2, dtype=torch.int64)

    with pytest.raises(UserError):
        Own(MICROADDER, "own").sample(-1, torch.Generator())
    with pytest.raises(UserError):
        Own(MICROADDER, "own").sample(1, 0)  # type: ignore[arg-type]
    assert Own(MICROADDER, "own").sample(np.int64(3), torch.Generator()).shape == (3, 2)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_python_s_in_what_is_kept() -> None:
    kept = interp.Provenance(np.int64(3), np.int64(1), "problems")  # type: ignore[arg-type]
    assert type(kept.n) is type(kept.seed) is int and kept == interp.Provenance(3, 1, "problems")
    assert type(AdditionFormat(zero_padding=np.bool_(False)).zero_padding) is bool  # type: ignore[arg-type]
    assert type(Parity(np.int64(3)).n_digits) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"n": -1}, {"n": 1.5}, {"n": True}, {"seed": "x"}, {"source": 3}, {"strength": "sure"}]
)
def test_a_provenance_of_something_else_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        interp.Provenance(**{"n": 1, "seed": None, "source": "problems"} | bad)
