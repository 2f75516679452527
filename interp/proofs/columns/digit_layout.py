"""Which token stands where in a task that adds or subtracts two numbers column by column, and what a column does.

What is found by the roles of tokens is checked, and that the task's answer is the rule's is derived where it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int

from interp.proofs.columns.column_rule import ColumnRule, column_rule
from models import UserError
from models.tasks import Expression, FormattedTask, NoMachine, Task, altered, column_places, first_difference

_CHECKED = 16  # random problems that a layout is checked on
_TRIED = 1000  # random problems on which an answer is tried that cannot be derived, twice as many in all


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """Which token stands where in ``a + b = s0 .. s10``, or in ``a - b = s0 .. s9``.

    Attributes:
        rule: what a column does with its digits, and which pairs are problems.
        operands: position of each operand's digit, by column (0 is units).
        answers: position of each answer digit that is read (the last one only if something is predicted after it).
        queries: the positions that predict answer digits 0, 1, ... and, where the task has it, EOS.
        tokens: the tokens that can stand at each position.
        eos: the token to predict last, or None if the answer ends without one.
    """

    rule: ColumnRule
    operands: Int[np.ndarray, "2 column"]
    answers: tuple[int, ...]
    queries: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    eos: int | None

    @property
    def n_positions(self) -> int:
        return len(self.tokens)


def read_layout(task: Task) -> TokenLayout:
    """Where a task puts its tokens, and what it does with a column. It is found by the roles of the tokens, and checked
    on random problems, half of them rich in carries where the task draws such. That the task's answer is the rule's on
    all problems is derived from its text (:mod:`models.tasks.altered_tasks`); where it cannot be, as for a function in
    Python, ``rule.tried`` says on how many problems it was tried.

    Raises:
        UserError: a task that does not add or subtract two numbers column by column, units first, or whose sequences
            are not laid out as its roles say; one whose answer is another on some problem.
    """
    columns = column_places(task)
    rule = column_rule(columns)
    drawn = task.sample(_CHECKED, torch.Generator().manual_seed(0))
    last, prompt = task.input_length, task.encode_prompt(drawn[:1])[0].tolist()
    operands = np.array([[places[k] for places in columns.operands[: rule.digits]] for k in (0, 1)])
    rest = set(range(len(prompt))) - set(operands.reshape(-1).tolist())
    ending = [role.kind for role in task.target_roles[rule.written :]]
    plain = rule.base == 10 and tuple(task.digit_tokens) == tuple(range(10)) and set(ending) <= {"eos"}
    first = len(prompt) - 1
    if (
        not plain
        or len(ending) > 1
        or columns.targets != tuple(range(rule.written))
        or tuple(task.query_positions) != tuple(range(first, first + rule.written + len(ending)))
        or any(task.roles[position].kind not in ("delimiter", "bos") for position in rest)
    ):
        raise UserError(
            "The certifier judges digits 0 to 9 as tokens 0 to 9, numbers between delimiters, and an answer of digits, "
            f"units first, with at most one token after them; {task.name} has another format."
        )
    tokens: list[tuple[int, ...]] = [tuple(range(10))] * last
    for position in rest:
        tokens[position] = (prompt[position],)
    answers = tuple(range(len(prompt), min(len(prompt) + rule.written, last)))
    if len(answers) > rule.digits:
        tokens[answers[rule.digits]] = rule.ends
    eos = int(task.targets(drawn[:1])[0, -1]) if ending else None
    layout = TokenLayout(rule, operands, answers, tuple(task.query_positions), tuple(tokens), eos)

    # A task may encode differently from what its roles say, so check that it does what is assumed here.
    if task.has_long_carries:
        drawn = torch.cat((drawn, task.sample(_CHECKED, torch.Generator().manual_seed(0), long_carries=True)))
    encoded, wanted = task.encode(drawn).numpy(), task.targets(drawn).numpy()
    for row, target, (a, b) in zip(encoded, wanted, drawn.tolist(), strict=True):
        expected, answer = sequence_of(layout, a, b)
        if not (np.array_equal(row, expected) and np.array_equal(target, answer)):
            raise UserError(f"{task.name} writes its problems in another way than the certifier knows.")
    return layout if _is_answer(task, rule) else replace(layout, rule=replace(rule, tried=_tried(task, rule, drawn)))


def _is_answer(task: Task, rule: ColumnRule) -> bool:
    """Whether a rule was derived to give a task's answer on all problems; False if nothing was derived.

    Raises:
        UserError: the two differ on a problem.
    """
    if not isinstance(task, FormattedTask) or altered(task) or len(task.parsed.functions) != 1:
        return False
    names, answer = [field.name for field in task.parsed.operand_fields], task.parsed.functions[0][0].function
    if not isinstance(answer, Expression):
        return False
    try:
        differs = first_difference(answer, rule.expression(*names), names, rule.limit, rule.ordered)
    except NoMachine:
        return False
    if differs is not None:
        raise _another_answer(task, rule, differs)
    return True


def _tried(task: Task, rule: ColumnRule, drawn: Int[torch.Tensor, "n 2"]) -> int:
    """On how many problems a rule was compared with a task's answer: drawn ones, and some with an end of the range or
    twice the same number.

    Raises:
        UserError: the two differ on one of them.
    """
    draws = torch.Generator().manual_seed(1)
    a, b = torch.cat((drawn, *(task.sample(_TRIED, draws) for _ in range(2)))).T
    zero, most = torch.zeros_like(a), torch.full_like(a, rule.limit - 1)
    pairs = torch.stack((torch.cat((a, a, a, zero, most, b, zero)), torch.cat((b, a, zero, b, b, most, zero))), 1)
    pairs = pairs[rule.holds(pairs[:, 0], pairs[:, 1])].unique(dim=0)
    numbers = Expression(rule.expression("a", "b"))(a=pairs[:, 0], b=pairs[:, 1])
    right = numbers[:, None] // rule.base ** torch.arange(rule.written) % rule.base
    wrong = (task.targets(pairs)[:, : rule.written] != right).any(1).nonzero()
    if len(wrong):
        raise _another_answer(task, rule, pairs[wrong[0, 0]].tolist())
    return len(pairs)


def _another_answer(task: Task, rule: ColumnRule, pair: Sequence[int]) -> UserError:
    return UserError(
        f"A proof about {rule.result}s says nothing of {task.name}, whose answer is another number for "
        f"{rule.problem(*pair)}."
    )


def sequence_of(layout: TokenLayout, a: int, b: int) -> tuple[Int[np.ndarray, " pos"], Int[np.ndarray, " target"]]:
    """Input tokens and targets of one problem, from the layout alone."""
    row = np.array([allowed[0] for allowed in layout.tokens])
    for positions, number in zip(layout.operands, (a, b), strict=True):
        row[positions] = [number // 10**i % 10 for i in range(layout.rule.digits)]
    answer = layout.rule.targets(a, b)
    row[list(layout.answers)] = answer[: len(layout.answers)]
    return row, np.array(answer + ([] if layout.eos is None else [layout.eos]))
