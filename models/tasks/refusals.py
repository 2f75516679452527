"""Why something that is asked of a task is not there."""

from __future__ import annotations

from models.errors import UserError


class NoDomain(UserError):
    """Raised for a task that does not define its domain, or whose problems cannot be counted."""

    def __init__(self, name: str):
        super().__init__(
            f"The task {name} does not say which problems it has; set domain in its class, such as "
            "Domain.of((1, 1), base=113) for two residues modulo 113."
        )


class TooManyToCount(NoDomain):
    """Raised for a domain that a rule narrows and that is too large to be counted."""

    def __init__(self, combinations: int):
        UserError.__init__(
            self,
            f"A rule narrows the domain, and its {combinations:,} combinations of digits are too many to count which "
            "of them it allows.",
        )


class NoProblems(UserError):
    """Raised where a rule leaves no problem, or so few that drawing does not meet them."""

    def __init__(self, said: str = "The task has no problem: its rule leaves none."):
        super().__init__(said)


class NoMachine(Exception):
    """Raised where no machine with a small memory is derived: of an expression that is not affine by cases, has too
    many of them, or values beyond 2^60, or of a task that knows none. The text says which."""


class TooManyStates(NoMachine):
    """Raised for a machine that has to remember too much."""
