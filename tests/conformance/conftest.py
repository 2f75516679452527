"""Every test that asks for ``row`` or ``model`` runs once for each row of the table."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from models.transformer import ArithmeticTransformer
from tests.conformance.table import ROWS, Row

STOCK_CLASS = "HookedTransformer" if find_spec("transformer_lens.HookedTransformer") else "TransformerBridge"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", ROWS, ids=lambda row: row.name)


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
    """A stock TransformerLens model with the same weights: what this environment's version has."""
    if STOCK_CLASS not in row.twins:
        pytest.skip(f"{row.name}: no {STOCK_CLASS} has these parts")
    if STOCK_CLASS == "HookedTransformer":
        return model.to_hooked_transformer()
    bridge = model.to_transformer_bridge()
    bridge.enable_compatibility_mode(no_processing=True)
    return bridge
