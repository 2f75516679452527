"""Scores are counts of what really happened, whichever way the answer is produced."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import models
from models.errors import UserError
from models.evaluation import predict
from models.rates import Rate
from models.tasks import TenDigitAddition, formatted
from models.tasks.named.adder_test_sets import ADDER_BOARD
from models.transformer import ArithmeticTransformer, TransformerConfig
from models.weight_maps.dense import DenseWeights
from tests.toy_task import ToyAddition

TASK = TenDigitAddition()


class ColumnAdder(nn.Module):
    """Adds as MicroAdder does: a causal rule that reads the carry off the *previous output digit* it was given.

    Where both digits of a column are ``flaw`` it is off by one, so that it is wrong on some problems and, under
    greedy decoding, misled by its own mistake afterwards.
    """

    def __init__(self, flaw: int | None = None):
        super().__init__()
        self.flaw = flaw
        self.batches: list[int] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.batches.append(len(tokens))
        a, b, s = tokens[:, :10], tokens[:, 11:21], tokens[:, 22:]
        logits = torch.zeros(*tokens.shape, 10)
        for i in range(tokens.shape[1] - 21):
            digit = torch.zeros(len(tokens), dtype=torch.int64)
            if i > 0 and i < 11:  # the previous column carried iff its output digit is below its digit sum
                digit = (a[:, i - 1] + b[:, i - 1] > s[:, i - 1]).long()
            if i < 10:
                digit = (digit + a[:, i] + b[:, i] + ((a[:, i] == self.flaw) & (b[:, i] == self.flaw))) % 10
            logits[torch.arange(len(tokens)), 21 + i, digit] = 1.0
        return logits


@pytest.fixture(scope="module")
def flawed() -> ColumnAdder:
    return ColumnAdder(flaw=4)


@pytest.fixture(scope="module")
def problems() -> Tensor:
    return ADDER_BOARD.validation(2000, seed=0)


# ---- counts


@pytest.mark.parametrize("method", ["teacher_forced", "greedy"])
def test_a_right_model_is_right_everywhere(problems: Tensor, method: Any) -> None:
    result = models.score(ColumnAdder(), problems, method, task=TASK)
    assert (result.correct, result.n) == (2000, 2000)
    assert result.failures == ()
    assert all(rate.correct == rate.n for rate in (*result.by_chain_length.values(), *result.per_target.values()))


def test_exact_matches_are_those_of_python_s_integers(flawed: ColumnAdder, problems: Tensor) -> None:
    answers = TASK.decode(predict(flawed, problems, "greedy", task=TASK))
    right = [answer == a + b for answer, (a, b) in zip(answers, problems.tolist(), strict=True)]
    assert 100 < sum(right) < 1900
    assert models.score(flawed, problems, "greedy", task=TASK).correct == sum(right)


def test_counts_by_chain_length_and_target_add_up(flawed: ColumnAdder, problems: Tensor) -> None:
    result = models.score(flawed, problems, task=TASK)
    right = (predict(flawed, problems, task=TASK) == TASK.targets(problems)).numpy()
    chain = TASK.chain_length(problems).numpy()
    assert result.by_chain_length == {
        length: Rate(int((chain == length).sum()), int(right.all(1)[chain == length].sum()))
        for length in sorted(set(chain.tolist()))
    }
    assert sum(rate.correct for rate in result.by_chain_length.values()) == result.correct
    labels = [f"s{i}" for i in range(11)] + ["EOS"]
    assert list(result.per_target) == labels
    assert [result.per_target[label].correct for label in labels] == right.sum(0).tolist()


def test_failures_are_the_first_wrong_problems(flawed: ColumnAdder) -> None:
    problems = [(57, 48), (4, 4), (1, 1), (947, 46)]
    result = models.score(flawed, problems, "greedy", task=TASK)
    assert [(f.problem, f.expected, f.first_wrong_target) for f in result.failures] == [
        ((4, 4), 8, "s0"),
        ((947, 46), 993, "s1"),
    ]
    assert [failure.predicted for failure in result.failures] == TASK.decode(
        predict(flawed, [(4, 4), (947, 46)], "greedy", task=TASK)
    )


# ---- the two ways to decode


def first_wrong(predicted: Tensor, problems: Tensor) -> Tensor:
    """Index of the first wrong target; the number of targets if all are right."""
    wrong = predicted != TASK.targets(problems)
    return torch.where(wrong.any(1), wrong.long().argmax(1), wrong.shape[1])


def assert_same_verdicts(model: Any, problems: Tensor) -> None:
    forced, greedy = (predict(model, problems, method, task=TASK) for method in ("teacher_forced", "greedy"))
    assert torch.equal(first_wrong(forced, problems), first_wrong(greedy, problems))
    for row, end in enumerate(first_wrong(forced, problems).tolist()):
        assert torch.equal(forced[row, : end + 1], greedy[row, : end + 1])  # the wrong token itself included


def test_both_methods_agree_up_to_the_first_wrong_digit_on_a_partly_failing_rule(
    flawed: ColumnAdder, problems: Tensor
) -> None:
    assert_same_verdicts(flawed, problems)
    forced, greedy = (predict(flawed, problems, method, task=TASK) for method in ("teacher_forced", "greedy"))
    assert not torch.equal(forced, greedy)  # the model was misled by its own mistakes: the test compares two things


def test_both_methods_agree_on_a_partly_failing_transformer(
    checkpoint: Callable[[str], Path], problems: Tensor
) -> None:
    model = models.load(checkpoint("microadder_57p.pt"))
    with torch.no_grad():
        model.weight_map.W_fc1.mul_(0.9)
    assert 0 < models.score(model, problems).correct < len(problems)
    assert_same_verdicts(model, problems)


def test_the_batch_size_changes_nothing_but_the_batches(problems: Tensor) -> None:
    model = ColumnAdder(flaw=4)
    whole = predict(model, problems[:100], batch_size=1000, task=TASK)
    model.batches.clear()
    assert torch.equal(predict(model, problems[:100], batch_size=33, task=TASK), whole)
    assert model.batches == [33, 33, 33, 1]


def test_greedy_decoding_works_for_another_task() -> None:
    task = ToyAddition()

    class ToyAdder(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            logits = torch.zeros(*tokens.shape, 10)
            a1, a0, b1, b0 = tokens[:, :4].T
            rows = torch.arange(len(tokens))
            logits[rows, 3, (a0 + b0) % 10] = 1
            if tokens.shape[1] > 4:
                carry = (a0 + b0 > tokens[:, 4]).long()
                logits[rows, 4, (a1 + b1 + carry) % 10] = 1
            return logits

    pairs = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    for method in ("teacher_forced", "greedy"):
        assert models.score(ToyAdder(), pairs, method, task=task).correct == 10_000


# ---- intervals


@pytest.mark.parametrize(("correct", "n"), [(0, 1), (1, 1), (3, 10), (10_009, 10_010), (10_010, 10_010), (0, 500)])
def test_the_interval_is_the_exact_binomial_one(correct: int, n: int) -> None:
    from scipy.stats import binom

    low, high = Rate(n, correct).interval
    assert low <= correct / n <= high
    # Clopper-Pearson by its definition: at each end, what was seen or more extreme has probability 2.5%.
    if correct > 0:
        assert binom.sf(correct - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    else:
        assert low == 0.0
    if correct < n:
        assert binom.cdf(correct, n, high) == pytest.approx(0.025, rel=1e-6)
    else:
        assert high == 1.0


def test_a_full_score_bounds_the_error_only_to_three_in_ten_thousand() -> None:
    bound = Rate(10_010, 10_010).error_bound
    assert bound == pytest.approx(1 - 0.05 ** (1 / 10_010), rel=1e-6)
    assert bound == pytest.approx(3.0e-4, rel=0.01)


# ---- the result


def test_a_table_of_one_chain_length_has_the_row_for_all_alone(flawed: ColumnAdder) -> None:
    result = models.score(flawed, [(1, 2), (3, 4)], task=TASK)
    assert result.to_dataframe()["chain_length"].tolist() == ["all"] and list(result.by_chain_length) == [0]


def test_the_table_has_a_row_a_chain_length_and_one_for_all(flawed: ColumnAdder, problems: Tensor) -> None:
    result = models.score(flawed, problems, task=TASK)
    table = result.to_dataframe()
    assert list(table.columns) == ["chain_length", "n", "correct", "accuracy", "low", "high"]
    assert table["chain_length"].tolist() == [*result.by_chain_length, "all"]
    assert table["n"].iloc[:-1].sum() == table["n"].iloc[-1] == 2000
    assert ((table["low"] <= table["accuracy"]) & (table["accuracy"] <= table["high"])).all()


def test_a_hundred_percent_is_never_printed_without_its_rung() -> None:
    text = str(models.score(ColumnAdder(), [(1, 2), (3, 4)], task=TASK))
    assert "2 of 2 (100.00%" in text
    assert "sampled" in text and "95% interval 15.81-100.00%" in text


def test_an_interval_is_written_with_as_many_digits_as_tell_its_ends_apart():
    assert "95% interval 99.996-100.000%" in str(Rate(100_000, 100_000))
    assert "95% interval 15.81-100.00%" in str(Rate(2, 2))


def test_a_score_is_json(flawed: ColumnAdder, problems: Tensor) -> None:
    result = models.score(flawed, problems, task=TASK)
    value = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (value["n"], value["correct"], value["strength"]) == (2000, result.correct, "sampled")
    assert value["interval"] == list(result.interval)
    assert sum(rate["correct"] for rate in value["by_chain_length"].values()) == result.correct


def test_scores_cannot_be_changed(flawed: ColumnAdder) -> None:
    result = models.score(flawed, [(1, 2)], task=TASK)
    with pytest.raises(AttributeError):
        result.correct = 5


# ---- the model


def test_without_problems_the_task_s_test_set_is_scored() -> None:
    result = models.score(ColumnAdder(), task=TASK)
    assert (result.problems, result.n, result.correct) == ("AdderBoard", 10_010, 10_010)


def test_a_model_that_never_had_the_task_s_split_is_scored_on_all_of_a_small_domain(tmp_path: Path) -> None:
    task = formatted("{a}+{b}={s}", "(a + b) % 7", base=7, held_out=5)
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 16, "n_ctx": task.input_length + 1}
    config = TransformerConfig(**sizes, d_vocab=task.d_vocab)
    model = ArithmeticTransformer(DenseWeights(config), task)
    own = ArithmeticTransformer(model.weight_map, task, name="own")
    weights = {name: x.detach().contiguous() for name, x in model.effective_weights().items()}
    save_file(weights, tmp_path / "m.safetensors")
    loaded = models.load(tmp_path / "m.safetensors", task=task, config={"act_fn": config.act_fn})
    for other in (model, loaded):
        found = models.score(other, task=task)
        assert (found.n, found.strength) == (49, "exhaustive")
    assert (models.score(own).n, models.score(own).strength) == (5, "sampled")
    toy = models.score(lambda tokens: torch.zeros(*tokens.shape, 10), task=ToyAddition())  # which has no test set
    assert toy.n == ToyAddition().domain.size and toy.strength == "exhaustive"


def test_a_model_that_never_had_the_split_is_scored_on_as_many_problems_as_a_test_set_has() -> None:
    task = formatted("{a:3}+{b:3}={s:4}", "a + b", held_out=50)
    wrong = models.score(lambda tokens: torch.zeros(*tokens.shape, task.d_vocab), task=task)
    assert (wrong.n, wrong.strength) == (10_000, "sampled")


def test_each_problem_counts_once_however_often_it_is_given() -> None:
    found = models.score(ColumnAdder(), [(57, 48)] * 200 + [(1, 2)], task=TASK)
    assert (found.n, found.correct) == (2, 2) and found.error_bound > 0.5


def test_a_model_without_a_task_needs_one() -> None:
    with pytest.raises(UserError, match="does not carry a task"):
        models.score(ColumnAdder(), [(1, 2)])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"method": "beam"}, "no scoring method 'beam'"),
        ({"batch_size": 0}, "batch size"),
        ({"problems": torch.zeros(0, 2, dtype=torch.int64)}, "no problems"),
        ({"problems": [(1, -2)]}, "-2"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        predict(ColumnAdder(), **({"problems": [(1, 2)], "task": TASK} | options))


@pytest.mark.parametrize("method", ["teacher_forced", "greedy"])
def test_logits_that_are_not_numbers_are_wrong_answers(method: Any) -> None:
    broken = lambda tokens: torch.full((*tokens.shape, 10), float("nan"))  # noqa: E731
    result = models.score(broken, [(0, 0), (1, 2)], method, task=TASK)
    assert result.correct == 0  # argmax of NaN is the token 0, which would make 0 + 0 right
    assert result.failures[0].predicted is None


def test_scoring_leaves_the_model_as_it_was_and_needs_no_gradients() -> None:
    class Watching(ColumnAdder):
        def forward(self, tokens: Tensor) -> Tensor:
            assert not self.training
            assert not torch.is_grad_enabled()
            return super().forward(tokens)

    for training in (True, False):
        model = Watching().train(training)
        models.score(model, [(1, 2)], task=TASK)
        assert model.training is training


def test_hooks_stay_active(checkpoint: Callable[[str], Path]) -> None:
    model = models.load(checkpoint("microadder_57p.pt"))
    before = models.score(model, ADDER_BOARD.problems[:1000])
    zero = lambda activation, hook: torch.zeros_like(activation)  # noqa: E731
    with model.hooks(fwd_hooks=[("blocks.0.mlp.hook_post", zero)]):
        ablated = models.score(model, ADDER_BOARD.problems[:1000])
    assert before.correct == before.n > 990
    assert ablated.correct < 10


def test_ten_thousand_sums_take_under_half_a_second() -> None:
    model = models.build("microadder-57")
    seconds = []
    for _ in range(3):
        start = time.process_time()
        models.score(model)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5


def test_hooks_count_for_models_that_are_otherwise_scored_without_them() -> None:
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=3)
    problems = model.task.sample(40, torch.Generator().manual_seed(0))
    assert models.score(model, problems).correct == 40
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern * 0)]):
        assert models.score(model, problems).correct == 0
    assert models.score(model, problems, method="greedy").correct == 40


def test_long_sequences_are_scored_a_few_at_a_time() -> None:
    """512 patterns of 2,013 tokens would be 33 gigabytes."""
    from models import evaluation

    model = models.build("position-coupling-hand-built", max_operands=30, max_digits=30)
    task = model.task.at(30, 30)
    assert evaluation._rows_that_fit(model, task) * 4 * task.input_length**2 * 4 <= 2**28
    assert evaluation._rows_that_fit(model, task) >= 1


@pytest.mark.parametrize("method", ["teacher_forced", "greedy"])
def test_a_problem_beyond_the_position_tables_is_refused_by_both_methods(method: str) -> None:
    model = models.build("position-coupling-1l4h-small")
    problems = [tuple(range(1, 13))]
    task = model.task.for_problems(problems)
    with pytest.raises(UserError, match="needs position id 13, and this model's tables end at 12 on level 2"):
        predict(model, problems, method, task=task)


def test_tokens_that_spell_no_number_decode_to_none() -> None:
    task = models.tasks.MultiOperandAddition(2, 1)
    targets = task.targets("3+4")
    for token in (-1, 12):
        spoilt = targets.clone()
        spoilt[0, -2] = token
        assert task.decode(spoilt) == [None]
    assert task.decode(targets) == [7]
