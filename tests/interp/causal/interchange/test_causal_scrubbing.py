"""Causal scrubbing: right hypotheses recover the loss, false or empty ones do not, and partners are what they claim."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from interp.causal.interchange import Claim, Place, causal_scrubbing, scrubbing_hypothesis
from interp.causal.interchange.scrubbing_hypothesis import partners
from interp.core.stats import unseen
from models.errors import UserError
from tests.sampling import sampled

VALUES = "blocks.0.attn.hook_v"


@pytest.fixture(scope="module")
def adder():
    return models.load("microadder-57")


@pytest.mark.parametrize("forgotten", sampled([0, 1, 3], 0, 3), ids=["digit sum", "previous sum", "previous output"])
def test_a_hypothesis_that_forgets_a_variable_recovers_less(adder, forgotten):
    claims = list(scrubbing_hypothesis())
    claims[forgotten] = Claim(claims[forgotten].site)
    found = causal_scrubbing(adder, claims, n=150)
    assert found.table["recovered_high"][0] < 0.95 and found.cell("right", column="all").value < 0.8


def test_where_the_hand_built_adder_keeps_its_variables_all_is_explained():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=4)
    found = causal_scrubbing(model, scrubbing_hypothesis(), n=150, task=model.task.at(3, 3))
    assert found.table["recovered_low"][0] == pytest.approx(1 - unseen(150), abs=1e-3)
    wrong = [
        Claim(Place(VALUES, "own operands"), ("carry_in",)),
        Claim(Place(VALUES, "previous operands"), ("digit_sum",)),
    ]
    assert causal_scrubbing(model, wrong, n=150, task=model.task.at(3, 3)).table["recovered_high"][0] < 0.9


@given(values=st.lists(st.integers(0, 3), min_size=1, max_size=30), seed=st.integers(0, 5))
def test_partners_share_values_and_are_others(values, seed):
    rows = torch.tensor(values)[:, None]
    partner, alone = partners(rows, torch.Generator().manual_seed(seed))
    assert torch.equal(rows[partner], rows)
    assert torch.equal(partner == torch.arange(len(values)), alone)
    assert sorted(partner.tolist()) == list(range(len(values)))
    assert alone.tolist() == [values.count(value) == 1 for value in values]


def test_without_variables_anyone_is_a_partner():
    partner, alone = partners(torch.empty(50, 0, dtype=torch.int64), torch.Generator().manual_seed(0))
    assert not alone.any() and sorted(partner.tolist()) == list(range(50))


def test_bad_input_is_named(adder):
    def ask(match: str, claims: list[Claim], **options: object) -> None:
        with pytest.raises(UserError, match=match):
            causal_scrubbing(adder, claims, n=20, **options)

    own = Claim(Place(VALUES, "own operands"), ("digit_sum",))
    ask("at least one claim", [])
    ask("Did you mean 'digit_sum'", [Claim(Place(VALUES, "own operands"), ("digitsum",))])
    ask("Did you mean 'blocks.0.attn.hook_v'", [Claim(Place("blocks.0.attn.hookv"))])
    ask("Two claims are about 'blocks.0.attn.hook_v' at position 4", [own, Claim(Place(VALUES, "a4"))], columns=[4])
    ask("has a position in column 10", [own], columns=[10])
    ask("change no activation", [Claim(Place("blocks.0.hook_resid_pre", "+"))])
    ask("Columns go from 0 to 10", [own], columns=[11])
    ask("needs a column to predict", [own], columns=[])
    with pytest.raises(UserError, match="n of at least 2"):
        causal_scrubbing(adder, [own], n=1)


def test_one_claim_one_variable_and_one_column_need_no_list(adder):
    site = Place("blocks.0.hook_resid_post")
    short = causal_scrubbing(adder, Claim(site, "total"), columns=3, n=60)
    long = causal_scrubbing(adder, [Claim(site, ("total",))], columns=[3], n=60)
    assert short.table.equals(long.table)
