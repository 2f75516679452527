"""The fast sweeps give the numbers of ``transformer_lens.patching``, on every model of the conformance table."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformer_lens import patching

import interp
from interp.causal.metrics import Metric
from interp.causal.patching import SITES
from interp.causal.patching.hooked_patching import PlainPatcher
from interp.causal.patching.patch_sites import parts_of, position_groups
from models.run import Frame, Run, Variants
from models.tasks.paired.problem_pairs import ProblemPairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import ROWS, Row
from tests.interp.causal.patching.swept import labelled, swept

TOLERANCE = 1e-9  # float64; the issue asks for 1e-6
NAMES = [
    ("resid_pre", "position", "resid_pre"),
    ("resid_mid", "position", "resid_mid"),
    ("attn_out", "position", "attn_out"),
    ("mlp_out", "position", "mlp_out"),
    ("head_out", "position", "attn_head_out_by_pos"),
    ("q", "position", "attn_head_q_by_pos"),
    ("k", "position", "attn_head_k_by_pos"),
    ("v", "position", "attn_head_v_by_pos"),
    ("head_out", "all", "attn_head_out_all_pos"),
    ("q", "all", "attn_head_q_all_pos"),
    ("k", "all", "attn_head_k_all_pos"),
    ("v", "all", "attn_head_v_all_pos"),
    ("pattern", "position", "attn_head_pattern_by_pos"),
    ("pattern", "all", "attn_head_pattern_all_pos"),
    ("pattern_dest_src", "position", "attn_head_pattern_dest_src_pos"),
]
SWEPT = (
    "microadder-57",
    "LN, 1 layer",
    "coupled positions",
    "post-norm",
)
FEW = ("resid_pre", "mlp_out", "head_out", "k", "pattern_dest_src")


def inputs(model: ArithmeticTransformer, n: int, longest: int) -> tuple[Tensor, Tensor]:
    tokens = [model.task.encode(model.task.sample(n, torch.Generator().manual_seed(s))) for s in (1, 2)]
    length = min(longest, *(x.shape[1] for x in tokens))
    return tokens[0][:, :length], tokens[1][:, :length]


def score(logits: Tensor) -> Tensor:
    """A number an example from the last axis' logits in which every token counts differently."""
    return logits.log_softmax(-1) @ torch.arange(logits.shape[-1], dtype=logits.dtype)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name not in SWEPT)) for row in ROWS]
)
@torch.no_grad()
def test_sweeps_equal_those_of_transformer_lens(row: Row):
    model = row.build(0).double()
    large = model.config.n_layers * model.config.d_model > 100
    base, other = inputs(model, 2, 3 if large else 5)
    _, cache = model.run_with_cache(other)
    metric = Metric("score", (-1,), lambda logits, rows: score(logits[..., 0, :]))
    for site, by, name in NAMES:
        if (not model.config.d_mlp and site in ("resid_mid", "mlp_out")) or (large and site not in FEW):
            continue
        theirs = getattr(patching, f"get_act_patch_{name}")(model, base, cache, lambda x: score(x[:, -1]).mean())
        ours = labelled(swept(model, base, other, metric, site, by, allow_equal=True))[0].mean("pair")
        order = ("layer", "pos", "head") if {"pos", "head"} <= set(ours.dims) else ("layer", "head", ...)
        ours = ours.transpose(*order if "head" in ours.dims else ("layer", ...))
        theirs = theirs.double().numpy()
        assert ours.shape == theirs.shape, name
        # TransformerLens keeps its results in float32
        assert abs(ours.values - theirs).max() <= 1e-6 * abs(theirs).max(), name


@st.composite
def cells(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "row": draw(st.sampled_from([row for row in ROWS if not row.name.startswith("toygpt")])),
        "site": draw(st.sampled_from(sorted(SITES))),
        "by": draw(st.sampled_from(("position", "all", "role"))),
        "read": draw(st.sampled_from(("last", "first answers", "all"))),
        "numbers": draw(st.sampled_from((1, 3_000, 2**18))),
        "seed": draw(st.integers(0, 10_000)),
    }


@pytest.mark.usefixtures("without_shape_checks")
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(cell=cells())
@torch.no_grad()
def test_whatever_is_patched_read_and_stacked_equals_one_hooked_run(cell: dict[str, Any]):
    """Logits of single variants between two runs, as they are and not only a metric of them."""
    model = cell["row"].build(0).double()
    base, other = inputs(model, 3, 40)
    length = base.shape[1]
    queries = [q for q in model.task.query_positions if q < length]
    read = {"last": queries[-1:], "first answers": queries[:2], "all": list(range(length))}[cell["read"]]
    site = SITES[cell["site"]]
    if not model.config.d_mlp and site.name in ("resid_mid", "mlp_out", "neuron"):
        return
    groups = position_groups(length, cell["by"], model.task, 0)
    rng = random.Random(cell["seed"])
    layer = rng.randrange(model.config.n_layers)
    found: dict[tuple[int, int], Tensor] = {}

    def emit(parts: slice, chosen: list[int], logits: Tensor) -> None:
        for i, part in enumerate(range(parts.start, parts.stop)):
            found.update({(part, group): logits[i, j] for j, group in enumerate(chosen)})

    frame = Frame(model, read)
    run = Run(frame, base)
    new = Run(frame, other).get("pattern" if site.by_source else site.of_run, layer)
    Variants(run, groups.places, emit, cell["numbers"]).patched(site.of_run, layer, new)
    patcher = PlainPatcher(model, base, model.run_with_cache(other)[1])
    for _ in range(3):
        part, group = rng.randrange(parts_of(site, model.config)), rng.randrange(len(groups))
        origin = rng.randrange(len(groups)) if site.by_source else None
        columns = None if origin is None else groups.places[origin]
        true = patcher.patched([site.place(layer, part, groups.places[group], columns)])[0][:, read]
        key = part if origin is None else part * len(groups) + origin
        ours = found.get((key, group), run.logits())
        assert (ours - true).abs().max() <= TOLERANCE * true.abs().max()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name not in SWEPT))
        for row in ROWS
        if not row.name.startswith("toygpt")
    ],
)
@torch.no_grad()
def test_a_table_of_nodes_is_a_loop_of_patched_runs(row: Row):
    """Each component's hook is overwritten with the other run's activation, one at a time, in TransformerLens' way."""
    model = row.build(0).double()
    problems = [model.task.sample(6, torch.Generator().manual_seed(s)) for s in (1, 2)]
    pairs = ProblemPairs(model.task, *problems, 0, "everything")
    base, other = pairs.corrupted_tokens, pairs.clean_tokens
    query = model.task.query_positions[0]
    metric = Metric("score", (query,), lambda logits, rows: score(logits[..., 0, :]))
    found = interp.activation_patching(model, pairs, by="component", metrics=metric, direction="both", allow_equal=True)
    cache = {"denoise": model.run_with_cache(other)[1], "noise": model.run_with_cache(base)[1]}
    parts = [("embed", "hook_embed", None)]
    if "hook_pos_embed" in model.hook_dict:
        parts.append(("pos_embed", "hook_pos_embed", None))
    for layer in range(model.cfg.n_layers):
        heads = range(model.cfg.n_heads)
        parts += [(f"L{layer}H{head}", f"blocks.{layer}.attn.hook_z", head) for head in heads]
        parts += [(f"L{layer}.attn", f"blocks.{layer}.hook_attn_out", None)] * (len(heads) > 1)
        parts += [(f"L{layer}.mlp", f"blocks.{layer}.hook_mlp_out", None)] * bool(model.config.d_mlp)
    assert found.values.component.values.tolist() == [name for name, _, _ in parts]
    for direction, tokens in (("denoise", base), ("noise", other)):
        for name, hook, head in parts:

            def patch(value: Tensor, hook: Any, head: Any = head, direction: str = direction) -> Tensor:
                new = cache[direction][hook.name]
                return new if head is None else torch.cat((value[:, :, :head], new[:, :, head : head + 1],
                                                           value[:, :, head + 1 :]), 2)  # fmt: skip

            true = score(model.run_with_hooks(tokens, fwd_hooks=[(hook, patch)])[:, query]).numpy()
            ours = found.values.sel(direction=direction, component=name, metric="score").values
            assert abs(ours - true).max() <= TOLERANCE * max(1.0, abs(true).max()), name
