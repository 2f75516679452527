"""Every ``get_act_patch_*`` of transformer_lens.patching, against a stock model with the same weights.

Sweeps cost a run for each layer, head, query and key, so sequences are cut short, and models other than MicroAdder
run the sweeps that contain the others.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch
from transformer_lens import ActivationCache, patching

from tests.comparing import assert_same

pytestmark = [pytest.mark.transformer_lens, pytest.mark.usefixtures("without_shape_checks")]
SWEEPS = [name for name in vars(patching) if name.startswith("get_act_patch_") and "direct_path" not in name]
DIRECT_PATHS = ["get_act_patch_direct_path", "get_act_patch_direct_path_all_sources"]  # new in transformer_lens 4
COVERING = ["resid_mid", "attn_head_pattern_dest_src_pos", "block_every", "attn_head_by_pos_every"]
COVERING = [f"get_act_patch_{name}" for name in (*COVERING, "attn_head_all_pos_every")]
needs_direct_paths = pytest.mark.skipif(
    not hasattr(patching, DIRECT_PATHS[0]),
    reason="before 4.0 direct path patching takes TransformerLens' own classes only",
)


def metric(logits: torch.Tensor) -> torch.Tensor:
    """A smooth scalar of the last position's logits in which every token counts differently."""
    return (logits[:, -1].log_softmax(-1) * torch.arange(logits.shape[-1])).sum(-1).mean()


def noisy_cache(model, tokens) -> ActivationCache:
    """Activations to patch in: those of a run plus noise, since MicroAdder's pattern is the same on all inputs."""
    generator = torch.Generator().manual_seed(0)
    _, cache = model.run_with_cache(tokens)
    noisy = {name: value + 0.3 * torch.randn(value.shape, generator=generator) for name, value in cache.items()}
    return ActivationCache(noisy, model)


def result_shape(name: str, cfg, pos: int) -> tuple[int, ...]:
    """Shape of a sweep's result, from TransformerLens' documentation."""
    L, H = cfg.n_layers, cfg.n_heads
    for ending, shape in {
        "_block_every": (3, L, pos),
        "_by_pos_every": (5, L, pos, H),
        "_all_pos_every": (5, L, H),
        "_pattern_dest_src_pos": (L, H, pos, pos),
        "_pattern_by_pos": (L, H, pos),
        "_by_pos": (L, pos, H),
        "_all_pos": (L, H),
    }.items():
        if name.endswith(ending):
            return shape
    return (L, pos)


def test_the_installed_version_has_the_sweeps_that_are_tested():
    major = int(version("transformer-lens").split(".")[0])
    assert len(SWEEPS) == 18 and set(COVERING) < set(SWEEPS)
    assert [hasattr(patching, name) for name in DIRECT_PATHS] == [major >= 4] * 2


@torch.no_grad()
def test_sweeps_give_the_same_numbers_as_on_a_stock_model(row, model, tokens, corrupted, twin):
    everything = row.name.startswith("microadder")
    pos = 4 if everything else 2
    source = noisy_cache(model, tokens[:, :pos])
    for name in SWEEPS if everything else COVERING:
        if not model.config.d_mlp and name.endswith(("resid_mid", "block_every")):
            continue
        ours = getattr(patching, name)(model, corrupted[:, :pos], source, metric)
        theirs = getattr(patching, name)(twin, corrupted[:, :pos], source, metric)
        assert tuple(ours.shape) == result_shape(name, model.config, pos), name
        assert_same(ours, theirs, what=name)
        assert not torch.allclose(ours, metric(model(corrupted[:, :pos]))), f"{name}: the patches change nothing"


@needs_direct_paths
@pytest.mark.rows(lambda row: not row.config.has_post_norm)
@pytest.mark.parametrize("component", "qkv")
@torch.no_grad()
def test_direct_paths_are_exact(model, tokens, corrupted, component):
    """The path from one head into another's query, key or value, against a run that replaces that input by hand."""
    clean, other = noisy_cache(model, tokens), model.run_with_cache(corrupted)[1]
    L, H = model.config.n_layers, model.config.n_heads
    every = patching.get_act_patch_direct_path_all_sources(
        model, corrupted, clean, other, metric, component, verbose=False
    )
    assert tuple(every.shape) == (L, H, L, H) and not model.cfg.use_split_qkv_input
    one = patching.get_act_patch_direct_path(model, corrupted, clean, other, metric, 0, H - 1, component, verbose=False)
    assert torch.equal(one, every[0, H - 1])
    assert (every[:, :, 0] == 0).all()  # TransformerLens leaves rows up to the source's layer at zero
    if L == 1:
        return
    delta = (clean["z", 0] - other["z", 0])[:, :, H - 1] @ model.W_O[0, H - 1]
    pick = torch.zeros(H, 1)
    pick[0] = 1
    model.set_use_split_qkv_input(True)
    hook = (f"blocks.1.hook_{component}_input", lambda value, hook: value + pick * delta[:, :, None])
    assert_same(one[1, 0], metric(model.run_with_hooks(corrupted, fwd_hooks=[hook])))


@needs_direct_paths
@pytest.mark.rows(lambda row: row.config.has_post_norm)
def test_direct_paths_are_refused_where_a_norm_follows_the_heads(model, tokens, corrupted):
    (_, clean), (_, other) = model.run_with_cache(tokens), model.run_with_cache(corrupted)
    with pytest.raises(ValueError, match="ln1_post"):
        patching.get_act_patch_direct_path(model, corrupted, clean, other, metric, 0, 0, verbose=False)
