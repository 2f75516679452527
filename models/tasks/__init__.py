"""Tasks: tokens, problems, roles and the symbolic algorithms that are the ground truth of arithmetic."""

from models.tasks.addition import PairAddition, TenDigitAddition, TwoDigitAddition
from models.tasks.automata import Automaton
from models.tasks.base import Role, Task
from models.tasks.brackets import BalancedBrackets
from models.tasks.characters import CharacterLanguage
from models.tasks.domain import Domain
from models.tasks.formatted_task import FormattedTask, formatted
from models.tasks.induction import Induction, induction
from models.tasks.machine import Machine
from models.tasks.multi_addition import AdditionFormat, MultiOperandAddition
from models.tasks.multiplication import Multiplication
from models.tasks.pair_constraint import PairConstraint
from models.tasks.pair_kinds import carry_pairs, chain_pairs, digit_pairs, problem_pairs
from models.tasks.pair_variables import variable_pairs
from models.tasks.paired_problems import ProblemPairs, pairs
from models.tasks.parity import Parity
from models.tasks.segments import TokenSequences
from models.tasks.sequences import SequenceTask
from models.tasks.task_guesses import Guess, guess
from models.tasks.task_machines import machine_of
from models.tasks.task_text import task_of_text  # noqa: F401 (so that calls that take a task take its text, too)
from models.tasks.task_variables import TaskVariables
from models.tasks.token_function import TokenFunction, function

__all__ = [
    "AdditionFormat",
    "Automaton",
    "BalancedBrackets",
    "CharacterLanguage",
    "Domain",
    "FormattedTask",
    "Guess",
    "Induction",
    "Machine",
    "MultiOperandAddition",
    "Multiplication",
    "Parity",
    "ProblemPairs",
    "PairAddition",
    "PairConstraint",
    "Role",
    "SequenceTask",
    "Task",
    "TaskVariables",
    "TenDigitAddition",
    "TokenFunction",
    "TokenSequences",
    "TwoDigitAddition",
    "carry_pairs",
    "chain_pairs",
    "digit_pairs",
    "formatted",
    "function",
    "guess",
    "induction",
    "machine_of",
    "pairs",
    "problem_pairs",
    "variable_pairs",
]
