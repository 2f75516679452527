"""ToyGPT's variants in the zoo, and the errors of the best one as they are stored."""

from __future__ import annotations

import pytest

import models
from models.families.toygpt import VARIANTS
from models.files.checkpoint import read_json
from models.zoo import read_entry
from studies.papers import DATA
from studies.toygpt.studies import BEST, BUDGET, errors


def test_every_variant_is_in_the_zoo_with_its_exhaustive_score():
    for variant in VARIANTS:
        entry = read_entry(variant.name)
        assert entry["score"]["all"]["n"] == 10_000 and entry["score"]["all"]["strength"] == "exhaustive"
        assert entry["training"]["step"] == BUDGET
        assert (models.zoo.resolve(variant.name) / "model.safetensors").stat().st_size < 2_000_000


@pytest.mark.slow
def test_errors_of_the_stored_model_are_counted_as_they_are_stored():
    found, kept = errors(models.load(BEST)), read_json(DATA / "toygpt-carry.json")["errors"]
    assert found["errors"] | {key: found[key] for key in ("test", "train")} == kept
    assert found["errors"]["kinds"] == {"missed": 16, "spurious": 6, "other": 0}
    assert found["test"] == read_entry(BEST)["score"]["correct"]
