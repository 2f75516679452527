"""Tasks whose problems are strings of tokens, and whose answer is one token that a function gives: :func:`function`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.arguments import typed
from models.calls.kinds import shown
from models.errors import UserError
from models.tasks.base import Role, Task, are_integers, problem_list
from models.tasks.domain import Domain
from models.tasks.held_out import HeldOut
from models.tasks.places import OWN


class TokenFunction(Task):
    """``length`` tokens in, and the class that the function gives them predicted at the last one.

    Problems are strings over the vocabulary, or int64 tensors [n, length] of its tokens.
    """

    operator = ""
    query_positions: Sequence[int]

    def __init__(
        self,
        vocabulary: str | Sequence[str],
        length: int,
        answer: Callable[[Tensor], Any],
        answers: Sequence[str] | None = None,
        held_out: float | int | None = None,
        seed: int = 0,
        name: str | None = None,
        variables: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    ):
        inputs = list(vocabulary)
        if len(inputs) < 2 or len({*inputs}) != len(inputs):
            raise UserError(f"A vocabulary has two different tokens or more, not {shown(vocabulary)}.")
        if length < 1 or not callable(answer):
            raise UserError("A function of tokens needs a length of at least 1 and a function answer.")
        self.inputs, self.answer, self.name = inputs, answer, name or f"function of {length} tokens"
        self.answer_texts = list(answers or ("0", "1"))
        self.vocabulary = list(dict.fromkeys([*inputs, *self.answer_texts]))
        self.d_vocab, self.input_length = len(self.vocabulary), length
        self.separator = "" if all(len(text) == 1 for text in inputs) else " "
        self.query_positions = (length - 1,)
        # a string counts its first token as the highest digit, so that problems are listed in their natural order
        self.domain = Domain.of((1,) * length, base=len(inputs))
        self._answer_ids = torch.tensor([self.vocabulary.index(text) for text in self.answer_texts])
        self._variables = dict(variables or {})
        self.targets(drawn := self.sample(256, torch.Generator().manual_seed(0)))
        self.variables(drawn)
        self.held_out, self.definition = HeldOut(self, held_out, seed), None

    @cached_property
    def roles(self) -> Sequence[Role]:
        return (*(Role("operand", f"x{i}", 0, i) for i in range(self.input_length)), *self.target_roles)

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        return (Role("answer", "y", 0),)

    def as_problems(self, problems: Any) -> Int[Tensor, "n length"]:
        if isinstance(problems, Tensor):
            found = problems.long()
            if not are_integers(problems) or found.ndim != 2 or found.shape[1] != self.input_length:
                raise UserError(
                    f"Problems have shape [n, {self.input_length}] and whole numbers, not {shown(problems)}."
                )
        else:
            listed = problem_list(problems, f"strings of {self.input_length} tokens")
            found = torch.tensor([self._row(problem) for problem in listed], dtype=torch.int64)
        if ((found < 0) | (found >= len(self.inputs))).any():
            raise UserError(f"A token of a problem lies in 0..{len(self.inputs) - 1}.")
        return found

    def _row(self, problem: Any) -> list[int]:
        if isinstance(problem, str):
            pieces = list(problem.strip()) if not self.separator else problem.split()
            if unknown := [piece for piece in pieces if piece not in self.inputs]:
                raise UserError(
                    f"{unknown[0]!r} in {shown(problem)} is not a token; tokens are {' '.join(self.inputs)}."
                )
            problem = [self.inputs.index(piece) for piece in pieces]
        row: list[int] = [*problem] if isinstance(problem, (tuple, list)) else []
        if len(row) != self.input_length or not all(isinstance(token, int) for token in row):
            raise UserError(f"A problem of {self.name} has {self.input_length} tokens: {shown(problem)}.")
        return row

    def problem_text(self, numbers: Sequence[int]) -> str:
        """A problem as the text of its tokens."""
        return self.separator.join(self.inputs[number] for number in numbers)

    def allowed(self, problems: Int[Tensor, "n length"]) -> Tensor:
        """Every string is a problem."""
        return torch.ones(len(problems), dtype=torch.bool, device=problems.device)

    def uniform_by(self, draw: Callable[[int], Tensor]) -> Int[Tensor, "n length"]:
        """Problems made of the draws 0, 1, ..., one per token."""
        return torch.stack([(draw(i) * len(self.inputs)).long() for i in range(self.input_length)], 1)

    hard_by = None
    sample_carry_rich = None

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
        return torch.randint(len(self.inputs), (n, self.input_length), generator=generator, device=generator.device)

    def test_set(self) -> tuple[str, Int[Tensor, "n length"]]:
        return self.held_out.name, self.held_out.problems

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n length"]:
        return self.held_out.validation(n, seed)

    def training_problems(
        self, keys: Int[Tensor, " row"], hard: float = 0.0, share: float = 1.0
    ) -> Int[Tensor, "row length"]:
        return self.held_out.training(keys, hard, share)

    def encode(self, problems: Any) -> Int[Tensor, "n length"]:
        return self.as_problems(problems)

    encode_prompt = encode

    def _classes(self, found: Int[Tensor, "n length"]) -> Int[Tensor, " n"]:
        try:
            answer = torch.as_tensor(self.answer(found))
        except Exception as error:  # whatever a user's function raises
            said = f"{type(error).__name__}: {error}"
            raise UserError(f"The function of tokens failed on int64 [n, length] ({said}).") from error
        if answer.shape != (len(found),) or answer.is_floating_point():
            raise UserError(f"The function of tokens must give one whole number per problem, not {shown(answer)}.")
        if ((answer.long() < 0) | (answer.long() >= len(self.answer_texts))).any():
            raise UserError(f"The function of tokens gives numbers of answers, 0 to {len(self.answer_texts) - 1}.")
        return answer.long()

    def targets(self, problems: Any) -> Int[Tensor, "n 1"]:
        found = self.as_problems(problems)
        return self._answer_ids.to(found.device)[self._classes(found)][:, None]

    def answer_text(self, answer_tokens: Int[Tensor, "1 target"]) -> str:
        return self.token_text(answer_tokens[0])

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        """The numbers of the answers; -1 for a token that is none."""
        ids = self._answer_ids.tolist()
        return [ids.index(token) if token in ids else -1 for token in torch.as_tensor(answer_tokens)[:, 0].tolist()]

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """y: the number of the answer. x: the tokens, [n, length]. Then those that ``variables=`` computes."""
        found = self.as_problems(problems)
        values = {"y": self._classes(found)[:, None], "x": found}
        for name, of in self._variables.items():
            values[name] = torch.as_tensor(of(found)).long()
            if values[name].ndim != 2 or len(values[name]) != len(found):
                raise UserError(f"The variable {name!r} has shape {list(values[name].shape)}, not [n, column].")
        return values

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        return self.with_rest({OWN: list(range(self.input_length))}, self.input_length - 1)

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """The largest value of the variable "chain"; zeros without one."""
        found = self.variables(problems)
        return found["chain"].amax(1) if "chain" in found else torch.zeros(len(found["y"]), dtype=torch.int64)


@typed
def function(
    vocabulary: Any,
    length: int,
    answer: Any,
    answers: Any = None,
    held_out: float | int | None = None,
    seed: int = 0,
    name: str | None = None,
    variables: Any = None,
) -> TokenFunction:
    """A task that is any function of token sequences of one length, such as the majority of bits.

        function("01", length=12, answer=lambda bits: bits.sum(1) > 6)

    Args:
        vocabulary: the texts of the tokens that are read.
        answer: a function from int64 tokens [n, length] to the number of the answer, [n].
        answers: the texts of the answers, "0" and "1" unless given; they may be tokens that are read, too.
        held_out, seed: as :func:`models.tasks.formatted_task.formatted` takes them.
        variables: intermediate values: functions of the tokens to whole numbers [n, column], by name.

    Raises:
        UserError: a function that fails, or gives something else.
    """
    return TokenFunction(vocabulary, length, answer, answers, held_out, seed, name, variables)
