"""Fixtures for tests of tasks and models."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """For what users get wrong: they run without the checks, which would complain first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
