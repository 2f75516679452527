"""Variants are the hooked runs that they stand for, however they are cut into chunks, and leave others alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from models.run.groups import everywhere
from models.run.run import Frame, Run, layer_of
from models.run.variants import MANY_KEYS, Variants
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.models.run.hooked import by_variants, groupings, patched, sites_of, two_batches

READ = (3, 5)


def model_of(**switches: Any) -> ArithmeticTransformer:
    return dense(**switches)(0).double()


@pytest.mark.parametrize("numbers", [1, 700, 2**20])
@torch.no_grad()
def test_chunks_of_any_size_give_the_same(numbers: int) -> None:
    model = model_of(positional_embedding_type="rotary", rotary_base=50.0)
    tokens, other = two_batches(model)
    cache = model.run_with_cache(other)[1]
    for site in sites_of(model):
        for groups in groupings(tokens.shape[1]).values():
            wanted = patched(model, tokens, cache, site, 0, groups, READ)
            assert_same(by_variants(model, tokens, other, site, 0, groups, READ, numbers)[0], wanted, 1e-9)


@torch.no_grad()
def test_single_keys_of_many_examples_are_those_of_few() -> None:
    model = model_of()
    tokens, other = two_batches(model, MANY_KEYS // 5)
    groups = groupings(tokens.shape[1])["position"]
    many = by_variants(model, tokens, other, "k", 1, groups, READ)[0]
    few = by_variants(model, tokens[:4], other[:4], "k", 1, groups, READ)[0]
    assert len(tokens) * len(groups) >= MANY_KEYS > 4 * len(groups)
    assert_same(many[:, :, :4], few, 1e-11)


@pytest.mark.parametrize("site", ["resid_pre", "k", "v"])
@pytest.mark.parametrize("switches", [{}, {"attn_scores": "neg_l1", "attn_top_k": 4}], ids=["plain", "top 4"])
@torch.no_grad()
def test_an_infinity_stays_in_the_groups_that_take_it(site: str, switches: dict[str, Any]) -> None:
    model = model_of(**switches)
    tokens, other = two_batches(model)
    groups = groupings(tokens.shape[1])["position"]
    run, source = Run(Frame(model, READ), tokens), Run(Frame(model, READ), other)
    holed = source.get(site, 0).clone()
    holed[:, 2] = math.inf
    found: dict[bool, dict[int, Tensor]] = {True: {}, False: {}}
    for is_holed, new in ((True, holed), (False, source.get(site, 0))):

        def emit(parts: slice, which: list[int], logits: Tensor, at: bool = is_holed) -> None:
            found[at].update({group: logits[:, i] for i, group in enumerate(which)})

        Variants(run, groups, emit).patched(site, 0, new)
    assert set(found[True]) == set(found[False])
    for group, logits in found[True].items():
        if group != 2:
            assert_same(logits, found[False][group], 1e-11)
    if site != "k" or not switches:  # an infinite distance only leaves a key out
        assert not found[True][2].isfinite().all()


@torch.no_grad()
def test_alternatives_are_single_patches() -> None:
    """Several streams, or outputs, at once: each is the hooked run in which the activation is what was given."""
    model = model_of(norm_placement="both")
    tokens, _ = two_batches(model)
    generator = torch.Generator().manual_seed(0)
    for site, hook in {"resid_pre": "hook_resid_pre", "attn_out": "hook_attn_out", "resid_mid": "hook_resid_mid",
                       "mlp_out": "hook_mlp_out", "resid_post": "hook_resid_post"}.items():  # fmt: skip
        for layer in range(model.config.n_layers):
            frame = Frame(model, READ)
            run, found = Run(frame, tokens), list[Tensor]()
            own = run.get(site, layer)
            new = own + torch.randn(3, *own.shape, generator=generator, dtype=own.dtype)
            keep = lambda parts, _, logits, found=found: found.append(logits[:, 0])  # noqa: E731
            Variants(run, everywhere(frame.n_pos), keep).alternatives(site, layer, new)
            rows = slice(0, frame.n_pos) if site == "resid_pre" else frame.rows(layer)

            def put(x: Tensor, hook: Any, one: Tensor, rows: slice = rows) -> Tensor:
                return torch.cat((x[:, : rows.start], one, x[:, rows.stop :]), 1)

            for one, logits in zip(new, torch.cat(found), strict=True):
                name = f"blocks.{layer}.{hook}"
                wanted = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook, one=one: put(x, hook, one))])
                assert_same(logits, wanted[:, list(READ)], 1e-9)


@dataclass
class Halved:
    seen: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.seen += 1
        return 0.5 * x


@pytest.mark.parametrize(
    "switches",
    [
        {"positional_embedding_type": "rotary", "gated_mlp": True},
        {"norm_placement": "post", "attn_scores": "max_plus"},
        {"parallel_attn_mlp": True, "layer_mix": True},
    ],
    ids=lambda switches: ", ".join(switches),
)
@torch.no_grad()
def test_every_hook_in_the_blocks_is_seen_and_replaced_but_the_norms(switches: dict[str, Any]) -> None:
    model = model_of(**switches)
    tokens, _ = two_batches(model)
    run, seen = Run(Frame(model, range(tokens.shape[1])), tokens), {}
    plain = run.replaced((), lambda name, layer, x: seen.setdefault(f"blocks.{layer}.{name}", x))
    logits, cache = model.run_with_cache(tokens)
    assert_same(plain, logits, 1e-11)
    own = {name for name in cache if name.startswith("blocks.") and "ln" not in name and "_norm" not in name}
    assert set(seen) == own
    for name, x in seen.items():
        assert_same(x, cache[name], 1e-11, name)
        assert_same(run.get(name.rpartition("hook_")[2], layer_of(name)), cache[name], 1e-11, name)
    for name in ("embed", "pos_embed"):
        if f"hook_{name}" in cache:
            assert_same(run.get(name), cache[f"hook_{name}"], 1e-11)
    together = [("blocks.0.attn.hook_z", Halved()), ("blocks.1.mlp.hook_pre", Halved())]
    for changes in [[(name, Halved())] for name in own] + [together]:
        wanted = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook: 0.5 * x) for name, _ in changes])
        assert_same(run.replaced(changes), wanted, 1e-11, str(changes))
        assert [change.seen for _, change in changes] == [1] * len(changes)


@torch.no_grad()
def test_what_rides_along_is_the_run_itself() -> None:
    model = model_of()
    tokens, other = two_batches(model)
    wanted = model(tokens)[:, list(READ)]
    for site in sites_of(model):
        for groups in groupings(tokens.shape[1]).values():
            assert_same(
                by_variants(model, tokens, other, site, model.config.n_layers - 1, groups, READ)[1], wanted, 1e-11
            )
