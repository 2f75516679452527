"""Tasks that draw problems from their domain: what is held out for the test, and what training and validation draw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import is_number, shown
from models.errors import UserError, known_name
from models.tasks.counter_rng import uniform
from models.tasks.domain import Domain
from models.tasks.named.adder_test_sets import FIXED_TESTS, FixedTest, is_listed
from models.tasks.named.ten_digits import DIGITS
from models.tasks.task import Task

LISTED = 2**22  # up to this many combinations of digits, all problems are listed and split
SHARE, DRAWN = 0.1, 10_000  # what is held out by default: this share of a listed domain, and at most so many problems
ATTEMPTS = 64  # draws of a training problem before the domain counts as too sparse
OF_CLASS = 4096  # the same for a problem of a class, which may be one in hundreds
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # as torch's int64 holds it


#: Draw number i of every problem, uniform in [0, 1).
Draws = Callable[[int], Tensor]


class HeldOut:
    """A seeded split of a task's domain, or a test set of :data:`models.tasks.named.adder_test_sets.FIXED_TESTS`.

    A domain of up to :data:`LISTED` combinations is permuted; its first problems are held out. Of a larger one,
    problems are drawn and held out; training then avoids exactly these.

    With ``class_of``, a function from problems to 0 or 1, training and validation problems have both classes equally
    often; the test problems are as they come.
    """

    def __init__(
        self,
        task: DrawnTask,
        held_out: float | int | str | None,
        seed: int,
        class_of: Callable[[Tensor], Tensor] | None = None,
    ):
        self.task, self.seed, self.class_of = task, seed, class_of
        self.fixed: FixedTest | None = None
        if isinstance(held_out, str):
            known_name("test set", held_out, FIXED_TESTS)
            if task.domain != Domain.of((DIGITS, DIGITS)):
                raise UserError(f"{held_out} has pairs of {DIGITS}-digit numbers, and {task.name} other problems.")
            self.fixed, self.name, self.listed = FIXED_TESTS[held_out], held_out, False
            return
        self.listed = task.domain.combinations <= LISTED
        size = task.domain.size if self.listed else None
        if held_out is None:
            held_out = DRAWN if size is None else min(DRAWN, max(1, round(SHARE * size)))
        if 0 < held_out < 1 and size is not None:
            held_out = max(1, round(held_out * size))
        if held_out != int(held_out) or not 1 <= held_out <= (10**7 if size is None else size):
            most = "10,000,000, as the domain is too large for a share" if size is None else f"{size:,}, or a share"
            raise UserError(f"held_out is a number of problems from 1 to {most}, not {held_out}.")
        self.n = int(held_out)
        self.name = f"the {self.n:,} problems held out"

    @cached_property
    def _split(self) -> tuple[Tensor, Tensor]:
        """(held out, all others), of a listed domain."""
        kept = self.task.domain.kept
        order = kept[torch.randperm(len(kept), generator=torch.Generator().manual_seed(self.seed))]
        found = self.task.domain.problems(self.task.domain.numbered(order))
        return found[: self.n], found[self.n :]

    @cached_property
    def problems(self) -> Int[Tensor, "n field"]:
        """The problems held out."""
        if self.fixed is not None:
            return self.fixed.problems
        if self.listed:
            return self._split[0]
        return self.task.sample(self.n, torch.Generator().manual_seed(self.seed))

    @property
    def others(self) -> Int[Tensor, "n field"]:
        """The problems of a listed domain that are not held out."""
        return self._split[1]

    @cached_property
    def _hashes(self) -> Int[Tensor, " n"]:
        return self._hash(self.problems).unique()

    def _hash(self, problems: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
        """One 64-bit number per problem; different problems almost never agree."""
        found = torch.zeros_like(problems[:, 0])
        for column in problems.T:
            found = (found ^ (found >> 29)) * _ODD + column
        return found

    def holds(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]:
        """Which problems are held out."""
        return is_listed(self._hash(problems), self._hashes.to(problems.device))

    def training(self, keys: Int[Tensor, " row"], hard: float, share: float = 1.0) -> Int[Tensor, "row field"]:
        """One problem per key that is not held out, uniform; a share ``hard`` has long carries, if the task has any.

        A problem depends on its key alone (:mod:`models.tasks.counter_rng`'s, so that runs can be resumed). Of a listed
        domain, ``share`` below 1 draws from this share of the problems that are not held out.

        Raises:
            UserError: nothing is left to train on, a share of a domain that is not listed, or no share.
        """
        for name, value in (("hard", hard), ("share", share)):
            if not is_number(value) or not 0 <= value <= 1:
                raise UserError(f"{name} is a share from 0 to 1, not {shown(value)}.")
        if share < 1 and not self.listed:
            raise UserError(f"{self.task.name} has too many problems to train on a share of them.")
        if self.listed:
            pool = self._split[1].to(keys.device)
            pool = pool[: round(share * len(pool))]
            if not len(pool):
                raise UserError(f"All problems of {self.task.name} are held out, and none is left to train on.")
            if self.class_of is None:
                found = pool[(uniform(keys, 0) * len(pool)).long()]
            else:
                of_class = self._by_class(pool)
                found = torch.stack([one[(uniform(keys, 0) * len(one)).long()] for one in of_class])
                found = found[self._wanted(keys), torch.arange(len(keys), device=keys.device)]
        else:
            found = self._drawn(keys, lambda own, k: self.task.uniform_by(lambda i: uniform(own, 64 * k + i)))
        draw = self.task.hard_by
        if hard > 0 and draw is not None:
            heavy = self._drawn(keys, lambda own, k: draw(lambda i: uniform(own, 2**13 + 512 * k + i)))
            found = torch.where((uniform(keys, 2**20) < hard)[:, None], heavy, found)
        return found

    def _wanted(self, keys: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
        """The class of each key's problem, where both are equally frequent."""
        return (uniform(keys, 2**21) < 0.5).long()

    def _by_class(self, problems: Int[Tensor, "n field"]) -> list[Int[Tensor, "m field"]]:
        """The problems of each class. Raises UserError if one has none."""
        assert self.class_of is not None
        classes = self.class_of(problems)
        found = [problems[classes == own] for own in (0, 1)]
        if not all(map(len, found)):
            raise UserError(f"No problem of {self.task.name} outside its test set has one of its two answers.")
        return found

    def _balanced(self, pool: Int[Tensor, "n field"], n: int) -> Int[Tensor, "m field"]:
        """``n`` problems, half of each class; those of a rare class again and again."""
        by_class = zip(self._by_class(pool), (n - n // 2, n // 2), strict=True)
        return torch.cat([one[torch.arange(each) % len(one)] for one, each in by_class])

    def _drawn(self, keys: Tensor, draw: Callable[[Tensor, int], Tensor]) -> Int[Tensor, "row field"]:
        """``draw(keys, 0)``, in which each row that cannot be trained on is replaced by the first attempt that can."""
        found, left = draw(keys, 0), torch.arange(len(keys), device=keys.device)
        for attempt in range(1, ATTEMPTS if self.class_of is None else OF_CLASS):
            bad = ~self.task.allowed(found[left]) | self.holds(found[left])
            if self.class_of is not None:
                bad |= self.class_of(found[left]) != self._wanted(keys[left])
            if not len(left := left[bad]):
                return found
            found = found.index_copy(0, left, draw(keys[left], attempt))
        raise UserError(f"The problems of {self.task.name} are too rare among all combinations of digits to draw them.")

    def validation(self, n: int, seed: int) -> Int[Tensor, "n field"]:
        """Problems that are not held out: n - n // 2 uniform, then those with the longest chains among ten times as
        many others. Of a listed domain they are drawn without replacement, and are trained on as well. A fixed test set
        has validation problems of its own. With classes, half of the problems are of each."""
        if self.fixed is not None:
            return self.fixed.validation(n, seed)
        generator = torch.Generator().manual_seed(seed)
        if n < 1:
            raise UserError(f"The number of validation problems must be positive, not {n}.")
        if self.listed:
            pool = self._split[1]
            if n > len(pool):
                raise UserError(f"There are {len(pool):,} problems outside the test set; {n:,} cannot be drawn.")
            pool = pool[torch.randperm(len(pool), generator=generator)]
        else:
            drawn = self.task.sample(n + 10 * n, generator)
            hard = self.task.sample_carry_rich
            pool = torch.cat((drawn[:n], hard(10 * n, generator))) if hard is not None else drawn
            pool = pool[~self.holds(pool)]
            for _ in range(ATTEMPTS):  # a generator of the test set's seed may draw the test problems again
                if len(pool) >= n:
                    break
                drawn = self.task.sample(11 * n, generator)
                pool = torch.cat((pool, drawn[~self.holds(drawn)]))
        if self.class_of is not None:
            return self._balanced(pool, n)
        natural, rest = pool[: n - n // 2], pool[n - n // 2 :]
        hardest_first = self.task.chain_length(rest).argsort(descending=True, stable=True)
        return torch.cat((natural, rest[hardest_first[: n // 2]]))


class DrawnTask(Task):
    """A task that draws its problems from its domain, and holds some of them out."""

    held_out: HeldOut
    #: A rule that narrows the domain; None if all combinations of digits are problems.
    where: Any

    @abstractmethod
    def allowed(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]:
        """Which combinations of digits are problems: all, or those for which ``where`` holds."""

    @abstractmethod
    def _uniform(self, n: int, generator: torch.Generator) -> Int[Tensor, "n field"]:
        """Uniform combinations of digits, whether ``where`` allows them or not."""

    @abstractmethod
    def uniform_by(self, draw: Draws) -> Int[Tensor, "n field"]:
        """Combinations of digits made of the draws 0, 1, ..., one per field, whether ``where`` allows them or not."""

    @property
    def hard_by(self) -> Callable[[Draws], Tensor] | None:
        """As :meth:`uniform_by`, for problems in which carries or borrows travel far; None without such problems."""
        return None

    @property
    def sample_carry_rich(self) -> Callable[[int, torch.Generator], Tensor] | None:
        """A function (n, generator) that draws problems with long carries or borrows; None without such problems."""
        if (made := self.hard_by) is None:
            return None

        def draw(n: int, generator: torch.Generator) -> Tensor:
            return made(lambda i: torch.rand(n, generator=generator, dtype=torch.float64))

        return lambda n, generator: self._rejected(draw, n, generator)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n field"]:
        """Problems uniform in the domain; with ``where``, from a list of all if they are few, else by rejection."""
        if self.where is not None and self.domain.combinations <= LISTED:
            kept = self.domain.kept
            at = torch.randint(len(kept), (n,), generator=generator, device=generator.device)
            return self.domain.problems(self.domain.numbered(kept[at.cpu()])).to(at.device)
        return self._rejected(self._uniform, n, generator)

    def _rejected(
        self, draw: Callable[[int, torch.Generator], Tensor], n: int, generator: torch.Generator
    ) -> Int[Tensor, "n field"]:
        """``n`` drawn problems that are allowed. Raises UserError if fewer than about one in 10,000 is."""
        kept, found, tried = [], 0, 0
        while found < n:
            drawn = draw(n, generator)
            drawn = drawn[self.allowed(drawn)]
            kept.append(drawn)
            found, tried = found + len(drawn), tried + n
            if tried > 10_000 * (found + 1):
                said = f"where holds for {found} of {tried:,} problems"
                raise UserError(f"The domain of {self.name} is empty, or nearly: {said}.")
        return torch.cat(kept)[:n] if kept else draw(0, generator)

    def test_set(self) -> tuple[str, Int[Tensor, "n field"]]:
        return self.held_out.name, self.held_out.problems

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n field"]:
        return self.held_out.validation(n, seed)

    def training_problems(
        self, keys: Int[Tensor, " row"], hard: float = 0.0, share: float = 1.0
    ) -> Int[Tensor, "row field"]:
        return self.held_out.training(keys, hard, share)
