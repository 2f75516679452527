"""The 456-parameter adder's format, against Python's own text, and the ten test sets of its paper."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from models.tasks.columns.long_carries import problems_of_chain_length
from models.tasks.named.adder_test_sets import SEEDS, TEN_SETS, held_out_fingerprints, is_listed, stream, ten_test_sets
from models.tasks.named.addition import PaddedAddition
from models.tasks.number_digits import LIMIT

TASK = PaddedAddition()
operand = st.one_of(st.integers(0, LIMIT - 1), st.integers(0, 99), st.integers(0, 10).map(lambda k: 10**k - 1))
problem_list = st.lists(st.tuples(operand, operand), min_size=1, max_size=20)


@given(problem_list)
def test_a_sequence_reads_as_the_paper_writes_it(problems: list[tuple[int, int]]) -> None:
    for (a, b), tokens, targets in zip(problems, TASK.encode(problems), TASK.targets(problems), strict=True):
        answer = str(a + b).zfill(11)[::-1]
        assert TASK.token_text(tokens) == f"{a:010}+{b:010}={answer}"
        assert TASK.token_text(targets) == f"{answer}<EOS>"
    assert TASK.decode(TASK.targets(problems)) == [a + b for a, b in problems]


@given(problem_list)
def test_roles_point_at_the_digits_that_the_variables_name(problems: list[tuple[int, int]]) -> None:
    tokens, variables = TASK.encode(problems), TASK.variables(problems)
    for position, role in enumerate(TASK.roles[:33]):
        if role.kind == "operand":
            assert torch.equal(tokens[:, position], variables["ab"[role.index]][:, role.column])
            assert TASK.operand_position(role.index, role.column) == position
        elif role.kind == "answer":
            assert torch.equal(tokens[:, position], variables["s"][:, role.column])


# ---- the ten test sets


def test_the_test_sets_are_ten_disjoint_sets_of_ten_thousand_new_pairs() -> None:
    sets = ten_test_sets()
    assert tuple(sets) == SEEDS and all(len(problems) == 10_000 for problems in sets.values())
    assert len(torch.cat(list(sets.values())).unique(dim=0)) == 100_000
    for seed in SEEDS:  # the public code leaves out repeats in these streams; there are none
        assert len(stream(seed).unique(dim=0)) == 15_000
    name, problems = TASK.held_out.name, TASK.held_out.problems
    assert len(problems) == 100_000 and "ten" in name


def test_the_published_weights_make_the_paper_s_errors_on_every_test_set(published_checkpoint) -> None:
    model = models.load(published_checkpoint("adder456_s43.pt"))
    problems = ten_test_sets()[31415]
    assert models.score(model, problems).correct == 10_000  # Table 3


@pytest.mark.slow
def test_the_published_weights_make_the_paper_s_errors_in_all(published_checkpoint) -> None:
    for file, errors in (("adder456_s43.pt", 0), ("adder512_s42.pt", 12)):  # Table 2
        model = models.load(published_checkpoint(file))
        assert sum(10_000 - models.score(model, problems).correct for problems in ten_test_sets().values()) == errors


def test_validation_touches_no_test_set_and_is_half_carry_heavy() -> None:
    problems = TASK.held_out.validation(4_000, seed=0)
    assert not TEN_SETS.holds(problems).any()
    chain = TASK.chain_length(problems)
    assert (chain[:2_000] >= 5).sum() < 10 < (chain[2_000:] >= 5).sum()
    drawn = ten_test_sets()[41][:50]
    assert TEN_SETS.holds(drawn).all() and TEN_SETS.holds(drawn.flip(1)).all()
    assert is_listed(held_out_fingerprints()[:100], held_out_fingerprints()).all()


def test_carry_chains_can_be_asked_of_this_format_too() -> None:
    problems = problems_of_chain_length(7, 50, torch.Generator().manual_seed(0))
    assert (TASK.chain_length(problems) == 7).all()
