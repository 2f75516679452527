"""What no run can be made of is refused before it reaches the kernels, which would read out of bounds."""

import ctypes
import math

import pytest
import torch

import models
from models.errors import UserError
from models.training import RECIPES
from models.training.native.compiled_kernels import library
from models.training.recipes import AdaptiveDecay, Recipe
from models.training.sequence_problems import AdditionSet, MultiplicationSet, ParitySet
from models.training.ten_digit_problems import AdditionProblems, CarryMix, VariedLengthProblems

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in ("steps", "batch_size", "validation_size") for value in (0, -1, 10**19)),
        {"eval_every": 0},
        {"batch_size": 67_200_000},
        *({name: value} for name in ("lr", "grad_clip", "adam_eps") for value in (0.0, -1.0, NAN, INF)),
        *({"weight_decay": value} for value in (-0.1, NAN, INF)),
        *({"min_lr_ratio": value} for value in (-0.1, 1.1, NAN)),
        *({"betas": value} for value in ((1.0, 1.0), (0.9, 1.0), (-0.1, 0.9), (NAN, 0.9))),
        {"warmup_steps": -1},
        {"snapshots": -3},
        {"stop_after_perfect": 0},
        {"drop_seed_below": ((10, 1.5),)},
        {"drop_seed_below": ((-1, 0.5),)},
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change):
    with pytest.raises(UserError):
        Recipe(**change)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda digits=digits: AdditionProblems(digit_curriculum=((10, digits),)) for digits in (0, 11, 99, -5)),
        lambda: VariedLengthProblems(digit_curriculum=((10, 11),)),
        lambda: AdditionProblems(digit_curriculum=((-1, 3),)),
        lambda: CarryMix(share=1.5),
        lambda: CarryMix(share=NAN),
        lambda: AdaptiveDecay(factor=NAN),
        lambda: AdditionSet(max_operands=1),
        lambda: AdditionSet(max_digits=0),
        lambda: MultiplicationSet(max_second=-1),
        lambda: ParitySet(max_bits=10**9),
        lambda: ParitySet(size=10**30),
        lambda: ParitySet(set_seed=-1),
    ],
)
def test_problems_that_cannot_be_drawn_are_refused(make):
    with pytest.raises(UserError):
        make()


def test_every_registered_recipe_is_a_possible_one():
    models.names()  # registers them
    assert len(RECIPES) > 20
    for recipe in RECIPES.values():
        assert recipe.replace() == recipe  # checked again


@pytest.mark.parametrize("max_digits", [0, 11, -5, 99])
def test_the_samplers_refuse_digits_without_a_power_of_ten_and_write_nothing(max_digits: int):
    kernel = library("addition_batches.c", "-ffp-contract=off")
    if kernel is None:
        pytest.skip("no C compiler here")
    seeds = torch.tensor([1])
    tokens, targets = (torch.full((n, 16), 77, dtype=torch.uint8) for n in (33, 12))
    pointers = [ctypes.c_void_p(x.data_ptr()) for x in (tokens, targets)]
    one, step, rows = ctypes.c_int64(1), ctypes.c_int64(0), ctypes.c_int64(16)
    seed = ctypes.c_void_p(seeds.data_ptr())
    assert kernel.batch(one, seed, step, rows, max_digits, ctypes.c_double(0.5), *pointers) == -1
    table = [ctypes.c_void_p(torch.zeros(2**17 + 1, dtype=torch.int64).data_ptr())] * 2
    assert kernel.varied_lengths(one, seed, step, rows, max_digits, *table, *pointers) == -1
    assert (tokens == 77).all() and (targets == 77).all()
