"""What the probes say of the stored models: the paper's Figure 7, with numbers."""

from __future__ import annotations

import pytest

import interp
import models

pytestmark = pytest.mark.skipif(
    not {"position-coupling-1l4h-small", "position-coupling-1l4h-no-scratchpad-small"} <= set(models.zoo_names()),
    reason="needs the zoo's one-layer models",
)
OPERANDS = range(2, 7)


def slopes(name: str) -> dict[str, tuple[float, float]]:
    """95% interval of tokens attended to per further operand, by head."""
    found = interp.attended_growth(models.load(name), operands=OPERANDS).slopes.sel(measure="keys")
    return {
        str(unit): (float(found.low.sel(unit=unit)), float(found.high.sel(unit=unit))) for unit in found.unit.values
    }


def test_with_the_scratchpad_heads_attend_to_as_many_tokens_whatever_the_number_of_operands() -> None:
    by_head = slopes("position-coupling-1l4h-small")
    by_head.pop("any head")
    assert all(low < 0 < high < 0.25 for low, high in by_head.values()), by_head


def test_without_the_scratchpad_every_head_attends_to_about_one_more_token_an_operand_or_more() -> None:
    by_head = slopes("position-coupling-1l4h-no-scratchpad-small")
    by_head.pop("any head")
    assert all(low > 0.9 for low, _ in by_head.values()), by_head


def test_the_stored_models_heads_play_constructed_roles() -> None:
    """Digit sum and carry have counterparts; nothing plays the arrow or the EOS head."""
    model = models.load("position-coupling-1l4h-small")
    roles = list(interp.head_roles(model, task=model.task.at(5, 5), n=64).roles().values())
    assert set(roles) == {"sum", "carry"}


def test_no_head_of_the_one_layer_model_can_be_silenced_nor_the_carry_head_averaged() -> None:
    model = models.load("position-coupling-1l4h-small")
    table = interp.pattern_substitution(model, task=model.task.at(4, 4), n=64).to_dataframe()
    silenced = table[table.pattern == "zero"]
    assert len(silenced) == 4
    assert (silenced.high < 0.5).all()
    ideal = table[(table.unit == "L0H0") & (table.pattern == "ideal carry")]
    assert 0.1 < float(ideal.exact.iloc[0]) < 0.7, "an even split does not replace the carry head's choices"
