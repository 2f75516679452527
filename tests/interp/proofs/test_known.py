"""What the list of models says of all inputs comes from stored proofs, counts and verdicts."""

import json

import pytest

from interp.proofs.stored import CONSTRUCTED, judge_constructed, on_all_inputs
from models import zoo
from models.registry import constructed


def test_every_constructed_model_has_a_stored_verdict_and_no_other():
    assert json.loads(CONSTRUCTED.read_text()).keys() == set(constructed())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parity-hand-built", "adder-4-by-hand"])
def test_a_stored_verdict_is_what_the_certifier_says(name):
    found, stored = judge_constructed(name), json.loads(CONSTRUCTED.read_text())[name]
    assert found.pop("smallest_margin") == pytest.approx(
        stored.pop("smallest_margin"), abs=1e-5
    )  # float32's exponential
    assert found == stored


def test_trained_models_show_their_proof_or_their_exhaustive_count():
    assert on_all_inputs("microadder-57") == "certified with rounding"
    whole = zoo.read_entry("toygpt-learned-pre")["score"]["all"]
    assert on_all_inputs("toygpt-learned-pre") == f"exhaustive: {whole['correct']:,} of {whole['n']:,}"
    assert on_all_inputs("addlm-adder-two-digit").endswith("10,000 of 10,000")
    assert on_all_inputs("addlm-0.8m") == on_all_inputs("microadder-170-frozen-spiral") == ""
