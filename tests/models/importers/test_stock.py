"""Stock TransformerLens models as this project's: the export and the way back are inverse, or refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.importers.stock import from_transformer_lens
from tests.comparing import assert_same
from tests.conformance.table import ROWS, STOCK_CLASS, Row, covered
from tests.interp.conftest import stock_copy

pytestmark = pytest.mark.transformer_lens


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name in covered()))
        for row in ROWS
        if STOCK_CLASS in row.twins
    ],
)
@torch.no_grad()
def test_export_and_import_give_the_model_back(row: Row):
    model = row.build(0)
    copy = from_transformer_lens(stock_copy(model), model.task)
    tokens = model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))
    assert_same(copy(tokens), model(tokens), 1e-6)
    theirs = model.all_weights()
    names = [key for key in theirs if key in copy.all_weights()]
    assert {"embed.W_E", "blocks.0.attn.W_Q", "unembed.W_U"} <= set(names)


def test_a_model_of_this_project_is_returned_as_it_is():
    model = ROWS[0].build(0)
    assert from_transformer_lens(model, model.task) is model


@pytest.mark.parametrize(
    "switch, value",
    [("use_local_attn", True), ("positional_embedding_type", "alibi"), ("act_fn", "solu_ln"), ("n_key_value_heads", 1)],
)
def test_parts_that_this_transformer_lacks_are_named(switch: str, value: Any):
    row = next(row for row in ROWS if row.name == "rotary, neighbours")
    model = row.build(0)
    stock = stock_copy(model)
    cfg = {name: getattr(stock.cfg, name, None) for name in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp")}
    cfg |= {name: getattr(stock.cfg, name, None) for name in ("d_vocab", "n_ctx", "act_fn", "eps", "dtype")}
    cfg |= {"positional_embedding_type": "rotary", "normalization_type": "RMS", "attn_scale": 1.0, switch: value}
    other = SimpleNamespace(cfg=SimpleNamespace(**cfg))
    with pytest.raises(UserError, match=f"cannot express {switch}={value!r}"):
        from_transformer_lens(other, model.task)


@torch.no_grad()
def test_a_copy_that_gives_other_logits_is_not_handed_out(monkeypatch):
    """A hook that stays on the stock model stands for a part which the copy does not have; seen or unseen."""
    model = next(row for row in ROWS if row.name == "LN, 1 layer").build(0)
    stock = stock_copy(model)
    stock.add_hook("blocks.0.hook_resid_post", lambda x, hook: x.abs())
    with pytest.raises(UserError):
        from_transformer_lens(stock, model.task)
    monkeypatch.setattr("models.importers.stock.require_unaltered", lambda model, what: None)
    with pytest.raises(UserError, match="gives other logits"):
        from_transformer_lens(stock, model.task)


STOCK = ["LN, 1 layer", "gated, no biases", "rotary, neighbours", "attention only", "adder-456"]


@pytest.mark.parametrize("name", STOCK)
@torch.no_grad()
def test_a_stock_models_saved_state_is_read_as_a_file(name: str, tmp_path: Path):
    """With the names of the installed version: HookedTransformer's, or the native bridge's."""
    model = next(row for row in ROWS if row.name == name).build(0)
    stock = stock_copy(model)
    torch.save({"model": stock.state_dict(), "config": stock.cfg.to_dict()}, tmp_path / "stock.pt")
    tokens = model.task.encode(model.task.sample(3, torch.Generator().manual_seed(1)))
    copy = models.load(tmp_path / "stock.pt", task=model.task)
    assert_same(copy(tokens), stock(tokens), 1e-5)
