"""What every task does, whatever it asks and however it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from models.errors import UserError
from models.tasks import (
    MultiOperandAddition,
    Multiplication,
    Parity,
    SequenceTask,
    Task,
    TenDigitAddition,
    TwoDigitAddition,
)
from models.tasks.named.addition import PaddedAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import dense
from tests.models.tasks.named.position_coupling.task_sequences import FORMATS, assert_prefixes_keep_their_ids

SEQUENCES: list[SequenceTask] = [
    *(MultiOperandAddition(*shape, form) for form in FORMATS for shape in ((1, 1), (3, 2), (11, 2))),
    *(Multiplication(*shape, pad) for pad in (True, False) for shape in ((1, 1), (3, 1), (1, 3), (4, 3))),
    *(Parity(n, pad) for pad in (True, False) for n in (1, 2, 9)),
]
#: Tasks whose tokens have fixed places.
PLACED: list[Task] = [TenDigitAddition(), PaddedAddition(), TwoDigitAddition()]
PLACED += [task for task in SEQUENCES if not isinstance(task, MultiOperandAddition) or task.format.zero_padding]


def named(task: Task) -> str:
    return f"{task.name} {getattr(task, 'shape', '')} {getattr(task, 'format', getattr(task, 'scratchpad', ''))}"


each_task = pytest.mark.parametrize("task", PLACED, ids=named)
each_sequence_task = pytest.mark.parametrize("task", SEQUENCES, ids=named)


def drawn(task: Task, n: int = 12, seed: int = 0) -> Tensor:
    return task.sample(n, torch.Generator().manual_seed(seed))


def answer(task: Task, numbers: Sequence[int]) -> int:
    if isinstance(task, Parity):
        return sum(numbers) % 2
    return prod(numbers) if isinstance(task, Multiplication) else sum(numbers)


@each_task
def test_prompt_and_targets_make_the_sequence_and_the_targets_decode_to_the_answer(task: Task) -> None:
    problems = drawn(task)
    prompt, targets = task.encode_prompt(problems), task.targets(problems)
    whole, length = torch.cat((prompt, targets), 1), task.input_length
    assert torch.equal(whole[:, :length], task.encode(problems)) and whole.shape[1] in (length, length + 1)
    assert torch.equal(whole[:, [query + 1 for query in task.query_positions]], targets)
    assert task.decode(targets) == [answer(task, numbers) for numbers in task.numbers(problems)]
    for query, role in zip(task.query_positions, task.target_roles, strict=True):
        assert query + 1 == len(task.roles) or task.roles[query + 1] == role


@each_task
def test_a_task_that_is_printed_says_its_name_and_a_problem_with_its_answer(task: Task) -> None:
    (numbers,) = task.numbers(drawn(task, 1))
    assert str(task).startswith(task.name) and " object at " not in str(task)
    assert str(task).endswith(f"such as {task.problem_text(numbers)} = {answer(task, numbers)}")


@pytest.mark.parametrize("task", [task for task in PLACED if "+" in getattr(task, "vocabulary", "")], ids=named)
def test_an_answer_with_a_token_that_is_no_digit_spells_no_number(task: Task) -> None:
    targets = task.targets(drawn(task, 2))
    targets[1] = task.vocabulary.index("+")
    assert task.decode(targets)[1] is None is not task.decode(targets)[0]


@each_task
def test_relative_roles_partition_the_positions_that_a_query_sees(task: Task) -> None:
    for target, query in enumerate(task.query_positions):
        groups = task.relative_roles(target)
        assert sorted(position for group in groups.values() for position in group) == list(range(query + 1)), target


@pytest.mark.parametrize("task", [each for each in PLACED if not isinstance(each, SequenceTask)], ids=named)
def test_rows_for_training_are_the_encoding(task: Task) -> None:
    problems = drawn(task)
    tokens, targets = task.encode_rows(problems)
    assert torch.equal(tokens.T.long(), task.encode(problems)) and torch.equal(targets.T.long(), task.targets(problems))


@each_task
def test_every_way_to_write_problems_is_read_alike(task: Task) -> None:
    problems = drawn(task)
    texts = [task.problem_text(problem) for problem in task.numbers(problems)]
    tokens = task.encode(problems)
    for way in (texts, tuple(texts), problems.numpy(), problems):
        assert torch.equal(task.encode(way), tokens)
    assert torch.equal(task.encode(texts[0]), tokens[:1])


@each_task
def test_a_seed_draws_the_same_problems_and_another_seed_others(task: Task) -> None:
    assert torch.equal(drawn(task, 50, 1), drawn(task, 50, 1))
    assert not torch.equal(drawn(task, 50, 1), drawn(task, 50, 2))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        *((MultiOperandAddition(), text) for text in ("$057+048+096=", "$057+048+096=000>75", "$9+95=0>9>104$$$")),
        *((Multiplication(), text) for text in ("$37*925=", "$37*925=581+4", "$37*925=581+470+333=58100>52")),
        *((Multiplication(), "$3*2=60=60$$"), (Parity(), "$0101="), (Parity(), "$0101=01"), (Parity(), "$0101=0110$$")),
    ],
)
def test_sequences_and_their_beginnings_become_tokens_and_text_again(task: SequenceTask, text: str) -> None:
    assert task.token_text(task.tokenise(text)[0]) == text


# ---- position ids


@each_sequence_task
def test_every_prefix_has_the_ids_of_the_whole_sequence(task: SequenceTask) -> None:
    for problem in drawn(task, 4).split(1):
        assert_prefixes_keep_their_ids(task, problem)


@each_sequence_task
def test_ids_are_defined_on_any_tokens(task: SequenceTask) -> None:
    """Tools pass what they like: random tokens, no '=' at all, several of them."""
    tokens = torch.randint(task.d_vocab, (200, 30), generator=torch.Generator().manual_seed(0))
    tokens[0] = 3
    ids = task.position_ids(tokens)
    assert ids.shape[:2] == (200, 30) and (ids >= 0).all()


@pytest.mark.parametrize(
    ("task", "tables", "last_id", "fits", "beyond"),
    [
        (MultiOperandAddition(2, 1), {"n_position_levels": 2}, 3, "5+7", ("57+48", "1+2+3")),
        (Multiplication(), {"n_position_levels": 3}, 4, "7*25", ("37*25",)),
        (Parity(), {}, 4, "010", ("0101",)),
    ],
    ids=lambda value: value.name if isinstance(value, Task) else "",
)
def test_ids_beyond_the_models_table_are_refused(
    task: SequenceTask, tables: dict[str, Any], last_id: int, fits: str, beyond: tuple[str, ...]
) -> None:
    model = dense(
        positional_embedding_type="coupled", n_position_ids=last_id + 1, n_ctx=64, d_vocab=task.d_vocab, **tables
    )(0)
    model = ArithmeticTransformer(model.weight_map, task)
    assert model(fits).shape[2] == task.d_vocab
    for problem in beyond:
        with pytest.raises(UserError, match=f"needs position id {last_id + 1}"):
            model(problem)


# ---- batches of many shapes

#: The shape of a row alone, from its numbers of digits.
SHAPES: dict[type, Callable[[list[int]], tuple[int, ...]]] = {
    MultiOperandAddition: lambda lengths: (len(lengths), max(lengths)),
    Multiplication: tuple,
    Parity: tuple,
}
LARGEST = [
    *((MultiOperandAddition(11, 6, form), (6,) * 11) for form in FORMATS),
    *((Multiplication(4, 6, pad), (4, 6)) for pad in (True, False)),
    *((Parity(12, pad), (12,)) for pad in (True, False)),
]


@pytest.mark.parametrize(("task", "most"), LARGEST, ids=[named(task) for task, _ in LARGEST])
def test_a_batch_of_many_shapes_is_its_rows_filled_up(task: SequenceTask, most: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(5)
    n_digits = torch.stack([torch.randint(1, length + 1, (60,), generator=generator) for length in most], 1)
    fewest = 1 if isinstance(task, MultiOperandAddition) else len(most)
    n_operands = torch.randint(fewest, len(most) + 1, (60,), generator=generator)
    digits = torch.randint(2 if isinstance(task, Parity) else 10, (60, len(most), max(most)), generator=generator)
    digits = digits * (torch.arange(max(most)) < n_digits[..., None])
    sequences = task.sequences(digits, n_operands, n_digits)
    ids = task.position_ids(sequences.tokens)
    for i, operands in enumerate(n_operands.tolist()):
        lengths = n_digits[i, :operands].tolist()
        own = task.at(*SHAPES[type(task)](lengths))
        alone = own.sequences(digits[i : i + 1, :operands, : max(lengths)])
        text, written = own.token_text(alone.tokens[0]), task.token_text(sequences.tokens[i])
        assert written == text + "$" * (len(written) - len(text))
        assert torch.equal(ids[i, : len(text)], own.position_ids(alone.tokens)[0]) and not ids[i, len(text) :].any()
        assert task.token_text(sequences.targets[i][sequences.mask[i]]) == text.partition("=")[2]
