"""Every test that asks for ``row``, ``model`` or ``tokens`` runs once for each row of the table.

`make test` runs it on the rows of ``KEPT``, and what is marked ``every_switch`` on each row with a switch of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import KEPT, ROWS, STOCK_CLASS, Row, covered


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rows(predicate): run a conformance test on these rows of the table only")
    config.addinivalue_line("markers", "every_switch: not slow on rows that alone have a switch or a kind of weights")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" not in metafunc.fixturenames:
        return
    rows = [row for row in ROWS if STOCK_CLASS in row.twins] if "twin" in metafunc.fixturenames else ROWS
    for marker in metafunc.definition.iter_markers("rows"):
        rows = [row for row in rows if marker.args[0](row)]
    names = {row.name for row in ROWS} - covered() if metafunc.definition.get_closest_marker("every_switch") else KEPT
    quick = {row.name for row in rows} & set(names) or {row.name for row in rows[:1]}
    marks = {row.name: [] if row.name in quick else [pytest.mark.slow] for row in rows}
    metafunc.parametrize("row", [pytest.param(row, id=row.name, marks=marks[row.name]) for row in rows])


@pytest.fixture
def model(row: Row) -> ArithmeticTransformer:
    return row.build(0)


@pytest.fixture
def tokens(model: ArithmeticTransformer) -> Tensor:
    """Clean inputs, [3, pos]."""
    return model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))


@pytest.fixture
def corrupted(model: ArithmeticTransformer) -> Tensor:
    """Other inputs of the same shape."""
    return model.task.encode(model.task.sample(3, torch.Generator().manual_seed(2)))


@pytest.fixture
def twin(row: Row, model: ArithmeticTransformer) -> Any:
    """A stock TransformerLens model with the same weights, of the class that this environment's version has.

    Tests that ask for it run on the rows that have one.
    """
    if STOCK_CLASS == "HookedTransformer":
        return model.to_hooked_transformer()
    bridge = model.to_transformer_bridge()
    bridge.enable_compatibility_mode(no_processing=True)
    return bridge
