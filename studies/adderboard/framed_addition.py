"""Ten-digit addition in the prompts of public AdderBoard models, which have their own tokens around the operands.

A sequence is ``before a between b after s``; a frame says what the three are, whether the operands and the answer start
with their most significant digit, and how many tokens there are. The answer's eleven digits end it: there is no EOS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

from models.calls.bound_arguments import check_fields, typed
from models.errors import UserError
from models.tasks.named.addition import PairAddition, adds_pairs_below
from models.tasks.number_digits import DIGITS, LIMIT


@dataclass(frozen=True)
class Frame:
    """The tokens around the digits, and the order of the digits.

    Attributes:
        before, between, after: tokens before a, between a and b, and between b and the answer.
        operands_down, answer_down: whether the most significant digit comes first.
        vocabulary: the text of each token, the ten digits first.
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = (0,)
    after: tuple[int, ...] = (0,)
    operands_down: bool = False
    answer_down: bool = False
    vocabulary: str = "0123456789"

    def __post_init__(self) -> None:
        check_fields(self)
        tokens = (*self.before, *self.between, *self.after)
        if not all(0 <= token < len(self.vocabulary) for token in tokens) or not self.between or not self.after:
            raise UserError(
                f"A frame has tokens from 0 to {len(self.vocabulary) - 1}, at least one between the operands and one "
                f"after them, not {self.before}, {self.between} and {self.after}."
            )

    @property
    def name(self) -> str:
        """A name that tells frames apart, such as "00-up": counts of tokens before, between, after, and the orders."""
        sizes = "-".join(str(len(part)) for part in (self.before, self.between, self.after))
        orders = "".join("down" if down else "up" for down in (self.operands_down, self.answer_down))
        used = "".join(self.vocabulary[token] for token in (*self.before, *self.between, *self.after))
        return f"{sizes}-{orders}-{used}"


PREFIX = "ten-digit-addition-framed-"  # of the names of these tasks


@typed
def framed_addition(frame: Frame) -> PairAddition:
    """The task of a frame. Target i is the digit of column i, or of column 10 - i if the answer starts at the top."""
    before, between, after = (
        "".join(frame.vocabulary[token] for token in part) for part in (frame.before, frame.between, frame.after)
    )
    order, answer_order = ("" if down else "r" for down in (frame.operands_down, frame.answer_down))
    return PairAddition(
        f"{before}{{a:{DIGITS}{order}}}{between}{{b:{DIGITS}{order}}}{after}{{s:{DIGITS + 1}{answer_order}}}",
        PREFIX + frame.name,
        vocabulary=frame.vocabulary,
        held_out="AdderBoard",
    )


def is_framed(task: Any) -> TypeGuard[PairAddition]:
    """Whether a task is that of a frame."""
    return adds_pairs_below(task) == LIMIT and task.name.startswith(PREFIX)
