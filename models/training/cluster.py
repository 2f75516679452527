"""Run many jobs at once: in processes of this machine, on all machines of a cluster, or one after the other.

    with connected("local") as cluster:            # None in place of an address: one after the other
        each(function, n, arguments, received, cluster)

calls ``function(post, *arguments(i))`` for every i < n, and passes everything that it posts or returns to
``received(i, item)`` in this process. A job whose worker dies begins again on another one, with ``arguments(i)`` as
they are then, so that a job that posts what it has done continues from there. Machines share no folder; only this
process writes files.

``local`` takes processes (:mod:`models.training.processes`); any other address is that of a cluster of Ray
(:mod:`models.training.ray_cluster`), which the extra ``cluster`` brings.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any

import torch

from models.errors import UserError
from models.training.interrupt import InterruptFlag

MOST_DEATHS = 5  # this many workers of a job may die in a row without posting anything
PATIENCE = 60.0  # seconds that jobs have to save when they are stopped
_POLL = 0.5  # seconds between two looks at what was posted

Received = Callable[[int, Any], None]


class Said(Enum):
    """What comes from a job: something that it posts, its result, that it was stopped, the error that it raised, or how
    its worker died."""

    POSTED, DONE, STOPPED, FAILED, DIED = (auto() for _ in range(5))


class Workers(ABC):
    """The workers of some jobs, each of which is a call of one function."""

    @property
    def room(self) -> bool:
        """Whether another job may begin."""
        return True

    @abstractmethod
    def begin(self, job: int, arguments: tuple) -> None:
        """Begin a job, also one whose worker died."""

    @abstractmethod
    def news(self, seconds: float) -> Iterable[tuple[int, Said, Any]]:
        """(job, what it said, item), as soon as a job has ended, or after so many seconds."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all jobs to post what they have done, and to end."""

    @abstractmethod
    def close(self) -> None:
        """End all jobs at once."""


class Cluster(ABC):
    """Where jobs are run at once, as :func:`connected` makes it; ``device`` is ``cpu`` or ``cuda``."""

    device: str

    def __init__(self, device: str):
        self.threads = torch.get_num_threads()
        if device not in ("auto", "cpu", "cuda"):
            raise UserError(f"On a cluster, --device is auto, cpu or cuda, not {device!r}.")

    @abstractmethod
    def workers(self, function: Callable[..., Any], n: int) -> Workers:
        """The workers of ``n`` calls of a function."""


@contextlib.contextmanager
def connected(address: str | None, device: str = "auto") -> Iterator[Cluster | None]:
    """A context with the cluster at an address, which is disconnected at the end; None without an address.

    Args:
        address: ``local`` (processes of this machine), ``auto`` (the cluster of Ray that runs on this machine, or at
            RAY_ADDRESS) or HOST:PORT. If this process has a connection to a cluster already, that one is used.
        device: the device of every job. ``auto`` is CUDA, one device per job, if any machine has one.

    Raises:
        UserError: Ray is not installed, nothing answers there, or no machine has the device or as many cores as this
            process has threads.
    """
    if address is None:
        yield None
    elif address == "local":
        from models.training.processes import Processes

        yield Processes(device)
    else:
        from models.training.ray_cluster import connection

        with connection(address, device) as cluster:
            yield cluster


def each(
    function: Callable[..., Any],
    n: int,
    arguments: Callable[[int], tuple],
    received: Received,
    cluster: Cluster | None = None,
    minutes: float | None = None,
) -> bool:
    """Call ``function(post, *arguments(i))`` for every i < n: on the cluster in any order, or here one by one.

    Args:
        received: called with (i, item) for everything that a job posts, and for what it returns.
        minutes: stop the jobs after this time, as with Ctrl-C; they may still post for a minute. Without a cluster, no
            job begins after this time.

    Returns:
        whether all jobs finished.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the jobs have stopped.
        UserError: raised by a job (after the others have stopped), or a job whose workers die again and again.
    """
    started = time.monotonic()
    late = lambda: minutes is not None and time.monotonic() - started > 60 * minutes  # noqa: E731
    if cluster is None:
        for i in range(n):
            if late():
                return False
            received(i, function(lambda item, i=i: received(i, item), *arguments(i)))
        return True
    waiting, running, left, deaths = deque(range(n)), set[int](), set(range(n)), [0] * n
    stopped, failure = 0.0, None
    with InterruptFlag() as interrupt, contextlib.closing(cluster.workers(function, n)) as workers:
        while running or (waiting and not stopped):
            while waiting and workers.room and not stopped:
                job = waiting.popleft()
                workers.begin(job, arguments(job))
                running.add(job)
            for job, said, item in workers.news(_POLL):
                if said is not Said.POSTED:
                    running.discard(job)
                if said in (Said.POSTED, Said.DONE):
                    deaths[job] = 0
                    received(job, item)
                if said is Said.DONE:
                    left.discard(job)
                elif said is Said.FAILED:
                    failure = failure or item
                elif said is Said.DIED:
                    deaths[job] += 1
                    waiting.appendleft(job)
                    if deaths[job] >= MOST_DEATHS:
                        failure = failure or UserError(
                            f"{deaths[job]} workers of one job died, one after the other, and none of them said "
                            f"anything ({item})"
                        )
            if not stopped and (interrupt.seen or failure or late()):
                stopped = time.monotonic()
                workers.stop()
            if stopped and time.monotonic() - stopped > PATIENCE:
                break
    if failure is not None:
        raise failure
    if interrupt.seen:
        raise KeyboardInterrupt
    return not left
