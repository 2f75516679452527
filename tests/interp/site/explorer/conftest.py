"""The explorer's scripts, asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.javascript import Asked, started_node


@pytest.fixture(scope="module")
def javascript() -> Iterator[Asked]:
    """``javascript(body, data)``: what a function's body returns."""
    with started_node() as ask:
        yield ask
