"""Tables of free parameters."""

import numpy as np
import pytest

from interp.causal.ablation.parameter_variants import places


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_the_place_of_an_entry_finds_it_again(shape: tuple[int, ...]) -> None:
    values = np.arange(float(np.prod(shape))).reshape(shape)
    found = [values[tuple(int(i) for i in place.split(",") if i)] for place in places(shape)]
    assert found == values.ravel().tolist()
