"""Run many jobs on all machines of a cluster, as tasks of Ray (the extra ``cluster``), or one after the other without.

    with connected("auto") as cluster:             # None in place of an address: no cluster
        each(function, n, arguments, received, cluster)

calls ``function(post, *arguments(i))`` for every i < n, and passes everything that it posts or returns to
``received(i, item)`` in this process. A job whose worker dies begins again on another one, with ``arguments(i)`` as
they are then, so that a job that posts what it has done continues from there. Machines share no folder; only this
process writes files.

On Slurm, Ray's own launcher starts the cluster: ``srun ray symmetric-run --address HEAD:6379 -- interp train ...``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from models.errors import UserError
from models.training.interrupt_flag import InterruptFlag

MOST_DEATHS = 5  # this many workers of a job may die in a row without posting anything
PATIENCE = 60.0  # seconds that jobs have to save when they are stopped
_POLL = 0.5  # seconds between two looks at what was posted
_REACHED = 5.0  # seconds in which an address must answer; Ray itself would try for minutes and then end the process

#: How Ray is started here: without usage reports, and with more than half a minute for a busy machine.
LOCAL = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_agent_register_timeout_ms": "300000"}
LOOPBACK = "127.0.0.1"
OLDEST = (2, 52)  # the first version of Ray whose processes ask each other for a token

Received = Callable[[int, Any], None]


@contextlib.contextmanager
def connected(address: str | None, device: str = "auto") -> Iterator[Cluster | None]:
    """A context with the cluster at an address, which is disconnected at the end; None without an address.

    Args:
        address: ``auto`` (the one that runs on this machine, or at RAY_ADDRESS), ``local`` (a temporary one on this
            machine's cores) or HOST:PORT. If this process has a connection already, that one is used.
        device: the device of every job. ``auto`` is CUDA, one device per job, if any machine has one.

    Raises:
        UserError: Ray is not installed, nothing answers there, or no machine has the device or as many cores as this
            process has threads.
    """
    if address is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(_private()) if address == "local" else {}  # Ray reads its mode as it is imported
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UserError(
                "--cluster needs Ray, which the extra `cluster` brings: pip install 'carrylens[cluster]'."
            ) from None
        if tuple(int(part) for part in ray.__version__.split(".")[:2]) < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise UserError(f"--cluster needs Ray {wanted} or later, for its tokens; this is {ray.__version__}.")
        if not ray.is_initialized():
            _connect(ray, address, local)
            stack.callback(ray.shutdown)
        yield Cluster(ray, device)


@contextlib.contextmanager
def _private() -> Iterator[dict[str, Any]]:
    """Options of a cluster that this process alone can use: it listens on 127.0.0.1, its processes ask for a token that
    is in their environment only, and its folder is readable by this user only."""
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", *LOCAL)}
    os.environ |= {name: value for name, value in LOCAL.items() if name not in os.environ}
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    folder = tempfile.mkdtemp(prefix="ray-")  # mode 0700; Ray opens the folder in it to everybody
    try:
        yield {"include_dashboard": False, "_node_ip_address": LOOPBACK, "_temp_dir": os.path.join(folder, "s")}
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, address: str, local: dict[str, Any]) -> None:
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local"):
        try:
            if "/" in address:
                raise ValueError
            socket.create_connection((host, int(port)), _REACHED).close()
        except (OSError, ValueError, OverflowError):
            raise UserError(
                f"No Ray cluster answers at {address!r}; --cluster takes auto, local or HOST:PORT."
            ) from None
    # Environment variables that decide results: where texts are, and whether there are kernels.
    variables = {name: value for name, value in os.environ.items() if name.startswith("CARRYLENS_")}
    options: dict[str, Any] = local | ({"runtime_env": {"env_vars": variables}} if variables else {})
    try:
        with _on_loopback() if local else contextlib.nullcontext():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # no cluster, other versions, or a failed start: Ray has no class for these
        reason = " ".join(str(error).split())
        raise UserError(f"The Ray cluster {address!r} could not be reached ({reason})") from None


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """A context in which Ray takes 127.0.0.1 for the address of this machine, and so listens there alone; by itself it
    puts an address in its place that others reach."""
    from ray._private import services  # pyright: ignore[reportMissingImports]

    kept = services.resolve_ip_for_localhost
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = kept


class Cluster:
    """A connection to Ray, as :func:`connected` makes it; ``device`` is ``cpu`` or ``cuda``."""

    def __init__(self, ray: Any, device: str):
        self.ray, self.threads = ray, torch.get_num_threads()
        if device not in ("auto", "cpu", "cuda"):
            raise UserError(f"On a cluster, --device is auto, cpu or cuda, not {device!r}.")
        if device == "cuda" and not self._most("GPU"):
            raise UserError("No machine of the cluster has a CUDA device; use --device cpu or auto.")
        if self._most("CPU") < self.threads:
            raise UserError(f"No machine of the cluster has {self.threads} cores; use fewer --threads.")
        self.device = "cuda" if device != "cpu" and self._most("GPU") else "cpu"

    def _most(self, kind: str) -> float:
        """The largest amount of a resource that any one machine has."""
        return max((node["Resources"].get(kind, 0.0) for node in self.ray.nodes() if node["Alive"]), default=0.0)

    def each(
        self, function: Callable[..., Any], n: int, arguments: Callable[[int], tuple], received: Received,
        minutes: float | None = None,
    ) -> bool:  # fmt: skip
        """:func:`each`, as tasks of Ray."""
        from ray.util.queue import Queue  # pyright: ignore[reportMissingImports]

        ray, exceptions = self.ray, self.ray.exceptions
        # The queue outlives the machine that it is on, but its contents do not; the next checkpoint makes up for them.
        posts = Queue(actor_options={"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1})
        resources = {"num_cpus": self.threads, "num_gpus": int(self.device == "cuda")}
        task = ray.remote(_job).options(max_retries=0, name=getattr(function, "__name__", "job"), **resources)
        shared, attempts, deaths = ray.put(function), [0] * n, [0] * n
        running: dict[Any, int] = {}

        def begin(job: int) -> None:
            running[task.remote(shared, posts, (job, attempts[job]), self.threads, arguments(job))] = job

        def collect() -> None:
            for (job, attempt), item in posts.get_nowait_batch(posts.qsize()):
                if attempt == attempts[job]:  # and not from a worker that is taken for dead
                    deaths[job] = 0
                    received(job, item)

        started, stopped, failure, left = time.monotonic(), 0.0, None, set(range(n))
        with InterruptFlag() as interrupt:
            try:
                for job in range(n):
                    begin(job)
                while running and not (stopped and time.monotonic() - stopped > PATIENCE):
                    done, _ = ray.wait(list(running), timeout=_POLL)
                    collect()
                    for ref in done:
                        job = running.pop(ref)
                        try:
                            received(job, ray.get(ref))
                            left.discard(job)
                        except exceptions.TaskCancelledError:
                            pass
                        except exceptions.RayTaskError as error:
                            if not isinstance(error.cause, KeyboardInterrupt):
                                failure = failure or error.cause
                        except exceptions.RayError as error:  # its worker died, or the machine that it was on
                            attempts[job] += 1
                            deaths[job] += 1
                            if deaths[job] >= MOST_DEATHS:
                                failure = failure or UserError(
                                    f"{deaths[job]} workers of one job died, one after the other, and none of them "
                                    f"said anything ({str(error).splitlines()[0]})"
                                )
                            elif not stopped:
                                begin(job)
                    late = minutes is not None and time.monotonic() - started > 60 * minutes
                    if not stopped and running and (interrupt.seen or failure or late):
                        stopped = time.monotonic()
                        for ref in running:
                            ray.cancel(ref, recursive=False)
                collect()
            finally:
                for ref in running:
                    ray.cancel(ref, force=True, recursive=False)
                posts.shutdown(force=True)
        if failure is not None:
            raise failure
        if interrupt.seen:
            raise KeyboardInterrupt
        return not left


def _job(function: Callable[..., Any], posts: Any, sender: tuple[int, int], threads: int, arguments: tuple) -> Any:
    """The function that a worker runs. When ``post`` returns, the post has arrived."""
    torch.set_num_threads(threads)
    return function(lambda item: posts.put((sender, item)), *arguments)


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
    if cluster is not None and n:
        return cluster.each(function, n, arguments, received, minutes)
    started = time.monotonic()
    for i in range(n):
        if minutes is not None and time.monotonic() - started > 60 * minutes:
            return False
        received(i, function(lambda item, i=i: received(i, item), *arguments(i)))
    return True
