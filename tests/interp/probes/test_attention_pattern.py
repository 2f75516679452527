"""The attention pattern of one problem is the one in the cache, drawn with its tokens."""

import numpy as np
import pandas as pd
import pytest

import interp
import models
from models.errors import UserError

TWO_LAYERS = "toygpt-learned-pre"


def test_the_pattern_is_that_of_the_cache_with_the_tokens_as_labels():
    model = models.load(TWO_LAYERS)
    found = interp.attention_pattern(model, "57+48")
    _, cache = model.run_with_cache("57+48")
    tokens = model.to_str_tokens("57+48")
    assert [label.partition(" ")[2] for label in found.table["query"].unique()] == tokens
    visible = np.tri(len(tokens), dtype=bool)
    for (layer, head), rows in found.table.groupby(["layer", "head"]):
        np.testing.assert_array_equal(rows.weight, cache["pattern", layer][0, head].detach().numpy()[visible])
    sums = found.to_dataframe().groupby(["layer", "head", "query"]).weight.sum()
    assert len(sums) == model.cfg.n_layers * model.cfg.n_heads * len(tokens) and np.allclose(sums, 1, atol=1e-5)


def test_its_figure_has_a_heat_map_for_every_head_and_it_survives_json():
    model = models.load(TWO_LAYERS)
    found = interp.attention_pattern(model, (57, 48))
    assert len(found.figure().data) == model.cfg.n_layers * model.cfg.n_heads
    assert len(found.figure(layer=0, head=0).data) == 1
    again = type(found).from_dict(found.to_dict())
    pd.testing.assert_frame_equal(again.table, found.table)
    with pytest.raises(UserError):
        found.figure(layer=99)


def test_it_is_about_one_problem():
    model = models.load("microadder-57")
    for bad in (["57+48", "1+2"], "57*48", []):
        with pytest.raises(UserError):
            interp.attention_pattern(model, bad)
