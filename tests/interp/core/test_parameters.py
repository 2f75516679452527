"""Tables of free parameters."""

import numpy as np
import pytest

import models
from interp.causal.ablation import parameter_names
from interp.core.parameters import parameter_table, places


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_the_place_of_an_entry_finds_it_again(shape: tuple[int, ...]) -> None:
    values = np.arange(float(np.prod(shape))).reshape(shape)
    found = [values[tuple(int(i) for i in place.split(",") if i)] for place in places(shape)]
    assert found == values.ravel().tolist()


def test_rows_of_the_table_are_the_names_that_ablations_use() -> None:
    model = models.load("microadder-57")
    table = parameter_table(model)
    names = [f"{row.parameter}[{row.index}]" if row.index else row.parameter for row in table.itertuples(index=False)]
    assert names == parameter_names(model) and len(names) == 57
