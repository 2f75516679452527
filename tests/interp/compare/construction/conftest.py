"""The hand-built model of multi-operand addition, and an untrained decoder beside it; no test changes them."""

import pytest

import models


@pytest.fixture(scope="session")
def hand_built():
    return models.build("position-coupling-hand-built", max_operands=6, max_digits=4)


@pytest.fixture(scope="session")
def untrained():
    return models.build("position-coupling-1l4h-small", seed=1)
