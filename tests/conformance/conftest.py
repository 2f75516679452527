"""Every test that asks for ``row``, ``model`` or ``tokens`` runs once for each row of the table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.transformer import ArithmeticTransformer
from tests.conformance.table import ROWS, STOCK_CLASS, Row, covered


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rows(predicate): run a conformance test on these rows of the table only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" not in metafunc.fixturenames:
        return
    rows = [row for row in ROWS if STOCK_CLASS in row.twins] if "twin" in metafunc.fixturenames else ROWS
    for marker in metafunc.definition.iter_markers("rows"):
        rows = [row for row in rows if marker.args[0](row)]
    marked = [pytest.param(row, id=row.name, marks=[pytest.mark.slow] if row.name in covered() else []) for row in rows]
    metafunc.parametrize("row", marked)


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
