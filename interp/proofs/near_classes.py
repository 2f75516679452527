"""What a query can see in all sums of m numbers of n digits, if it sees two columns of two running sums.

Lemma: a class is reached by some problem if and only if digits k - 1 and k of b_{s-1} occur in a sum of s - 1 numbers
and, where a carry comes in, the largest remainders below digit k - 1 of such a b_{s-1} and of a_s add up to 10^(k-1).
Proof: b_{s-1} takes every value up to ``(s - 1) (10^n - 1)``; it, a_s and a_{s+1} can be chosen independently;
remainders of zero bring no carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.multi_addition import MultiOperandAddition
from models.tasks.segments import to_digits

#: What a class is made of: digits k - 1 ("low") and k ("high") of b_{s-1}, a_s and a_{s+1}, and the carry into k - 1.
PARTS = ("before low", "before high", "added low", "added high", "next low", "next high", "carry")


@dataclass(frozen=True, eq=False)
class Step:
    """One target, and the digits that decide it.

    Attributes:
        number, low: the query is digit ``low`` of b_number or, if that is None, the delimiter before its units.
        before: all (digit ``low`` of b_(number - 1), the digit after it, the carry into ``low``) that occur.
        added, following: the same two digits of a_number and of a_(number + 1).
    """

    task: MultiOperandAddition
    target: int
    number: int
    low: int | None
    before: Int[Tensor, "b 3"]
    added: Int[Tensor, "a 2"]
    following: Int[Tensor, "f 2"]

    @classmethod
    def of(cls, task: MultiOperandAddition, target: int) -> Step:
        role, (m, n) = task.roles[task.query_positions[target]], task.shape
        low = None if role.kind == "delimiter" else role.column
        number = task.target_roles[target].index if low is None else role.index
        assert number is not None
        most, place = max(number - 1, 0) * (10**n - 1), 10 ** (low or 0)
        before = []
        for b_low, b_high in product(range(1) if low is None else range(10), range(10)):
            least = b_high * (1 if low is None else 10 * place) + b_low * place * (low is not None)
            if least <= most:
                reach = min(place - 1, most - least) + min(place, 10**n) - 1
                before += [(b_low, b_high, carry) for carry in ((0, 1) if low and number and reach >= place else (0,))]
        pairs = []
        for there in (number > 0, number < m):
            columns = (low, 0 if low is None else low + 1)
            digits = [range(10) if there and column is not None and column < n else (0,) for column in columns]
            pairs.append(torch.tensor(list(product(*digits))))
        return cls(task, target, number, low, torch.tensor(before), *pairs)

    @property
    def query(self) -> int:
        return self.task.query_positions[self.target]

    @property
    def high(self) -> int:
        """The column that is predicted, or one past the last."""
        return 0 if self.low is None else self.low + 1

    @property
    def classes(self) -> int:
        return len(self.before) * len(self.added) * len(self.following)

    @property
    def label(self) -> str:
        role = self.task.target_roles[self.target]
        return role.label if role.column is not None else f"{role.label} after b{self.number}"


@dataclass(frozen=True, eq=False)
class Seen:
    """The classes of one target.

    Attributes:
        keys: the positions that the query sees, its own last.
        parts: the parts of each class; the columns are ``PARTS``.
        tokens: the tokens at the keys. targets: the right tokens.
    """

    step: Step
    keys: tuple[int, ...]
    parts: Int[Tensor, "n part"]
    tokens: Int[Tensor, "n key"]
    targets: Int[Tensor, " n"]

    @classmethod
    def of(cls, task: MultiOperandAddition, step: Step, offsets: tuple[tuple[int, ...], ...]) -> Seen:
        zeros = torch.zeros(1, *task.shape, dtype=torch.int64)
        plain, query, low, high = task.encode(zeros)[0], step.query, step.low, step.high
        ids = task.position_ids(plain[None])[0, : query + 1]
        near = (ids[:, None] - ids[query] == torch.tensor(offsets)).all(-1).any(-1)
        keys = (near | (ids == 0).all(-1)).nonzero()[:, 0].tolist()

        sizes = [torch.arange(len(part)) for part in (step.before, step.added, step.following)]
        b, a, f = torch.cartesian_prod(*sizes).unbind(1)
        left, added, following = step.before[b], step.added[a], step.following[f]
        own = left[:, 0] + added[:, 0] + left[:, 2]
        digits = {("sum", low): own % 10}
        for name, part in (("before", left), ("added", added), ("next", following)):
            digits[name, low], digits[name, high] = part[:, 0], part[:, 1]
        tokens = []
        for key in keys:
            role = task.roles[key]
            if role.column is None or role.index is None:
                tokens.append(torch.full_like(own, int(plain[key])))
            else:
                name = _NAMES[role.kind == "operand", role.index - step.number]
                tokens.append(digits[name, role.column])
        right = torch.full_like(own, int(task.targets(zeros)[0, step.target]))
        if task.target_roles[step.target].column is not None:
            right = (left[:, 1] + added[:, 1] + own // 10) % 10
        parts = torch.cat((left[:, :2], added, following, left[:, 2:]), 1)
        return cls(step, tuple(keys), parts, torch.stack(tokens, 1), right)

    def problem(self, index: int) -> Int[Tensor, "1 operand column"]:
        """A problem of a class."""
        step, (m, n) = self.step, self.step.task.shape
        part: dict[str, int] = dict(zip(PARTS, self.parts[index].tolist(), strict=True))
        place = 1 if step.low is None else 10**step.low
        numbers = {}
        for name in ("before", "added", "next"):
            numbers[name] = part[f"{name} high"] * 10**step.high
            numbers[name] += 0 if step.low is None else part[f"{name} low"] * place
        if part["carry"]:
            most = (step.number - 1) * (10**n - 1)
            numbers["before"] += min(place - 1, most - numbers["before"])
            numbers["added"] += min(place, 10**n) - 1
        operands, rest = [0] * m, numbers["before"]
        for i in range(step.number - 1):
            operands[i] = min(rest, 10**n - 1)
            rest -= operands[i]
        assert rest == 0
        if step.number:
            operands[step.number - 1] = numbers["added"]
        if step.number < m:
            operands[step.number] = numbers["next"]
        return torch.tensor([[(to_digits(number) + [0] * n)[:n] for number in operands]])


#: The name of a number in the sum ``b = before + added``, by whether it is an operand and by its number minus b's.
_NAMES = {(True, 0): "added", (True, 1): "next", (False, 0): "sum", (False, -1): "before"}
