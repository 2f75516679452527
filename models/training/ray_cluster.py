"""Jobs as tasks of Ray, on all machines of a cluster.

On Slurm, Ray's own launcher starts the cluster: ``srun ray symmetric-run --address HEAD:6379 -- interp train ...``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import torch

from models.errors import UserError
from models.training.cluster import Cluster, Said, Workers

_REACHED = 5.0  # seconds in which an address must answer; Ray itself would try for minutes and then end the process
OLDEST = (2, 52)  # the first version of Ray whose processes ask each other for a token


@contextlib.contextmanager
def connection(address: str, device: str) -> Iterator[RayCluster]:
    """As :func:`models.training.cluster.connected`, with the cluster of Ray at an address."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "--cluster needs Ray for several machines, which the extra `cluster` brings: pip install "
            "'carrylens[cluster]'; --cluster local does without."
        ) from None
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise UserError(f"--cluster needs Ray {wanted} or later, for its tokens; this is {ray.__version__}.")
    with contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            _connect(ray, address)
            stack.callback(ray.shutdown)
        yield RayCluster(ray, device)


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    if address != "auto":
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
    options: dict[str, Any] = {"runtime_env": {"env_vars": variables}} if variables else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # no cluster, other versions, or a failed start: Ray has no class for these
        reason = " ".join(str(error).split())
        raise UserError(f"The Ray cluster {address!r} could not be reached ({reason})") from None


class RayCluster(Cluster):
    """A connection to Ray."""

    def __init__(self, ray: Any, device: str):
        super().__init__(device)
        self.ray = ray
        if device == "cuda" and not self._most("GPU"):
            raise UserError("No machine of the cluster has a CUDA device; use --device cpu or auto.")
        if self._most("CPU") < self.threads:
            raise UserError(f"No machine of the cluster has {self.threads} cores; use fewer --threads.")
        self.device = "cuda" if device != "cpu" and self._most("GPU") else "cpu"

    def _most(self, kind: str) -> float:
        """The largest amount of a resource that any one machine has."""
        return max((node["Resources"].get(kind, 0.0) for node in self.ray.nodes() if node["Alive"]), default=0.0)

    def workers(self, function: Callable[..., Any], n: int) -> Workers:
        return _Tasks(self, function, n)


class _Tasks(Workers):
    """One task for each job; Ray begins as many as it has room for."""

    def __init__(self, cluster: RayCluster, function: Callable[..., Any], n: int):
        from ray.util.queue import Queue  # pyright: ignore[reportMissingImports]

        self.ray, self.threads, self.attempts = cluster.ray, cluster.threads, [0] * n
        # The queue outlives the machine that it is on, but its contents do not; the next checkpoint makes up for them.
        self.posts = Queue(actor_options={"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1})
        resources = {"num_cpus": self.threads, "num_gpus": int(cluster.device == "cuda")}
        name = getattr(function, "__name__", "job")
        self.task = self.ray.remote(_job).options(max_retries=0, name=name, **resources)
        self.function = self.ray.put(function)
        self.running: dict[Any, int] = {}

    def begin(self, job: int, arguments: tuple) -> None:
        sender = job, self.attempts[job]
        self.running[self.task.remote(self.function, self.posts, sender, self.threads, arguments)] = job

    def news(self, seconds: float) -> Iterator[tuple[int, Said, Any]]:
        done, _ = self.ray.wait(list(self.running), timeout=seconds)
        for (job, attempt), item in self.posts.get_nowait_batch(self.posts.qsize()):
            if attempt == self.attempts[job]:  # and not from a worker that is taken for dead
                yield job, Said.POSTED, item
        for ref in done:
            job, (said, item) = self.running.pop(ref), self._end_of(ref)
            self.attempts[job] += said is Said.DIED
            yield job, said, item

    def _end_of(self, ref: Any) -> tuple[Said, Any]:
        exceptions = self.ray.exceptions
        try:
            return Said.DONE, self.ray.get(ref)
        except exceptions.TaskCancelledError:
            return Said.STOPPED, None
        except exceptions.RayTaskError as error:
            stopped = isinstance(error.cause, KeyboardInterrupt)
            return (Said.STOPPED, None) if stopped else (Said.FAILED, error.cause)
        except exceptions.RayError as error:  # its worker died, or the machine that it was on
            return Said.DIED, str(error).splitlines()[0]

    def stop(self) -> None:
        for ref in self.running:
            self.ray.cancel(ref, recursive=False)

    def close(self) -> None:
        for ref in self.running:
            self.ray.cancel(ref, force=True, recursive=False)
        self.posts.shutdown(force=True)


def _job(function: Callable[..., Any], posts: Any, sender: tuple[int, int], threads: int, arguments: tuple) -> Any:
    """The function that a worker runs. When ``post`` returns, the post has arrived."""
    torch.set_num_threads(threads)
    return function(lambda item: posts.put((sender, item)), *arguments)
