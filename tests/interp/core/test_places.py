"""Pieces of activations: reading, writing, and running a model with them replaced."""

from __future__ import annotations

import pytest
import torch

import models
from interp.core import batches, runs
from interp.core.places import Place
from models.errors import UserError

PLANE = torch.linalg.qr(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))[0]
MID, Z, PATTERN = "blocks.0.hook_resid_mid", "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"
PIECES = {
    "stream": (Place(MID, (4, 1)), (3, 6, 5), (3, 2, 5)),
    "one position": (Place(MID, 4), (3, 6, 5), (3, 1, 5)),
    "all positions": (Place(MID, None), (3, 6, 5), (3, 6, 5)),
    "heads": (Place(Z, (4, 1)), (3, 6, 4, 5), (3, 2, 4, 5)),
    "head": (Place(Z, (4, 1), head=1), (3, 6, 4, 5), (3, 2, 1, 5)),
    "pattern": (Place(PATTERN, (4, 1), head=0), (3, 4, 6, 6), (3, 1, 2, 6)),
    "neuron": (Place("blocks.0.mlp.hook_post", (4, 1), neuron=3), (3, 6, 5), (3, 2, 1)),
    "subspace": (Place(Z, (4, 1), head=2, basis=PLANE), (3, 6, 4, 5), (3, 2, 1, 2)),
}


@pytest.fixture(scope="module")
def adder():
    return models.load("microadder-57")


@pytest.mark.parametrize("name", PIECES)
def test_writing_a_piece_changes_it_and_nothing_else(name):
    site, shape, read = PIECES[name]
    activation = torch.randn(shape)
    before, held = activation.clone(), site.read(activation)
    assert held.shape == read
    new = torch.randn_like(held)
    written = site.write(activation, new)
    torch.testing.assert_close(site.read(written), new)
    torch.testing.assert_close(site.write(written, held), activation)
    torch.testing.assert_close(site.write(activation, 0.0), activation - site.write(torch.zeros(shape), held))
    assert torch.equal(activation, before)
    if site.basis is None:
        assert int((written != activation).sum()) == new.numel()
        assert torch.equal(site.write(activation, new.flatten(1)), written)
        assert torch.equal(site.read(site.write(activation, new[0])), new[0].expand(read))


def test_reading_gives_what_the_cache_holds_and_writing_it_back_changes_no_logit(adder, monkeypatch):
    tokens = adder.task.encode(adder.task.sample(7, torch.Generator().manual_seed(0)))
    monkeypatch.setattr(batches, "WEIGHTS_AT_ONCE", 3 * tokens.shape[1] ** 2)  # three chunks
    values = Place("blocks.0.attn.hook_v", (3, 25))
    (held,), logits = runs.read(adder, tokens, [values], [25])
    _, cache = adder.run_with_cache(tokens)
    torch.testing.assert_close(held, cache["blocks.0.attn.hook_v"][:, [3, 25]])
    torch.testing.assert_close(logits[:, 0], adder(tokens)[:, 25])
    back = runs.run(adder, tokens, [values.put(lambda _, rows: held[rows])])
    torch.testing.assert_close(back, adder(tokens))
    other = runs.run(adder, tokens, [values.put(held.roll(1, 0)[0])], [25])
    assert not torch.allclose(other, logits)


def test_edits_of_one_run_act_together_and_what_is_kept_is_what_they_leave(adder):
    tokens = adder.task.encode([(57, 48), (999, 1)])
    sites = [Place("blocks.0.mlp.hook_post", None, neuron=0), Place("blocks.0.mlp.hook_post", (25,), neuron=1)]
    edits = [site.put(0.0) for site in sites]
    ((rows, _, kept),) = runs.passes(adder, tokens, edits, keep=["blocks.0.mlp.hook_post"])
    post = kept["blocks.0.mlp.hook_post"]
    assert (rows.start, rows.stop) == (0, 2)
    assert not post[:, :, 0].any() and not post[:, 25, 1].any() and post[:, :25, 1].any()


@pytest.mark.parametrize(
    "site",
    [Place(MID, (40,)), Place(MID, ()), Place(Z, None, head=7), Place(Z, None, neuron=0),
     Place("blocks.0.mlp.hook_post", None, neuron=99),
     Place("blocks.0.hook_residmid", None)],
)  # fmt: skip
def test_a_piece_that_the_model_does_not_have_is_refused(adder, site):
    with pytest.raises(UserError):
        site.check(adder, 35)


def test_named_places_and_silent_hooks_cannot_be_read(adder):
    tokens = adder.task.encode([(57, 48), (999, 1)])
    for site in (Place(MID), Place("blocks.0.attn.hook_result", None)):
        with pytest.raises(UserError):
            runs.read(adder, tokens, [site])
