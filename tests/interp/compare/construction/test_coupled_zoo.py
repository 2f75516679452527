"""What the probes say of the stored models: the paper's Figure 7, with numbers."""

from __future__ import annotations

import numpy as np
import pytest

import interp
import models

pytestmark = pytest.mark.skipif(
    not {"position-coupling-1l4h-small", "position-coupling-1l4h-no-scratchpad-small"} <= set(models.zoo_names()),
    reason="needs the zoo's one-layer models",
)


def attended(name: str) -> np.ndarray:
    """Tokens attended to in one step, for two operands and for six, by head."""
    model = models.load(name)
    found = [interp.key_attention(model, task=model.task.at(m, 4), n=16, untrained=0).attended for m in (2, 6)]
    return np.stack([each.values[:-1] for each in found])


def test_with_the_scratchpad_heads_attend_to_as_many_tokens_whatever_the_number_of_operands() -> None:
    two, six = attended("position-coupling-1l4h-small")
    assert (np.abs(six - two) < 1).all()  # a quarter of a token an operand


def test_without_the_scratchpad_every_head_attends_to_about_one_more_token_an_operand_or_more() -> None:
    two, six = attended("position-coupling-1l4h-no-scratchpad-small")
    assert (six - two > 0.9 * 4).all()


def test_the_stored_models_heads_play_constructed_roles() -> None:
    """Digit sum and carry have counterparts; nothing plays the arrow or the EOS head."""
    model = models.load("position-coupling-1l4h-small")
    roles = list(interp.key_attention(model, task=model.task.at(5, 5), n=64).roles().values())
    assert set(roles) == {"sum", "carry"}


@pytest.mark.slow
def test_no_head_of_the_one_layer_model_can_be_silenced_nor_the_carry_head_averaged() -> None:
    model = models.load("position-coupling-1l4h-small")
    table = interp.pattern_patching(model, task=model.task.at(4, 4), n=64).to_dataframe()
    silenced = table[table.pattern == "zero"]
    assert len(silenced) == 4
    assert (silenced.exact_high < 0.5).all()
    ideal = table[(table.unit == "L0H0") & (table.pattern == "ideal carry")]
    assert 0.1 < float(ideal.exact.iloc[0]) < 0.7, "an even split does not replace the carry head's choices"
