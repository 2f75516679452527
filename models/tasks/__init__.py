"""Tasks: tokens, problems, roles and the symbolic algorithms that are the ground truth of arithmetic."""

from models.tasks.addition import PairAddition, TenDigitAddition, TwoDigitAddition
from models.tasks.affine_cases import NotDecided
from models.tasks.algorithms import ALGORITHMS, CHAINED, CHAINED_FROM_ABOVE, RIPPLE, Algorithm, resolve_algorithm
from models.tasks.answer_functions import AnswerFunction, RulesByOperator
from models.tasks.arrangements import Arrangements
from models.tasks.automata import Automaton
from models.tasks.base import Role, Task, base_of, domain_of
from models.tasks.brackets import BalancedBrackets
from models.tasks.carries import plant_carry, problems_of_chain_length, uniform_below
from models.tasks.characters import CharacterLanguage
from models.tasks.check_task import require_sound
from models.tasks.column_layouts import ColumnLayout, column_layout
from models.tasks.column_rule import SUMS, ColumnRule, column_rule
from models.tasks.domain import Domain, NoDomain
from models.tasks.equal_answers import altered, first_difference
from models.tasks.expressions import Expression
from models.tasks.format_definition import SIGNS
from models.tasks.formats import NumberField
from models.tasks.formatted_task import FormattedTask, formatted
from models.tasks.groups import CyclicGroup, group_of
from models.tasks.induction import Induction, induction
from models.tasks.machine import Machine, Step
from models.tasks.multi_addition import AdditionFormat, MultiOperandAddition
from models.tasks.multiplication import Multiplication
from models.tasks.pair_constraint import PairConstraint, first_rows
from models.tasks.pair_kinds import carry_pairs, chain_pairs, digit_pairs, problem_pairs
from models.tasks.pair_variables import variable_pairs
from models.tasks.paired_problems import ProblemPairs, pairs
from models.tasks.parity import Parity
from models.tasks.places import DELIMITERS, OUTPUT, OWN, PREVIOUS, REST, with_places
from models.tasks.problem_space import ProblemSpace
from models.tasks.segments import TokenSequences, propagate_carries, to_digits
from models.tasks.sequences import SequenceTask
from models.tasks.task_doubts import doubt
from models.tasks.task_guesses import Guess, guess
from models.tasks.task_machines import machine_of, machine_of_shorter
from models.tasks.task_text import task_of_text
from models.tasks.task_variables import TaskVariables, causal_model
from models.tasks.ten_digits import DIGITS, LIMIT
from models.tasks.token_function import TokenFunction, function

__all__ = [
    "ALGORITHMS",
    "AdditionFormat",
    "Algorithm",
    "AnswerFunction",
    "Arrangements",
    "Automaton",
    "BalancedBrackets",
    "CHAINED",
    "CHAINED_FROM_ABOVE",
    "CharacterLanguage",
    "ColumnLayout",
    "ColumnRule",
    "CyclicGroup",
    "DELIMITERS",
    "DIGITS",
    "Domain",
    "Expression",
    "FormattedTask",
    "Guess",
    "Induction",
    "LIMIT",
    "Machine",
    "MultiOperandAddition",
    "Multiplication",
    "NoDomain",
    "NotDecided",
    "NumberField",
    "OUTPUT",
    "OWN",
    "PREVIOUS",
    "PairAddition",
    "PairConstraint",
    "Parity",
    "ProblemPairs",
    "ProblemSpace",
    "REST",
    "RIPPLE",
    "Role",
    "RulesByOperator",
    "SIGNS",
    "SUMS",
    "SequenceTask",
    "Step",
    "Task",
    "TaskVariables",
    "TenDigitAddition",
    "TokenFunction",
    "TokenSequences",
    "TwoDigitAddition",
    "altered",
    "base_of",
    "carry_pairs",
    "causal_model",
    "chain_pairs",
    "column_layout",
    "column_rule",
    "digit_pairs",
    "domain_of",
    "doubt",
    "first_difference",
    "first_rows",
    "formatted",
    "function",
    "group_of",
    "guess",
    "induction",
    "machine_of",
    "machine_of_shorter",
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
    "variable_pairs",
    "with_places",
]
