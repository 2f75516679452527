"""Which machine a task has, by its class and its definition: :func:`machine_of`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.altered_tasks import altered
from models.tasks.columns.column_families import hard_digits
from models.tasks.domain import COUNTED, Domain, NoDomain, NotCountable
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.formats.machine_by_columns import machine_of_format
from models.tasks.formats.machine_by_reading import machine_by_reading
from models.tasks.formats.string_task import TokenFunction
from models.tasks.machines.affine_cases import Affine, NotDecided, TooMuch
from models.tasks.machines.automata import AUTOMATA, Automaton
from models.tasks.machines.automaton_machines import machine_of_automaton
from models.tasks.machines.column_machines import AnswerNumber, Cell, Choice, ColumnGraph
from models.tasks.machines.listed_machines import LISTED, LISTED_OF_OTHERS, machine_of_all
from models.tasks.machines.machine import Machine, NotAPath, sequences
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from models.tasks.named.position_coupling.parity import Parity
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.task import Task, domain_of

_LOOKED_AT = 64  # drawn problems, and as many hard ones, on which every machine is compared with its task
_TRIED = 1_000  # as many, where nothing else is known of the task's answer
#: What an answer in Python may be, of two numbers and of any.
_OF_TWO = (
    "{0} - {1}",
    "max({0}, {1})",
    "min({0}, {1})",
    "abs({0} - {1})",
    *(f"{{0}} {relation} {{1}}" for relation in ("<", "<=", ">", ">=", "==", "!=")),
)


class Differs(UserError):
    """Raised for a task whose answer is not that of a machine; ``problem`` is the text of one."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name} has another answer for {problem} than the machine that it is said to be.")
        self.problem = problem


def machine_of(task: Task) -> Machine:
    """The machine of a task.

    It is derived from the task's definition where that has a derivation
    (:mod:`models.tasks.formats.machine_by_columns`), made by running all problems where they are few, and else compared
    with the task's answer on drawn problems (``Machine.tried`` says on how many).

    Raises:
        UserError: a task whose answer is not known to need a small memory, with the reason; one that answers a problem
            otherwise than the machine that it is said to be.
    """
    own = altered(task)  # a method that says something else than its class does
    try:
        if own is not None:
            raise NotDecided(f"{own} is no method of this package")
        return _compared(task, _derived(task), _LOOKED_AT)
    except NotDecided as why:
        reason = str(why)
    listed = _is_listed(task)
    if isinstance(task, TokenFunction) and task.automaton is not None and task.where is None:
        return _settled(task, _compared(task, _of_strings(task, task.automaton), _LOOKED_AT), listed)
    for candidate in _candidates(task):
        try:
            machine = candidate()
            _compare(task, machine, task.sample(_LOOKED_AT, torch.Generator().manual_seed(0)))
        except (UserError, NotDecided):
            continue
        try:
            return _settled(task, machine, listed)
        except Differs as error:  # it is nearly this one
            reason = f"its answer is a function in Python, and another for {error.problem} than it seems to be"
    if listed:
        return machine_of_all(task)
    raise UserError(f"{task.name} is not known to need a small memory only ({reason}), and {_too_many(task)}.")


def _too_many(task: Task) -> str:
    """Why the problems of a task are not all run."""
    try:
        return f"its {domain_of(task).size:,} problems are too many to run all of them"
    except NotCountable:
        return "its problems are too many to count them"
    except NoDomain:
        return "it does not say which problems it has"


def _settled(task: Task, machine: Machine, listed: bool) -> Machine:
    """A machine that was not derived, after it was compared with its task on all problems or on thousands of them."""
    machine = _compared(task, machine, _TRIED)
    if not listed:
        return replace(machine, tried=2 * _TRIED)
    every = task.domain.every()
    for part in every.split(2**16):
        _compare(task, machine, part)
    return machine


def _derived(task: Task) -> Machine:
    match task:
        case FormattedTask():
            return _of_format(task)
        case TokenFunction() if task.where is not None:
            raise NotDecided("the rule of its problems is a function in Python")
        case TokenFunction(answer=Automaton() as automaton):
            return _of_strings(task, automaton)
        case TokenFunction():
            raise NotDecided("its answer is a function in Python")
        case MultiOperandAddition():
            return _of_running_sums(task)
        case Parity():
            return _of_parity(task)
    raise NotDecided("no machine of its class is known")


def _of_format(task: FormattedTask) -> Machine:
    """By its columns, or else as it is read. Raises NotDecided with what stands in the way of the columns, or TooMuch
    where that is what stands in the way of reading."""
    try:
        return machine_of_format(task)
    except NotDecided as why:
        try:
            return machine_by_reading(task)
        except TooMuch:
            raise
        except NotDecided:
            raise why from None


def _candidates(task: Task) -> Iterator[Callable[[], Machine]]:
    """Machines that an answer in Python may have, one after the other."""
    if isinstance(task, TokenFunction) and task.where is None:
        for name in AUTOMATA:
            yield lambda name=name: _of_strings(task, task.named(name))
    if isinstance(task, FormattedTask) and len(task.functions) == len(task.answer_numbers) == 1:
        names, field = [number.name for number in task.numbers_fields], task.answer_field
        yield lambda: machine_of_format(task)
        texts = [" + ".join(names)]
        texts += [f"({texts[0]}) % {task.base**field.width}"]
        if len(names) == 2:
            high = task.base ** (field.width - 1)
            texts += [text.format(*names) for text in _OF_TWO]
            texts.append("({0} - {1}) % {2} + {2} * ({0} < {1})".format(*names, high))
        for text in texts:
            yield lambda text=text: machine_of_format(task, [text])


def _is_listed(task: Task) -> bool:
    try:
        domain = domain_of(task)
    except NoDomain:
        return False
    most = LISTED if isinstance(task, (FormattedTask, TokenFunction)) else LISTED_OF_OTHERS
    return domain.combinations <= most or (domain.combinations <= COUNTED and domain.size <= most)


# ---- comparing a machine with its task


def _compared(task: Task, machine: Machine, n: int) -> Machine:
    """The machine, after it was compared with its task: on the number of problems, ``n`` uniform ones and ``n`` hard.

    Raises:
        UserError: it has fewer paths than the task has problems, as some have no answer that fits; or a problem that is
            none of them.
    """
    try:
        size = domain_of(task).size
    except NotCountable:  # a rule without a machine, of too many numbers to try it on all
        size = machine.count()
    if machine.count() != size:
        raise UserError(
            f"{task.name} has {size:,} problems, and {machine.count():,} of them have an answer that can be written."
        )
    draws = torch.Generator().manual_seed(n)
    _compare(task, machine, torch.cat((task.sample(n, draws), _hard(task, machine, n, draws))))
    return machine


def _compare(task: Task, machine: Machine, problems: Int[Tensor, "n *operands"]) -> None:
    """Raise Differs with the first of some problems that is no path of a machine."""
    try:
        paths = machine.run(sequences(task, problems))
        wrong = (machine.problems(paths) != problems).flatten(1).any(1).nonzero()[:, 0].tolist()
    except NotAPath as error:
        wrong = [error.row]
    if wrong:
        text = task.problem_text(task.numbers(problems[wrong[0] : wrong[0] + 1])[0])
        raise Differs(task.name, text)


def _hard(task: Task, machine: Machine, n: int, draws: torch.Generator) -> Int[Tensor, "n *operands"]:
    """Problems of which as many meet rare states, long carries, equal numbers, ends of ranges and runs of one token, as
    far as the task has such."""
    found = []
    if isinstance(task, FormattedTask) and len(task.fields) == len(task.numbers_fields) > 1:
        found = [kind[task.allowed(kind)] for kind in _hard_numbers(task, n, draws)]
    elif isinstance(task, TokenFunction):
        runs = task.sample(n, draws)
        stays = torch.rand(n, task.length, generator=draws) < torch.rand(n, 1, generator=draws)
        for i in range(1, task.length):
            runs[:, i] = torch.where(stays[:, i], runs[:, i - 1], runs[:, i])
        found = [runs[task.allowed(runs)]]
    if (rich := getattr(task, "sample_carry_rich", None)) is not None:
        found.append(rich(n, draws))
    found = [kind[: n // (len(found) + 1)] for kind in found]
    rare = n - sum(map(len, found))
    return torch.cat((*found, machine.problems(machine.sample(rare, draws, rare=True))))


def _hard_numbers(task: FormattedTask, n: int, draws: torch.Generator) -> Iterator[Int[Tensor, "n operand"]]:
    limits = torch.tensor([task.base**field.width for field in task.numbers_fields])
    width = max(field.width for field in task.numbers_fields)
    uniform = torch.rand(4 * width + 1, n, generator=draws, dtype=torch.float64)
    digits = hard_digits(width, task.base, lambda i: uniform[i])
    for passing in (digits[:, 1], task.base - 1 - digits[:, 1]):  # where a carry passes, or a borrow
        numbers = task.sample(n, draws)
        pair = torch.stack((digits[:, 0], passing), 1)
        numbers[:, :2] = (pair * task.base ** torch.arange(width)).sum(2) % limits[:2]
        yield numbers
    yield task.sample(n, draws)[:, :1].expand(-1, len(limits)) % limits.min()
    numbers, row = task.sample(n, draws), torch.arange(n)
    at = row % len(limits)
    numbers[row, at] = torch.where(row // len(limits) % 2 == 0, 0, limits[at] - 1)
    yield numbers


# ---- machines of classes


def _slots(task: Task, target: int) -> tuple[int, ...]:
    """The slots of a target: its own, and the position where it is read."""
    after = task.query_positions[target] + 1
    return (task.input_length + target, *([after] if after < task.input_length else []))


def _of_strings(task: TokenFunction, automaton: Automaton) -> Machine:
    inputs = tuple(task.vocabulary.index(text) for text in task.inputs)
    cells = [Cell(f"x{i}", i, inputs, i, i) for i in range(task.length)]
    answers = [_slots(task, target) for target in range(task.n_answers)]
    tokens = [task.vocabulary.index(text) for text in task.answer_texts]
    sizes = task.input_length, task.n_answers
    origin = torch.zeros(task.length, dtype=torch.int64)
    return machine_of_automaton(automaton, cells, answers, tokens, {}, sizes, origin)


def _segment(task: SequenceTask, segment: int, column: int) -> tuple[int, ...]:
    """The slots of a digit of a segment: as an input, and as a target."""
    at = task.position_of(segment, column)
    queries = list(task.query_positions)
    target = (task.input_length + queries.index(at - 1),) if at - 1 in queries else ()
    return (*target, *([at] if at < task.input_length else []))


def _fixed(task: SequenceTask) -> dict[int, int]:
    """The slots of all that is no digit, and their tokens."""
    zeros = torch.zeros(1, task.n_operands, task.n_digits, dtype=torch.int64)
    row, n = sequences(task, zeros)[0].tolist(), task.input_length
    roles = [*task.roles[:n], *task.target_roles]
    return {slot: token for slot, token in enumerate(row) if roles[slot].kind in ("bos", "delimiter", "eos")}


def _of_parity(task: Parity) -> Machine:
    cells = [Cell("x", k, (0, 1), _segment(task, 0, k)[-1], k) for k in range(task.n_digits)]
    written = [_segment(task, 1, k) for k in range(task.n_digits if task.scratchpad else 1)]
    flips = lambda state, bit: (state + bit) % 2  # noqa: E731
    automaton = Automaton(flips, None, flips, name="parity") if task.scratchpad else Automaton(flips, lambda s: s)
    sizes, origin = (task.input_length, len(task.query_positions)), torch.zeros(1, task.n_digits, dtype=torch.int64)
    return machine_of_automaton(replace(automaton, name="parity"), cells, written, (0, 1), _fixed(task), sizes, origin)


def machine_of_shorter(task: MultiOperandAddition) -> Machine:
    """As :func:`machine_of`, for numbers of at most as many digits as the shape says. They are written with zeros in
    front, and so in one layout.

    Raises:
        UserError: a task that writes them otherwise, or gives other answers.
    """
    if (own := altered(task)) is not None or not task.format.zero_padding:
        raise UserError(f"{task.name} with {own or 'numbers as long as they are'} has no one layout of its numbers.")
    zeros = Domain.of(task.operand_lengths, task.base, n_columns=task.n_digits)
    machine, draws = _of_running_sums(task, zeros), torch.Generator().manual_seed(_LOOKED_AT)
    for rare in (False, True):
        _compare(task, machine, machine.problems(machine.sample(_LOOKED_AT, draws, rare)))
    return machine


def _of_running_sums(task: MultiOperandAddition, domain: Domain | None = None) -> Machine:
    """The sums of the first k numbers, for each k that is written, side by side in every column."""
    m, domain, digits = task.n_operands, task.domain if domain is None else domain, tuple(range(task.base))
    cells = []
    for operand, column, lowest in zip(domain.operand, domain.column, domain.lowest, strict=True):
        slot, part = task.position_of(operand, column), operand * task.n_digits + column
        cells.append(Cell(f"a{operand + 1}", column, digits[lowest:], slot, part, 1, lowest))
    cells.sort(key=lambda cell: (cell.column, cell.part))
    written, values, fixed = [], [], _fixed(task)
    for operand in range(m):  # the zeros in front of each number
        for column in range(task.n_digits, task.length):
            fixed.update(dict.fromkeys(_segment(task, operand, column), 0))
    for step in range(task.first_step, m + 1):
        places = [_segment(task, m + step - task.first_step, column) for column in range(task.length)]
        written.append(AnswerNumber(tuple(places), digits))
        values.append(Affine(tuple((f"a{k + 1}", 1) for k in range(step))))
    graph = ColumnGraph(cells, written, [Choice(frozenset(), tuple(values))], task.base)
    sizes = task.input_length, len(task.query_positions)
    return replace(graph.machine(fixed, "carry", *sizes), origin=torch.zeros(m, task.n_digits, dtype=torch.int64))
