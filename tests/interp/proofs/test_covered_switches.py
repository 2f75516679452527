"""Every prover names the switches that its bounds are stated for, and refuses all others, later ones included."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from interp.proofs.attention_only import arrangement_method
from interp.proofs.columns import adder_weights
from interp.proofs.listed import prefix_leads
from interp.proofs.machine import machine_method, window_contents
from models import TransformerConfig
from models.transformer.config import uncovered

TABLES = {
    "columns": adder_weights.COVERS,
    "finite machine": machine_method.COVERS,
    "near keys": window_contents.COVERS,
    "two layers of attention": arrangement_method.COVERS,
    "prefix tree": prefix_leads.COVERS,
}


@dataclass(frozen=True)
class Later(TransformerConfig):
    """A config with a switch that nobody knows."""

    embed_scale: float = 1.0


@pytest.mark.parametrize("table", TABLES)
def test_a_switch_that_is_added_later_is_refused_when_it_is_on(table: str):
    off = Later(1, 8, 2, 4, 16, 12, 8)
    on = replace(off, embed_scale=2.0)
    assert set(uncovered(on, TABLES[table])) - set(uncovered(off, TABLES[table])) == {"embed_scale=2.0"}
