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
    BalancedBrackets,
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
    pairs,
    problem_pairs,
    variable_pairs,
)
from models.tasks.addition import MICROADDER, PairAddition
from models.tasks.counter_rng import row_keys
from models.transformer.config import TransformerConfig
from models.zoo import change_entry
from studies.adderboard.framed_addition import Frame, framed_addition

pytestmark = pytest.mark.usefixtures("without_shape_checks")

HOSTILE: tuple[Any, ...] = (
    None, True, "x", b"x", -1, 2**70, 1.5, math.nan, 3j, [], [None], {1: 2}, object(), len, np.bool_(True),
    np.array(["a"]), np.zeros((2, 2)), torch.tensor(3), torch.zeros(2, 2), torch.full((2, 2), -5),
    torch.zeros(2, 2, dtype=torch.complex64),
)  # fmt: skip
FRAMED = framed_addition(Frame(vocabulary="0123456789+=", between=(10,), after=(11,)))
TASKS = (
    TenDigitAddition(), TwoDigitAddition(), Parity(4), BalancedBrackets(4), CharacterLanguage(), Multiplication(2, 2),
    MultiOperandAddition(2, 3), FRAMED,
)  # fmt: skip
#: What training, or a task itself, calls with arguments that are checked already.
INNER = (
    "allowed",
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
    for make in (Parity, BalancedBrackets, MultiOperandAddition, Multiplication, AdditionFormat, Frame):
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
    for function in (models.load, models.build, models.get_spec, models.names, models.register):
        yield function, {"name": "microadder-57", "name_or_path": "microadder-57"}
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
