"""The interface of every task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import isfunction
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import (
    AnswerRows,
    Natural,
    Problems,
    RowKeys,
    Seed,
    Share,
    Target,
    TokenRows,
    shown,
    whole_numbers,
)
from models.calls.bound_arguments import checked_method
from models.errors import UserError
from models.notation import Notation
from models.tasks.domain import Domain, NoDomain
from models.tasks.named.arrangements import Arrangements
from models.tasks.roles import REST

LOOKED_AT = 512  # this many problems of the task's own distribution must lie in its domain


@dataclass(frozen=True)
class Role:
    """What a token position means: operand digit, delimiter or answer digit.

    ``kind`` is "operand", "delimiter", "answer" or "eos"; ``index`` is the operand's number, ``column`` the digit's
    power of ten (0 is the units digit); both are None where they have no meaning.
    """

    kind: str
    label: str  # short, for axes: "a3", "+", "=", "s3"
    column: int | None = None
    index: int | None = None


#: Methods that do not check their arguments, as training calls them in its inner loop.
TRUSTED = ("encode_rows",)


def problem_list(problems: Any, such_as: str, tuples: bool = True) -> list[Any]:
    """Problems as a list. A text is one problem, and with ``tuples`` so is a tuple of numbers.

    Raises:
        UserError: not a list (``such_as`` says what to give), or an empty one.
    """
    one = tuples and isinstance(problems, tuple) and problems and not isinstance(problems[0], (tuple, list, str))
    if isinstance(problems, str) or one:
        return [problems]
    if not isinstance(problems, Iterable) or getattr(problems, "ndim", 1) == 0:
        raise UserError(f"{shown(problems)} is not a list of problems; give {such_as}.")
    found = list(problems)
    if not found:
        raise UserError("There is no problem to encode: the list is empty.")
    return found


def are_integers(tensor: Tensor) -> bool:
    """Whether a tensor has an integer dtype, booleans excluded."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


class Task(ABC):
    """Tokens, problems, roles, position ids and intermediate values of one arithmetic task.

    Problems are int64 tensors [n, operands]; tokens int64 tensors [n, pos]. ``input_length`` tokens go in;
    the query at ``query_positions[i]`` predicts target ``i``, whose true value is ``targets(problems)[:, i]``.
    """

    name: str
    #: The text of every token, in the order of ids; a task without it overrides :meth:`token_text` and `token_id`.
    vocabulary: Sequence[str]
    d_vocab: int
    input_length: int
    #: The measure by which models of this task are selected and compared: "accuracy" of whole answers, or "loss".
    compared_by: str = "accuracy"
    #: What :meth:`decode` gives for tokens that spell no number; it is nobody's answer.
    no_number: int = -1
    #: What stands between the texts of tokens.
    separator: str = ""
    #: What stands between the operands of a problem's text.
    operator: str = "+"
    #: For sums of two numbers: all numbers below it are operands. None for any other task.
    pairs_below: int | None = None
    #: The sizes of its problems, of a task that has the same problems in many lengths; empty for any other.
    shape: tuple[int, ...] = ()
    #: How a problem is written, for tasks whose texts a :class:`Notation` can read.
    notation: Notation | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """The methods that every task has check their arguments, as the annotations below say
        (:func:`models.calls.bound_arguments.checked_method`)."""
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if isfunction(method) and hasattr(Task, name) and not name.startswith("_") and name not in TRUSTED:
                setattr(cls, name, checked_method(method, like=getattr(Task, name)))

    def __repr__(self) -> str:
        """Its name, sizes and a problem with its answer: what a person who prints a task wants to see."""
        try:
            problem = self.sample(1, torch.Generator().manual_seed(0))
            text, answer = self.problem_text(self.numbers(problem)[0]), self.answer_text(self.targets(problem)[0])
            sizes = f"{self.input_length} tokens in, {len(self.query_positions)} predicted"
            return f"{self.name}: {sizes}, such as {text} = {answer}"
        except Exception:  # a text, or a task of somebody's own that is not finished
            return f"{getattr(self, 'name', 'a task')} ({type(self).__name__})"

    # What a task sets in its class, in ``__init__``, or as a property of its own:

    @cached_property
    def roles(self) -> Sequence[Role]:
        """The role of every position, including those that are only ever targets."""
        raise self._unsaid("roles")

    @cached_property
    def query_positions(self) -> Sequence[int]:
        """Position whose logits predict each target, in order."""
        raise self._unsaid("query_positions")

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        """The role of each target, in the order of ``query_positions``."""
        raise self._unsaid("target_roles")

    def _unsaid(self, name: str) -> UserError:
        return UserError(f"The task {type(self).__name__} does not say its {name}; set it in the class.")

    @abstractmethod
    def as_problems(self, problems: Problems) -> Int[Tensor, "n operands"]:
        """Problems as an int64 tensor, from any form that the task takes. Raises UserError on anything else."""

    @cached_property
    def domain(self) -> Domain:
        """Which problems there are. It is optional; without it, nothing can go through all problems.

        Raises:
            NoDomain: a task that does not define it.
        """
        raise NoDomain(self.name)

    @cached_property
    def digit_tokens(self) -> Sequence[int]:
        """The token of every digit, in the order of the digits' values: the tokens whose texts are "0", "1", ... up to
        the domain's base, or the first tokens if the vocabulary has no such texts.

        Raises:
            NoDomain: a task that does not define its domain.
        """
        texts = [str(value) for value in range(self.domain.base)]
        known: list[str] = list(getattr(self, "vocabulary", ()))
        return tuple(known.index(text) for text in texts) if set(texts) <= set(known) else tuple(range(len(texts)))

    def digit_values(self, tokens: Int[Tensor, "*place"]) -> Int[Tensor, "*place"]:
        """The value of the digit that each token stands for, or -1 for a token that is not a digit.

        Raises:
            UserError: ``digit_tokens`` that are not different tokens of the vocabulary, one for each digit.
        """
        tokens = whole_numbers("tokens", tokens)
        digits = list(self.digit_tokens)
        if len({*digits}) != self.domain.base or not all(0 <= token < self.d_vocab for token in digits):
            raise UserError(
                f"The task {self.name} must have one token for each of its {self.domain.base} digits, among 0 to "
                f"{self.d_vocab - 1}, not {digits[:20]}."
            )
        values = torch.full((self.d_vocab + 1,), -1)
        values[digits] = torch.arange(len(digits))
        known = torch.where((tokens >= 0) & (tokens < self.d_vocab), tokens, self.d_vocab)
        return values.to(tokens.device)[known]

    def at(self, *shape: int) -> Task:
        """The same task in another shape. Raises UserError if there is none."""
        raise UserError(f"Problems of {self.name} have one shape; there is none to choose.")

    def for_problems(self, problems: Any) -> Task:
        """This task in the shape that these problems need, or itself if the task has only one shape."""
        return self

    def numbers(self, problems: Any) -> list[tuple[int, ...]]:
        """Problems as tuples of Python integers."""
        return [tuple(row) for row in self.as_problems(problems).tolist()]

    def problem_text(self, numbers: Sequence[Any]) -> str:
        """A problem with these operands (or bits, for parity) as text: "47 + 85", "0101"."""
        return (f" {self.operator} " if self.operator else "").join(map(str, numbers))

    def test_set(self) -> tuple[str, Int[Tensor, "n operands"]]:
        """The problems that models of this task are scored on, with their name. Raises UserError if there are none."""
        raise UserError(f"The task {self.name} has no test set of its own; give the problems to score on.")

    @checked_method
    def validation_problems(self, n: Natural, seed: Seed) -> Int[Tensor, "n operands"]:
        """Problems to select checkpoints on, none of them in the test set: the first n - n // 2 from the natural
        distribution, the rest hard ones. Raises UserError if the task has none."""
        raise UserError(f"The task {self.name} has no validation problems, so it cannot be trained on yet.")

    def training_problems(self, keys: RowKeys, hard: Share = 0.0, share: Share = 1.0) -> Int[Tensor, "row operands"]:
        """One problem outside the test set for each key (:func:`models.tasks.counter_rng.row_keys`), which depends on
        that key alone; a share ``hard`` of them has long carries, if the task has any. With ``share`` below 1, from
        that share of the problems outside the test set, where these can be listed.

        Raises:
            UserError: a task that does not draw its training problems itself.
        """
        raise UserError(f"The task {self.name} does not draw training problems; give its recipe a source of problems.")

    @abstractmethod
    def encode(self, problems: Problems) -> Int[Tensor, "n pos"]:
        """Full teacher-forced input (prompt and answer). Raises UserError on anything that is not a problem."""

    @abstractmethod
    def encode_prompt(self, problems: Problems) -> Int[Tensor, "n pos"]:
        """The tokens before the answer, from which decoding starts."""

    @abstractmethod
    def targets(self, problems: Problems) -> Int[Tensor, "n target"]:
        """The right token for every target."""

    @abstractmethod
    def decode(self, answer_tokens: AnswerRows) -> list[int]:
        """The numbers that answer tokens spell; :attr:`no_number` for tokens that spell none."""

    @checked_method
    def answer_text(self, answer_tokens: AnswerRows) -> str:
        """What the tokens of one answer spell, for people: a number, or their texts where they spell none ("?" for what
        is no token). They may be given as one row [target]."""
        number, *_ = self.decode(answer_tokens)
        tokens, known = answer_tokens[0].tolist(), self.vocabulary
        texts: list[str] = [str(known[token]) if 0 <= token < len(known) else "?" for token in tokens]
        return "".join(texts) if number == self.no_number else str(number)

    @abstractmethod
    def variables(self, problems: Problems) -> dict[str, Int[Tensor, "n column"]]:
        """Every intermediate value of the symbolic algorithm, one tensor [n, column] per variable."""

    @abstractmethod
    def relative_roles(self, target: Target) -> dict[str, list[int]]:
        """Positions grouped by what they are *to one target*, by the names in :mod:`models.tasks.roles`."""

    @staticmethod
    def with_rest(groups: dict[str, list[int]], query: int) -> dict[str, list[int]]:
        """Groups of positions, completed by all others up to the query's own ("rest")."""
        taken = {position for group in groups.values() for position in group}
        return groups | {REST: [position for position in range(query + 1) if position not in taken]}

    @abstractmethod
    def sample(self, n: Natural, generator: torch.Generator) -> Int[Tensor, "n operands"]:
        """Problems from the task's natural (uniform) distribution."""

    def token_text(self, tokens: Any) -> str:
        """Text of a token or a sequence of tokens; a number in brackets for one that the task does not have."""
        known = list(self.vocabulary)
        found = whole_numbers("tokens", tokens).reshape(-1).tolist()
        return self.separator.join(known[token] if 0 <= token < len(known) else f"[{token}]" for token in found)

    @checked_method
    def token_id(self, text: str) -> int:
        """The token of a one-token text. Raises UserError if there is none."""
        known = list(self.vocabulary)
        if text.strip() not in known:
            raise UserError(f"{text!r} is not a token; tokens are {' '.join(known)}.")
        return known.index(text.strip())

    @abstractmethod
    def chain_length(self, problems: Problems) -> Int[Tensor, " n"]:
        """Length of the longest carry chain of each problem; accuracy is always reported by it."""

    def arrangements(self) -> list[Arrangements]:
        """All problems, each in one set of strings with the same right token and different tokens at free places.

        Raises:
            UserError: a task whose problems are not known to be such sets.
        """
        raise UserError(f"the problems of {self.name} are not known as arrangements of different tokens.")

    def encode_rows(self, problems: Int[Tensor, "n operands"]) -> tuple[Tensor, Tensor]:
        """(tokens [pos, n], targets [target, n]) of trusted problems, for training; tasks override it for speed."""
        return self.encode(problems).T, self.targets(problems).T

    @checked_method
    def position_ids(self, tokens: TokenRows) -> Int[Tensor, "n pos level"]:
        """Position ids, from the tokens alone; the default is the absolute position as one level."""
        ids = torch.arange(tokens.shape[1], device=tokens.device)
        return ids.expand(tokens.shape[0], -1)[..., None]


def domain_of(task: Task) -> Domain:
    """The task's domain, checked on problems that the task draws.

    Raises:
        UserError: a task without a domain, or one that draws a problem outside it.
    """
    domain = task.domain
    drawn = task.sample(LOOKED_AT, torch.Generator().manual_seed(0))
    if not (inside := domain.holds(drawn)).all():
        raise UserError(
            f"The task {task.name} draws the problem {tuple(drawn[~inside][0].tolist())}, which is not among the "
            f"{domain.size:,} of what it says its domain is."
        )
    return domain


def base_of(task: Task) -> int:
    """The base of the task's digits. Raises UserError without a domain."""
    return task.domain.base
