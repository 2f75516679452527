"""Functions of token strings that need a small memory: :class:`Automaton`, and those that have a name.

function("01", 24, "parity")                 the answer is 1 where an odd number of tokens are 1
function(digits, 8, "sorted")                eight answers: the tokens in order
function("01", 30, Automaton(next=lambda state, bit: (2 * state + bit) % 5, answer=lambda state: state == 0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError, known_name

#: The numbers of states, symbols and answers, int64, one of each string.
Values = Int[Tensor, " n"]


@dataclass(frozen=True)
class Automaton:
    """What is remembered while a string is read from the left, and what is answered.

    Give one of ``answer`` and ``written``. All functions work on int64 tensors [n] of many strings at once. Symbols are
    the numbers of the tokens that are read, and answers the numbers of the answers' texts.

    Attributes:
        next: the state after a symbol, from the state before it and the symbol.
        answer: what is answered after the last symbol, from the state: [n], or [n, k] for an answer of k tokens.
        written: what is answered for each symbol, from the state before it and the symbol.
        start: the first state.
        name: the word for the state.
        reverses: whether the answers to the symbols are written in reverse order.
    """

    next: Callable[[Values, Values], Any]
    answer: Callable[[Values], Any] | None = None
    written: Callable[[Values, Values], Any] | None = None
    start: int = 0
    name: str = "state"
    reverses: bool = False

    def __post_init__(self) -> None:
        if (self.answer is None) == (self.written is None):
            raise UserError("An automaton has an answer after the last symbol, or writes one for each, and not both.")

    def __call__(self, symbols: Int[Tensor, "n length"]) -> Int[Tensor, "n *answer"]:
        """The answers to strings."""
        after = self.states(symbols)
        if self.answer is not None:
            return torch.as_tensor(self.answer(after[:, -1])).long()
        assert self.written is not None
        before = torch.cat((torch.full_like(after[:, :1], self.start), after[:, :-1]), 1)
        written = [
            _whole(self.written(state, symbol), state) for state, symbol in zip(before.T, symbols.T, strict=True)
        ]
        return torch.stack(written[::-1] if self.reverses else written, 1)

    def states(self, symbols: Int[Tensor, "n length"]) -> Int[Tensor, "n length"]:
        """The state after each symbol."""
        state, found = torch.full_like(symbols[:, 0], self.start), []
        for symbol in symbols.T:
            state = _whole(self.next(state, symbol), state)
            found.append(state)
        return torch.stack(found, 1)


def _whole(values: Any, like: Values) -> Values:
    found = torch.as_tensor(values)
    if found.is_floating_point() or found.is_complex():
        raise UserError(f"An automaton's functions give whole numbers, not {found.dtype}.")
    return found.long().expand(like.shape)


def _counted(inputs: int, length: int) -> Automaton:
    """The tokens in order: how many there are of each is remembered, as the digits of one number."""
    worth = (length + 1) ** torch.arange(inputs)

    def answer(state: Values) -> Int[Tensor, "n length"]:
        ends = (state[:, None] // worth % (length + 1)).cumsum(1)  # place after the last of each token
        return (torch.arange(length)[:, None] >= ends[:, None]).sum(2)

    if (length + 1) ** inputs >= 2**62:
        raise UserError(f"How many there are of each of {inputs} tokens is too much to remember.")
    return Automaton(lambda state, symbol: state + worth[symbol], answer, name="counts")


def _depth(state: Values, symbol: Values) -> Values:
    """How many brackets are open; -1 once one was closed that was not."""
    return torch.where(state < 0, state, state + 1 - 2 * symbol)


#: Automata by name, from the numbers of tokens that are read and of answers, and the length of a string.
AUTOMATA: Mapping[str, Callable[[int, int, int], Automaton]] = {
    "parity": lambda inputs, answers, length: Automaton(lambda s, x: (s + x) % 2, lambda s: s, name="parity"),
    "sum": lambda inputs, answers, length: Automaton(lambda s, x: (s + x) % answers, lambda s: s, name="residue"),
    "max": lambda inputs, answers, length: Automaton(torch.maximum, lambda s: s, name="maximum"),
    "min": lambda inputs, answers, length: Automaton(torch.minimum, lambda s: s, start=inputs - 1, name="minimum"),
    "majority": lambda inputs, answers, length: Automaton(lambda s, x: s + x, lambda s: 2 * s > length, name="count"),
    "balanced": lambda inputs, answers, length: Automaton(_depth, lambda s: s == 0, name="depth"),
    "copy": lambda inputs, answers, length: Automaton(lambda s, x: s, written=lambda s, x: x),
    "reversed": lambda inputs, answers, length: Automaton(lambda s, x: s, written=lambda s, x: x, reverses=True),
    "running sum": lambda inputs, answers, length: Automaton(
        lambda s, x: (s + x) % answers, written=lambda s, x: (s + x) % answers, name="residue"
    ),
    "sorted": lambda inputs, answers, length: _counted(inputs, length),
}
#: Those whose answers are the tokens "0" and "1", and not the tokens that are read.
YES_OR_NO = ("parity", "majority", "balanced")


def named_automaton(name: str, inputs: int, answers: int, length: int) -> Automaton:
    """The automaton with a name, for so many tokens that are read, answers, and tokens of a string.

    Raises:
        UserError: an unknown name, with the closest.
    """
    return AUTOMATA[known_name("function of tokens", name, AUTOMATA)](inputs, answers, length)
