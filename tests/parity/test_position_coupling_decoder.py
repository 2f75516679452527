"""The paper's decoder against formulas in float64, its parameter counts and its initialisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from models.families.position_coupling import PAPER, SMALL, CouplingVariant, DecoderSize
from models.run import logits_from
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.comparing import assert_same
from tests.parity import decoder_formulas

TINY = DecoderSize(n_layers=2, n_heads=2, d_model=12, d_mlp=20)


def tiny(positions: str, task: str = "addition", scratchpad: bool = True) -> ArithmeticTransformer:
    variant = SMALL[task].replace(size=TINY, positions=positions, scratchpad=scratchpad)
    weight_map = variant.weights()
    weight_map.initialise(torch.Generator().manual_seed(3))
    for parameter in weight_map.parameters():  # gains off one, so that a forgotten one shows
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4))
    return ArithmeticTransformer(weight_map, variant.make_task())


def oracle_weights(model: ArithmeticTransformer) -> dict[str, np.ndarray]:
    """The decoder's weights from its parameters, tied head and position tables as the paper has them."""
    raw = {name.replace("/", "."): p.detach().double().numpy() for name, p in model.weight_map.named_parameters()}
    cfg = model.config
    tables = [raw.pop(key) for key in sorted(raw) if key.startswith("pos_embed")]
    if tables:
        rows = max(len(table) for table in tables)
        raw["pos_embed.W_pos"] = np.stack([np.pad(t, ((0, rows - len(t)), (0, 0))) for t in tables])
    raw["unembed.W_U"] = raw["embed.W_E"].T / np.sqrt(cfg.d_model)
    zeros = {"attn.b_Q": (cfg.n_heads, cfg.d_head), "attn.b_K": (cfg.n_heads, cfg.d_head)}
    zeros |= {"attn.b_V": (cfg.n_heads, cfg.d_head), "attn.b_O": (cfg.d_model,)}
    zeros |= {"mlp.b_in": (cfg.d_mlp,), "mlp.b_out": (cfg.d_model,)}
    for layer in range(cfg.n_layers):
        raw |= {f"blocks.{layer}.{key}": np.zeros(shape) for key, shape in zeros.items()}
    return raw | {"unembed.b_U": np.zeros(cfg.d_vocab)}


CASES = [
    ("coupled", "addition", True),
    ("coupled", "addition", False),
    ("none", "addition", True),
    ("fire", "addition", True),
    ("rotary", "parity", True),
    ("coupled", "parity", True),
    ("coupled", "multiplication", True),
    ("coupled", "multiplication", False),
]


@pytest.mark.parametrize(("positions", "task", "scratchpad"), CASES)
def test_logits_are_those_of_the_formulas(positions: str, task: str, scratchpad: bool) -> None:
    model = tiny(positions, task, scratchpad)
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    ids = model.task.position_ids(tokens)
    expected = np.stack(
        [
            decoder_formulas.logits(model.config, oracle_weights(model), row.numpy(), row_ids.numpy())
            for row, row_ids in zip(tokens, ids, strict=True)
        ]
    )
    assert_same(model(tokens), torch.from_numpy(expected).float())
    first = model.task.query_positions[0]
    assert_same(
        logits_from(model, tokens, first, model.effective_weights()), torch.from_numpy(expected[:, first:]).float()
    )


def test_the_paper_sizes_have_the_papers_parameter_counts() -> None:
    """Table 1 says 25 M, Tables 2 and 3 say 63 M."""
    counts = {task: sum(p.numel() for p in variant.weights().parameters()) for task, variant in PAPER.items()}
    assert {task: round(n / 1e6) for task, n in counts.items()} == {"addition": 63, "parity": 25, "multiplication": 63}


def test_the_initialisation_has_the_stated_standard_deviations() -> None:
    variant = CouplingVariant(size=DecoderSize(2, 4, 256, 512, d_head=32))
    weight_map = variant.weights()
    weight_map.initialise(torch.Generator().manual_seed(0))
    named = dict(weight_map.named_parameters())
    expected = {
        "embed/W_E": 1.0,
        "pos_embed/W_pos_1": 1.0,
        "blocks/1/attn/W_Q": (256 * 32) ** -0.5,
        "blocks/1/attn/W_K": 256**-0.5,
        "blocks/1/attn/W_V": 256**-0.5,
        "blocks/1/attn/W_O": (4 * 32) ** -0.5,
        "blocks/1/mlp/W_in": 256**-0.5,
        "blocks/1/mlp/W_gate": 256**-0.5,
        "blocks/1/mlp/W_out": 512**-0.5,
    }
    for name, std in expected.items():
        tensor = named[name]
        tolerance = 5 * std / (2 * tensor.numel()) ** 0.5  # five standard errors of a standard deviation
        assert abs(tensor.std().item() - std) < tolerance, name
    assert all((p == 1).all() for name, p in named.items() if name.endswith("/w"))


def test_position_tables_have_one_row_an_id_and_no_more() -> None:
    """max_pos_1 = 64, max_pos_2 = 32, max_pos_3 = 64 (Table 3), and id 0."""
    tables = [p for name, p in PAPER["multiplication"].weights().named_parameters() if name.startswith("pos_embed")]
    assert [len(table) for table in tables] == [65, 33, 65]


def test_small_models_are_registered_under_the_names_of_the_issue() -> None:
    model = models.build("position-coupling-1l4h-small")
    assert (model.config.n_layers, model.config.n_heads, model.config.d_model) == (1, 4, 128)
    assert model.config.norm_placement == "both"
    assert model.config.score_scale == 1.0
