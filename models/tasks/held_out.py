"""What is held out of a task's problems for the test, and what training and validation draw from the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import Natural, RowKeys, Seed, Share
from models.calls.bound_arguments import checked_method
from models.errors import UserError, known_name
from models.tasks.counter_rng import hashed, is_listed, uniform
from models.tasks.domain import Domain

MOST_SPLIT = 2**22  # up to this many combinations of digits, all problems are listed and split
SHARE, DRAWN = 0.1, 10_000  # what is held out by default: this share of a listed domain, and at most so many problems
ATTEMPTS = 64  # draws of a training problem before the domain counts as too sparse
OF_CLASS = 4096  # the same for a problem of a class, which may be one in hundreds

# The draws of one key (:func:`models.tasks.counter_rng.uniform`) are numbered. Attempt k at a uniform problem has the
# draws from UNIFORM + 64 k on, and one at a problem with long carries those from CARRIES + 512 k on; WHICH of the two
# it is, and the CLASS that is wanted, have a draw each. These numbers are part of every stored training.
UNIFORM, CARRIES, WHICH, CLASS = 0, 2**13, 2**20, 2**21
OF_UNIFORM, OF_CARRIES = 64, 512

#: Draw number i of every problem, uniform in [0, 1).
Draws = Callable[[int], Tensor]


class FixedTest(Protocol):
    """A test set that somebody else fixed, for tasks of one domain."""

    @property
    def domain(self) -> Domain: ...

    @property
    def problems(self) -> Int[Tensor, "n field"]: ...

    def validation(self, n: Any, seed: Any) -> Int[Tensor, "n field"]: ...


#: The test sets that ``held_out`` may name (:mod:`models.tasks.named.adder_test_sets` fills this).
FIXED_TESTS: dict[str, FixedTest] = {}


class TaskToSplit(Protocol):
    """What a split needs to know of a task."""

    @property
    def name(self) -> str: ...

    @property
    def domain(self) -> Any: ...  # a Domain, which tasks give as a property that is kept

    @property
    def has_long_carries(self) -> bool: ...

    @property
    def long_carries_by(self) -> Callable[[Draws], Tensor] | None: ...

    def sample(self, n: int, generator: torch.Generator, long_carries: bool = False) -> Int[Tensor, "n field"]: ...

    def uniform_by(self, draw: Draws) -> Int[Tensor, "n field"]: ...

    def allowed(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]: ...

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]: ...


class HeldOut:
    """The problems that models of a task are scored on, with their name, and those that train and select them. This one
    has its test problems given, and no others.

    Args:
        task: the task's name. name: of the test problems. problems: what gives them; None if there are none.

    Attributes:
        listed: whether the problems are listed and split, so that there is a list of all others.
    """

    listed = False

    def __init__(self, task: str, name: str = "", problems: Callable[[], Tensor] | None = None):
        self._task, self.name, self._problems = task, name, problems

    @cached_property
    def problems(self) -> Int[Tensor, "n *operands"]:
        """The test problems. Raises UserError if there are none."""
        if self._problems is None:
            raise UserError(f"The task {self._task} has no test set of its own; give the problems to score on.")
        return self._problems()

    @cached_property
    def _hashes(self) -> Int[Tensor, " n"]:
        return hashed(self.problems.flatten(1)).unique()

    def holds(self, problems: Int[Tensor, "n *operands"]) -> Bool[Tensor, " n"]:
        """Which problems are held out."""
        return is_listed(hashed(problems.flatten(1)), self._hashes.to(problems.device))

    def validation(self, n: int, seed: int) -> Int[Tensor, "n *operands"]:
        """Problems to select checkpoints on, none of them in the test set: the first n - n // 2 from the natural
        distribution, the rest hard ones. Raises UserError if the task has none."""
        raise UserError(f"The task {self._task} has no validation problems, so it cannot be trained on yet.")

    def training(
        self, keys: Int[Tensor, " row"], long_carries: float = 0.0, share: float = 1.0
    ) -> Int[Tensor, "row *operands"]:
        """One problem outside the test set for each key (:func:`models.tasks.counter_rng.row_keys`), which depends on
        that key alone; a share of them has long carries, if the task has any.

        Raises:
            UserError: a task that does not draw its training problems itself.
        """
        raise UserError(f"The task {self._task} does not draw training problems; give its recipe a source of problems.")


class SplitDomain(HeldOut):
    """A seeded split of a task's domain, or a test set of :data:`FIXED_TESTS`.

    A domain of up to :data:`MOST_SPLIT` combinations is permuted; its first problems are held out. Of a larger one,
    problems are drawn and held out; training then avoids exactly these.

    With ``class_of``, a function from problems to 0 or 1, training and validation problems have both classes equally
    often; the test problems are as they come.
    """

    def __init__(
        self,
        task: TaskToSplit,
        held_out: float | int | str | None = None,
        seed: int = 0,
        class_of: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(task.name)
        self.task, self.seed, self.class_of = task, seed, class_of
        self.fixed: FixedTest | None = None
        if isinstance(held_out, str):
            self.fixed = FIXED_TESTS[known_name("test set", held_out, FIXED_TESTS)]
            if task.domain != self.fixed.domain:
                raise UserError(f"{held_out} has problems of another domain than {task.name}.")
            self.name, self.listed = held_out, False
            return
        self.listed = task.domain.combinations <= MOST_SPLIT
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

    @checked_method
    def training(self, keys: RowKeys, long_carries: Share = 0.0, share: Share = 1.0) -> Int[Tensor, "row field"]:
        """One problem per key that is not held out, uniform; a share has long carries, if the task has any.

        A problem depends on its key alone (:mod:`models.tasks.counter_rng`'s, so that runs can be resumed). Of a listed
        domain, ``share`` below 1 draws from this share of the problems that are not held out.

        Raises:
            UserError: nothing is left to train on, a share of a domain that is not listed, or no share.
        """
        if share < 1 and not self.listed:
            raise UserError(f"{self.task.name} has too many problems to train on a share of them.")
        if self.listed:
            pool = self._split[1].to(keys.device)
            pool = pool[: round(share * len(pool))]
            if not len(pool):
                raise UserError(f"All problems of {self.task.name} are held out, and none is left to train on.")
            if self.class_of is None:
                found = pool[(uniform(keys, UNIFORM) * len(pool)).long()]
            else:
                of_class = self._by_class(pool)
                found = torch.stack([one[(uniform(keys, UNIFORM) * len(one)).long()] for one in of_class])
                found = found[self._wanted(keys), torch.arange(len(keys), device=keys.device)]
        else:
            found = self._drawn(keys, self.task.uniform_by, UNIFORM, OF_UNIFORM)
        if long_carries > 0 and (draw := self.task.long_carries_by) is not None:
            heavy = self._drawn(keys, draw, CARRIES, OF_CARRIES)
            found = torch.where((uniform(keys, WHICH) < long_carries)[:, None], heavy, found)
        return found

    def _wanted(self, keys: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
        """The class of each key's problem, where both are equally frequent."""
        return (uniform(keys, CLASS) < 0.5).long()

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

    def _drawn(
        self, keys: Tensor, draw: Callable[[Draws], Tensor], first: int, of_attempt: int
    ) -> Int[Tensor, "row field"]:
        """What ``draw`` makes of each key's draws from ``first`` on. Rows that cannot be trained on are replaced by the
        first attempt that can, each with the next ``of_attempt`` draws."""
        of = lambda own, attempt: draw(lambda i: uniform(own, first + of_attempt * attempt + i))  # noqa: E731
        found, left = of(keys, 0), torch.arange(len(keys), device=keys.device)
        for attempt in range(1, ATTEMPTS if self.class_of is None else OF_CLASS):
            bad = ~self.task.allowed(found[left]) | self.holds(found[left])
            if self.class_of is not None:
                bad |= self.class_of(found[left]) != self._wanted(keys[left])
            if not len(left := left[bad]):
                return found
            found = found.index_copy(0, left, of(keys[left], attempt))
        raise UserError(f"The problems of {self.task.name} are too rare among all combinations of digits to draw them.")

    @checked_method
    def validation(self, n: Natural, seed: Seed) -> Int[Tensor, "n field"]:
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
            pool = self.task.sample(n + 10 * n, generator)
            if self.task.has_long_carries:
                pool = torch.cat((pool[:n], self.task.sample(10 * n, generator, long_carries=True)))
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
