"""Long loops of the certifier, which show their progress and end when the time is up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TypeVar

from tqdm import tqdm

from models import UserError

#: How long a proof is tried unless another time is given. The slowest stored one takes six minutes of one thread.
MINUTES = 15.0
DELAY = 2.0  # seconds before a bar is drawn
#: Set by the command line: progress is also written where standard error is no terminal, as a line now and then.
LINES = "CARRYLENS_PROGRESS"
LINE_DELAY, LINE_SECONDS = 4.0, 15.0
Clock = Callable[[], float]  # seconds since some moment
_deadline: ContextVar[tuple[Clock, float] | None] = ContextVar("deadline", default=None)
T = TypeVar("T")


class TimeUp(Exception):
    """Raised when the time limit is over. Whoever catches it reports what was found until then."""


class EndedBy(StrEnum):
    """Why a loop ended before its end; the value says it in words."""

    TIME = "the time that was given was not enough"
    INTERRUPT = "it was interrupted"


#: The exceptions that end a loop, which then returns what it has.
ENDED = (TimeUp, KeyboardInterrupt)


def ended_by(error: BaseException) -> EndedBy:
    """Why a loop ended, from one of the exceptions in ``ENDED``."""
    return EndedBy.TIME if isinstance(error, TimeUp) else EndedBy.INTERRUPT


@contextmanager
def time_limit(minutes: float | None, clock: Clock | None = None) -> Iterator[None]:
    """A context in which :func:`watched` loops and :func:`check_time` raise TimeUp after so many minutes (None: never).

    ``clock`` says by which seconds: those of the limit around this one, or else of the wall. By ``time.process_time``
    a limit is about work, and the same on a machine that others use.

    Raises:
        UserError: ``minutes`` is not a positive number.
    """
    if minutes is None:
        yield
        return
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 < minutes < float("inf"):
        raise UserError(f"minutes is a positive number, not {minutes!r}.")
    if clock is None:
        clock = time.monotonic if (around := _deadline.get()) is None else around[0]
    token = _deadline.set((clock, clock() + 60 * minutes))
    try:
        yield
    finally:
        _deadline.reset(token)


def minutes_left() -> float | None:
    """How much of the time limit is left, 0 if it is over; None without one."""
    if (limit := _deadline.get()) is None:
        return None
    clock, end = limit
    return max(0.0, end - clock()) / 60


def check_time() -> None:
    """Raise TimeUp if the time is up."""
    if (limit := _deadline.get()) is not None and limit[0]() > limit[1]:
        raise TimeUp


def watched(items: Iterable[T], doing: str, unit: str, total: int | None = None, limited: bool = True) -> Iterator[T]:
    """Yield the items with a progress bar on standard error; if ``limited``, only as long as there is time."""
    shown: dict[str, Any] = {"delay": DELAY, "leave": False, "disable": None}
    if os.environ.get(LINES) and not sys.stderr.isatty():
        shown = {"delay": LINE_DELAY, "mininterval": LINE_SECONDS, "ncols": 80, "ascii": True, "disable": False}
    with tqdm(items, desc=doing, unit=unit, total=total, **shown) as bar:
        for item in bar:
            if limited:
                check_time()
            yield item
