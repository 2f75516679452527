"""The suite's own guard: annotated shapes are checked while it runs."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from tests.conformance.table import dense


def test_a_wrong_shape_inside_a_model_is_an_error():
    norm = dense()(0).ln_final
    assert norm(torch.ones(2, 3, 12)).shape == (2, 3, 12)
    for wrong in (torch.ones(2, 3, 12, dtype=torch.long), [1.0]):
        with pytest.raises(jaxtyping.TypeCheckError):
            norm(wrong)
