"""Tasks whose problems are strings of tokens, and whose answers are tokens that a function gives: :func:`function`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import Seed, shown
from models.calls.bound_arguments import checked_method, typed
from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.given_problems import as_rows
from models.tasks.held_out import SplitDomain
from models.tasks.machines.automata import AUTOMATA, YES_OR_NO, Automaton, named_automaton
from models.tasks.machines.automaton_machines import machine_of_automaton
from models.tasks.machines.column_machines import Cell
from models.tasks.machines.machine import Machine, target_slots
from models.tasks.refusals import NoMachine
from models.tasks.roles import OUTPUT, OWN, Role, with_rest
from models.tasks.task import Task
from models.tasks.task_definitions import KINDS

_NO_NAMES = ("state", "counts")  # of states that are no variable


class TokenFunction(Task):
    """A task that is any function of token sequences of one length, such as the majority of bits: ``length`` tokens in,
    and the answer predicted from the last one on. It is one token, or several, of which each is read before the next is
    predicted. Problems are strings over the vocabulary, or int64 tensors [n, length] of its tokens.

        function("01", length=12, answer=lambda bits: bits.sum(1) > 6)
        function("01", length=24, answer="parity")
        function(digits, length=8, answer="sorted")
        function(digits, 4, lambda x: x.amax(1), answers=digits, machine="max")

    Args:
        vocabulary: the texts of the tokens that are read.
        answer: a function from int64 tokens [n, length] to the number of the answer, [n], or to the numbers of several
            answers, [n, k]; or the name of one (:data:`models.tasks.machines.automata.AUTOMATA`), or an automaton
            (:class:`models.tasks.machines.automata.Automaton`), which says with how little memory it is answered.
        answers: the texts of the answers; they may be tokens that are read, too. By default "0" and "1", and the tokens
            that are read for a name that answers with them, such as "max".
        machine: the name, or the automaton, of a function in Python. Proofs about the model need it where there are too
            many problems to run; it is compared with the function.
        where: which strings are problems, as a function from int64 tokens [n, length] to [n]. By default all.
        held_out, seed: as :func:`models.tasks.formats.formatted_task.formatted` takes them.
        variables: intermediate values: functions of the tokens to whole numbers [n, column], by name.
        balance: of a task with two answers, such as a rare "yes": train and validate on both equally often. The test
            problems are as they come, and a score says in what share of them the more common answer is right.

    Raises:
        UserError: a function that fails, or gives something else.
    """

    most_run = 2**20
    held_out: SplitDomain  # pyright: ignore[reportIncompatibleVariableOverride]

    @typed
    def __init__(
        self,
        vocabulary: Any,
        length: int,
        answer: Any,
        answers: Any = None,
        held_out: float | int | None = None,
        seed: Seed = 0,
        name: str | None = None,
        variables: Any = None,
        machine: Any = None,
        where: Any = None,
        balance: bool = False,
    ):
        inputs = list(vocabulary)
        if len(inputs) < 2 or len({*inputs}) != len(inputs):
            raise UserError(f"A vocabulary has two different tokens or more, not {shown(vocabulary)}.")
        if length < 1 or not (callable(answer) or isinstance(answer, str)):
            raise UserError("A function of tokens needs a length of at least 1 and a function answer.")
        self.inputs, self.length, self.name = inputs, length, name or f"function of {length} tokens"
        yes_or_no = not isinstance(answer, str) or answer in YES_OR_NO
        self.answer_texts = list(answers or (("0", "1") if yes_or_no else inputs))
        #: The automaton of the answers, by definition or as ``machine=`` says; None if none is known.
        self.automaton = self.named(machine) if isinstance(machine, str) else machine
        self.function: Callable[[Tensor], Any] = self.named(answer) if isinstance(answer, str) else answer
        if isinstance(self.function, Automaton):
            self.automaton = self.function
        self.vocabulary = list(dict.fromkeys([*inputs, *self.answer_texts]))
        self.separator = "" if all(len(text) == 1 for text in inputs) else " "
        # a string counts its first token as the highest digit, so that problems are listed in their natural order
        self.domain = Domain.of((1,) * length, base=len(inputs))
        self.where = where
        if where is not None:
            self.domain = replace(self.domain, where=self.allowed)
        self._answer_ids = torch.tensor([self.vocabulary.index(text) for text in self.answer_texts])
        self._variables = dict(variables or {})
        drawn = self.sample(256, torch.Generator().manual_seed(0))
        #: How many tokens an answer has.
        self.n_answers = self._answered(drawn).shape[1]
        self.targets(drawn)
        self.variables(drawn)
        if balance and (self.n_answers != 1 or len(self.answer_texts) != 2):
            raise UserError(
                f"balance=True is for one answer of two values, and {self.name} has {self.n_answers} of "
                f"{len(self.answer_texts)}."
            )
        classes = (lambda problems: self._answered(problems)[:, 0]) if balance else None
        self.held_out = SplitDomain(self, held_out, seed, classes)
        given = {"vocabulary": inputs, "length": length, "answer": answer, "answers": answers and [*answers]}
        given |= {"held_out": held_out, "seed": seed, "name": name, "machine": machine, "balance": balance}
        by_name = isinstance(answer, str) and (machine is None or isinstance(machine, str))
        #: What makes this task again, as JSON; None if a part of it is Python code.
        self.definition: dict[str, Any] | None = (
            {"function": given} if by_name and where is None and not variables else None
        )

    @checked_method
    def named(self, name: str) -> Automaton:
        """The automaton with a name, for this task's tokens, answers and length. Raises UserError if there is none."""
        return named_automaton(name, len(self.inputs), len(self.answer_texts), self.length)

    @cached_property
    def _prompt_roles(self) -> Sequence[Role]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(Role("operand", f"x{i}", 0, i) for i in range(self.length))

    @cached_property
    def target_roles(self) -> Sequence[Role]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.n_answers == 1:
            return (Role("answer", "y", 0),)
        return tuple(Role("answer", f"y{i}", i) for i in range(self.n_answers))

    def as_problems(self, problems: Any) -> Int[Tensor, "n length"]:
        found, _ = as_rows(problems, self.length, f"strings of {self.length} tokens", self._read)
        if ((found < 0) | (found >= len(self.inputs))).any():
            raise UserError(f"A token of a problem lies in 0..{len(self.inputs) - 1}.")
        if self.where is not None and not (inside := self.allowed(found)).all():
            wrong = self.problem_text(found[~inside][0].tolist())
            raise UserError(f"{wrong!r} is not a problem of {self.name}: where does not hold for it.")
        return found

    def _read(self, text: str) -> list[int]:
        pieces = list(text.strip()) if not self.separator else text.split()
        if unknown := [piece for piece in pieces if piece not in self.inputs]:
            raise UserError(f"{unknown[0]!r} in {shown(text)} is not a token; tokens are {' '.join(self.inputs)}.")
        return [self.inputs.index(piece) for piece in pieces]

    def problem_text(self, numbers: Sequence[int]) -> str:
        """A problem as the text of its tokens."""
        return self.separator.join(self.inputs[number] for number in numbers)

    def allowed(self, problems: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
        every = torch.ones(len(problems), dtype=torch.bool, device=problems.device)
        return every if self.where is None else self._called(self.where, problems, "The rule of the problems").bool()

    def uniform_by(self, draw: Callable[[int], Tensor]) -> Int[Tensor, "n length"]:
        return torch.stack([(draw(i) * len(self.inputs)).long() for i in range(self.length)], 1)

    def _uniform(self, n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
        return torch.randint(len(self.inputs), (n, self.length), generator=generator, device=generator.device)

    def tokens(self, problems: Int[Tensor, "n length"]) -> tuple[Int[Tensor, "n length"], Int[Tensor, "n answer"]]:
        return problems, self._tokens(problems)

    def _called(self, function: Callable[[Tensor], Any], found: Int[Tensor, "n length"], what: str) -> Tensor:
        try:
            given = torch.as_tensor(function(found))
        except UserError:
            raise
        except Exception as error:  # whatever a user's function raises
            said = f"{type(error).__name__}: {error}"
            raise UserError(f"{what} failed on int64 [n, length] ({said}).") from error
        if given.dtype == torch.bool and given.ndim == 2 and given.shape[1] == len(self.answer_texts) > 1:
            raise UserError(
                f"{what} gives a set of allowed tokens, [n, {len(self.answer_texts)}] of true and false. A task has "
                "one right token at each place: ask whether a string is in the language, as in answer='balanced', or "
                "of each token by itself whether it is allowed."
            )
        if given.shape[:1] != (len(found),) or given.ndim > 2 or given.is_floating_point():
            raise UserError(f"{what} must give one whole number per problem, or [n, answer], not {shown(given)}.")
        return given

    def _answered(self, found: Int[Tensor, "n length"]) -> Int[Tensor, "n answer"]:
        """The numbers of the answers."""
        answer = self._called(self.function, found, "The function of tokens").long()
        answer = answer[:, None] if answer.ndim == 1 else answer
        if ((answer < 0) | (answer >= len(self.answer_texts))).any():
            raise UserError(f"The function of tokens gives numbers of answers, 0 to {len(self.answer_texts) - 1}.")
        return answer

    def _tokens(self, found: Int[Tensor, "n length"]) -> Int[Tensor, "n answer"]:
        return self._answer_ids.to(found.device)[self._answered(found)]

    def answer_text(self, answer_tokens: Int[Tensor, "1 target"]) -> str:
        return self.token_text(answer_tokens[0])

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int | None]:
        """The numbers of the answers, of several tokens as the digits of one number, the first the highest; None where
        a token is none."""
        ids, base = self._answer_ids.tolist(), len(self.answer_texts)
        found: list[int | None] = []
        for row in torch.as_tensor(answer_tokens)[:, : self.n_answers].tolist():
            known = all(token in ids for token in row)
            found.append(sum(ids.index(token) * base**i for i, token in enumerate(reversed(row))) if known else None)
        return found

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """y: the numbers of the answers. x: the tokens, [n, length]. The automaton's state after each token, by its
        name ("depth", "parity"), where it is known. Then those that ``variables=`` computes."""
        found = self.as_problems(problems)
        values = {"y": self._answered(found), "x": found}
        if isinstance(self.function, Automaton) and self.function.name not in _NO_NAMES:
            values[self.function.name] = self.function.states(found)
        for name, of in self._variables.items():
            values[name] = torch.as_tensor(of(found)).long()
            if values[name].ndim != 2 or len(values[name]) != len(found):
                raise UserError(f"The variable {name!r} has shape {list(values[name].shape)}, not [n, column].")
        return values

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        query = self.length - 1 + target
        return with_rest({OWN: list(range(self.length))} | ({OUTPUT: [query]} if target else {}), query)

    # ---- small memory

    @property
    def machine_is_said(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.automaton is not None and not isinstance(self.function, Automaton)

    def derived_machine(self) -> Machine:
        if self.where is not None:
            raise NoMachine("the rule of its problems is a function in Python")
        if self.automaton is None:
            raise NoMachine("its answer is a function in Python")
        return self._machine_of(self.automaton)

    def candidate_machines(self) -> Iterator[Callable[[], Machine]]:
        if self.where is None:
            for name in ([self.automaton] if self.automaton is not None else []) + list(AUTOMATA):
                yield lambda name=name: self._machine_of(self.named(name) if isinstance(name, str) else name)

    def _machine_of(self, automaton: Automaton) -> Machine:
        inputs = tuple(self.vocabulary.index(text) for text in self.inputs)
        cells = [Cell(f"x{i}", i, inputs, i, i) for i in range(self.length)]
        answers = [target_slots(self, target) for target in range(self.n_answers)]
        tokens = [self.vocabulary.index(text) for text in self.answer_texts]
        sizes, origin = (self.input_length, self.n_answers), torch.zeros(self.length, dtype=torch.int64)
        return machine_of_automaton(automaton, cells, answers, tokens, {}, sizes, origin)

    def adversarial_problems(self, n: int, generator: torch.Generator) -> list[Int[Tensor, "m length"]]:
        """Strings with runs of one token."""
        runs = self.sample(n, generator)
        stays = torch.rand(n, self.length, generator=generator) < torch.rand(n, 1, generator=generator)
        for i in range(1, self.length):
            runs[:, i] = torch.where(stays[:, i], runs[:, i - 1], runs[:, i])
        return [runs[self.allowed(runs)]]


function = KINDS["function"] = TokenFunction
