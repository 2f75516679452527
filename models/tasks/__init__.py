"""Tasks: tokens, problems, roles and the symbolic algorithms that are the ground truth of arithmetic."""

from models.task_mismatch import task_mismatch
from models.tasks.altered_tasks import altered
from models.tasks.check_task import domain_of, require_sound
from models.tasks.columns.addition_algorithms import (
    ALGORITHMS,
    CHAINED,
    CHAINED_FROM_ABOVE,
    RIPPLE,
    Algorithm,
    resolve_algorithm,
)
from models.tasks.columns.column_places import ColumnPlaces, column_places
from models.tasks.columns.long_carries import plant_carry, problems_of_chain_length, uniform_below
from models.tasks.columns.variable_hypotheses import TaskVariables, causal_model
from models.tasks.domain import Domain
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction, RulesByOperator
from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.formats.guess_from_texts import Guess, guess
from models.tasks.formats.parsed_format import SIGNS
from models.tasks.formats.string_task import TokenFunction, function
from models.tasks.machines.automata import Automaton
from models.tasks.machines.equal_expressions import first_difference
from models.tasks.machines.machine import Layer, Machine
from models.tasks.machines.machine_of import machine_of
from models.tasks.named.addition import PairAddition, TenDigitAddition, TwoDigitAddition, adds_pairs_below
from models.tasks.named.arrangements import Arrangements
from models.tasks.named.cyclic_groups import CyclicGroup, group_of
from models.tasks.named.induction import Induction, induction
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition
from models.tasks.named.position_coupling.multiplication import Multiplication
from models.tasks.named.position_coupling.parity import Parity
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.named.position_coupling.written_numbers import TokenSequences, propagate_carries
from models.tasks.named.shakespeare import CharacterLanguage
from models.tasks.number_digits import DIGITS, LIMIT, to_digits
from models.tasks.paired.carry_pairs import carry_pairs, chain_pairs, digit_pairs, same_carry_pairs
from models.tasks.paired.pair_constraint import PairConstraint, first_rows
from models.tasks.paired.problem_pairs import ProblemPairs, pairs, problem_pairs
from models.tasks.paired.variable_pairs import variable_pairs
from models.tasks.refusals import NoDomain, NoMachine
from models.tasks.roles import DELIMITERS, OUTPUT, OWN, PREVIOUS, REST, Role
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike, task_of_text

__all__ = [
    "ALGORITHMS",
    "AdditionFormat",
    "Algorithm",
    "AnswerFunction",
    "Arrangements",
    "Automaton",
    "CHAINED",
    "CHAINED_FROM_ABOVE",
    "CharacterLanguage",
    "ColumnPlaces",
    "CyclicGroup",
    "DELIMITERS",
    "DIGITS",
    "Domain",
    "Expression",
    "FormattedTask",
    "Guess",
    "Induction",
    "LIMIT",
    "Layer",
    "Machine",
    "MultiOperandAddition",
    "Multiplication",
    "NoDomain",
    "NoMachine",
    "NumberField",
    "OUTPUT",
    "OWN",
    "PREVIOUS",
    "PairAddition",
    "PairConstraint",
    "Parity",
    "ProblemPairs",
    "REST",
    "RIPPLE",
    "Role",
    "RulesByOperator",
    "SIGNS",
    "SequenceTask",
    "Task",
    "TaskLike",
    "TaskVariables",
    "TenDigitAddition",
    "TokenFunction",
    "TokenSequences",
    "TwoDigitAddition",
    "adds_pairs_below",
    "altered",
    "carry_pairs",
    "causal_model",
    "chain_pairs",
    "column_places",
    "digit_pairs",
    "domain_of",
    "task_mismatch",
    "first_difference",
    "first_rows",
    "formatted",
    "function",
    "group_of",
    "guess",
    "induction",
    "machine_of",
    "pairs",
    "plant_carry",
    "problem_pairs",
    "problems_of_chain_length",
    "propagate_carries",
    "require_sound",
    "resolve_algorithm",
    "task_of_text",
    "to_digits",
    "uniform_below",
    "same_carry_pairs",
    "variable_pairs",
]
