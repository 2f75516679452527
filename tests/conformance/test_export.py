"""Copies as stock TransformerLens models: equal logits, or a sentence that names what prevents it."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from tests.comparing import assert_same
from tests.conformance.table import STOCK_CLASS, dense
from tests.sampling import sampled

pytestmark = pytest.mark.transformer_lens

EXPORT = "to_hooked_transformer" if STOCK_CLASS == "HookedTransformer" else "to_transformer_bridge"
OTHER = {"to_hooked_transformer": "to_transformer_bridge", "to_transformer_bridge": "to_hooked_transformer"}[EXPORT]


def refusal_of(row) -> str | None:
    return row.refusal or (row.bridge_refusal if STOCK_CLASS == "TransformerBridge" else None)


@pytest.mark.every_switch
def test_an_export_has_equal_logits_or_names_what_prevents_it(row, model, tokens):
    if refusal_of(row):
        with pytest.raises(UserError, match=refusal_of(row)):
            getattr(model, EXPORT)()
    else:
        assert_same(getattr(model, EXPORT)()(tokens), model(tokens), tolerance=1e-5)


@pytest.mark.parametrize(
    "name",
    sampled([name for name in models.zoo_names() if name.startswith("microadder")], "microadder-57", "microadder-74"),
)
@torch.no_grad()
def test_exports_of_trained_models_are_as_exact_as_float32_allows(name):
    """Trained weights are large enough for float32 itself to be off: by 1e-4 of the logits' scale in the 74.

    HookedTransformer orders its operations as we do and is off by less than that; the bridge orders them differently,
    and is off by as much again.
    """
    model = models.load(name)
    tokens = model.task.encode(model.task.sample(64, torch.Generator().manual_seed(0)))
    logits, exact = model(tokens), models.load(name).double()(tokens)
    own_error = float((logits - exact).abs().max() / exact.abs().max())
    difference = float((getattr(model, EXPORT)()(tokens) - logits).abs().max() / exact.abs().max())
    assert difference < (1 if STOCK_CLASS == "HookedTransformer" else 2) * own_error + 1e-5


@pytest.mark.rows(lambda row: not refusal_of(row))
def test_an_export_owns_its_weights(row, model, tokens):
    before = model(tokens)
    exported = getattr(model, EXPORT)()
    with torch.no_grad():
        for parameter in exported.parameters():
            parameter.mul_(1.5)
    assert torch.equal(model(tokens), before)


@pytest.mark.rows(lambda row: not refusal_of(row))
def test_an_export_keeps_the_dtype(row, model, tokens):
    exported = getattr(model.double(), EXPORT)()
    logits = exported(tokens)
    assert logits.dtype == torch.float64
    # The bridge normalises in float32 whatever its dtype.
    assert_same(logits, model(tokens), tolerance=1e-12 if STOCK_CLASS == "HookedTransformer" else 1e-5)


@pytest.mark.rows(lambda row: not row.refusal and not row.bridge_refusal)
def test_the_export_of_the_other_major_version_says_which_to_use(model):
    with pytest.raises(UserError, match=EXPORT):
        getattr(model, OTHER)()


@pytest.mark.skipif(STOCK_CLASS != "TransformerBridge", reason="a limit of the bridge")
def test_the_bridge_refuses_a_fractional_rotary_base():
    model = dense(positional_embedding_type="rotary", rotary_base=100.5)()
    with pytest.raises(UserError, match=r"rotary_base=100\.5"):
        model.to_transformer_bridge()


def test_a_model_without_its_final_norm_is_not_exported():
    model = dense(final_norm=False)()
    with pytest.raises(UserError, match="final_norm=False"):
        getattr(model, EXPORT)()
