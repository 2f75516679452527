"""The interface of every task.

A task of one's own is one method and three attributes; all else follows from them, and each may be overridden:

    class LastTwice(Task):
        vocabulary = "abcd|"
        domain = Domain.of((1,) * 5, base=4)
        prompt, answer = "x0 x1 x2 x3 x4 |", "y0 y1"

        def tokens(self, problems):
            bar = torch.full_like(problems[:, :1], 4)
            return torch.cat((problems, bar), 1), problems[:, -1:].expand(-1, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import AnswerRows, Natural, Problems, Target, TokenRows, whole_numbers
from models.calls.bound_arguments import checked_method
from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.given_problems import as_rows, numbers_in
from models.tasks.held_out import MOST_SPLIT, Draws, HeldOut, SplitDomain
from models.tasks.number_digits import to_number
from models.tasks.refusals import NoDomain, NoMachine, NoProblems
from models.tasks.roles import Role, relative_positions, roles_of

#: Methods that do not check their arguments, as training calls them in its inner loop.
TRUSTED = ("encode_rows",)


class Task:
    """Tokens, problems, roles, position ids and intermediate values of one arithmetic task.

    Problems are int64 tensors [n, operands]; tokens int64 tensors [n, pos]. ``input_length`` tokens go in;
    the query at ``query_positions[i]`` predicts target ``i``, whose true value is ``targets(problems)[:, i]``.
    """

    #: The text of every token, in the order of ids; a task without it overrides :meth:`token_text`.
    vocabulary: Sequence[str]
    #: The labels of what is read and of what is predicted, such as "a1 a0 + b1 b0 =" and "s0 s1 s2", or lists of
    #: labels and roles (:func:`models.tasks.roles.roles_of`).
    prompt: str | Sequence[str | Role] = ()
    answer: str | Sequence[str | Role] = ()
    #: The measure by which models of this task are selected and compared: "accuracy" of whole answers, or "loss".
    selected_by: str = "accuracy"
    #: What makes this task again, as JSON; None if nothing is known to.
    definition: dict[str, Any] | None = None
    #: What stands between the texts of tokens.
    separator: str = ""
    #: The sizes of its problems, of a task that has the same problems in many lengths; empty for any other.
    shape: tuple[int, ...] = ()
    #: Whether :meth:`at` gives the same task in other sizes.
    has_other_sizes: bool = False
    #: Of so many problems a machine is made by running them all.
    most_run: int = 2**16
    #: Whether its machine then goes column by column, and whether it writes its answer after all columns.
    by_columns: bool = False
    answer_is_one_token: bool = False
    #: Whether :meth:`derived_machine` is what somebody says of a function in Python, and is compared with it.
    machine_is_said: bool = False

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
            return f"{self.name} ({type(self).__name__})"

    if TYPE_CHECKING:  # these may be set in a class as they are
        name: str
        d_vocab: int
        input_length: int
    else:

        @cached_property
        def name(self) -> str:
            """By default the class's name."""
            return type(self).__name__

        @cached_property
        def d_vocab(self) -> int:
            """How many tokens there are."""
            return len(self.vocabulary)

        @cached_property
        def input_length(self) -> int:
            """How many tokens a sequence has: all but the last target."""
            return len(self.roles) - 1

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What others found out about this task and keep on it: its machine, its group, that it is sound."""
        return {}

    def _unsaid(self, name: str) -> UserError:
        return UserError(f"The task {type(self).__name__} does not say its {name}; set it in the class.")

    # ---- the sequence

    def tokens(self, problems: Int[Tensor, "n operands"]) -> tuple[Int[Tensor, "n prompt"], Int[Tensor, "n target"]]:
        """The tokens that are read before the answer, and the right answer's, of problems that lie in the domain."""
        raise self._unsaid("tokens")

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        """The role of each target, in the order of ``query_positions``."""
        if not self.answer:
            raise self._unsaid("answer")
        return roles_of(self.answer, "answer")

    @cached_property
    def _prompt_roles(self) -> Sequence[Role]:
        if not self.prompt:
            raise self._unsaid("prompt")
        one_each = "domain" in dir(type(self)) and max(self.domain.column, default=1) == 0
        return roles_of(self.prompt, "operand", one_each)

    @cached_property
    def roles(self) -> Sequence[Role]:
        """The role of every position, including those that are only ever targets."""
        return (*self._prompt_roles, *self.target_roles)

    @cached_property
    def query_positions(self) -> Sequence[int]:
        """Position whose logits predict each target, in order."""
        first = len(self._prompt_roles) - 1
        return tuple(range(first, first + len(self.target_roles)))

    @checked_method
    def relative_roles(self, target: Target) -> dict[str, list[int]]:
        """Positions grouped by what they are *to one target*, by the names in :mod:`models.tasks.roles`; by default
        :func:`models.tasks.roles.relative_positions`."""
        return relative_positions(self.roles, self.query_positions, self.target_roles, target)

    @checked_method
    def encode(self, problems: Problems) -> Int[Tensor, "n pos"]:
        """Full teacher-forced input (prompt and answer). Raises UserError on anything that is not a problem."""
        prompt, answer = self.tokens(self.as_problems(problems))
        return torch.cat((prompt, answer[:, :-1]), 1)

    @checked_method
    def encode_prompt(self, problems: Problems) -> Int[Tensor, "n pos"]:
        """The tokens before the answer, from which decoding starts."""
        return self.encode(problems)[:, : self.query_positions[0] + 1]

    @checked_method
    def targets(self, problems: Problems) -> Int[Tensor, "n target"]:
        """The right token for every target."""
        return self.tokens(self.as_problems(problems))[1]

    def encode_rows(self, problems: Int[Tensor, "n operands"]) -> tuple[Tensor, Tensor]:
        """(tokens [pos, n], targets [target, n]) of trusted problems, for training; tasks override it for speed."""
        return self.encode(problems).T, self.targets(problems).T

    @checked_method
    def position_ids(self, tokens: TokenRows) -> Int[Tensor, "n pos level"]:
        """Position ids, from the tokens alone; the default is the absolute position as one level."""
        ids = torch.arange(tokens.shape[1], device=tokens.device)
        return ids.expand(tokens.shape[0], -1)[..., None]

    def at(self, *shape: int) -> Task:
        """The same task in another shape. Raises UserError if there is none."""
        raise UserError(f"Problems of {self.name} have one shape; there is none to choose.")

    def for_problems(self, problems: Any) -> Task:
        """This task in the shape that these problems need, or itself if the task has only one shape."""
        return self

    # ---- problems

    @cached_property
    def domain(self) -> Domain:
        """Which problems there are. It is optional; without it, nothing can go through all problems.

        Raises:
            NoDomain: a task that does not define it.
        """
        raise NoDomain(self.name)

    @property
    def kind_of_problems(self) -> str:
        """A word for the problems, in the plural: "pairs", "strings of 8 bits"."""
        domain = self.domain
        if domain.base == 2 and len(domain) == domain.n_operands > 2:
            return f"strings of {len(domain)} bits"
        return "pairs" if domain.n_operands == 2 else "problems"

    @checked_method
    def as_problems(self, problems: Problems) -> Int[Tensor, "n operands"]:
        """Problems as an int64 tensor, from any form that the task takes: by default tensors, tuples of numbers, and
        texts with as many numbers as there are operands. Raises UserError on anything else."""
        domain = self.domain
        if domain.n_columns is not None:
            if isinstance(problems, Tensor) and bool(domain.holds(problems).all()):
                return problems.long()
            raise UserError(f"Problems of {self.name} are digits in a tensor [n, operand, {domain.n_columns}].")
        found, _ = as_rows(problems, domain.n_operands, "tuples of numbers", numbers_in)
        if not (inside := domain.holds(found)).all():
            raise UserError(f"{tuple(found[~inside][0].tolist())} is not a problem of {self.name}.")
        return found

    def numbers(self, problems: Any) -> list[tuple[int, ...]]:
        """Problems as tuples of Python integers."""
        found = self.as_problems(problems)
        if found.ndim == 3:
            return [tuple(to_number(digits, self.domain.base) for digits in row) for row in found.tolist()]
        return [tuple(row) for row in found.tolist()]

    def problem_text(self, numbers: Sequence[Any]) -> str:
        """A problem with these operands (or bits, for parity) as text: "47 85", "0101"."""
        return " ".join(map(str, numbers))

    #: Whether those depend on the seed that the generator was given alone, and not on what it has drawn since.
    draws_by_seed: bool = False

    @property
    def has_long_carries(self) -> bool:
        """Whether :meth:`sample` can draw problems in which carries or borrows travel far."""
        return self.long_carries_by is not None

    @checked_method
    def sample(self, n: Natural, generator: torch.Generator, long_carries: bool = False) -> Int[Tensor, "n operands"]:
        """Problems from the task's natural (uniform) distribution: uniform in its domain; where a rule narrows it, from
        a list of all if they are few, else by rejection. With ``long_carries``, of a task that has such, problems in
        which carries or borrows travel far.

        Raises:
            NoDomain: a task that does not say its domain. NoProblems: fewer than about one in 10,000 is allowed.
        """
        if long_carries and (made := self.long_carries_by) is not None:
            own = lambda n, generator: made(_drawn_by(n, generator, torch.float64))  # noqa: E731
            return self._rejected(own, n, generator)
        if self.domain.where is not None and self.domain.combinations <= MOST_SPLIT:
            kept = self.domain.kept
            at = torch.randint(len(kept), (n,), generator=generator, device=generator.device)
            return self.domain.problems(self.domain.numbered(kept[at.cpu()])).to(at.device)
        return self._rejected(self._uniform, n, generator)

    def allowed(self, problems: Int[Tensor, "n operands"]) -> Bool[Tensor, " n"]:
        """Which combinations of digits are problems: all, or those that a rule of the domain allows."""
        if self.domain.where is None:
            return torch.ones(len(problems), dtype=torch.bool, device=problems.device)
        return self.domain.where(problems)

    def _uniform(self, n: int, generator: torch.Generator) -> Int[Tensor, "n operands"]:
        """Uniform combinations of digits, whether they are allowed or not."""
        return self.uniform_by(_drawn_by(n, generator, torch.float64))

    def uniform_by(self, draw: Draws) -> Int[Tensor, "n operands"]:
        """Combinations of digits made of the draws 0, 1, ..., one for each, whether they are allowed or not."""
        choices = [self.domain.digits(cell) for cell in range(len(self.domain))]
        digits = [one.start + (draw(i) * len(one)).long() for i, one in enumerate(choices)]
        return self.domain.problems(torch.stack(digits, 1))

    @property
    def long_carries_by(self) -> Callable[[Draws], Tensor] | None:
        """As :meth:`uniform_by`, for problems in which carries or borrows travel far; None without such problems."""
        return None

    def _rejected(
        self, draw: Callable[[int, torch.Generator], Tensor], n: int, generator: torch.Generator
    ) -> Int[Tensor, "n operands"]:
        """``n`` drawn problems that are allowed. Raises NoProblems if fewer than about one in 10,000 is."""
        kept, found, tried = [], 0, 0
        while found < n:
            drawn = draw(n, generator)
            drawn = drawn[self.allowed(drawn)]
            kept.append(drawn)
            found, tried = found + len(drawn), tried + n
            if tried > 10_000 * (found + 1):
                raise NoProblems(f"{self.name} has no problem, or nearly none: {found} of {tried:,} drawn ones are.")
        return torch.cat(kept)[:n] if kept else draw(0, generator)

    @cached_property
    def held_out(self) -> HeldOut:
        """The problems that models of this task are scored on, and which others train and select them."""
        try:
            return SplitDomain(self)
        except NoDomain:
            return HeldOut(self.name)

    # ---- answers and tokens

    @checked_method
    def decode(self, answer_tokens: AnswerRows) -> list[int | None]:
        """The numbers that answer tokens spell, by the columns of the answer's digits; None for tokens that spell
        none."""
        digits = [(i, role.column) for i, role in enumerate(self.target_roles) if role.kind == "answer"]
        if not digits or any(column is None for _, column in digits) or answer_tokens.shape[1] <= digits[-1][0]:
            return [None] * len(answer_tokens)
        rows = self.digit_values(answer_tokens[:, [i for i, _ in digits]]).tolist()
        base, columns = self.domain.base, [column or 0 for _, column in digits]
        spelt = [sum(digit * base**column for digit, column in zip(row, columns, strict=True)) for row in rows]
        return [None if min(row) < 0 else number for row, number in zip(rows, spelt, strict=True)]

    @checked_method
    def answer_text(self, answer_tokens: AnswerRows) -> str:
        """What the tokens of one answer spell, for people: a number, or their texts where they spell none ("?" for what
        is no token). They may be given as one row [target]."""
        number, *_ = self.decode(answer_tokens)
        tokens, known = answer_tokens[0].tolist(), self.vocabulary
        texts: list[str] = [str(known[token]) if 0 <= token < len(known) else "?" for token in tokens]
        return "".join(texts) if number is None else str(number)

    def token_text(self, tokens: Any) -> str:
        """Text of a token or a sequence of tokens; a number in brackets for one that the task does not have."""
        known = list(self.vocabulary)
        found = whole_numbers("tokens", tokens).reshape(-1).tolist()
        return self.separator.join(known[token] if 0 <= token < len(known) else f"[{token}]" for token in found)

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

    # ---- ground truth

    @checked_method
    def variables(self, problems: Problems) -> dict[str, Int[Tensor, "n column"]]:
        """Every intermediate value of the symbolic algorithm, one tensor [n, column] per variable; by default none."""
        return {}

    @checked_method
    def chain_length(self, problems: Problems) -> Int[Tensor, " n"]:
        """Length of the longest carry chain of each problem; accuracy is always reported by it. By default the largest
        value of the variable "chain", else of "carry_out", and zeros where nothing travels."""
        found = self.variables(problems)
        for name in ("chain", "carry_out"):
            if name in found:
                return found[name].flatten(1).max(1).values
        return torch.zeros(len(self.as_problems(problems)), dtype=torch.int64)

    # ---- small memory (:func:`models.tasks.machines.machine_of.machine_of` asks these)

    def derived_machine(self) -> Any:
        """The :class:`models.tasks.machines.machine.Machine` of this task, derived from its definition. Raises
        NoMachine, with the reason, if none is."""
        raise NoMachine("no machine of its class is known")

    def candidate_machines(self) -> Iterator[Callable[[], Any]]:
        """Machines that this task may have, one after the other; each is compared with it."""
        yield from ()

    @checked_method
    def adversarial_problems(self, n: Natural, generator: torch.Generator) -> list[Int[Tensor, "m operands"]]:
        """Kinds of problems, about ``n`` of each, on which a wrong machine is likely to be found out."""
        return []


def _drawn_by(n: int, generator: torch.Generator, dtype: torch.dtype) -> Draws:
    """Draws of ``n`` problems, one call of the generator for each."""
    return lambda i: torch.rand(n, generator=generator, device=generator.device, dtype=dtype)
