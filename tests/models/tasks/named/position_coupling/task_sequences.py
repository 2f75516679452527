"""What every task of many lengths must do, written against the task's text and Python's own integers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.stats import chisquare
from torch import Tensor

from models.tasks import AdditionFormat, SequenceTask
from models.transformer.arithmetic_transformer import ArithmeticTransformer

#: (reversed_query, reversed_response): Figure 14's three columns; with and without padding they are its six panels.
DIRECTIONS = ((False, True), (True, True), (False, False))
FORMATS = [
    *(AdditionFormat(pad, zeros, *way) for pad in (True, False) for zeros in (True, False) for way in DIRECTIONS),
    *(AdditionFormat(zero_padding=zeros, zero_start=False) for zeros in (True, False)),  # of footnote 3
]


def texts(task: SequenceTask, problems: object) -> list[str]:
    """Whole sequences as text, from BOS to the last filling."""
    return [task.token_text(row) for row in task.sequences(problems).tokens]


def padded(number: int, width: int) -> str:
    return str(number).zfill(width)


def from_digits(digits: Sequence[int]) -> int:
    """Horner's rule on digits, least significant first: no text, so no limit on their number."""
    number = 0
    for digit in reversed(digits):
        number = number * 10 + digit
    return number


def assert_predictions_are_the_response(task: SequenceTask, problems: object) -> None:
    """The masked targets of each row spell what follows the first '=', EOS included, and no more."""
    sequences = task.sequences(problems)
    assert torch.equal(sequences.inputs[:, 1:], sequences.targets[:, :-1])
    for text, targets, mask in zip(texts(task, problems), sequences.targets, sequences.mask, strict=True):
        response = text.partition("=")[2]
        assert task.token_text(targets[mask]) == response[: response.index("$") + 1]


def assert_prefixes_keep_their_ids(task: SequenceTask, problems: object) -> None:
    """Every prefix that decoding meets has the ids that it has in the whole sequence."""
    sequences = task.sequences(problems)
    ids = task.position_ids(sequences.tokens)
    prompt = int(sequences.response.long().argmax(1).min())
    for length in range(prompt, sequences.tokens.shape[1] + 1):
        assert torch.equal(task.position_ids(sequences.tokens[:, :length]), ids[:, :length]), length


def assert_uniform(values: Tensor, kinds: int, first: int = 0) -> None:
    """Counts of ``first`` .. ``kinds`` - 1 fit the uniform distribution (chi square, p > 0.001 with a fixed seed)."""
    counts = torch.bincount(values.flatten(), minlength=kinds).tolist()
    assert len(counts) == kinds and not any(counts[:first])
    assert chisquare(counts[first:]).pvalue > 1e-3


@torch.no_grad()
def smallest_margin(model: ArithmeticTransformer, task: SequenceTask, digits: Tensor, batch: int = 512) -> float:
    """By how much the right next token leads all others, at worst, over every target of every problem.

    Negative where some token is wrong. Teacher-forced: if every token is right, so is greedy decoding.
    """
    worst, queries = float("inf"), list(task.query_positions)
    for chunk in digits.split(batch):
        sequences = task.sequences(chunk)
        logits = model(sequences.inputs)[:, queries].float()
        right = sequences.targets[:, queries, None]
        others = logits.scatter(2, right, float("-inf")).amax(2)
        worst = min(worst, float((logits.gather(2, right)[..., 0] - others).min()))
    return worst
