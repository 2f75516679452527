"""What the tests of aligned models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from studies.population.symmetries import low_rank, microadder


@pytest.fixture(scope="module")
def few_starts() -> Iterator[None]:
    """A search from four places instead of 24: what is tested holds wherever it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(microadder, "STARTS", 4)
        patch.setattr(low_rank, "STARTS", 4)
        yield
