"""Induction: which token came after this one before?

Tokens that are all different, and then one of them again; the answer is the token that followed it the first time. A
transformer needs two layers of attention for it (Elhage et al., "A Mathematical Framework for Transformer Circuits",
2021; Olsson et al., "In-context Learning and Induction Heads", 2022): a head that looks at the previous token, and a
head that looks at the place whose previous token is the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import perm
from string import ascii_letters

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import Seed
from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.formats.string_task import TokenFunction
from models.tasks.named.arrangements import FREE, Arrangements
from models.tasks.task import Task
from models.tasks.task_definitions import KINDS

MOST = 4_096  # tokens
MOST_SETS = 100_000  # of arrangements, each of which takes a proof some hundredths of a second


def first_place(problems: Int[Tensor, "n length"]) -> Int[Tensor, " n"]:
    """Where the last token stands for the first time, counted from 0."""
    return (problems[:, :-2] == problems[:, -1:]).int().argmax(1)


def token_after(problems: Int[Tensor, "n length"]) -> Int[Tensor, " n"]:
    """The token that followed the last token the first time."""
    return problems.gather(1, first_place(problems)[:, None] + 1)[:, 0]


def distinct_then_repeated(problems: Int[Tensor, "n length"]) -> Bool[Tensor, " n"]:
    """Whether all tokens but the last are different, and the last is one of them that another one follows."""
    ordered = problems[:, :-1].sort(1).values
    repeated = (problems[:, :-2] == problems[:, -1:]).any(1)
    return (ordered[:, 1:] != ordered[:, :-1]).all(1) & repeated


class Induction(TokenFunction):
    """The task of induction: ``length - 1`` different tokens, then one of them again, and the answer is the token that
    followed it the first time.

        induction(6).targets(["abcdeb"])            the token c

    There are ``tokens! / (tokens - length + 1)! (length - 2)`` problems, which are drawn uniformly: with 16 tokens
    2,096,640 problems of length 6, 345,945,600 of length 8 and 1.7 x 10^12 of length 12. The variable "first" says
    where the last token stood the first time.

    Args:
        length: of a problem, with the repeated token. tokens: how many there are; up to 52 they are letters.
        held_out, seed: as :func:`models.tasks.formats.formatted_task.formatted` takes them.

    Raises:
        UserError: fewer than three tokens in a row, or more than there are different ones.
    """

    @typed
    def __init__(self, length: int = 6, tokens: int = 16, held_out: float | int | None = None, seed: Seed = 0):
        if not 3 <= length <= tokens + 1 or tokens > MOST:
            raise UserError(
                f"Induction needs at least 3 tokens in a row and at most {tokens + 1:,}, one more than there are, and "
                f"at most {MOST:,} different ones; not {length:,} of {tokens:,}."
            )
        vocabulary = list(ascii_letters[:tokens]) if tokens <= len(ascii_letters) else list(map(str, range(tokens)))
        #: How many problems there are.
        self.size = perm(tokens, length - 1) * (length - 2)
        super().__init__(
            vocabulary, length, token_after, vocabulary, held_out, seed, f"induction-{length}-of-{tokens}",
            {"first": lambda problems: first_place(problems)[:, None]}, where=distinct_then_repeated,
        )  # fmt: skip
        self.domain = replace(self.domain, allowed=self.size, numbering=self._numbered)
        given = {"length": length, "tokens": tokens, "held_out": held_out, "seed": seed}
        self.definition = {"induction": given}

    _uniform = Task._uniform  # of draws for each token

    def arrangements(self) -> list[Arrangements]:
        """All problems, by the last token, where it stood before and the token that followed it there."""
        tokens, found = range(len(self.inputs)), []
        if (n := len(tokens) * (len(tokens) - 1) * (self.length - 2)) > MOST_SETS:
            raise UserError(f"{self.name} has {n:,} sets of arrangements, and more than {MOST_SETS:,} are not made.")
        for asked in tokens:
            for place in range(self.length - 2):
                for answer in tokens:
                    if answer != asked:
                        known = {place: asked, place + 1: answer, self.length - 1: asked}
                        row = tuple(known.get(i, FREE) for i in range(self.length))
                        pool = tuple(token for token in tokens if token not in (asked, answer))
                        found.append(Arrangements(row, pool, answer, place + 1))
        return found

    @property
    def _choices(self) -> list[int]:
        """How many choices there are for each token: those that are left, and at the end the places to repeat."""
        return [len(self.inputs) - i for i in range(self.length - 1)] + [self.length - 2]

    def _chosen(self, choice: list[Int[Tensor, " n"]]) -> Int[Tensor, "n length"]:
        """Problems from a choice for each token, counted from 0: of the tokens that are left, and of a place."""
        chosen: list[Tensor] = []
        for token in choice[:-1]:
            if chosen:
                for taken in torch.stack(chosen).sort(0).values:
                    token = token + (token >= taken)
            chosen.append(token)
        rows = torch.stack(chosen, 1)
        return torch.cat((rows, rows.gather(1, choice[-1][:, None])), 1)

    def _numbered(self, numbers: Int[Tensor, " n"]) -> Int[Tensor, "n length"]:
        """The problems with these numbers; those that begin alike have neighbouring ones."""
        choice = []
        for choices in reversed(self._choices):
            choice.append(numbers % choices)
            numbers = numbers // choices
        return self._chosen(choice[::-1])

    def uniform_by(self, draw: Callable[[int], Tensor]) -> Int[Tensor, "n length"]:
        """Problems made of the draws 0, 1, ..., one per token."""
        return self._chosen([(draw(i) * choices).long() for i, choices in enumerate(self._choices)])


induction = KINDS["induction"] = Induction
