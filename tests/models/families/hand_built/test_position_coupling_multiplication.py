"""The hand-built multiplication transformer: right on every product, and for the reason that it was built for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import models
from models.errors import UserError
from models.families.hand_built.position_coupling_multiplication import (
    HEADS,
    NAME,
    HandBuiltMultiplicationOptions,
    HandBuiltMultiplicationWeights,
)
from models.tasks import Multiplication
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.models.tasks.named.position_coupling.task_sequences import smallest_margin

EXACTLY_ONE = 1 - 1e-6


def all_products(M: int, N: int) -> Tensor:
    """Every problem of the shape, leading zeros included: [10^(M+N), 2, max(M, N)]."""
    pairs = torch.cartesian_prod(torch.arange(10**M), torch.arange(10**N))
    return torch.stack([pairs // 10**k % 10 for k in range(max(M, N))], -1)


def hard_products(M: int, N: int, n: int, seed: int = 0) -> Tensor:
    """``n`` uniform problems of the shape, all nines, all zeros, one power of ten, and nines with leading zeros."""
    task = Multiplication(M, N)
    counts = torch.arange(task.n_digits) < torch.tensor([[M], [N]])
    nines = 9 * counts[None].long()
    ones = (torch.arange(task.n_digits) == torch.tensor([[M - 1], [N - 1]]))[None].long()
    halved = nines * (torch.arange(task.n_digits) < torch.tensor([[(M + 1) // 2], [(N + 1) // 2]]))
    return torch.cat((task.sample(n, torch.Generator().manual_seed(seed)), nines, 0 * nines, ones, halved))


@pytest.fixture(scope="module")
def multiplier() -> ArithmeticTransformer:
    return models.build(NAME, max_digits=12)


def weights_of(model: ArithmeticTransformer) -> HandBuiltMultiplicationWeights:
    assert isinstance(model.weight_map, HandBuiltMultiplicationWeights)
    return model.weight_map


# ---- what it computes


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), pytest.param((2, 2), marks=pytest.mark.slow)], ids=str)
def test_every_next_token_of_every_product_up_to_two_by_two_digits_is_right_by_one(shape: tuple[int, int]) -> None:
    model = models.build(NAME, max_digits=2)
    assert smallest_margin(model, Multiplication(*shape), all_products(*shape)) >= EXACTLY_ONE


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_every_product_in_other_precisions(dtype: str) -> None:
    model = models.build(NAME, max_digits=2, dtype=dtype)
    for shape in ((1, 1), (1, 2), (2, 1), (2, 2)):
        assert smallest_margin(model, Multiplication(*shape), all_products(*shape)) >= EXACTLY_ONE


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 2), (2, 3)], ids=str)
def test_every_next_token_of_every_product_of_five_digits_is_right_by_one(shape: tuple[int, int]) -> None:
    model = models.build(NAME, max_digits=3)
    assert smallest_margin(model, Multiplication(*shape), all_products(*shape)) >= EXACTLY_ONE


@pytest.mark.parametrize(
    "shape", [pytest.param((12, 12), marks=pytest.mark.slow), (1, 12), (12, 1), (5, 9), (9, 5), (3, 3)], ids=str
)
def test_longer_products(multiplier: ArithmeticTransformer, shape: tuple[int, int]) -> None:
    digits = hard_products(*shape, n=6 if shape == (12, 12) else 30)
    assert smallest_margin(multiplier, Multiplication(*shape), digits, batch=8) >= EXACTLY_ONE


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_longer_products_in_other_precisions(dtype: str) -> None:
    model = models.build(NAME, max_digits=7, dtype=dtype)
    assert smallest_margin(model, Multiplication(7, 6), hard_products(7, 6, n=5)) >= EXACTLY_ONE


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(30, 30), (20, 15), (60, 4), (4, 30)], ids=str)
def test_products_of_the_papers_grid_and_beyond(shape: tuple[int, int]) -> None:
    model = models.build(NAME, max_digits=max(shape))
    assert smallest_margin(model, Multiplication(*shape), hard_products(*shape, n=2), batch=1) >= EXACTLY_ONE


@pytest.mark.parametrize("max_digits", [1, 2, 3, 4, 5, 6, 7, 8])
def test_every_size_is_right_up_to_its_last_digit(max_digits: int) -> None:
    """Also where the ids of a level reach a power of two, at which next codes would wrap around."""
    model = models.build(NAME, max_digits=max_digits)
    for shape in {(max_digits, max_digits), (1, max_digits), (max_digits, 1)}:
        assert smallest_margin(model, Multiplication(*shape), hard_products(*shape, n=3)) >= EXACTLY_ONE


def test_a_temperature_that_is_too_low_leaks_and_the_check_sees_it() -> None:
    task, digits = Multiplication(6, 6), hard_products(6, 6, n=3)
    margins = [smallest_margin(models.build(NAME, max_digits=6, eta=eta), task, digits) for eta in (1.0, 5.0, 16.0)]
    assert margins[0] < 0 < margins[1] < EXACTLY_ONE <= margins[2]


# ---- why

#: What each head looks at beside BOS, in the task's words; None for the two that only ask whether there is anything.
SEEN = {
    "A[k]": "own operand",
    "A[k-1]": "previous operand",
    "B[j]": None,  # found in stage 2 too, where nothing of A is
    "B[j+1]": None,
    "p_j[k]": "own product",
    "p_j[k-1]": "previous product",
    "c_{j-1}[k]": "own running sum",
    "c_{j-1}[k-1]": "previous running sum",
    "column k of any p": None,
}


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (2, 4)], ids=str)
def test_each_head_looks_at_bos_and_at_the_digit_it_is_named_after(
    multiplier: ArithmeticTransformer, shape: tuple[int, int]
) -> None:
    assert [head.finds for head in HEADS] == list(SEEN)
    task = Multiplication(*shape)
    tokens = task.encode(task.sample(2, torch.Generator().manual_seed(0)))
    _, cache = multiplier.run_with_cache(tokens)
    digits = tokens < 10
    for target, query in enumerate(task.query_positions):
        groups = task.relative_roles(target)
        column = task.target_roles[target].column
        for head, name in enumerate(SEEN.values()):
            pattern = cache["pattern", 0][:, head, query]
            # Behind "=", "+" and ">" a head may find another delimiter in the place of column -1, and copies no digit.
            seen = (pattern > 1e-6) & digits
            if name is None:
                continue
            keys = groups[name] if column is not None else [p for p in range(query) if seen[0, p]]
            expected = torch.zeros_like(seen)
            expected[:, keys] = True
            assert torch.equal(seen, expected), (task.target_roles[target].label, name)
            assert torch.allclose(pattern[seen], torch.tensor(0.5)) and (pattern[:, 0] >= 0.5 - 1e-6).all()


@pytest.mark.parametrize("shape", [(3, 2), (2, 4)], ids=str)
def test_named_dimensions_hold_what_they_are_named_after(
    multiplier: ArithmeticTransformer, shape: tuple[int, int]
) -> None:
    task, dims = Multiplication(*shape), weights_of(multiplier).dims
    digits = hard_products(*shape, n=20)
    tokens = task.encode(digits)
    _, cache = multiplier.run_with_cache(tokens)
    first, last = cache["resid_post", 0], cache["resid_post", 1]
    truth = task.variables(digits)
    for target, query in enumerate(task.query_positions):
        role, groups = task.target_roles[target], task.relative_roles(target)
        value = lambda name: tokens[:, groups[name]].sum(1)  # noqa: B023, E731  (a missing digit is 0)
        ends = {name: first[:, query, dims[name]].squeeze(-1) for name in ("PLUS", "EQUALS", "ARROW", "EOS")}
        names = {"+": "PLUS", "=": "EQUALS", ">": "ARROW", "EOS": "EOS"}
        for name, found in ends.items():
            torch.testing.assert_close(found, torch.full_like(found, float(name == names.get(role.label))))
        if role.column is None or role.index is None:
            continue
        if role.label.startswith("p"):
            own, before = (value(f"{which} operand") * value("multiplier") for which in ("own", "previous"))
            carry = truth["product_carry"][:, role.index - 1, role.column]
        else:
            own, before = (value(f"{which} product") + value(f"{which} running sum") for which in ("own", "previous"))
            carry = truth["sum_carry"][:, role.index - 1, role.column]
        torch.testing.assert_close(first[:, query, dims["OWN"]].squeeze(-1), own.float())
        torch.testing.assert_close(first[:, query, dims["PREVIOUS"]].squeeze(-1), before.float())
        one_hot = torch.nn.functional.one_hot((own + carry) % 10, 10).float()
        torch.testing.assert_close(last[:, query, dims["SUM"]], one_hot)


def test_it_is_two_layers_of_nine_heads_without_a_parameter() -> None:
    for max_digits, widths in ((1, (2, 2, 2)), (2, (3, 2, 3)), (3, (3, 2, 3)), (4, (3, 3, 4)), (30, (6, 5, 6))):
        model = models.build(NAME, max_digits=max_digits)
        cfg = model.config
        assert (cfg.n_layers, cfg.n_heads, cfg.d_mlp) == (2, 9, 178)
        assert weights_of(model).options.code_widths == widths
        assert (cfg.d_model, cfg.d_head) == (46 + 2 * sum(widths), max(9, widths[1] + widths[2] + 2))
        assert cfg.n_ctx == len(Multiplication(max_digits, max_digits).roles)
        assert not list(model.parameters()) and not model.state_dict()
        assert len(weights_of(model).dim_labels) == cfg.d_model
    assert (weights_of(models.build(NAME, max_digits=2)).forward()["blocks.1.attn.W_O"] == 0).all()


# ---- limits


def test_more_digits_than_it_was_built_for_are_refused() -> None:
    model = models.build(NAME, max_digits=2)
    assert model("37*25").shape[0] == 1
    for text in ("370*2", "2*370"):
        with pytest.raises(UserError, match="at most 2 digits"):
            model(text)
    with pytest.raises(UserError, match="needs position id 6, and this model's tables end at 4 on level 1"):
        model(Multiplication(5, 1).encode_prompt("37000*2"))


def test_one_id_of_every_level_is_left_to_spare() -> None:
    for max_digits in range(1, 100):
        options = HandBuiltMultiplicationOptions(max_digits)
        task = Multiplication(max_digits, max_digits)
        needed = task.position_ids(task.sequences(task.sample(1, torch.Generator().manual_seed(0))).tokens)
        assert tuple(needed.amax((0, 1)).tolist()) == options.highest_ids
        assert all(high < 2**width for high, width in zip(options.highest_ids, options.code_widths, strict=True))
