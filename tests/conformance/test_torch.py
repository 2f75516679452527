"""torch's own transforms on a model, as on a stock HookedTransformer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

from tests.comparing import assert_same

pytestmark = pytest.mark.transformer_lens

#: Compiling takes seconds: one in `make test`, and one of each kind of position, score and norm in `make test-all`.
#: (MicroAdder compiles as well, but not with the shape checks of these tests, which wrap a function that it defines.)
FEW = ("adder-456",)
MORE = ("rotary, neighbours", "negative L1, top 3", "coupled positions", "FIRE", "post-norm")


def test_vmap_over_tokens(model, tokens):
    each = vmap(model)(tokens)
    assert each.shape[:2] == (len(tokens), 1)
    assert_same(each[:, 0], model(tokens), tolerance=1e-5)


def test_meta_and_fake_tensors(model, tokens):
    meta = copy.deepcopy(model).to("meta")
    assert meta(tokens.to("meta")).shape == model(tokens).shape
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert model(mode.from_tensor(tokens)).shape == (*tokens.shape, model.config.d_vocab)


@pytest.mark.rows(lambda row: row.name in FEW)
def test_export_and_compile_in_one_graph(model, tokens, without_shape_checks):
    export_and_compile(model, tokens)


@pytest.mark.slow
@pytest.mark.rows(lambda row: row.name in MORE)
def test_export_and_compile_of_more_in_one_graph(model, tokens, without_shape_checks):
    export_and_compile(model, tokens)


def export_and_compile(model, tokens):
    expected = model(tokens).detach()
    with torch.no_grad():
        exported = torch.export.export(model, (tokens,)).module()
        assert_same(exported(tokens), expected, tolerance=1e-5)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_same(compiled(tokens).detach(), expected, tolerance=1e-5)
