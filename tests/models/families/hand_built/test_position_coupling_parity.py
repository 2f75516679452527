"""The hand-built parity transformer: right on every bit string, and for the reason that it was built for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import models
from models.errors import UserError
from models.families.hand_built.position_coupling_parity import NAME, HandBuiltParityOptions, HandBuiltParityWeights
from models.tasks import Parity
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.models.tasks.named.position_coupling.task_sequences import smallest_margin
from tests.sampling import sampled

DTYPES = ("float32", "float64", "bfloat16", "float16")
EXACTLY_ONE = 1 - 1e-6


def all_strings(n: int) -> Tensor:
    """[2^n, 1, n]."""
    return ((torch.arange(2**n)[:, None] >> torch.arange(n)) & 1)[:, None]


def weights_of(model: ArithmeticTransformer) -> HandBuiltParityWeights:
    assert isinstance(model.weight_map, HandBuiltParityWeights)
    return model.weight_map


# ---- what it computes


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_next_token_of_every_string_up_to_twelve_bits_is_right_by_one(dtype: str) -> None:
    model = models.build(NAME, max_bits=12, dtype=dtype)
    for n in range(1, 13):
        assert smallest_margin(model, Parity(n), all_strings(n), batch=4096) >= EXACTLY_ONE, n


@pytest.mark.parametrize("max_bits", [*range(1, 10), 14, 15, 30, 31, 62, 63])
def test_every_size_is_right_up_to_its_last_bit(max_bits: int) -> None:
    """Also where the number of ids reaches a power of two, at which next codes would wrap around."""
    model = models.build(NAME, max_bits=max_bits)
    for n in {1, max_bits - 1, max_bits} - {0}:
        strings = all_strings(n) if n < 8 else Parity(n).sample(50, torch.Generator().manual_seed(n))
        assert smallest_margin(model, Parity(n), strings) >= EXACTLY_ONE


@pytest.mark.parametrize("dtype", sampled(["float32", "bfloat16", "float16"], "float32", "bfloat16"))
def test_strings_of_a_thousand_bits(dtype: str) -> None:
    model = models.build(NAME, max_bits=1000, dtype=dtype)
    strings = torch.cat((Parity(1000).sample(2, torch.Generator().manual_seed(0)), torch.ones(1, 1, 1000).long()))
    assert smallest_margin(model, Parity(1000), strings, batch=1) >= EXACTLY_ONE


@pytest.mark.slow
def test_strings_of_five_thousand_bits() -> None:
    model = models.build(NAME, max_bits=5000)
    strings = Parity(5000).sample(2, torch.Generator().manual_seed(0))
    assert smallest_margin(model, Parity(5000), strings, batch=1) >= EXACTLY_ONE


def test_a_temperature_that_is_too_low_leaks_and_the_check_sees_it() -> None:
    task, strings = Parity(100), Parity(100).sample(5, torch.Generator().manual_seed(0))
    margins = [smallest_margin(models.build(NAME, eta=eta), task, strings) for eta in (0.1, 2.0, 16.0)]
    assert margins[0] < 0 < margins[1] < EXACTLY_ONE <= margins[2]


# ---- why


def test_the_head_looks_at_bos_and_at_the_bit_to_be_added() -> None:
    model, task = models.build(NAME, max_bits=9), Parity(9)
    _, cache = model.run_with_cache(task.encode(task.sample(3, torch.Generator().manual_seed(0))))
    for target, query in enumerate(task.query_positions):
        keys = [0, *task.relative_roles(target)["own bit"]]
        expected = torch.zeros(query + 1)
        expected[keys] = 1 / len(keys)
        for pattern in cache["pattern", 0][:, 0, query, : query + 1]:
            torch.testing.assert_close(pattern, expected)


def test_named_dimensions_hold_what_they_are_named_after() -> None:
    model, task = models.build(NAME, max_bits=9), Parity(9)
    strings, dims = task.sample(50, torch.Generator().manual_seed(0)), weights_of(model).dims
    _, cache = model.run_with_cache(task.encode(strings))
    stream = cache["resid_post", -1][:, list(task.query_positions)]
    values = {name: stream[..., place].squeeze(-1).round(decimals=4) for name, place in dims.items()}
    truth = task.variables(strings)
    assert torch.equal(values["NUM"][:, :-1].long(), truth["before"])
    assert torch.equal(values["BIT"][:, :-1].long(), truth["bit"])
    assert torch.equal(values["PARITY"][:, :-1].long(), truth["parity"])
    assert values["END"].tolist() == [[0.0] * 9 + [1.0]] * 50
    assert values["SHARE"].tolist() == [[0.5] * 9 + [1.0]] * 50


def test_it_is_one_layer_of_one_head_and_three_units_without_a_parameter() -> None:
    for max_bits, width in ((1, 2), (2, 2), (3, 3), (6, 3), (7, 4), (5000, 13)):
        model = models.build(NAME, max_bits=max_bits)
        cfg = model.config
        assert (cfg.n_layers, cfg.n_heads, cfg.d_mlp) == (1, 1, 3)
        assert (cfg.d_model, cfg.d_head) == (7 + 2 * width, width + 1)
        assert (
            cfg.n_ctx
            == Parity(max_bits).sequences(all_strings(max_bits)[:1] if max_bits < 9 else "0" * 5000).tokens.shape[1]
        )
        assert not list(model.parameters()) and not model.state_dict()
        assert len(weights_of(model).dim_labels) == cfg.d_model
    assert weights_of(models.build(NAME, max_bits=3)).dim_labels[5:9] == ["PARITY", "END", "POS[0]", "POS[1]"]


def test_gradients_of_activations_flow_though_nothing_can_be_trained() -> None:
    model = models.build(NAME, max_bits=4)
    _, cache = model.run_with_cache(model.task.encode("0101"), return_type="loss", incl_bwd=True)
    assert cache["hook_embed_grad"].abs().sum() > 0


# ---- limits


def test_more_bits_than_it_was_built_for_are_refused() -> None:
    model = models.build(NAME, max_bits=5)
    assert model("01011").shape == (1, 12, 4)
    with pytest.raises(UserError, match="at most 5 bits, not 6"):
        model("010110")
    with pytest.raises(UserError, match="needs position id 7, and this model's tables end at 6"):
        model(Parity(6).encode_prompt("010110"))


def test_one_id_is_left_to_spare() -> None:
    for max_bits in range(1, 200):
        options = HandBuiltParityOptions(max_bits)
        assert options.highest_id == max_bits + 1 < 2**options.code_width
