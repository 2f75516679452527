"""The stress suites hold what they say, and a model that is wrong there is found out."""

from __future__ import annotations

import pytest
import torch

import interp
import models
from interp.probes.stress_suites import edge_numbers, full_chains, runs_of_nines, suites
from models.errors import UserError
from models.tasks import TenDigitAddition
from models.tasks.named.addition import PaddedAddition

N = 100
TASK = TenDigitAddition()


def of(suite: str) -> dict[str, torch.Tensor]:
    return {case: problems for name, case, _, problems in suites(N, 0) if name == suite}


def test_full_chains_carry_from_the_units_to_the_last_column():
    variables = TASK.variables(full_chains(500, torch.Generator().manual_seed(0)))
    assert (variables["digit_sum"][:, 0] >= 10).all() and (variables["digit_sum"][:, 1:10] == 9).all()
    assert variables["carry_in"][:, 1:].all()


@pytest.mark.parametrize("k", [1, 5, 10])
def test_a_run_of_nines_meets_a_number_of_as_many_digits_from_both_sides(k: int):
    problems = runs_of_nines(k, 500, torch.Generator().manual_seed(0))
    nines = problems == 10**k - 1
    assert nines.any(1).all() and nines[:, 0].any() and nines[:, 1].any()
    assert problems.min() >= 1 and problems.max() < 10**k
    assert TASK.variables(problems)["carry_out"].any(1).all()  # something plus nines always carries


def test_cases_have_the_chain_lengths_and_digit_counts_in_their_names():
    for case, problems in of("carry-chain length").items():
        assert (TASK.chain_length(problems) == int(case)).all()
    for k, problems in enumerate(of("digit counts").values(), 1):
        assert problems.max() < 10**k and problems.max() >= 10 ** (k - 1)


def test_what_is_called_exhaustive_is_every_problem_once():
    small = [(case, strength, problems) for name, case, strength, problems in suites(N, 0) if name == "digit counts"][
        :2
    ]
    for k, (_, strength, problems) in enumerate(small, 1):
        assert strength == "exhaustive" and len(problems.unique(dim=0)) == len(problems) == 100**k
    edges = of("edge cases")["every ordered pair"]
    assert len(edges.unique(dim=0)) == len(edges) == len(edge_numbers()) ** 2
    assert {0, 1, 9, 10, 11, 99, 10**9, 10**10 - 1, 5 * 10**9, 4444444444} <= set(edge_numbers())
    assert all(0 <= number < 10**10 for number in edge_numbers())


def test_the_same_seed_draws_the_same_problems():
    for one, other in zip(suites(N, 3), suites(N, 3), strict=True):
        assert one[:3] == other[:3] and torch.equal(one[3], other[3])


class Flawed(models.ArithmeticTransformer):
    """The stored 57-parameter model, but long carries lose their last step."""

    def forward(self, input, *args, **options):
        logits = super().forward(input, *args, **options)
        long = (input[:, 22:32] == 0).all(1)  # the answer's ten lower digits are zero
        return torch.where(long[:, None, None], -logits, logits)


def test_a_model_that_fails_on_long_chains_alone_is_found_out():
    trained = models.load("microadder-57")
    flawed = Flawed(trained.weight_map, trained.task, name="flawed")
    result = interp.score(flawed, by="suite", n=200)
    assert result.rate(case="uniform: ten digits").accuracy == 1
    whole = [int((p.sum(1) % 10**10 == 0).sum()) for *_, p in suites(200, 0)]
    assert (result.table.n - result.table.correct).values.tolist() == whole
    assert sum(whole) == result.wrong > 0
    cases = result.to_dataframe()
    assert ((cases.correct < cases.n) == (cases.wrong_example != "")).all()
    wrong = cases.query("correct < n").iloc[0]
    assert wrong.accuracy_low <= wrong.accuracy <= wrong.accuracy_high
    figure = result.figure()
    assert sum(len(trace.x) for trace in figure.data) == len(cases)


@pytest.mark.slow
def test_every_ten_digit_adder_can_be_asked_and_nothing_else():
    random = interp.score(models.build("adder-456"), by="suite", n=10)
    assert random.wrong > 0 and random.table.sizes["case"] == len(suites(10, 0))
    assert models.build("adder-456").task.name == PaddedAddition().name
    with pytest.raises(UserError):
        interp.score(models.build("position-coupling-hand-built"), by="suite")
    with pytest.raises(UserError, match="at least 10"):
        interp.score(models.build("adder-456"), by="suite", n=9)
    with pytest.raises(UserError, match="draw their own"):
        interp.score(models.build("adder-456"), problems=["1+1", "2+2"], by="suite")
    with pytest.raises(UserError, match="alone"):
        interp.score(models.build("adder-456"), by=("suite", "digits"))
    with pytest.raises(UserError):
        random.rate(case="carry chain")
