"""The paper's tables and figures as data: which models, which recipes, which names."""

from __future__ import annotations

import pytest

import models
from models.families.position_coupling import PAPER, SMALL
from models.families.position_coupling_variants import FIGURES
from models.registry import recipe_of

VARIANTS = [v for figure in FIGURES.values() for panels in (figure.paper, figure.small) for v in panels.values()]


@pytest.mark.parametrize(
    ("task", "size", "steps", "batch", "lr", "limits", "problems"),
    [
        # Tables 1, 2 and 3, line by line: layers, heads, width, head width, MLP width; steps; batch; rate; max_pos; set
        ("parity", (6, 8, 512, 64, 2048), 50_000, 20, 3e-5, (101,), 10_000),
        ("addition", (6, 8, 1024, 128, 2048), 50_000, 400, 3e-5, (40, 40), 500_000),
        ("multiplication", (6, 8, 1024, 128, 2048), 50_000, 200, 5e-5, (64, 32, 64), 500_000),
    ],
)
def test_the_recipes_are_those_of_the_papers_tables(task, size, steps, batch, lr, limits, problems) -> None:
    variant = PAPER[task]
    recipe = recipe_of(variant.name)
    s = variant.size
    assert (s.n_layers, s.n_heads, s.d_model, s.head, s.d_mlp) == size
    assert (recipe.steps, recipe.batch_size, recipe.lr) == (steps, batch, lr)
    assert recipe.warmup_steps == steps // 100
    assert recipe.min_lr_ratio == 0.1
    assert recipe.weight_decay == 0.0
    assert recipe.betas == (0.9, 0.95)
    assert (variant.limits, recipe.problems.size) == (limits, problems)
    config = variant.weights().config
    assert config.act_fn == "gelu_new"
    assert config.gated_mlp
    assert (config.normalization_type, config.norm_placement) == ("RMS", "both")


@pytest.mark.parametrize(
    ("figure", "panels"),
    [
        ("fig1", 6), ("fig3", 7), ("fig5", 3), ("fig6", 1), ("fig9", 6),
        ("fig10", 12), ("fig11", 4), ("fig12", 4), ("fig13", 5), ("fig14", 6),
        ("footnote-3", 2), ("window", 3), ("grid", 1), ("grid-window", 1), ("grid-multiplication", 1),
    ],
)  # fmt: skip
def test_a_figure_has_as_many_panels_as_in_the_paper_in_both_sizes(figure: str, panels: int) -> None:
    assert len(FIGURES[figure].paper) == len(FIGURES[figure].small) == panels


def test_panels_of_a_figure_differ_and_names_tell_variants_apart() -> None:
    for figure in FIGURES.values():
        for panels in (figure.paper, figure.small):
            assert len(set(panels.values())) == len(panels)
    by_name = {variant.name: variant for variant in VARIANTS}
    assert all(by_name[variant.name] == variant for variant in VARIANTS)
    assert len(by_name) == len(set(VARIANTS))


def test_only_the_compared_property_varies_in_figure_1() -> None:
    base = PAPER["addition"]
    for variant in FIGURES["fig1"].paper.values():
        assert variant.replace(positions=base.positions, scratchpad=base.scratchpad) == base


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.small], ids=lambda v: v.name)
def test_small_models_stay_within_two_million_parameters_and_train_on_a_recipe_of_their_own(variant) -> None:
    assert sum(p.numel() for p in variant.weights().parameters()) < 2_000_000
    recipe = recipe_of(variant.name)
    assert recipe.problems == variant.training_set
    assert recipe.steps <= 2_500


def test_variants_are_listed_on_request_only() -> None:
    listed, everything = models.names(), models.names(sweeps=True)
    assert not any(variant.name in listed for variant in VARIANTS)
    assert all(variant.name in everything for variant in VARIANTS)


@pytest.mark.parametrize("variant", [*PAPER.values(), *SMALL.values()], ids=lambda v: v.name)
def test_the_largest_shape_fits_the_tables_and_the_next_does_not(variant) -> None:
    import torch

    if variant.position_limits == ():
        return
    task = variant.make_task()
    limits = torch.tensor(variant.position_limits)

    def fits(shape: tuple[int, ...]) -> bool:
        other = task.at(*shape)
        tokens = other.encode(other.sample(1, torch.Generator().manual_seed(0)))
        return bool((other.position_ids(tokens).amax((0, 1)) <= limits).all())

    largest = variant.largest_shape
    assert fits(largest)
    assert not fits(tuple(size + 1 for size in largest))


def test_a_level_with_a_shorter_table_refuses_ids_past_its_own_end() -> None:
    """Table 3: level 2 ends at 32, the others at 64; the rows that fill its table up are not positions."""
    import torch

    from models.errors import UserError

    variant = SMALL["multiplication"]
    model = models.build(variant.name)
    tokens = model.task.encode("123*456")
    ids = model.task.position_ids(tokens)
    allowed = torch.tensor(variant.limits)
    model(tokens, position_ids=torch.minimum(ids + 4, allowed))
    with pytest.raises(UserError, match="needs position id 9, and this model's tables end at 8 on level 2"):
        model(tokens, position_ids=ids + torch.tensor([0, 6, 0]))


def test_a_model_refuses_ids_of_another_format() -> None:
    from models.errors import UserError

    model = models.build("position-coupling-1l4h-no-scratchpad-small")
    other = SMALL["addition"].make_task()
    tokens = other.encode("57+48+96+1")
    with pytest.raises(UserError, match="1 levels of position ids, and these have 2: they belong to another task"):
        model(tokens, position_ids=other.position_ids(tokens))


def test_a_checkpoint_of_another_size_or_format_is_refused(tmp_path) -> None:
    from models.errors import UserError
    from models.files.checkpoint import save_weights

    small, wide = (models.build(f"position-coupling-1l4h{size}-small") for size in ("-d32", ""))
    parameters = {name: p.detach() for name, p in wide.weight_map.named_parameters()}
    path = tmp_path / "weights.safetensors"
    save_weights(path, parameters, {"model": str(small.name_or_path)})
    with pytest.raises(UserError, match="this model needs"):
        models.load(path)
    save_weights(path, parameters, {"model": "position-coupling-1l4h-no-scratchpad-small"})
    with pytest.raises(UserError, match="pos_embed/W_pos_2.*another model"):
        models.load(path)
