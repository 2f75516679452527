"""Packed ternary weights: how many bytes, the same values back, and refusal of what no weights have."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from models import UserError
from models.checkpoint import load_weights, save_weights
from models.packing import PACKINGS, load_packed, packed_size, save_packed, ternary_matrices

BOTH = pytest.mark.parametrize("packing", PACKINGS.values(), ids=lambda p: p.name)


@pytest.fixture(scope="module")
def addlm() -> models.ArithmeticTransformer:
    return models.build("addlm-0.8m", seed=3)


@BOTH
@given(values=st.lists(st.sampled_from([-1, 0, 1]), max_size=40))
def test_any_weights_come_back(packing, values):
    weights = torch.tensor(values, dtype=torch.int8)
    packed = packing.pack(weights)
    assert packed.dtype == torch.uint8 and len(packed) == -(-len(values) // packing.per_byte)
    assert torch.equal(packing.unpack(packed, weights.shape), weights)


@BOTH
def test_a_million_weights_take_the_bytes_that_the_packing_says(packing):
    weights = torch.randint(-1, 2, (1000, 1000), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    packed = packing.pack(weights)
    assert len(packed) == {"two-bit": 250_000, "trits": 200_000}[packing.name]
    assert len(packed) == packing.bytes_per_weight * weights.numel()
    assert torch.equal(packing.unpack(packed, (1000, 1000)), weights)


def test_the_first_weight_is_the_lowest_place():
    assert PACKINGS["trits"].pack(torch.tensor([1, 0, -1, -1, -1], dtype=torch.int8)).tolist() == [2 + 3 * 1]
    assert PACKINGS["trits"].pack(torch.tensor([1, 1, 1, 1, 1], dtype=torch.int8)).tolist() == [242]
    assert PACKINGS["two-bit"].pack(torch.tensor([1, 0, -1, -1], dtype=torch.int8)).tolist() == [2 + 4 * 1]


@BOTH
@pytest.mark.parametrize("value", [-2, 2, 127])
def test_other_values_are_refused(packing, value):
    with pytest.raises(UserError, match=f"not {value}"):
        packing.pack(torch.tensor([0, 1, value], dtype=torch.int8))


@pytest.mark.parametrize("name, byte", [("trits", 243), ("trits", 255), ("two-bit", 3), ("two-bit", 192)])
def test_a_byte_that_is_no_code_is_refused(name, byte):
    packing = PACKINGS[name]
    with pytest.raises(UserError, match=f"{byte} is not the code"):
        packing.unpack(torch.tensor([byte], dtype=torch.uint8), (packing.per_byte,))


@BOTH
def test_bytes_of_another_shape_are_refused(packing):
    packed = packing.pack(torch.ones(12, dtype=torch.int8))
    with pytest.raises(UserError, match="13 weights are|the last byte is not filled|The last byte"):
        packing.unpack(packed, (13,)) if packing.n_bytes(13) != len(packed) else packing.unpack(packed, (11,))
    with pytest.raises(UserError, match="100 weights are"):
        packing.unpack(packed, (10, 10))


@BOTH
def test_a_model_comes_back_to_the_last_bit(packing, addlm, tmp_path):
    path = tmp_path / "addlm.safetensors"
    size = save_packed(addlm, path, packing.name)
    again = load_packed(path)
    before, after = addlm.effective_weights(), again.effective_weights()
    assert before.keys() == after.keys()
    for key, weight in before.items():
        same = weight.detach().view(torch.int32) == after[key].detach().view(torch.int32)
        assert same.all(), key
    tokens = torch.randint(0, addlm.config.d_vocab, (2, 40), generator=torch.Generator().manual_seed(0))
    assert torch.equal(addlm(tokens), again(tokens))
    assert again.config == addlm.config and sum(p.numel() for p in again.parameters()) == 0
    overhead = path.stat().st_size - size.total_bytes
    assert 0 < overhead < 12_000  # names, shapes, checksum


def test_every_projection_is_packed_and_nothing_else(addlm):
    size = packed_size(addlm, "two-bit")
    assert size.ternary == sum(m.values.numel() for m in ternary_matrices(addlm).values()) == 4 * 12 * 128**2
    assert size.matrices == 4 * 6
    assert size.ternary + size.floats == sum(p.numel() for p in addlm.parameters())
    assert size.ternary_bytes == size.ternary // 4 + 4 * 24
    assert size.times_smaller == pytest.approx(size.float32_bytes / size.total_bytes)


def test_a_float_model_and_unnamed_or_double_models_are_refused(addlm, tmp_path):
    with pytest.raises(UserError, match="addlm-0.8m-float has no ternary weights"):
        save_packed(models.build("addlm-0.8m-float"), tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="float32"):
        save_packed(models.build("addlm-0.8m").double(), tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="no packing 'trit'"):
        save_packed(addlm, tmp_path / "x.safetensors", "trit")
    assert not list(tmp_path.iterdir())


def test_files_that_are_not_packed_models_are_refused(addlm, tmp_path):
    path = tmp_path / "x.safetensors"
    save_weights(path, {"a": torch.zeros(1)}, {"model": "addlm-0.8m"})
    with pytest.raises(UserError, match="not a packed ternary model"):
        load_packed(path)
    save_packed(addlm, path)
    tensors, header = load_weights(path)
    tensors["blocks.0.attn.W_Q.packed"][5] = 250
    save_weights(path, tensors, header)
    with pytest.raises(UserError, match="250 is not the code"):
        load_packed(path)
