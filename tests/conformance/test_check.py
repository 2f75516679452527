"""models.check holds for every model of the table, and finds each planted fault."""

from typing import Any

import pandas as pd
import pytest
import torch

import models
from models.tasks import formatted
from tests.conformance.table import ROWS
from tests.interp.conftest import stock_copy
from tests.other_tasks import exact_adder, modular_addition

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def failed(table: pd.DataFrame) -> dict[str, str]:
    return dict(table[~table.passed][["check", "why"]].itertuples(index=False))


@pytest.mark.every_switch
def test_every_check_holds(model: Any):
    assert failed(models.check(model)) == {}


def adder() -> Any:
    return exact_adder(modular_addition(5))


def never_removed(model: Any) -> None:
    run = model.run_with_hooks

    def keeps(tokens: Any, fwd_hooks: Any = ()) -> Any:
        for name, hook in fwd_hooks:
            if name == "hook_embed":
                model.hook_embed.add_hook(hook, is_permanent=True)
        return run(tokens)

    model.run_with_hooks = keeps


def looks_ahead(model: Any) -> None:
    forward = model.forward
    model.forward = lambda tokens, *a, **k: forward(tokens, *a, **k) + tokens[:, -1:, None]


def drifts(model: Any) -> None:
    forward, runs = model.forward, []
    model.forward = lambda tokens, *a, **k: runs.append(1) or forward(tokens, *a, **k) + len(runs)


def trains(model: Any) -> None:
    model.train()


FAULTS = {
    "evaluation mode": trains,
    "hooks are removed": never_removed,
    "logits are causal": looks_ahead,
    "logits are finite and determined": drifts,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_of_a_model_is_found(name: str):
    model = adder()
    FAULTS[name](model)
    assert name in failed(models.check(model))


@pytest.mark.parametrize(
    "name, attributes",
    [
        ("task: places partition positions", {"relative_roles": lambda target: {"own operands": [0, 1]}}),
        ("task: positions and tokens", {"query_positions": (3,)}),
        ("task: targets are the function's", {"decode": lambda tokens: [-1] * len(tokens)}),
        ("task: targets are the function's", {"answers": lambda problems: torch.zeros(len(problems))}),
    ],
)
def test_a_planted_fault_of_a_task_is_found(name: str, attributes: dict[str, Any]):
    model, task = adder(), formatted("{a}{b}=", "(a + b) % 5", base=5)
    for attribute, value in attributes.items():
        setattr(task, attribute, value)
    assert name in failed(models.check(model, task))


@pytest.mark.parametrize("name", ["LN, 1 layer", "attention only", "adder-456"])
def test_a_stock_model_is_checked_with_a_task(name: str):
    model = next(row for row in ROWS if row.name == name).build(0)
    table = models.check(stock_copy(model), model.task)
    assert list(table.columns) == ["check", "passed", "why"] and failed(table) == {}
