"""The ground truth of parity, against Python's own integers and the paper's example."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import Parity
from tests.models.tasks.named.position_coupling.task_sequences import (
    assert_predictions_are_the_response,
    assert_uniform,
    texts,
)

bit_string = st.text("01", min_size=1, max_size=40)
scratchpads = pytest.mark.parametrize("scratchpad", [True, False], ids=["scratchpad", "answer alone"])


def running(bits: str) -> str:
    return "".join(str(bits[: k + 1].count("1") % 2) for k in range(len(bits)))


def test_figure_2_to_the_letter() -> None:
    task = Parity(4)
    assert texts(task, "0101") == ["$0101=0110$"]
    assert task.position_ids(task.encode("0101")).tolist() == [[[int(i)] for i in "0234512345"]]


@scratchpads
@given(bits=bit_string)
def test_sequences_are_the_bits_and_their_parities(scratchpad: bool, bits: str) -> None:
    task = Parity(len(bits), scratchpad)
    response = running(bits) if scratchpad else str(bits.count("1") % 2)
    assert texts(task, bits) == [f"${bits}={response}$"]
    assert_predictions_are_the_response(task, bits)
    assert task.decode(task.targets(bits)) == [int(bits, 2).bit_count() % 2]
    assert torch.equal(torch.cat((task.encode_prompt(bits), task.targets(bits)), 1), task.sequences(bits).tokens)


def test_strings_of_thousands_of_bits() -> None:
    task = Parity(5000)
    bits = task.sample(3, torch.Generator().manual_seed(0))
    assert task.decode(task.targets(bits)) == [sum(row) % 2 for row in bits[:, 0].tolist()]


def test_leading_zeros_count_and_text_is_not_a_number() -> None:
    assert texts(Parity(4), ["0010", "0001"]) == ["$0010=0011$", "$0001=0001$"]
    assert torch.equal(Parity(4).encode(" 0010= "), Parity(4).encode(torch.tensor([[[0, 0, 1, 0]]])))
    assert torch.equal(Parity(4).encode(["0010"]), Parity(4).encode(np.array([[[0, 0, 1, 0]]])))
    assert Parity(4).numbers(["0010", "1100"]) == [(0, 0, 1, 0), (1, 1, 0, 0)]
    assert Parity(2).for_problems(["00101"]).shape == (5,)


def test_roles_describe_every_token() -> None:
    task = Parity(3)
    assert [role.label for role in task.roles] == ["$", "x[0]", "x[1]", "x[2]", "=", "p[0]", "p[1]", "p[2]", "EOS"]
    assert [role.kind for role in task.target_roles] == ["scratchpad", "scratchpad", "answer", "eos"]
    assert [role.label for role in Parity(2, scratchpad=False).roles] == ["$", "x[0]", "x[1]", "=", "p[0]", "EOS"]


@scratchpads
def test_the_next_token_follows_from_the_named_positions(scratchpad: bool) -> None:
    """XOR of the own bit (all bits, without a scratchpad) and the parity before; EOS where there is no own bit."""
    task = Parity(6, scratchpad)
    problems = task.sample(30, torch.Generator().manual_seed(0))
    tokens, targets = task.encode(problems), task.targets(problems)
    for target, query in enumerate(task.query_positions):
        groups = task.relative_roles(target)
        needed = groups["own bit"] + groups["previous output"]
        if task.target_roles[target].kind == "eos":
            assert needed == [] and (targets[:, target] == task.special).all()
        else:
            assert max(needed) <= query
            assert torch.equal(tokens[:, needed].sum(1) % 2, targets[:, target])
            assert groups["previous output"] in ([], [query])


@given(st.lists(st.text("01", min_size=7, max_size=7), min_size=1, max_size=5))
def test_variables_are_bits_and_running_parities(strings: list[str]) -> None:
    found = Parity(7).variables(strings)
    as_text = {name: ["".join(map(str, row)) for row in values.tolist()] for name, values in found.items()}
    assert as_text["bit"] == strings
    assert as_text["parity"] == [running(bits) for bits in strings]
    assert as_text["before"] == ["0" + running(bits)[:-1] for bits in strings]
    assert Parity(7).chain_length(strings).tolist() == [bits.count("1") for bits in strings]


def test_samples_are_uniform_strings() -> None:
    bits = Parity(6).sample(10_000, torch.Generator().manual_seed(0))[:, 0]
    assert torch.equal(bits, Parity(6).sample(10_000, torch.Generator().manual_seed(0))[:, 0])
    assert_uniform((bits * 2 ** torch.arange(6)).sum(1), 64)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("0121", "'0121' is not a problem of parity; write it like '0101'"),
        ("", "write it like '0101'"),
        ([5], "5 is not a problem of parity"),
        ((0, 1, 0, 1), "0 is not a problem of parity"),
        ("010", "has 4 bits, not 3"),
        ("01010", "has 4 bits, not 5"),
        (torch.full((1, 1, 4), 2), "Digits lie in 0..1"),
        (torch.zeros(1, 4, dtype=torch.int64), "write it like '0101'"),
    ],
)
def test_what_is_not_a_problem_of_this_shape_is_refused_with_a_reason(bad: object, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        Parity(4).as_problems(bad)
    assert complaint in str(error.value)


def test_shapes_beyond_the_models_limits_are_refused() -> None:
    with pytest.raises(UserError, match="at most 5 bits, not 6"):
        Parity(4, max_bits=5).for_problems("010101")
    with pytest.raises(UserError, match="at least one bit, not 0"):
        Parity(0)
