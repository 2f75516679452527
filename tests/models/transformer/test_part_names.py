"""Names of parts: what is written is read again, and what earlier versions wrote has today's names."""

from __future__ import annotations

import pytest

from models.errors import UserError
from models.registry import build
from models.tasks.columns.column_places import column_places
from models.tasks.roles import OUTPUT, OWN, PLACES, PREVIOUS
from models.transformer.part_names import head_name, in_block, layer_part, neuron_name, read_part, with_part_names
from studies.claims.stored_texts import with_places


def test_a_name_that_is_written_is_read() -> None:
    assert read_part(head_name(0, 1)) == (0, "head", 1)
    assert read_part(neuron_name(11, 203)) == (11, "neuron", 203)
    assert read_part(layer_part(2, "mlp")) == (2, "mlp", None)


@pytest.mark.parametrize("text", ["", "L0", "L0U1", "H1", "L0H", "L0H1.q", "MLP0", "L0 MLP"])
def test_another_text_is_no_name(text: str) -> None:
    with pytest.raises(UserError):
        read_part(text)


def test_hook_points_and_weights_of_a_block_are_those_of_the_model() -> None:
    model = build("microadder-57")
    assert in_block(0, "attn.hook_z") in model.hook_dict and in_block(0, "mlp.W_in") in model.effective_weights()
    assert dict(model.named_modules())[in_block(0)] is model.blocks[0]


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("L0 neuron 13 is on", "L0N13 is on"),
        ("L0U1, L0U0", "L0N1, L0N0"),
        ("L0H0->MLP0 and MLP3->logits", "L0H0->L0.mlp and L3.mlp->logits"),
        ("L0 attention, L0 MLP", "L0.attn, L0.mlp"),
        ("the MLP of L0 mid, L1 attention", "the MLP of L0 mid, L1 attention"),
    ],
)
def test_a_stored_text_gets_the_names_of_this_version(earlier: str, now: str) -> None:
    assert with_part_names(earlier) == now == with_part_names(now)


def test_stored_places_get_the_names_that_tasks_give() -> None:
    assert with_places("0.40 on own column, attention: written digit") == f"0.40 on {OWN}, attention: {OUTPUT}"
    assert with_places("at own digits, at digits below") == f"at {OWN}, at {PREVIOUS}"
    assert with_places("the own column, the written digit") == "the own column, the written digit"


@pytest.mark.parametrize("column", range(11))
def test_the_places_of_a_column_are_those_of_its_target(column: int) -> None:
    task = build("microadder-57").task
    layout = column_places(task)
    groups, query = task.relative_roles(layout.targets[column]), layout.queries[column]
    for name, found in layout.places(column).items():
        assert name in PLACES and set(found) - {query} == set(groups[name]) - {query}
