"""Ten-digit addition in the prompts of public AdderBoard models, which have their own tokens around the operands.

A sequence is ``before a between b after s``; a frame says what the three are, whether the operands and the answer start
with their most significant digit, and how many tokens there are. The answer's eleven digits end it: there is no EOS.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.arguments import check_fields, typed
from models.errors import UserError
from models.tasks.addition import DIGITS, FixedWidthAddition


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


class FramedAddition(FixedWidthAddition):
    """The task of one frame. Target i is the digit of column i, or of column 10 - i if the answer starts at the top."""

    ended = False

    @typed
    def __init__(self, frame: Frame):
        self.frame = frame
        self.name = f"ten-digit-addition-framed-{frame.name}"
        self.vocabulary = frame.vocabulary
        self.d_vocab = len(frame.vocabulary)
        self.most_significant_first, self.answer_down = frame.operands_down, frame.answer_down
        self.plus_token, self.equals_token = frame.between[0], frame.after[-1]
        self.delimiters = frame.before, frame.between, frame.after
        self.delimiter_labels = [[frame.vocabulary[token] for token in part] for part in self.delimiters]
        self.input_length = self.starts[2] + DIGITS

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """As for other additions, but the first query's own token, the last delimiter, goes to the rest."""
        groups = super().relative_roles(target)
        own = self.starts[2] - 1
        if not target:
            groups["delimiters"].remove(own)
            groups["rest"].append(own)
        return groups
