"""Shape checks switched off for a while: they double the time of what runs a model often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def unchecked_shapes() -> Iterator[None]:
    """For what others have checked, and for bad input as users give it: they run without the checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
